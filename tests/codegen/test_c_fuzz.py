"""Random expressions: C, compiled with traps on undefined behaviour, and the interpreter agree."""

import random

import numpy as np
import pytest

from sterna.ir import Expr, Var, build, const
from sterna.ir import expr as E
from sterna.support.dtype import DataType
from sterna.tir import Buffer, BufferLoad, BufferStore, For, PrimFunc, parse
from sterna.tir.interpreter import run
from sterna.tir.verify import verify
from tests.codegen.c_harness import Library, as_floats, as_stored, zig
from tests.support import require_module, require_program

COUNT = 24
TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "float32", "float16"]
PLAIN = [E.Add, E.Sub, E.Mul, E.Min, E.Max]
DIVISIONS = [E.FloorDiv, E.FloorMod, E.TruncDiv, E.TruncMod]
COMPARISONS = [E.LT, E.LE, E.GT, E.GE, E.EQ, E.NE]
# The compiler may keep an intermediate result wider, so nothing large comes of floats.
TRAPS = ["-O1", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]


class Maker:
    """Makes expressions of loads, the loop variable and constants."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.index = Var("i")
        shape = (const(COUNT),)
        self.inputs = [Buffer(f"in_{t}", DataType(t), shape) for t in TYPES]

    def make(self, dtype: str, depth: int) -> Expr:
        if depth == 0 or self.random.random() < 0.1:
            return self.leaf(dtype)
        kind = DataType(dtype)
        a = self.make(dtype, depth - 1)
        choice = self.random.randrange(8)
        if choice == 0:
            return build.select(self.condition(depth - 1), a, self.make(dtype, depth - 1))
        if choice == 1:
            var = Var("x", kind)
            return E.Let(var, a, E.Add(var, self.make(dtype, depth - 1)))
        if choice == 2:
            return build.if_then_else(self.condition(depth - 1), a, self.make(dtype, depth - 1))
        if choice == 3 and kind.is_integer:
            source = self.random.choice([t for t in TYPES if DataType(t).is_integer])
            op = self.random.choice(["cast", "saturate"])
            inner = self.make(source, depth - 1)
            return inner.astype(dtype) if op == "cast" else build.call_intrinsic(
                "saturate", inner, dtype=dtype)
        if choice == 4 and kind.is_integer:
            divisor = const(self.random.choice([1, 2, 3, 7, *([-1, -5] if kind.is_int else [])]),
                            dtype)
            return self.random.choice(DIVISIONS)(a, divisor)
        if choice == 5 and kind.is_integer:
            op = self.random.choice(["bitwise_and", "bitwise_or", "bitwise_xor"])
            return E.Call(kind, op, (a, self.make(dtype, depth - 1)))
        if choice == 6 and kind.is_integer:
            op = self.random.choice(["shift_left", "shift_right"])
            return E.Call(kind, op, (a, const(self.random.randrange(kind.bits), dtype)))
        return self.random.choice(PLAIN)(a, self.make(dtype, depth - 1))

    def condition(self, depth: int) -> Expr:
        dtype = self.random.choice(TYPES)
        a, b = self.make(dtype, depth), self.make(dtype, depth)
        test: Expr = self.random.choice(COMPARISONS)(a, b)
        if depth > 1 and self.random.random() < 0.3:
            return self.random.choice([E.And, E.Or])(test, self.condition(depth - 1))
        return E.Not(test) if self.random.random() < 0.2 else test

    def leaf(self, dtype: str) -> Expr:
        kind = DataType(dtype)
        choice = self.random.randrange(4)
        if choice == 0:
            return const(self.random.choice([0, 1, 2, 5, 100]), dtype)
        if choice == 1:
            return self.index.astype(dtype)
        return BufferLoad(self.inputs[TYPES.index(kind)], (self.index,))


def function(seed: int) -> tuple[PrimFunc, str]:
    maker = Maker(seed)
    dtype = maker.random.choice(TYPES)
    out = Buffer("out", DataType(dtype), (const(COUNT),))
    store = BufferStore(out, maker.make(dtype, 4), (maker.index,))
    body = For(maker.index, const(0), const(COUNT), "serial", store)
    buffers = (*maker.inputs, out)
    func = PrimFunc(f"f{seed}", tuple(b.data for b in buffers), buffers, body)
    return verify(func), dtype


def values(dtype: str) -> np.ndarray:
    kind = DataType(dtype)
    generator = np.random.default_rng(5)
    if kind.is_float:
        return as_stored(generator.integers(-8, 8, COUNT) / 4, dtype)
    whole = generator.integers(0, 256, (COUNT, kind.bytes), np.uint8).view(dtype)[:, 0]
    whole[:4] = [0, 1, np.iinfo(dtype).min, np.iinfo(dtype).max]
    return whole


@pytest.mark.parametrize("compiler", ["gcc", "zig"])
def test_random_expressions(compiler: str) -> None:
    if compiler == "gcc":
        require_program("gcc")
    else:
        require_module("ziglang")
    cases = [function(seed) for seed in range(150)]
    functions = [func for func, _ in cases]
    library = Library(functions, ["gcc"], TRAPS) if compiler == "gcc" else Library(functions, zig())
    inputs = [values(dtype) for dtype in TYPES]
    for func, dtype in cases:
        expected, found = (as_stored(np.zeros(COUNT), dtype) for _ in "ab")
        run(func, *inputs, expected)
        assert library(func.name, *inputs, found) == 0
        np.testing.assert_array_equal(
            as_floats(found, dtype), as_floats(expected, dtype), err_msg=repr(func)
        )


def test_random_functions_can_be_printed_and_read() -> None:
    for seed in range(150):
        func, _ = function(seed)
        assert repr(parse(repr(func))) == repr(func)
