"""Fetching ahead what a loop will read."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sterna.arith import Analyzer, interval, substitute
from sterna.ir import build
from sterna.ir.expr import Expr, Var, variables_in
from sterna.ir.node import Node, post_order
from sterna.te.schedule import AxisAttributes
from sterna.te.tensor import VECTORIZED, IterVar
from sterna.tir.stmt import Allocate, Buffer, BufferLoad, For, LetStmt, Prefetch, Stmt, seq

if TYPE_CHECKING:
    from sterna.te.nest import Nest

Domains = dict[Var, tuple[Expr, Expr] | None]
"""The first and last value of the variables that are bound inside a loop; None: not known."""


def with_prefetches(nest: "Nest", leaf: IterVar, body: Stmt) -> Stmt:
    """The body of a loop with the prefetches that the loop is marked with."""
    stage, lowering = nest.stage, nest.lowering
    leaves = stage.leaf_iter_vars
    around = leaves[: next(i for i, other in enumerate(leaves) if other is leaf) + 1]
    marks = [stage.iter_var_attrs.get(axis, AxisAttributes()) for axis in around]
    for tensor, offset in reversed(marks[-1].prefetches):
        what = f"prefetch of {tensor.name} in the loop {leaf.name} of {nest.op.name}"
        if any(mark.kind == VECTORIZED for mark in marks):
            raise ValueError(f"{what}: a vectorized loop cannot prefetch; choose an outer one")
        place = lowering.places.get(lowering.schedule[tensor])
        buffer = None if place is None else place.buffers[tensor.value_index]
        fetching = _with_prefetch(body, buffer, leaf.var, offset, nest.analyzer)
        if fetching is None:
            raise ValueError(f"{what}: the loop does not read it from memory")
        body = fetching
    return body


def _with_prefetch(
    body: Stmt, buffer: Buffer | None, var: Var, offset: Expr, analyzer: Analyzer
) -> Stmt | None:
    """The body of the loop over var, after a hint about what it reads offset iterations later.

    None if it reads nothing of the buffer, or there is none.

    C[i] = A[i*4] + A[i*4 + 1], offset 2    ->    prefetch_region(A, (i*4 + 8,), (2,)); ...
    """
    loads = [] if buffer is None else list(_loads(body, buffer, {}))
    if buffer is None or not loads:
        return None
    lows: list[list[Expr]] = [[] for _ in buffer.shape]
    highs: list[list[Expr]] = [[] for _ in buffer.shape]
    for load, inner in loads:
        for dim, index in enumerate(load.indices):
            ends = _relaxed(index, inner)
            if ends is None:
                raise ValueError(
                    f"prefetch of {buffer.name} in the loop {var.name}: {index}, the index of "
                    f"{load}, is not known ahead"
                )
            lows[dim].append(ends[0])
            highs[dim].append(ends[1])
    ahead = {var: var + build.cast(var.dtype, offset)}
    mins, extents = [], []
    for low_list, high_list in zip(lows, highs, strict=True):
        low, high = low_list[0], high_list[0]
        for other in low_list[1:]:
            low = analyzer.simplify(build.minimum(low, other))
        for other in high_list[1:]:
            high = analyzer.simplify(build.maximum(high, other))
        mins.append(analyzer.simplify(substitute(low, ahead)))
        extents.append(analyzer.simplify(substitute(high - low + 1, ahead)))
    return seq(Prefetch(buffer, tuple(mins), tuple(extents)), body)


def _loads(node: Node, buffer: Buffer, inner: Domains) -> Iterator[tuple[BufferLoad, Domains]]:
    """Where a buffer is read, with what is bound on the way there."""
    if isinstance(node, Allocate) and node.buffer is buffer:
        return
    if isinstance(node, For):
        inner = {**inner, node.var: (node.min, node.min + node.extent - 1)}
    elif isinstance(node, LetStmt):
        inner = {**inner, node.var: None}
    elif isinstance(node, BufferLoad) and node.buffer is buffer:
        yield node, inner
    for child in node.children():
        if not isinstance(child, Buffer):
            yield from _loads(child, buffer, inner)


def _relaxed(index: Expr, inner: Domains) -> tuple[Expr, Expr] | None:
    """The least and the greatest value of an index while the loops inside run."""
    if _reads_memory(index):
        return None
    known = {var: domain for var, domain in inner.items() if domain is not None}
    low, high = interval(index, known)
    if low is None or high is None:
        return None
    if any(var in inner for end in (low, high) for var in variables_in(end)):
        return None
    return low, high


def _reads_memory(index: Expr) -> bool:
    found: list[Node] = []
    post_order(index, lambda node: found.append(node) if isinstance(node, BufferLoad) else None)
    return bool(found)
