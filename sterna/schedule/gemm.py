"""The schedule of sums of products: convolutions, dense layers, products of matrices.

The last axis of the result runs as vectors, and of another axis a few rows are computed at once, so
that a vector that was loaded serves all of them: a tile in registers runs over the whole sum. What
follows the sum (bias, activation, residual) is computed while the tile is in registers.
"""

import math
from dataclasses import dataclass

from sterna.schedule.choose import choose, near
from sterna.schedule.chunked_sum_stages import add_chunks, note_sums, sums_of
from sterna.schedule.cost import PAGE_BYTES
from sterna.schedule.default import (
    functions_of,
    hold_in_registers,
    schedule_default,
    schedule_elements,
    vectorize_result,
)
from sterna.schedule.dot4 import add_by_dots, dot_lanes, dot_tile, vectors_of_channels
from sterna.schedule.few_rows import schedule_dots, schedule_streamed
from sterna.schedule.free_operand import DOTS, PANELS, STREAMED, FreeOperand, free_operand, way_of
from sterna.schedule.kernel import Kernel, Processor
from sterna.schedule.loops import extents_of, outer_loops
from sterna.schedule.packed_rows import packs_rows, with_packed_rows
from sterna.schedule.panels import pack_panel, tiles_of_panel
from sterna.schedule.register_tile import (
    MOST_ROWS,
    RegisterTile,
    TileSpace,
    tile_of_rows,
    vectors_of,
)
from sterna.schedule.sum_of_products import (
    SumOfProducts,
    chunks_of,
    description_of,
    order_of,
)
from sterna.schedule.tile_order import rows_outside
from sterna.te import ComputeOp, IterVar, PlaceholderOp, Schedule, Stage, Tensor

# Parallel work is cut into at least this many pieces, so that threads end together.
PIECES = 16
UNROLLED_STEPS = 4
# When numbers for the next steps of a sum are loaded: while these are computed, or behind them.
AHEAD, IN_TURN = "ahead", "in turn"
PLACES_IN_A_SET = 8
# The axis of lines in images with channels first, cycles in which a product is added, and how much
# longer products take with lines that lie apart.
LINE, WAITS, APART = 2, 4, 1.3


@dataclass(slots=True)
class Plan:
    """The tile of a sum of products."""

    row: int
    """The axis of the result of which several are computed at once."""
    tile: RegisterTile
    lines: int = 1
    """Lines of an image whose tiles are computed side by side, as the sums of one would wait."""
    rows_packed: bool = False
    """Whether what is read by rows lies in the order of tiles."""

    @property
    def line(self) -> int | None:
        """The axis of these."""
        return LINE if self.lines > 1 else None


def schedule_contraction(kernel: Kernel) -> None:
    """A register tile over the whole sum, with its epilogue."""
    schedule, out = kernel.schedule, kernel.outputs[0]
    total = only_sum(kernel)
    made = None if total is None else description_of(total)
    if total is None or made is None:
        schedule_default(kernel)
        return
    row = row_axis(made)
    free = free_operand(made, row)
    way = None if free is None else way_of(free, made, kernel.processor)
    packed = way not in _AS_THEY_LIE and packs_rows(kernel, made, row)
    plan = plan_of(kernel, made, rows_packed=packed)
    kernel.choices["tile"] = f"{plan.tile.rows} x {plan.tile.columns}"
    if plan.lines > 1:
        kernel.choices["lines"] = plan.lines
    note_sums(kernel, total)
    place_others(kernel, total)
    if schedule[out].op is total:
        tile = schedule.cache_write(out, "local")
    else:
        tile = total.output(0)
        schedule[tile].set_scope("local")
    if way in _AS_THEY_LIE:
        kernel.choices["schedule"] = _AS_THEY_LIE[way](kernel, tile, made, plan.row)
        return
    panel = free if way == PANELS else None
    by_row = _is_left_by_row(schedule[out], made, plan)
    by_rows = plan.line is None and not packed and rows_outside(
        made, plan.row, plan.tile, panel, kernel.processor
    )
    columns, place = _tile_result(schedule[out], plan, kernel, made, panel, by_row, by_rows)
    if by_row:
        _leave_registers(schedule, tile, schedule[out], place)
    schedule[tile].compute_at(schedule[out], place)
    reader, step = _sum_of_tile(schedule, tile, made, plan, kernel)
    if panel is not None and columns is not place:
        width = plan.tile.columns
        pack_panel(kernel, panel.access, panel.across, reader, schedule[out], columns, width)
    elif columns is not place and not made.is_dot and not by_rows:
        fetch_ahead(schedule[reader], made, plan.row, columns, step)


_AS_THEY_LIE = {DOTS: schedule_dots, STREAMED: schedule_streamed}


def _sum_of_tile(
    schedule: Schedule, tile: Tensor, made: SumOfProducts, plan: Plan, kernel: Kernel
) -> tuple[Tensor, IterVar]:
    """The loops of a tile's sum; gives what reads the products, and its loop."""
    op = schedule[tile].op
    assert isinstance(op, ComputeOp)
    rows = [op.axis[plan.row]] if plan.row != made.columns else []
    chunks = chunks_of(op)
    if chunks is not None:
        products = chunks.output(0)
        schedule[products].set_scope("local")
        schedule[products].compute_at(schedule[tile], add_chunks(schedule[tile], rows))
        row = plan.row + len(op.reduce_axis)
        return products, tile_sum(schedule, products, made, Plan(row, plan.tile))
    if not made.is_dot:
        read = with_packed_rows(kernel, tile, made, plan.tile) if plan.rows_packed else made
        return tile, tile_sum(schedule, tile, read, plan)
    columns, processor = plan.tile.columns, kernel.processor
    pieces = vectors_of_channels(columns, dot_lanes(columns, processor), processor)
    steps = list(op.reduce_axis)
    return tile, add_by_dots(schedule[tile], made, steps, rows, pieces, plan.tile.together)


def only_sum(kernel: Kernel) -> ComputeOp | None:
    """The sum of a kernel that has one of them and one result."""
    sums = sums_of(kernel)
    if len(sums) != 1 or len(kernel.outputs) != 1 or kernel.outputs[0].ndim == 0:
        return None
    return sums[0]


def place_others(kernel: Kernel, total: ComputeOp) -> None:
    """Borders are made whole before; what stands between the sum and the result is inlined."""
    before = ancestors(total)
    for stage in kernel.schedule.stages:
        op = stage.op
        if not isinstance(op, ComputeOp) or op.reduce_axis or stage.is_output:
            continue
        if stage.attach_type == "inline":
            continue
        if op in before:
            schedule_elements(stage, kernel.processor)
        else:
            stage.compute_inline()


def ancestors(op: ComputeOp) -> set[object]:
    found: set[object] = set()
    stack = [tensor.op for tensor in op.input_tensors]
    while stack:
        current = stack.pop()
        if current not in found:
            found.add(current)
            stack += [tensor.op for tensor in current.input_tensors]
    return found


def row_axis(made: SumOfProducts) -> int:
    """The axis of the result of which a tile computes several rows."""
    axes = made.row_axes
    return choose("axis of rows", axes, axes.index)


def plan_of(
    kernel: Kernel, made: SumOfProducts, most: int | None = None, rows_packed: bool = False
) -> Plan:
    """The tile that suits a sum and the processor, for all rows or blocks of at most some."""
    processor = kernel.processor
    sizes = made.sizes
    row, columns = row_axis(made), sizes[-1]
    if made.has_open_columns:  # the last ones come one by one
        columns = min(columns, processor.lanes(made.dtype))
    rows = min(sizes[row], most or sizes[row]) if row != made.columns else 1
    highest = MOST_ROWS if rows_packed else most_rows(made.pitch(row))
    if made.is_dot:
        assert made.block is not None
        lanes, depth = dot_lanes(made.block, processor), made.depths[-1]
        return Plan(row, dot_tile(processor, rows, columns, lanes, depth, made.block, highest))
    if rows == 1:
        lanes = processor.lanes(made.dtype)
        tile = TileSpace(
            rows, columns, lanes, processor.tile_registers, made.block, highest,
            throughput=processor.throughput,
        ).choose()
    else:
        tile = tile_of_rows(
            processor, rows, columns, made.dtype, made.beside(made.innermost), made.block, highest,
            processor.smt_throughput,
            ragged=_ends_in_pixels(made) or free_operand(made, row) is not None,
        )
    return Plan(row, tile, _lines_beside(made, row, tile, processor), rows_packed)


def _ends_in_pixels(made: SumOfProducts) -> bool:
    """Whether columns are pixels, of channels that come first: the last ones are a tile as well."""
    seen = made.contraction
    return seen is not None and not seen.is_matrix and seen.out_layout.startswith("NC")


def _lines_beside(
    made: SumOfProducts, row: int, tile: RegisterTile, processor: Processor
) -> int:
    """How many lines of an image with channels first are computed together, by its own weights.

    As few as keep multiply-adds busy, of those whose sums fit into registers beside operands.
    """
    seen = made.contraction
    if seen is None or seen.out_layout != "NCHW" or seen.rank != 2 or seen.groups > 1:
        return 1
    if row == LINE or tile.together > 1 or made.chunk_roles or free_operand(made, row) is not None:
        return 1
    sums = tile.rows * vectors_of(tile.columns, processor.lanes(made.dtype))
    room = (processor.tile_registers - tile.rows - 2) // sums
    fitting = [n for n in range(1, room + 1) if made.sizes[LINE] % n == 0] or [1]
    rate = processor.throughput.multiply_adds
    return choose("lines", fitting, lambda n: max(WAITS, n * sums / rate) / n * APART ** (n > 1))


def most_rows(bytes_apart: int) -> int:
    """How many rows a tile may have so that what it reads of them stays in the first cache.

    Rows that lie whole pages apart share the few places of one set of it.
    """
    return PLACES_IN_A_SET if bytes_apart and bytes_apart % PAGE_BYTES == 0 else MOST_ROWS


def fetch_ahead(
    stage: Stage, made: SumOfProducts, row: int, columns: IterVar, step: IterVar
) -> None:
    """Bring the next columns of what lies in memory closer while the rows pass by these.

    Else the first rows of each column would wait for memory, and the others leave it idle. Rows
    that only the run counts may be one, which has no time for more than its own columns.
    """
    if made.extents[row] is None:
        return
    for access in made.accesses:
        in_memory = isinstance(access.tensor.op, PlaceholderOp)
        if in_memory and made.columns in access.axes and row not in access.axes:
            stage.prefetch(access.tensor, step, 1, columns)


def _is_left_by_row(stage: Stage, made: SumOfProducts, plan: Plan) -> bool:
    """Whether functions, such as GELU's, are computed of a tile's rows one after the other.

    All rows at once would leave no registers for the numbers of their polynomials.
    """
    plain = not made.is_dot and not made.chunk_roles and plan.line is None
    return plain and plan.row != made.columns and bool(functions_of(stage))


def _leave_registers(schedule: Schedule, tile: Tensor, out: Stage, place: IterVar) -> None:
    """Stores a tile's sums, for a loop that reads them."""
    readers = [
        stage.op.output(0)
        for stage in schedule.stages
        if isinstance(stage.op, ComputeOp) and tile in stage.op.input_tensors
    ]
    left = schedule[schedule.cache_read(tile, "local", readers)]
    left.compute_at(out, place)
    *rows, columns = left.op.axis
    for row in rows:
        left.unroll(row)
    left.vectorize(columns)


def _tile_result(
    stage: Stage, plan: Plan, kernel: Kernel, made: SumOfProducts, panel: FreeOperand | None,
    by_row: bool, rows_outside: bool,
) -> tuple[IterVar, IterVar]:
    """The loops over tiles; gives that over columns, or around them where rows run outside, and the
    one in which a tile is computed."""
    axes = list(stage.op.axis)
    sizes = extents_of(axes)
    width = plan.tile.columns
    vector_outer, vector = stage.split(axes[-1], factor=width)
    columns = -(-sizes[-1] // width)
    counts = {id(axis): size for axis, size in zip(axes, sizes, strict=True)}
    inside = [vector]
    if plan.line is not None:
        axes[plan.line], line = stage.split(axes[plan.line], factor=plan.lines)
        counts[id(axes[plan.line])] = sizes[plan.line] // plan.lines
        stage.unroll(line)
        inside = [line, vector]
    others = [axis for place, axis in enumerate(axes[:-1]) if place != plan.row]
    counts[id(vector_outer)] = columns
    tiles: list[IterVar] = []
    together = 1
    if panel is not None and not rows_outside:
        together = tiles_of_panel(panel.access, panel.across, width, columns)
    if together > 1:
        vector_outer, tile = stage.split(vector_outer, factor=together)
        counts |= {id(vector_outer): columns // together, id(tile): together}
        tiles = [tile]
    # columns outside of rows: what is read per column stays in the cache over all rows
    outside = _outside_of_columns(made, plan.row, len(others))
    loops = [*others[:outside], vector_outer, *others[outside:], *tiles]
    whole = sizes[-1] % width == 0 and not made.has_open_columns
    if not whole:  # fused with others, the guard of the last columns would stay in all of them
        loops = [*others, vector_outer, *tiles]
    if plan.row != len(axes) - 1:
        row_outer, row = stage.split(axes[plan.row], factor=plan.tile.rows)
        counts[id(row_outer)] = -(-sizes[plan.row] // plan.tile.rows)
        if not by_row:
            stage.unroll(row)
        loops = [*others, row_outer, vector_outer, *tiles] if rows_outside else [*loops, row_outer]
        inside = [row, *inside]
    stage.reorder(*loops, *inside)
    if by_row and sizes[-1] > 1:
        stage.vectorize(vector)
    elif sizes[-1] > 1:
        lanes = dot_lanes(width, kernel.processor) if made.is_dot else None
        vectorize_result(stage, vector, width, lanes)
    if rows_outside:
        shared = stage.fuse(*others) if others else loops[0]
        stage.parallel(shared)
        return shared, loops[-1]
    if whole:
        shared = _share(stage, loops, [counts[id(axis)] for axis in loops])
    else:
        first = math.prod(counts[id(axis)] for axis in others) >= kernel.processor.threads
        shared = stage.fuse(*others) if others and first else vector_outer
        stage.parallel(shared)
    held = any(vector_outer is leaf for leaf in stage.leaf_iter_vars)
    return vector_outer if held else shared, loops[-1]


def _outside_of_columns(made: SumOfProducts, row: int, count: int) -> int:
    """How many of the other axes run outside of columns: those that no column is read again for.

    Else a column of each matrix, or of each channel's image, would be read before the next column
    of the first, and the rows of all of them once more for each.
    """
    seen = [access.axes for access in made.accesses if made.columns in access.axes]
    places = [axis for axis in range(count + 2) if axis not in (row, made.columns)]
    apart = [n + 1 for n, axis in enumerate(places) if seen and all(axis in s for s in seen)]
    return max([1, *apart])


def _share(stage: Stage, loops: list[IterVar], counts: list[int]) -> IterVar:
    """Outer loops for threads; at least one loop stays inside to compute tiles in."""
    enough = outer_loops(counts[:-1], PIECES)
    taken = choose("loops that threads share", range(len(loops)), near(enough))
    if taken and math.prod(counts[:taken]) > 1:
        shared = stage.fuse(*loops[:taken])
        stage.parallel(shared)
        return shared
    if math.prod(counts) > 1:
        stage.parallel(loops[-1])
    return loops[-1]


def load_together(
    stage: Stage, made: SumOfProducts, step: IterVar, size: RegisterTile
) -> IterVar:
    """Load the numbers of a row for several steps at once; products take them from its lanes.

    for k: c[row, :] += a[row, k] * b[k, :]
    ->  for k.outer: held = a[row, k.outer*4 : k.outer*4 + 4]; c[row, :] += held[0] * b[...] ...
    """
    if size.together == 1:
        return step
    outer, inner = stage.split(step, factor=size.together)
    stage.unroll(inner)
    _hold_rows(stage, made, outer)
    return outer


def _hold_rows(stage: Stage, made: SumOfProducts, place: IterVar) -> None:
    """In registers, which are filled for the next steps as soon as these need them no more."""
    assert made.by_rows is not None
    hold_in_registers(stage, made.by_rows.tensor, place)
    if choose("loads of the next steps", (AHEAD, IN_TURN), (AHEAD, IN_TURN).index) == AHEAD:
        stage.pragma(place, "load_ahead", True)


def tile_sum(schedule: Schedule, tile: Tensor, made: SumOfProducts, plan: Plan) -> IterVar:
    """Accumulators outside, the sum's loops around them; gives the innermost that is a loop."""
    stage = schedule[tile]
    axes, reduced = list(stage.op.axis), list(stage.op.reduce_axis)
    ordered = [reduced[place] for place in order_of(made.roles)]
    last = ordered[-1]
    inner: list[IterVar] = [last]
    size = extents_of([last])[0]
    together = plan.tile.together
    fitting = [n for n in (1, 2, 4, 8) if size % n == 0 and size > n] or [1]
    steps = together if together > 1 else choose("unrolled steps", fitting, near(UNROLLED_STEPS))
    if steps > 1 and size % steps == 0 and size > steps:
        outer, step = stage.split(last, factor=steps)
        stage.unroll(step)
        if together > 1:
            _hold_rows(stage, made, outer)
        inner = [outer, step]
    elif size <= 8:
        stage.unroll(last)
    rows = [axes[place] for place in (plan.line, plan.row)
            if place is not None and place != len(axes) - 1]
    others = [axis for axis in axes[:-1] if axis not in rows]
    stage.reorder(*others, *ordered[:-1], *inner, *rows, axes[-1])
    for row in rows:
        stage.unroll(row)
    stage.vectorize(axes[-1])
    return inner[0]
