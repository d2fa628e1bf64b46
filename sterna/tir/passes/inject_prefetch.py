"""Software prefetch: turn rectangles to prefetch into prefetches of cache lines."""

import math
from typing import Any

from sterna.arith import Analyzer, substitute
from sterna.ir import build
from sterna.ir.expr import Call, Expr, Var, variables_in
from sterna.ir.visitor import Rewriter
from sterna.tir.stmt import (
    Buffer,
    BufferLoad,
    Evaluate,
    For,
    Prefetch,
    PrimFunc,
    Stmt,
    nothing,
    statements_in,
)

LINE_BYTES = 64


def inject_prefetch(func: PrimFunc) -> PrimFunc:
    """prefetch_region(A, (i, 0), (2, 32)) of float32

    ->  for row in range(2): for line in range(2): prefetch(A[min(i + row, n - 1), line*16])
    """
    if not any(isinstance(stmt, Prefetch) for stmt in statements_in(func.body)):
        return func
    return func.with_body(_Lowering().rewrite(func.body))


class _Lowering(Rewriter):
    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self.loops: list[Var] = []

    def rewrite(self, node: Any) -> Any:
        return node if isinstance(node, Expr) else super().rewrite(node)

    def visit_For(self, loop: For) -> Stmt:
        self.analyzer.bind(loop.var, loop.min, loop.extent)
        self.loops.append(loop.var)
        made = loop.with_body(self.rewrite(loop.body))
        self.loops.pop()
        return made

    def visit_Prefetch(self, prefetch: Prefetch) -> Stmt:
        buffer, mins = prefetch.buffer, prefetch.mins
        if any(build.is_const(extent, 0) for extent in prefetch.extents):
            return nothing()
        first = self.first_in_run(prefetch)
        rows = [self.loop_variable("row", extent) for extent in prefetch.extents[:first]]
        length: Expr = build.const(1)
        for extent in prefetch.extents[first:]:
            length = length * extent
        step = self.elements_of_line(prefetch)
        line = self.loop_variable("line", build.floordiv(length + (step - 1), step))
        inside = self.unravelled(line[0] * step, prefetch.extents[first:])
        steps = [*[var for var, _ in rows], *inside]
        indices = [low + index for low, index in zip(mins, steps, strict=True)]
        own = [*self.loops[-1:], *[var for var, _ in rows], line[0]]
        element = BufferLoad(buffer, self.inside_of(buffer, indices, own))
        body: Stmt = Evaluate(Call(build.const(0).dtype, "prefetch", (element,)))
        for var, extent in reversed([*rows, line]):
            body = For(var, build.const(0, extent.dtype), extent, "serial", body)
        return body

    def loop_variable(self, name: str, extent: Expr) -> tuple[Var, Expr]:
        extent = self.analyzer.simplify(extent)
        var = Var(name, extent.dtype)
        self.analyzer.bind(var, 0, extent)
        return var, extent

    def first_in_run(self, prefetch: Prefetch) -> int:
        """The first of the dimensions whose elements lie one after the other in memory."""
        buffer = prefetch.buffer
        first = max(len(buffer.shape) - 1, 0)
        while first > 0 and not buffer.strides and self.is_whole(prefetch, first):
            first -= 1
        return first

    def is_whole(self, prefetch: Prefetch, dim: int) -> bool:
        starts = build.is_const(prefetch.mins[dim], 0)
        return starts and self.analyzer.can_prove_equal(
            prefetch.extents[dim], prefetch.buffer.shape[dim]
        )

    def elements_of_line(self, prefetch: Prefetch) -> int:
        """How many elements of the last dimension share a cache line."""
        buffer = prefetch.buffer
        stride = build.int_value(buffer.strides[-1]) if buffer.strides else 1
        if stride is None or stride <= 0:
            return 1
        return max(LINE_BYTES // (buffer.dtype.bytes * stride), 1)

    def unravelled(self, element: Expr, extents: tuple[Expr, ...]) -> list[Expr]:
        """The indices of an element of a run, by its number."""
        indices: list[Expr] = []
        for extent in reversed(extents[1:]):
            indices.insert(0, build.floormod(element, extent))
            element = build.floordiv(element, extent)
        return [element, *indices] if extents else []

    def inside_of(
        self, buffer: Buffer, indices: list[Expr], own: list[Var]
    ) -> tuple[Expr, ...]:
        """Indices of a place in memory; behind the end of a row lies the next row.

        own: variables that change from one prefetch to the next.
        """
        clamped = [self.clamped(i, n) for i, n in zip(indices, buffer.shape, strict=True)]
        size = math.prod(build.int_value(extent) or 0 for extent in buffer.shape)
        fits = [self.analyzer.can_prove_equal(i, c) for i, c in zip(indices, clamped, strict=True)]
        if buffer.strides or not size or all(fits[1:]):
            return tuple(clamped)
        place = self.analyzer.simplify(buffer.offset_of(tuple(indices)))
        return (*[build.const(0)] * (len(indices) - 1), self.near(place, size, own))

    def near(self, place: Expr, size: int, own: list[Var]) -> Expr:
        """A place below a size; what stays the same for all prefetches of a loop is limited."""
        none = {var: build.const(0, var.dtype) for var in own}
        first = self.analyzer.simplify(substitute(place, none))
        more = self.analyzer.simplify(place - first)
        bound = self.analyzer.bound(more)
        is_own = all(var in own for var in variables_in(more))
        if not is_own or bound.low < 0 or bound.high >= size:
            return self.clamped(place, build.const(size))
        return self.clamped(first, build.const(size - int(bound.high))) + more

    def clamped(self, index: Expr, extent: Expr) -> Expr:
        """An index inside the buffer: code may not even compute other addresses."""
        inside = build.maximum(build.minimum(index, extent - 1), 0)
        return self.analyzer.simplify(inside)
