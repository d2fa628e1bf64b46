"""Turn rectangles to prefetch into prefetches of cache lines."""

from typing import Any

from sterna.arith import Analyzer
from sterna.ir import build
from sterna.ir.expr import Call, Expr, Var
from sterna.ir.visitor import Rewriter
from sterna.tir.stmt import BufferLoad, Evaluate, For, Prefetch, PrimFunc, Stmt, nothing

LINE_BYTES = 64


def lower_prefetch(func: PrimFunc) -> PrimFunc:
    """prefetch_region(A, (i, 0), (2, 32)) of float32

    ->  for row in range(2): for line in range(2): prefetch(A[min(i + row, n - 1), line*16])
    """
    return func.with_body(_Lowering().rewrite(func.body))


class _Lowering(Rewriter):
    def __init__(self) -> None:
        self.analyzer = Analyzer()

    def rewrite(self, node: Any) -> Any:
        return node if isinstance(node, Expr) else super().rewrite(node)

    def visit_For(self, loop: For) -> Stmt:
        self.analyzer.bind(loop.var, loop.min, loop.extent)
        return loop.with_body(self.rewrite(loop.body))

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
        indices = [
            self.clamped(low + index, extent)
            for low, index, extent in zip(
                mins, [*[var for var, _ in rows], *inside], buffer.shape, strict=True
            )
        ]
        element = BufferLoad(buffer, tuple(indices))
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

    def clamped(self, index: Expr, extent: Expr) -> Expr:
        """An index inside the buffer: code may not even compute other addresses."""
        inside = build.maximum(build.minimum(index, extent - 1), 0)
        return self.analyzer.simplify(inside)
