"""Splitting of wide vectors into legal ones: LLVM is slow on vectors of many registers."""

from collections.abc import Mapping
from types import MappingProxyType

from sterna.ir import build
from sterna.ir.expr import (
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    Expr,
    Let,
    Not,
    Ramp,
    Select,
    Shuffle,
    Var,
)
from sterna.ir.node import Node, post_order
from sterna.support.dtype import DataType
from sterna.tir.stmt import Buffer, BufferLoad


def can_slice(expr: Expr) -> bool:
    """Whether every lane can be computed by itself."""
    able = True
    held = {id(part) for node in shuffles_in(expr) for part in node.vectors} | _named_in(expr)

    def look(node: Node) -> None:
        nonlocal able
        vectors_inside = isinstance(node, (Ramp, Broadcast)) and _inner(node).dtype.lanes > 1
        vector_variable = isinstance(node, Var) and node.dtype.lanes > 1 and id(node) not in held
        computed = isinstance(node, Shuffle) and not is_held(node)
        if computed or vectors_inside or vector_variable:
            able = False
        elif isinstance(node, Call) and node.op == "reinterpret":
            able = able and node.args[0].dtype.lanes == node.dtype.lanes
        elif isinstance(node, Call) and node.op.startswith("call_"):
            able = False

    post_order(expr, look)
    return able


def _named_in(expr: Expr) -> set[int]:
    """The variables that the expression itself binds, by their identities."""
    found: set[int] = set()
    post_order(expr, lambda node: found.add(id(node.var)) if isinstance(node, Let) else None)
    return found


def is_held(shuffle: Shuffle) -> bool:
    """Whether it only puts variables together."""
    return all(isinstance(part, Var) for part in shuffle.vectors)


def shuffles_in(expr: Expr) -> list[Shuffle]:
    """The shuffles of an expression."""
    found: list[Shuffle] = []
    post_order(expr, lambda node: found.append(node) if isinstance(node, Shuffle) else None)
    return found


def _picked(shuffle: Shuffle, start: int, count: int) -> Expr:
    """Some lanes of variables laid end to end: one of them as it is where those are its lanes."""
    wanted = shuffle.indices[start : start + count]
    begin = 0
    for part in shuffle.vectors:
        end = begin + part.dtype.lanes
        if wanted == tuple(range(begin, end)):
            return part
        begin = end
    return Shuffle(shuffle.vectors, wanted)


def _inner(node: Ramp | Broadcast) -> Expr:
    return node.base if isinstance(node, Ramp) else node.value


def slice_lanes(
    expr: Expr, start: Expr, count: int, parts: Mapping[Var, Var] = MappingProxyType({})
) -> Expr:
    """Lanes start, ..., start + count - 1 of a vector expression that can be sliced.

    parts: the same lanes of variables that are bound around it.
    """
    def sliced(inner: Expr) -> Expr:
        return slice_lanes(inner, start, count, parts)

    dtype = expr.dtype
    if isinstance(expr, Let):
        if expr.var.dtype.lanes == 1:
            return Let(expr.var, expr.value, sliced(expr.body))
        part = Var(expr.var.name, _lanes(expr.var.dtype, count))
        body = slice_lanes(expr.body, start, count, {**parts, expr.var: part})
        return Let(part, sliced(expr.value), body)
    if dtype.lanes == 1:
        return expr
    if isinstance(expr, Var):
        return parts[expr]
    if isinstance(expr, Ramp):
        moved = build.add(expr.base, build.mul(build.cast(expr.stride.dtype, start), expr.stride))
        return Ramp(moved, expr.stride, count) if count > 1 else moved
    if isinstance(expr, Broadcast):
        return Broadcast(expr.value, count) if count > 1 else expr.value
    if isinstance(expr, BufferLoad):
        return BufferLoad(expr.buffer, tuple(map(sliced, expr.indices)))
    if isinstance(expr, Shuffle):
        first = build.int_value(start)
        assert first is not None
        return _picked(expr, first, count)
    if isinstance(expr, Cast):
        return Cast(_lanes(dtype, count), sliced(expr.value))
    if isinstance(expr, Call):
        return Call(_lanes(dtype, count), expr.op, tuple(map(sliced, expr.args)))
    if isinstance(expr, Not):
        return Not(sliced(expr.a))
    if isinstance(expr, Select):
        return Select(sliced(expr.condition), sliced(expr.then), sliced(expr.otherwise))
    assert isinstance(expr, BinaryExpr)
    return type(expr)(sliced(expr.a), sliced(expr.b))


def _lanes(dtype: DataType, count: int) -> DataType:
    return dtype.with_lanes(count)


def reads(expr: Expr, buffer: Buffer) -> bool:
    """Whether an expression reads a buffer."""
    found = False

    def look(node: Node) -> None:
        nonlocal found
        found = found or (isinstance(node, BufferLoad) and node.buffer is buffer)

    post_order(expr, look)
    return found
