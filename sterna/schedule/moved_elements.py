"""Schedules of elements that only change their places: transposes, and what indices pick."""

import math
from collections.abc import Sequence

from sterna.ir import build
from sterna.ir.expr import Add, Cast, Expr, FloorDiv, FloorMod, IntImm, Max, Min, Var, variables_in
from sterna.ir.node import post_order
from sterna.schedule.kernel import Kernel, Processor
from sterna.schedule.loops import PARALLEL_ELEMENTS, extents_of, parallelise
from sterna.schedule.reads import Read, direct_reads_of, reads_of
from sterna.schedule.transpose_tile import holds_squares, transpose_intrinsic
from sterna.te import ComputeOp, IterVar, Stage
from sterna.te.tensor import ProducerLoad

# The bits of a line of the caches.
LINE_BITS = 512
# A side of the squares that are transposed in registers, and the least extent that has some.
LARGEST_SIDE = 8
SMALLEST_TILE = 4
# Rows of a transposed result that are written together: each in a page of its own, or shorter.
ROWS_OF_PAGES = 32
SHORT_ROWS = 16
PAGE_BYTES = 4096
# Elements that are taken side by side from anywhere; fewer rows than these are shared in parts.
BESIDE = 4
FEW_ROWS = 2
# Entries of a table that has one for each byte.
BYTES = 256
# Channels that are read at a vector of places before the next one is looked up.
CHANNELS_AT_A_PLACE = 8


def all_read_across(stage: Stage, inner: bool = False) -> IterVar | None:
    """The axis along which all that is read lies side by side, if it is not the last one.

    inner: stages count whose results other stages read, and not outputs alone.
    """
    assert isinstance(stage.op, ComputeOp)
    if not (stage.is_output or inner) or not stage.op.axis:
        return None
    *outer, last = stage.op.axis
    reads = direct_reads_of(stage)
    across = _neighbours(outer, reads)
    if across is None:
        reads = reads_of(stage)
        across = None if any(read.is_guarded for read in reads) else _neighbours(outer, reads)
    if across is None or not any(last.var in read.variables for read in reads):
        return None
    rows, columns = extents_of([across, last])
    return across if rows >= 2 and columns >= SMALLEST_TILE else None


def _neighbours(axes: Sequence[IterVar], reads: Sequence[Read]) -> IterVar | None:
    """The one among some axes along which all that is read lies side by side; None: there is none.

    What is a single number counts for nothing.
    """
    beside = [index for read in reads if (index := read.index_of_neighbours) is not None]
    found = next((axis for axis in axes if beside and beside[0] is axis.var), None)
    return found if found and all(index is found.var for index in beside) else None


def transpose_tiles(kernel: Kernel, stage: Stage, across: IterVar) -> None:
    """Transposes by register tiles: vectors along what is read, then vectors along the result.

    Tiles that fill a line of the result follow each other. Rows of the result may lie in pages of
    their own, of which a processor knows the places of some: so many rows are written together.
    """
    out = stage.op.output(0)
    place = list(stage.op.axis).index(across)
    made = kernel.schedule[kernel.schedule.cache_write(out, "local")]
    made.transform_layout(lambda *at: [*at[:place], *at[place + 1 :], at[place]])
    *outer, last = stage.op.axis
    across = outer.pop(place)
    lanes = kernel.processor.lanes(out.dtype)
    shuffles = kernel.target is None or kernel.target.kind.picks_instructions
    largest = LARGEST_SIDE if shuffles else SMALLEST_TILE  # sources have loops in their place
    side = max(SMALLEST_TILE, min(lanes, largest)) if lanes > 1 else 1
    rows = min(side, extents_of([across])[0])
    whole = rows == side <= extents_of([last])[0]
    in_registers = whole and holds_squares(out.dtype, side)
    lines, within = stage.split(last, factor=max(side, LINE_BITS // max(8, out.dtype.bits)))
    squares, lane = stage.split(within, factor=side)
    tiles, row = stage.split(across, factor=rows)
    fills_pages = extents_of([stage.op.axis[-1]])[0] * out.dtype.bits >= 8 * PAGE_BYTES
    together = ROWS_OF_PAGES if fills_pages else SHORT_ROWS
    groups, tile = stage.split(tiles, factor=max(1, together // rows))
    stage.reorder(*outer, groups, lines, tile, squares, row, lane)
    if in_registers:
        stage.tensorize(row, transpose_intrinsic(str(out.dtype), side, "local"))
    else:
        stage.unroll(row)
        stage.vectorize(lane)
    made.compute_at(stage, squares)
    *_, column, along = made.op.axis
    if rows < SMALLEST_TILE:  # channels that lie side by side: whole rows of them are vectors
        made.vectorize(made.fuse(column, along))
    else:
        made.unroll(column)
        made.vectorize(along)
    for loop in (groups, lines, tile, squares):
        stage.pragma(loop, "loop_partition_hint", True)
    if outer and math.prod(extents_of(stage.op.axis)) >= PARALLEL_ELEMENTS:
        parallelise(stage, outer, extents_of(outer))


def places_told(stage: Stage, processor: Processor) -> list[ProducerLoad]:
    """What tells, one by one, where neighbours of a result are read; none if not integers alone.

    Tables that the processor holds in registers are not asked one by one, and elements that are
    repeated in a row are shuffled.
    """
    assert isinstance(stage.op, ComputeOp)
    last = stage.op.axis[-1].var
    told: list[ProducerLoad] = []

    def tells(part: object) -> None:
        if isinstance(part, ProducerLoad) and not _repeats(stage, part, processor):
            told.append(part)

    def visit(item: object) -> None:
        if isinstance(item, ProducerLoad) and not (
            processor.byte_lookup and _reads_table_of_bytes(stage, item)
        ):
            for index in item.indices:
                post_order(index, tells)

    for part in stage.op.body:
        post_order(part, visit)
    by_lane = [load for load in told if any(last in variables_in(at) for at in load.indices)]
    return by_lane if all(load.tensor.dtype.is_integer for load in by_lane) else []


def _repeats(stage: Stage, load: ProducerLoad, processor: Processor) -> bool:
    """Whether a place is an index divided by a number that whole vectors are made of."""
    place = _computed(stage, load)
    if not isinstance(place, FloorDiv) or not isinstance(place.a, Var):
        return False
    times = build.int_value(place.b)
    return times is not None and processor.lanes(stage.op.output(0).dtype) % times == 0


def _reads_table_of_bytes(stage: Stage, load: ProducerLoad) -> bool:
    """Whether bytes say where a table of bytes is read that has one for each of them."""
    table = load.tensor
    if not table.dtype.is_integer or table.dtype.bits != 8 or len(table.shape) != 1:
        return False
    if not build.is_const(table.shape[0], BYTES):
        return False
    index = _computed(stage, load.indices[0])
    wanted = "uint8"
    if isinstance(index, Add) and build.is_const(_computed(stage, index.b), BYTES // 2):
        index, wanted = _computed(stage, index.a), "int8"
    return isinstance(index, Cast) and index.value.dtype == wanted


def _computed(stage: Stage, expr: Expr) -> Expr:
    """What an expression is, where that is computed where it is read, and held within a byte."""
    assert stage.schedule is not None
    while isinstance(expr, ProducerLoad | Max):
        if isinstance(expr, Max):
            inner = expr.b
            if not isinstance(inner, Min) or not build.is_const(inner.a, BYTES - 1):
                break
            if not build.is_const(expr.a, 0):
                break
            expr = inner.b
            continue
        maker = stage.schedule.stage_map.get(expr.tensor.op)
        if maker is None or maker.attach_type != "inline" or not isinstance(maker.op, ComputeOp):
            break
        expr = maker.op.body[0]
    return expr


def schedule_one_by_one(stage: Stage, axes: Sequence[IterVar], sizes: Sequence[int]) -> None:
    """Elements whose places registers of general use compute: some of them side by side."""
    *outer, last = axes
    pieces, inner = stage.split(last, factor=BESIDE)
    stage.pragma(pieces, "loop_partition_hint", True)
    stage.unroll(inner)
    if math.prod(sizes) >= PARALLEL_ELEMENTS:
        *rows, columns = sizes
        few = math.prod(rows) < FEW_ROWS
        parallelise(stage, [*outer, pieces] if few else outer,
                    [*rows, -(-columns // BESIDE)] if few else rows)


def shared_axis(stage: Stage, told: Sequence[ProducerLoad]) -> IterVar | None:
    """The innermost axis along which all is read at the same places; None: there is none."""
    assert isinstance(stage.op, ComputeOp)
    seen = {var for load in told for index in load.indices for var in variables_in(index)}
    return next((a for a in reversed(stage.op.axis) if a.var not in seen), None)


def repeated_rows(stage: Stage, lanes: int) -> int | None:
    """The length of the rows that are read again and again along the last axis: i % 56.

    None if nothing repeats, or rows too short for a vector. By loops over them no lane asks where
    it is.
    """
    assert isinstance(stage.op, ComputeOp)
    last, lengths = stage.op.axis[-1], set()
    (extent,) = extents_of([last])

    def visit(node: object) -> None:
        if isinstance(node, FloorMod) and node.a is last.var and isinstance(node.b, IntImm):
            lengths.add(node.b.value)

    for read in reads_of(stage):
        for index in read.indices:
            post_order(index, visit)
    whole = [length for length in lengths if lanes <= length < extent and extent % length == 0]
    return max(whole, default=None)


def fills_gathers(stage: Stage, processor: Processor) -> bool:
    """Whether instructions gather such elements, and rows of them fill vectors."""
    dtype, lanes = stage.op.output(0).dtype, processor.lanes(stage.op.output(0).dtype)
    assert isinstance(stage.op, ComputeOp)
    return processor.gathers and dtype.bits >= 32 and extents_of(stage.op.axis)[-1] >= lanes


def schedule_gathered(
    stage: Stage, channel: IterVar, processor: Processor, together: int
) -> None:
    """Sums of what is read at told places: vectors of places, for several channels in turn.

    together: so many of the last axes lie in one order.
    """
    axes, lanes = list(stage.op.axis), processor.lanes(stage.op.output(0).dtype)
    (channels,), length = extents_of([channel]), math.prod(extents_of(axes[-together:]))
    row = stage.fuse(*axes[-together:])
    others = [axis for axis in axes[:-together] if axis is not channel]
    blocks, within = stage.split(channel, factor=min(channels, CHANNELS_AT_A_PLACE))
    pieces, lane = stage.split(row, factor=min(lanes, length))
    stage.reorder(*others, blocks, pieces, within, lane)
    stage.unroll(within)
    stage.vectorize(lane)
    stage.pragma(pieces, "loop_partition_hint", True)
    counts = [*extents_of(others), -(-channels // CHANNELS_AT_A_PLACE), -(-length // lanes)]
    if channels * length >= PARALLEL_ELEMENTS:
        parallelise(stage, [*others, blocks, pieces], counts)
