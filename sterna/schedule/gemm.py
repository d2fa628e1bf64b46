"""The schedule of sums of products: convolutions, dense layers, products of matrices.

The last axis of the result runs as vectors, and of another axis a few rows are computed at once, so
that a vector that was loaded serves all of them: a tile in registers runs over the whole sum. What
follows the sum (bias, activation, residual) is computed while the tile is in registers.
"""

import math
from dataclasses import dataclass

from sterna.ir import build
from sterna.ir.expr import Add, FloorMod, IntImm, Var, variables_in
from sterna.ir.node import post_order
from sterna.schedule.chunked_sum_stages import (
    add_runs,
    note_sums,
    products_of,
    runs_of,
    sums_of,
    window_first,
)
from sterna.schedule.default import (
    extents_of,
    hold_in_registers,
    loads_of,
    schedule_default,
    schedule_elements,
    vectorize_result,
)
from sterna.schedule.dot4 import add_by_dots, dot_block, dot_lanes, dot_tile, is_dot
from sterna.schedule.kernel import Kernel
from sterna.schedule.register_tile import MOST_ROWS, RegisterTile, register_tile, tile_of_rows
from sterna.te import ComputeOp, IterVar, PlaceholderOp, Schedule, Stage, Tensor
from sterna.te.tensor import ProducerLoad, Reduce

# Parallel work is cut into at least this many pieces, so that threads end together.
PIECES = 16
UNROLLED_STEPS = 4
PAGE_BYTES, PLACES_IN_A_SET = 4096, 8


@dataclass(slots=True)
class Plan:
    """The tile of a sum of products."""

    row: int
    """The axis of the result of which several are computed at once."""
    tile: RegisterTile


def schedule_contraction(kernel: Kernel) -> None:
    """A register tile over the whole sum, with its epilogue."""
    schedule, out = kernel.schedule, kernel.outputs[0]
    total = only_sum(kernel)
    if total is None:
        schedule_default(kernel)
        return
    plan = plan_of(kernel, total)
    kernel.choices["tile"] = f"{plan.tile.rows} x {plan.tile.columns}"
    note_sums(kernel, total)
    place_others(kernel, total)
    if schedule[out].op is total:
        tile = schedule.cache_write(out, "local")
    else:
        tile = total.output(0)
        schedule[tile].set_scope("local")
    columns, place = _tile_result(schedule[out], plan, kernel, total)
    schedule[tile].compute_at(schedule[out], place)
    made, row, step = _sum_of_tile(schedule, tile, plan, kernel)
    if columns is not place and not is_dot(total):
        fetch_ahead(schedule[made], row, columns, step)


def _sum_of_tile(
    schedule: Schedule, tile: Tensor, plan: Plan, kernel: Kernel
) -> tuple[Tensor, int, IterVar]:
    """The loops of a tile's sum; gives what reads the products, its rows' axis, and its loop."""
    op = schedule[tile].op
    assert isinstance(op, ComputeOp)
    rows = [op.axis[plan.row]] if plan.row != len(op.axis) - 1 else []
    runs = runs_of(op)
    if runs is not None:
        products = runs.output(0)
        schedule[products].set_scope("local")
        schedule[products].compute_at(schedule[tile], add_runs(schedule[tile], rows))
        row = plan.row + len(op.reduce_axis)
        return products, row, tile_sum(schedule, products, Plan(row, plan.tile))
    if not is_dot(op):
        return tile, plan.row, tile_sum(schedule, tile, plan)
    lanes = dot_lanes(plan.tile.columns, kernel.processor)
    step = add_by_dots(
        schedule[tile], list(op.reduce_axis), rows, lanes, plan.tile.together
    )
    return tile, plan.row, step


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


def plan_of(kernel: Kernel, total: ComputeOp, most: int | None = None) -> Plan:
    """The tile that suits a sum and the processor, for all rows or blocks of at most some."""
    processor, products = kernel.processor, products_of(total)
    lanes = processor.lanes(products.output(0).dtype)
    if is_dot(total):
        lanes = dot_lanes(dot_block(total), processor)
    sizes = extents_of(products.axis)
    row = _row_axis(products, sizes)
    rows = min(sizes[row], most or sizes[row]) if row != len(sizes) - 1 else 1
    block = block_of(total)
    highest = _rows_in_a_set(products, row)
    if is_dot(total):
        depth = extents_of(total.reduce_axis)[-1]
        tile = dot_tile(processor, rows, sizes[-1], lanes, depth, block, highest)
    elif rows == 1:
        tile = register_tile(
            rows, sizes[-1], lanes, processor.tile_registers, block, highest,
            throughput=processor.throughput
        )
    else:
        step = window_first(list(products.reduce_axis))[-1]
        dtype, depth = products.output(0).dtype, depth_of(products, step)
        throughput = processor.smt_throughput
        tile = tile_of_rows(processor, rows, sizes[-1], dtype, depth, block, highest, throughput)
    return Plan(row - len(products.axis) + len(total.axis), tile)


def depth_of(total: ComputeOp, step: IterVar) -> int:
    """How many numbers a loop of a sum reads that lie side by side in every row; 1 if they do not.

    They are of the sum's own type.
    """
    data = _rows_load(total)
    if data is None:
        return 1
    last = data.indices[-1]
    parts = (last.a, last.b) if isinstance(last, Add) else (last,)
    alone = any(part is step.var for part in parts)
    steps = sum(step.var in variables_in(part) for part in parts)
    return extents_of([step])[0] if alone and steps == 1 else 1


def _rows_in_a_set(total: ComputeOp, row: int) -> int:
    """How many rows of what is read once for each row a tile may have."""
    var, body = total.axis[row].var, total.body[0]
    assert isinstance(body, Reduce)
    for load in loads_of(body):
        for place, index in enumerate(load.indices):
            behind = [build.int_value(extent) for extent in load.tensor.shape[place + 1 :]]
            if index is var and None not in behind:
                return most_rows(math.prod(n or 0 for n in behind) * load.dtype.bytes)
    return MOST_ROWS


def most_rows(bytes_apart: int) -> int:
    """How many rows a tile may have so that what it reads of them stays in the first cache.

    Rows that lie whole pages apart share the few places of one set of it.
    """
    return PLACES_IN_A_SET if bytes_apart and bytes_apart % PAGE_BYTES == 0 else MOST_ROWS


def block_of(total: ComputeOp) -> int | None:
    """The extent of the blocks in which an operand keeps what runs as vectors."""
    if is_dot(total):
        return dot_block(total)
    products = products_of(total)
    vector = products.axis[-1].var
    body = products.body[0]
    assert isinstance(body, Reduce)
    found: set[int] = set()

    def visit(item: object) -> None:
        if isinstance(item, FloorMod) and item.a is vector and isinstance(item.b, IntImm):
            found.add(item.b.value)

    for load in loads_of(body):
        for index in load.indices:
            post_order(index, visit)
    return min(found, default=None)


def _row_axis(total: ComputeOp, sizes: list[int]) -> int:
    """An axis that what is read as vectors does not depend on: its vectors serve many rows."""
    vector = total.axis[-1].var
    body = total.body[0]
    assert isinstance(body, Reduce)
    used: list[set[Var]] = []
    for load in loads_of(body):
        names = {v for index in load.indices for v in variables_in(index)}
        if vector in names:
            used.append(names)
    free = [
        place
        for place in range(len(sizes) - 1)
        if sizes[place] > 1 and any(total.axis[place].var not in names for names in used)
    ]
    return max(free, key=lambda place: (min(sizes[place], 4), place), default=len(sizes) - 1)


def fetch_ahead(stage: Stage, row: int, columns: IterVar, step: IterVar) -> None:
    """Bring the next columns of what lies in memory closer while the rows pass by these.

    Else the first rows of each column would wait for memory, and the others leave it idle.
    """
    op = stage.op
    assert isinstance(op, ComputeOp)
    body = op.body[0]
    assert isinstance(body, Reduce)
    for load in loads_of(body):
        names = {v for index in load.indices for v in variables_in(index)}
        in_memory = isinstance(load.tensor.op, PlaceholderOp)
        if in_memory and op.axis[-1].var in names and op.axis[row].var not in names:
            stage.prefetch(load.tensor, step, 1, columns)


def _tile_result(
    stage: Stage, plan: Plan, kernel: Kernel, total: ComputeOp
) -> tuple[IterVar, IterVar]:
    """The loops over tiles; gives that over columns and the one in which a tile is computed."""
    axes = list(stage.op.axis)
    sizes = extents_of(axes)
    width = plan.tile.columns
    vector_outer, vector = stage.split(axes[-1], factor=width)
    columns = -(-sizes[-1] // width)
    others = [axis for place, axis in enumerate(axes[:-1]) if place != plan.row]
    counts = {id(axis): size for axis, size in zip(axes, sizes, strict=True)}
    counts[id(vector_outer)] = columns
    # columns outside of rows: what is read per column stays in the cache over all rows
    loops = [*others[:1], vector_outer, *others[1:]]
    inside = [vector]
    if plan.row != len(axes) - 1:
        row_outer, row = stage.split(axes[plan.row], factor=plan.tile.rows)
        counts[id(row_outer)] = -(-sizes[plan.row] // plan.tile.rows)
        stage.unroll(row)
        loops.append(row_outer)
        inside = [row, vector]
    stage.reorder(*loops, *inside)
    if sizes[-1] > 1:
        lanes = dot_lanes(width, kernel.processor) if is_dot(total) else None
        vectorize_result(stage, vector, width, lanes)
    shared = _share(stage, loops, [counts[id(axis)] for axis in loops])
    held = any(vector_outer is leaf for leaf in stage.leaf_iter_vars)
    return vector_outer if held else shared, loops[-1]


def _share(stage: Stage, loops: list[IterVar], counts: list[int]) -> IterVar:
    """Outer loops for threads; at least one loop stays inside to compute tiles in."""
    taken, pieces = 0, 1
    while taken < len(loops) - 1 and pieces < PIECES:
        pieces *= counts[taken]
        taken += 1
    if taken and pieces > 1:
        shared = stage.fuse(*loops[:taken])
        stage.parallel(shared)
        return shared
    if math.prod(counts) > 1:
        stage.parallel(loops[-1])
    return loops[-1]


def load_together(stage: Stage, step: IterVar, size: RegisterTile) -> IterVar:
    """Load the numbers of a row for several steps at once; products take them from its lanes.

    for k: c[row, :] += a[row, k] * b[k, :]
    ->  for k.outer: held = a[row, k.outer*4 : k.outer*4 + 4]; c[row, :] += held[0] * b[...] ...
    """
    if size.together == 1:
        return step
    outer, inner = stage.split(step, factor=size.together)
    stage.unroll(inner)
    _hold_rows(stage, outer)
    return outer


def _hold_rows(stage: Stage, place: IterVar) -> None:
    assert isinstance(stage.op, ComputeOp)
    data = _rows_load(stage.op)
    assert data is not None
    hold_in_registers(stage, data.tensor, place)


def _rows_load(op: ComputeOp) -> ProducerLoad | None:
    """What a sum reads number by number; None unless all that it reads is of its own type."""
    body = op.body[0]
    assert isinstance(body, Reduce)
    loads, vector = loads_of(body), op.axis[-1].var
    single = [
        load
        for load in loads
        if all(vector not in variables_in(index) for index in load.indices)
    ]
    same = all(load.dtype == op.output(0).dtype for load in loads)
    return single[0] if len(loads) == 2 and len(single) == 1 and same else None


def tile_sum(schedule: Schedule, tile: Tensor, plan: Plan) -> IterVar:
    """Accumulators outside, the sum's loops around them; gives the innermost that is a loop."""
    stage = schedule[tile]
    axes, reduced = list(stage.op.axis), list(stage.op.reduce_axis)
    ordered = window_first(reduced)
    last = ordered[-1]
    inner: list[IterVar] = [last]
    size = extents_of([last])[0]
    together = plan.tile.together
    steps = together if together > 1 else UNROLLED_STEPS
    if size % steps == 0 and size > steps:
        outer, step = stage.split(last, factor=steps)
        stage.unroll(step)
        if together > 1:
            _hold_rows(stage, outer)
        inner = [outer, step]
    elif size <= 8:
        stage.unroll(last)
    rows = [axes[plan.row]] if plan.row != len(axes) - 1 else []
    others = [axis for axis in axes[:-1] if axis not in rows]
    stage.reorder(*others, *ordered[:-1], *inner, *rows, axes[-1])
    for row in rows:
        stage.unroll(row)
    stage.vectorize(axes[-1])
    return inner[0]
