"""Functions said by other functions."""

import shutil
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna.ir import Expr, IRModule, Var, const
from sterna.ir.expr import Call, Ramp
from sterna.support.dtype import DataType
from sterna.tir import Buffer, BufferLoad, BufferStore, PrimFunc, interpreter
from sterna.tir import transform as T
from sterna.tir.passes.lower_intrin import lower_call, lower_intrin
from sterna.tir.verify import verify
from tests.support import require_program
from tests.tir.programs import function

TARGETS = ["llvm", *(["c"] if shutil.which("cc") else [])]
BOOL = DataType("bool")


def call(op: str, x: Expr) -> Call:
    is_test = op.startswith("is")
    return Call(BOOL.with_lanes(x.dtype.lanes) if is_test else x.dtype, op, (x,))


def applied(op: str, dtype: str, lanes: int = 8) -> PrimFunc:
    """B = op(A), all lanes at once."""
    kind = DataType(dtype)
    result = DataType("bool") if op.startswith("is") else kind
    a, b = Buffer("A", kind, (const(8),)), Buffer("B", result, (const(8),))
    at = Ramp(const(0), const(1), lanes)
    return function("f", BufferStore(b, call(op, BufferLoad(a, (at,))), (at,)), a, b)


@pytest.mark.parametrize(
    ("op", "dtype", "expected"),
    [
        ("sigmoid", "float32", "1.0 / (1.0 + exp(0.0 - x))"),
        ("exp10", "float32", "pow(10.0, x)"),
        ("rsqrt", "float32", "1.0 / sqrt(x)"),
        ("rsqrt", "float16", "float16(1.0 / sqrt(float32(x)))"),
        ("floor", "int32", "x"),
        ("round", "uint8", "x"),
        ("abs", "uint8", "x"),
        ("abs", "int32", "let(x_1, x, select(x_1 < 0, 0 - x_1, x_1))"),
        ("isnan", "int32", "False"),
        ("isfinite", "int8", "True"),
    ],
)
def test_texts(op: str, dtype: str, expected: str) -> None:
    x = Var("x", DataType(dtype))
    assert str(lower_call(call(op, x), ())).lower() == expected.lower()


def test_what_is_implemented_stays() -> None:
    x = Var("x", DataType("float32"))
    for op in ("exp", "floor", "abs", "isnan"):
        assert lower_call(call(op, x), ()) is None
    assert lower_call(call("sigmoid", x), {"sigmoid"}) is None
    func = applied("sigmoid", "float32")
    assert lower_intrin(func, {"sigmoid"}) is func


def numbers(dtype: str) -> Any:
    if dtype.startswith("float"):
        return np.array([-9, -2.5, -0.5, 0.25, 0.5, 1, 3, 7.75], dtype)
    return np.array([-128, -127, -1, 0, 1, 2, 100, 127]).astype(dtype)


CASES = [
    *[(op, dtype) for op in ("sigmoid", "exp10") for dtype in ("float16", "float32", "float64")],
    *[("rsqrt", dtype) for dtype in ("float16", "float32", "float64")],
    *[(op, dtype) for op in ("abs", "floor", "isnan", "isinf", "isfinite")
      for dtype in ("int8", "int32", "int64", "uint8")],
]


@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_numbers(op: str, dtype: str) -> None:
    func = applied(op, dtype)
    done = lower_intrin(func)
    verify(done)
    given = np.abs(numbers(dtype)) if op == "rsqrt" else numbers(dtype)
    kind = "bool" if op.startswith("is") else dtype
    expected, result = np.zeros(8, kind), np.ones(8, kind)
    interpreter.run(func, given, expected)
    interpreter.run(done, given, result)
    tolerance = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}.get(dtype, 0)
    np.testing.assert_allclose(result, expected, rtol=tolerance)


@pytest.mark.parametrize("target", TARGETS)
def test_code_generators(target: str) -> None:
    """One function of them all: a compiler is slow to start."""
    functions, arrays = {}, {}
    for op, dtype in CASES:
        name = f"{op}_{dtype}"
        func = applied(op, dtype)
        functions[name] = PrimFunc(name, func.params, func.buffers, func.body)
        given = np.abs(numbers(dtype)) if op == "rsqrt" else numbers(dtype)
        kind = "bool" if op.startswith("is") else dtype
        expected = np.zeros(8, kind)
        interpreter.run(func, given, expected)
        arrays[name] = given, expected
    module = tvm.build(IRModule(functions), target=target)
    for name, (given, expected) in arrays.items():
        result = np.ones_like(expected)
        module[name](given, result)
        tolerance = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-13}.get(str(given.dtype), 0)
        np.testing.assert_allclose(result, expected, rtol=tolerance, err_msg=name)


def test_as_a_pass() -> None:
    mod = IRModule({"f": applied("sigmoid", "float32")})
    assert "sigmoid" not in str(T.LowerIntrin()(mod))
    assert T.LowerIntrin(["sigmoid"])(mod) is mod


def test_names_of_vectors_in_c_are_lane_by_lane() -> None:
    require_program("cc")
    x = Var("y", DataType("int32x4"))
    a, b = (Buffer(name, DataType("int32"), (const(4),)) for name in "AB")
    at = Ramp(const(0), const(1), 4)
    reversed_sum = tvm.tir.Let(x, BufferLoad(a, (at,)) * 3,
                               x + tvm.tir.Shuffle((x,), (3, 2, 1, 0)))
    plain = tvm.tir.Let(x, BufferLoad(a, (at,)) * 3, x + x * 2)
    for value, expected in ((reversed_sum, [9, 9, 9, 9]), (plain, [0, 9, 18, 27])):
        func = function("f", BufferStore(b, value, (at,)), a, b)
        result = np.zeros(4, "int32")
        tvm.build(func, target="c")(np.arange(4, dtype="int32"), result)
        np.testing.assert_array_equal(result, expected)
