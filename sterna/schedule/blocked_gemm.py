"""The schedule of products with packed weights whose data is larger than the second cache.

Every column of tiles reads all of the data. Many rows are therefore taken in blocks, and a long sum
as well: a block of the data stays in the cache while columns pass by, and what they add to their
sums is collected in memory, a few columns wide, until the whole sum has been there.
"""

from dataclasses import dataclass

from sterna.schedule.choose import choose, near
from sterna.schedule.default import schedule_as_written, vectorize_result
from sterna.schedule.gemm import (
    UNROLLED_STEPS,
    Plan,
    fetch_ahead,
    only_sum,
    place_others,
    plan_of,
    schedule_contraction,
    tile_sum,
)
from sterna.schedule.kernel import Kernel
from sterna.schedule.sum_of_products import SumOfProducts, description_of
from sterna.te import ComputeOp, IterVar, Stage

# Lower blocks read the weights too often, shorter ones spend too much on collecting their sums.
LEAST_ROWS, MOST_ROWS, LEAST_DEPTH = 96, 256, 128


@dataclass(frozen=True, slots=True)
class Blocks:
    """How a product is cut."""

    rows: int
    depth: int
    """Elements of the sum that are computed at once."""
    columns: int
    """Columns of tiles whose sums are collected together."""


def schedule_product(kernel: Kernel) -> None:
    """A register tile with its epilogue; large data in blocks that stay in the second cache."""
    if not isinstance(kernel.anchor[0].op, ComputeOp):
        schedule_as_written(kernel)
        return
    total = only_sum(kernel)
    made = None if total is None else description_of(total)
    plain = made is not None and not made.is_dot and not made.chunk_roles
    blocks = blocks_of(kernel, made) if made is not None and plain else None
    if total is None or made is None or blocks is None:
        schedule_contraction(kernel)
        return
    plan = plan_of(kernel, made, blocks.rows)
    kernel.choices["tile"] = f"{plan.tile.rows} x {plan.tile.columns}"
    kernel.choices["blocks"] = (
        f"{blocks.rows} rows, {blocks.depth} deep, {blocks.columns} tiles wide"
    )
    schedule, out = kernel.schedule, kernel.outputs[0]
    place_others(kernel, total)
    is_result = schedule[out].op is total
    sums = schedule.cache_write(out, "global") if is_result else total.output(0)
    outer, _ = schedule[sums].split(schedule[sums].op.reduce_axis[0], factor=blocks.depth)
    partial = schedule.rfactor(sums, outer)
    place = _tile_result(schedule[out], plan, blocks)
    schedule[sums].compute_at(schedule[out], place)
    columns, rows = _collect(schedule[sums], plan)
    schedule[partial].set_scope("local")
    schedule[partial].compute_at(schedule[sums], rows)
    step = tile_sum(schedule, partial, made, Plan(plan.row + 1, plan.tile))
    fetch_ahead(schedule[partial], made, plan.row, columns, step)


def blocks_of(kernel: Kernel, made: SumOfProducts) -> Blocks | None:
    """The blocks of a product; None if its data fits into the cache, or it has no such form."""
    plan = plan_of(kernel, made)
    sizes, width = made.sizes, plan.tile.columns
    depth = made.steps[0] if len(made.steps) == 1 else None
    if depth is None or plan.row == made.columns or made.block != width:
        return None
    cache, item = kernel.processor.l2_bytes, made.dtype.bytes
    columns = sizes[-1] // width
    if columns < 4 or sizes[-1] % width or sizes[plan.row] * depth * item <= cache // 2:
        return None
    rows = _rows_of_a_block(sizes[plan.row])
    fitting = [
        block
        for block in range(LEAST_DEPTH, depth + 1)
        if depth % block == 0
        and block % UNROLLED_STEPS == 0
        and block * (rows + 2 * width) * item <= cache // 2
    ]
    pieces = _pieces(columns, kernel.processor.threads, rows * width * item, cache // 8)
    if not fitting or pieces is None or rows < 4 * plan.tile.rows:
        return None
    depth = choose("block depth", fitting, near(max(fitting)))
    return Blocks(rows, depth, columns // pieces)


def _rows_of_a_block(rows: int) -> int:
    """The most that are not too many and leave none over; all if there is no such number."""
    fitting = [n for n in range(LEAST_ROWS, MOST_ROWS + 1) if rows % n == 0] or [rows]
    return choose("block rows", fitting, near(max(fitting)))


def _pieces(columns: int, threads: int, column_bytes: int, most_bytes: int) -> int | None:
    """Into how many pieces columns are cut: some for each thread, of sums that are not too many."""
    fitting = [
        n
        for n in range(threads, columns + 1)
        if columns % n == 0 and columns // n * column_bytes <= most_bytes
    ]
    if not fitting:
        return None
    even = min([n for n in fitting if n % threads == 0] or fitting)
    return choose("block columns", fitting, near(even))


def _tile_result(stage: Stage, plan: Plan, blocks: Blocks) -> IterVar:
    """The loops of the epilogue; gives the one in which sums are collected."""
    *others, last = list(stage.op.axis)
    high, row = stage.split(others.pop(plan.row), factor=blocks.rows)
    wide, inside = stage.split(last, factor=blocks.columns * plan.tile.columns)
    tile, vector = stage.split(inside, factor=plan.tile.columns)
    stage.reorder(*others, high, wide, row, tile, vector)
    vectorize_result(stage, vector, plan.tile.columns)
    place = stage.fuse(*others, high, wide)
    stage.parallel(place)
    return place


def _collect(stage: Stage, plan: Plan) -> tuple[IterVar, IterVar]:
    """The loops that add a block's sums; gives those over columns and over rows of tiles."""
    *others, last = list(stage.op.axis)
    row = others.pop(plan.row)
    columns, vector = stage.split(last, factor=plan.tile.columns)
    rows, row_inside = stage.split(row, factor=plan.tile.rows)
    stage.reorder(*others, *stage.op.reduce_axis, columns, rows, row_inside, vector)
    stage.unroll(row_inside)
    stage.vectorize(vector)
    return columns, rows
