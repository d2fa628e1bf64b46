"""Software prefetch: fetching ahead what a loop will read."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sterna.arith import Analyzer, interval, substitute
from sterna.ir import build
from sterna.ir.expr import Expr, Var, variables_in
from sterna.ir.node import Node, post_order
from sterna.te.schedule import AxisAttributes, Stage
from sterna.te.tensor import VECTORIZED, IterVar
from sterna.tir.stmt import Allocate, Buffer, BufferLoad, For, LetStmt, Prefetch, Stmt, seq

if TYPE_CHECKING:
    from sterna.te.nest import Nest

LINE_BYTES = 64

Domains = dict[Var, tuple[Expr, Expr] | None]
"""The first and last value of the variables that are bound inside a loop; None: not known."""


def with_prefetches(nest: "Nest", leaf: IterVar, body: Stmt) -> Stmt:
    """The body of a loop with the prefetches that the loop is marked with.

    What an outer loop reads is fetched by shares, where the loops inside it are of known extents.
    """
    stage, lowering = nest.stage, nest.lowering
    leaves = stage.leaf_iter_vars
    around = leaves[: next(i for i, other in enumerate(leaves) if other is leaf) + 1]
    marks = [stage.iter_var_attrs.get(axis, AxisAttributes()) for axis in around]
    for mark in reversed(marks[-1].prefetches):
        tensor = mark.tensor
        what = f"prefetch of {tensor.name} in the loop {leaf.name} of {nest.op.name}"
        if any(mark.kind == VECTORIZED for mark in marks):
            raise ValueError(f"{what}: a vectorized loop cannot prefetch; choose an outer one")
        place = lowering.places.get(lowering.schedule[tensor])
        buffer = None if place is None else place.buffers[tensor.value_index]
        reader = leaf if mark.reader is None else mark.reader
        inside = _loops_inside(nest, leaf, reader, what)
        found = None if buffer is None else _region(body, buffer, reader, inside, nest.analyzer)
        if buffer is None or found is None:
            raise ValueError(f"{what}: the loop does not read it from memory")
        if any(build.int_value(extent) is None for _, extent in inside):
            continue  # each iteration would fetch all of it, not its share
        mins, extents = _part_of_an_iteration(found, inside, buffer)
        later = reader.var + build.cast(reader.var.dtype, mark.offset)
        ahead: dict[Var, Expr] = {reader.var: later}
        hint = Prefetch(
            buffer,
            tuple(nest.analyzer.simplify(substitute(e, ahead)) for e in mins),
            tuple(nest.analyzer.simplify(substitute(e, ahead)) for e in extents),
        )
        body = seq(hint, body)
    return body


Loops = list[tuple[Var, Expr]]
"""Variables and extents, outermost first."""
Region = tuple[list[Expr], list[Expr]]
"""Where it begins and how far it extends, per dimension."""


def _loops_inside(nest: "Nest", leaf: IterVar, reader: IterVar, what: str) -> Loops:
    """The loops between the one that reads and the body of the one that fetches."""
    found: Loops = []
    stage: Stage | None = nest.stage
    inner: IterVar | None = leaf
    while stage is not None:
        ranges = nest.lowering.bounds.ranges[stage]
        leaves = stage.leaf_iter_vars
        end = next(i for i, other in enumerate(leaves) if other is inner) + 1
        start = next((i + 1 for i, other in enumerate(leaves[:end]) if other is reader), 0)
        found = [*[(axis.var, ranges[axis].extent) for axis in leaves[start:end]], *found]
        if start:
            return found
        inner, stage = stage.attach_ivar, stage.attach_stage
    raise ValueError(f"{what}: the loop {reader.name}, which reads it, is not around it")


def _region(
    body: Stmt, buffer: Buffer, reader: IterVar, inside: Loops, analyzer: Analyzer
) -> Region | None:
    """What an iteration of the loop that reads takes from a buffer; None if it is nothing.

    C[i] = A[i*4] + A[i*4 + 1]    ->    (i*4,), (2,)
    """
    domains: Domains = {var: (build.const(0, extent.dtype), extent - 1) for var, extent in inside}
    loads = list(_loads(body, buffer, domains))
    if not loads:
        return None
    lows: list[list[Expr]] = [[] for _ in buffer.shape]
    highs: list[list[Expr]] = [[] for _ in buffer.shape]
    for load, inner in loads:
        for dim, index in enumerate(load.indices):
            ends = _relaxed(index, inner)
            if ends is None:
                raise ValueError(
                    f"prefetch of {buffer.name} in the loop {reader.name}: {index}, the index of "
                    f"{load}, is not known ahead"
                )
            lows[dim].append(ends[0])
            highs[dim].append(ends[1])
    mins, extents = [], []
    for low_list, high_list in zip(lows, highs, strict=True):
        low, high = low_list[0], high_list[0]
        for other in low_list[1:]:
            low = analyzer.simplify(build.minimum(low, other))
        for other in high_list[1:]:
            high = analyzer.simplify(build.maximum(high, other))
        mins.append(low)
        extents.append(analyzer.simplify(high - low + 1))
    return mins, extents


def _part_of_an_iteration(region: Region, inside: Loops, buffer: Buffer) -> Region:
    """The part of a region that one of the iterations inside fetches.

    What lies in one piece is dealt out evenly. Else the longest dimension is, and where there
    are more iterations than it is long, the last one as well: (768, 64) in 6144 iterations gives
    each an eighth of a row. Iterations of the innermost loop take a row each where they are as
    many, which needs no division.
    """
    mins, extents = list(region[0]), list(region[1])
    lengths = [build.int_value(extent) for extent in extents]
    counts = [build.int_value(extent) for _, extent in inside]
    if not inside or 0 in counts:
        return region
    known = [length or 0 for length in lengths]
    if _is_run(known, buffer):
        line = max(1, LINE_BYTES // buffer.dtype.bytes)
        return _evenly(region, inside, math.prod(known), line)
    longest = known.index(max(known))
    rows = max(known[:-1], default=0)
    if 1 < rows == counts[-1]:
        longest = known.index(rows)
    iterations = math.prod(count for count in counts if count is not None)
    length, last = known[longest], len(known) - 1
    if length == 0:
        return region
    if longest == last or not known[last] or iterations < 2 * length:
        _deal(mins, extents, longest, _iteration(inside), -(-length // iterations))
        return mins, extents
    each = iterations // length
    iteration = _iteration(inside)
    row, piece = build.floordiv(iteration, each), build.floormod(iteration, each)
    if counts[-1] == length:
        row, piece = inside[-1][0], _iteration(inside[:-1])
    _deal(mins, extents, longest, row, 1)
    _deal(mins, extents, last, piece, -(-known[last] // each))
    return mins, extents


def _is_run(lengths: list[int], buffer: Buffer) -> bool:
    """Whether a region of several rows has no gaps in memory."""
    whole = [build.int_value(extent) for extent in buffer.shape]
    rows = next((i for i, length in enumerate(lengths) if length != 1), len(lengths))
    compact = bool(whole) and not buffer.strides and None not in whole
    return compact and 0 not in lengths and lengths[rows + 1 :] == whole[rows + 1 :]


def _evenly(region: Region, inside: Loops, length: int, line: int) -> Region:
    """As much of a run for each iteration: memory has no time for many lines at once."""
    iterations = math.prod(build.int_value(extent) or 1 for _, extent in inside)
    each = -(-length // iterations)
    if each > line:
        each = -(-each // line) * line
    mins, extents = list(region[0]), [build.const(1, extent.dtype) for extent in region[1]]
    _deal(mins, extents, len(mins) - 1, _iteration(inside), each)
    return mins, extents


def _iteration(loops: Loops) -> Expr:
    """The number of an iteration of nested loops."""
    iteration: Expr = build.const(0)
    for var, extent in loops:
        iteration = iteration * extent + var
    return iteration


def _deal(mins: list[Expr], extents: list[Expr], dim: int, iteration: Expr, count: int) -> None:
    mins[dim] = mins[dim] + iteration * count
    extents[dim] = build.const(count, extents[dim].dtype)


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
