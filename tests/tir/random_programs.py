"""Random functions of loops that have a meaning: every index is inside, nothing is read unwritten.

They are rich in what passes must respect: repeated expressions, guards before loads and divisions,
loops of all kinds and of no iteration, lets, local memory, vectors, indices of 32 and 64 bits.
"""

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sterna.ir import Expr, Var, build, const
from sterna.ir import expr as E
from sterna.support.dtype import DataType
from sterna.tir import (
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    interpreter,
)
from sterna.tir import op as F
from sterna.tir.stmt import seq

F32 = DataType("float32")


@dataclass
class Program:
    """A function and what to call it with."""

    func: PrimFunc
    arrays: list[np.ndarray[Any, Any]]
    scalar: int

    def run(self, func: PrimFunc) -> list[np.ndarray[Any, Any]]:
        """What a version of the function makes of the arrays."""
        arrays = [array.copy() for array in self.arrays]
        flat = all(b is None or len(b.shape) == 1 for b in func.buffers)
        given = [array.reshape(-1) for array in arrays] if flat else arrays
        interpreter.run(func, *given, self.scalar)
        return arrays


@dataclass
class Scope:
    """What may be used where a statement stands."""

    loops: list[tuple[Var, int, int]] = field(default_factory=list)
    """Integers with their least and largest values."""
    floats: list[Var] = field(default_factory=list)
    readable: list[Buffer] = field(default_factory=list)
    writable: list[Buffer] = field(default_factory=list)
    indices: list[tuple[Expr, int, int]] = field(default_factory=list)
    """Integer expressions made before, to be repeated."""
    values: list[Expr] = field(default_factory=list)
    """Float expressions made before, to be repeated in the same statement."""

    def inner(self) -> "Scope":
        """A scope inside this one."""
        return Scope(
            list(self.loops), list(self.floats), list(self.readable), list(self.writable),
            list(self.indices), [],
        )


class Generator:
    """Draws a program."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.index_type = DataType(self.rng.choice(["int32", "int32", "int64"]))
        self.count = 0

    def name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def number(self, value: int) -> Expr:
        return const(value, self.index_type)

    # ---- integers ----

    def index(self, scope: Scope, depth: int = 2) -> tuple[Expr, int, int]:
        """An integer expression with its least and largest values."""
        rng = self.rng
        if scope.indices and rng.random() < 0.4:
            return rng.choice(scope.indices)
        if depth == 0 or rng.random() < 0.2:
            if scope.loops and rng.random() < 0.8:
                return rng.choice(scope.loops)
            value = rng.randint(-3, 9)
            return self.number(value), value, value
        made = self.combined(scope, depth)
        scope.indices.append(made)
        return made

    def combined(self, scope: Scope, depth: int) -> tuple[Expr, int, int]:
        a, low, high = self.index(scope, depth - 1)
        kind = self.rng.choice(["add", "add", "sub", "scale", "scale", "div", "mod", "min", "max"])
        factor = self.rng.randint(2, 5)
        if kind == "scale":
            return a * factor, low * factor, high * factor
        if kind == "div":
            return build.floordiv(a, factor), low // factor, high // factor
        if kind == "mod":
            return build.floormod(a, factor), 0, factor - 1
        b, least, most = self.index(scope, depth - 1)
        if kind == "add":
            return a + b, low + least, high + most
        if kind == "sub":
            return a - b, low - most, high - least
        if kind == "min":
            return build.minimum(a, b), min(low, least), min(high, most)
        return build.maximum(a, b), max(low, least), max(high, most)

    def inside(self, scope: Scope, extent: int) -> Expr:
        """An index that is inside an extent, or made so."""
        expr, low, high = self.index(scope)
        if low >= 0 and high < extent:
            return expr
        if self.rng.random() < 0.5:
            return build.floormod(expr, extent)
        return build.maximum(build.minimum(expr, extent - 1), 0)

    def condition(self, scope: Scope) -> Expr:
        a, low, high = self.index(scope)
        bound = self.rng.randint(low - 1, high + 1)
        test = build.less(a, self.number(bound))
        return test if self.rng.random() < 0.7 else build.logical_not(test)

    # ---- floats ----

    def value(self, scope: Scope, depth: int = 3) -> Expr:
        """A float expression; its numbers stay small whole ones, or rarely not."""
        rng = self.rng
        if scope.values and rng.random() < 0.35:
            return rng.choice(scope.values)
        if depth == 0 or rng.random() < 0.15:
            return self.leaf(scope)
        made = self.operation(scope, depth)
        scope.values.append(made)
        return made

    def leaf(self, scope: Scope) -> Expr:
        rng = self.rng
        choice = rng.random()
        if choice < 0.6 and scope.readable:
            return self.load(scope)
        if choice < 0.75 and scope.floats:
            return rng.choice(scope.floats)
        if choice < 0.9:
            return build.cast(F32, self.index(scope)[0])
        return const(float(rng.randint(-3, 3)))

    def load(self, scope: Scope) -> Expr:
        """An element; sometimes one that is outside unless a guard holds."""
        rng = self.rng
        buffer = rng.choice(scope.readable)
        extents = [build.int_value(e) or 0 for e in buffer.shape]
        if len(extents) == 1 and rng.random() < 0.3:
            at, low, high = self.index(scope)
            if low < 0 or high >= extents[0]:
                holds = build.logical_and(at >= 0, at < extents[0])
                return build.if_then_else(holds, BufferLoad(buffer, (at,)), const(0.0))
        return BufferLoad(buffer, tuple(self.inside(scope, e) for e in extents))

    def operation(self, scope: Scope, depth: int) -> Expr:
        rng = self.rng
        a = self.value(scope, depth - 1)
        kind = rng.choice(["add", "sub", "mul", "max", "call", "select", "lazy", "divide", "guard"])
        if kind == "call":
            return F.sigmoid(a) if rng.random() < 0.3 else F.abs(a)
        if kind == "guard":
            return self.guarded_division(scope, a)
        b = self.value(scope, depth - 1)
        if kind == "select":
            return build.select(self.condition(scope), a, b)
        if kind == "lazy":
            return build.if_then_else(self.condition(scope), a, b)
        if kind == "divide":
            return a / (F.abs(b) + 1.0)
        make = {"add": build.add, "sub": build.sub, "mul": build.mul, "max": build.maximum}
        # products would grow without end
        return make[kind](a * 0.5 if kind == "mul" else a, b)

    def guarded_division(self, scope: Scope, otherwise: Expr) -> Expr:
        """A division that has no meaning unless its guard holds."""
        a, b = self.index(scope)[0], self.index(scope)[0]
        if build.is_const(b, 0):
            return otherwise
        quotient = build.cast(F32, build.floordiv(a, b))
        return build.if_then_else(build.not_equal(b, 0), quotient, otherwise)

    # ---- statements ----

    def statement(self, scope: Scope, depth: int) -> Stmt:
        rng = self.rng
        if depth == 0:
            return self.store(scope)
        kind = rng.choice(["store", "loop", "loop", "branch", "let", "local", "seq", "seq"])
        if kind == "loop":
            return self.loop(scope, depth)
        if kind == "branch":
            condition = self.condition(scope)
            other = self.statement(scope.inner(), depth - 1) if rng.random() < 0.4 else None
            return IfThenElse(condition, self.statement(scope.inner(), depth - 1), other)
        if kind == "let":
            return self.let(scope, depth)
        if kind == "local":
            return self.local(scope, depth)
        if kind == "seq":
            count = rng.randint(2, 3)
            return seq(*[self.statement(scope.inner(), depth - 1) for _ in range(count)])
        return self.store(scope)

    def store(self, scope: Scope) -> Stmt:
        scope = scope.inner()
        buffer = self.rng.choice(scope.writable)
        at = tuple(self.inside(scope, build.int_value(e) or 0) for e in buffer.shape)
        if self.rng.random() < 0.05:
            return BufferStore(buffer, BufferLoad(buffer, at), at)
        value = self.value(scope)
        if len(at) == 1 and self.rng.random() < 0.15:
            return self.vector_store(buffer, scope)
        return BufferStore(buffer, value, at)

    def vector_store(self, buffer: Buffer, scope: Scope) -> Stmt:
        """Four elements at once."""
        lanes = 4
        extent = build.int_value(buffer.shape[0]) or 0
        to = E.Ramp(self.inside(scope, extent - lanes + 1), self.number(1), lanes)
        source = next((b for b in scope.readable if len(b.shape) == 1), buffer)
        size = build.int_value(source.shape[0]) or 0
        start = self.inside(scope, size - lanes + 1)
        loaded = BufferLoad(source, (E.Ramp(start, self.number(1), lanes),))
        scalar = E.Broadcast(self.value(scope, 1), lanes)
        value = loaded * scalar + loaded * scalar
        return BufferStore(buffer, F.abs(value) * 0.5, (to,))

    def loop(self, scope: Scope, depth: int) -> Stmt:
        rng = self.rng
        inner = scope.inner()
        var = Var(self.name("i"), self.index_type)
        start, extent = rng.choice([0, 0, 0, 2, -1]), rng.choice([0, 1, 2, 3, 4])
        inner.loops += [(var, start, max(start + extent - 1, start))] * 2
        body = self.statement(inner, depth - 1)
        kind: Any = rng.choice(["serial", "serial", "unrolled"])
        return For(var, self.number(start), self.number(extent), kind, body)

    def let(self, scope: Scope, depth: int) -> Stmt:
        inner = scope.inner()
        if self.rng.random() < 0.5:
            value, low, high = self.index(scope.inner())
            name = Var(self.name("x"), self.index_type)
            inner.loops.append((name, low, high))
        else:
            value = self.value(scope.inner(), 2)
            name = Var(self.name("y"), F32)
            inner.floats.append(name)
        return LetStmt(name, value, self.statement(inner, depth - 1))

    def local(self, scope: Scope, depth: int) -> Stmt:
        """Memory of its own, filled before it is used."""
        inner = scope.inner()
        size = self.rng.choice([6, 8])
        buffer = Buffer(self.name("t"), F32, (self.number(size),))
        var = Var(self.name("i"), self.index_type)
        filling = scope.inner()
        filling.loops.append((var, 0, size - 1))
        fill = For(var, self.number(0), self.number(size), "serial",
                   BufferStore(buffer, self.value(filling), (var,)))
        inner.readable.append(buffer)
        inner.writable.append(buffer)
        rest = seq(*[self.statement(inner.inner(), depth - 1) for _ in range(2)])
        return Allocate(buffer, seq(fill, rest))

    def program(self) -> Program:
        shapes: dict[str, tuple[int, ...]] = {"A": (9,), "B": (4, 5), "O": (12,), "P": (3, 4)}
        buffers = {n: Buffer(n, F32, tuple(map(self.number, s))) for n, s in shapes.items()}
        k = Var("k", self.index_type)
        scope = Scope([(k, -2, 7)], [], [buffers["A"], buffers["B"], buffers["O"]],
                      [buffers["O"], buffers["P"]])
        body = seq(*[self.statement(scope.inner(), 3) for _ in range(3)], Evaluate(const(0)))
        params = (*[b.data for b in buffers.values()], k)
        func = PrimFunc("random", params, (*buffers.values(), None), body)
        numbers = np.random.default_rng(self.rng.randrange(1 << 30))
        arrays = [numbers.integers(-3, 4, shape).astype("float32") for shape in shapes.values()]
        return Program(func, arrays, self.rng.randint(-2, 7))


def draw(seed: int) -> Program:
    """The program of a seed."""
    return Generator(seed).program()


def assert_same(program: Program, changed: PrimFunc) -> None:
    """A changed version gives the same numbers, to the last bit."""
    expected, result = program.run(program.func), program.run(changed)
    for a, b in zip(expected, result, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=f"{program.func}\n\n{changed}")
