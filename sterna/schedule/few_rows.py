"""Products of few rows with an operand that only the run knows, which is read once, as it lies.

Packing would take longer than the product. Where neighbours in memory are steps of the sum, tiles
of dot products collect it in the lanes of vectors; where they are columns, a few steps of the sum
at a time are added to many columns, whose sums stay in the first cache.
"""

import math

from sterna.schedule.choose import choose, near
from sterna.schedule.default import vectorize_result
from sterna.schedule.kernel import Kernel, Processor
from sterna.schedule.sum_of_products import SumOfProducts
from sterna.te import ComputeOp, IterVar, Schedule, Stage, Tensor

# Steps of the sum that are added to sums in memory at once.
STEPS = 4
# Columns of a row that is computed alone: each sum waits for its own additions.
COLUMNS_OF_A_ROW = 8
# Lanes of a vector that are added one by one at the end.
ADDED_LANES = 4
MOST_SIDE = 4
# Multiply-adds that are worth waking threads for.
PARALLEL_PRODUCTS = 1 << 16


def schedule_dots(kernel: Kernel, tile: Tensor, made: SumOfProducts, row: int) -> str:
    """Dot products of some rows and columns at once, with vectors along the sum."""
    schedule, out = kernel.schedule, kernel.schedule[kernel.outputs[0]]
    op = schedule[tile].op
    assert isinstance(op, ComputeOp)
    rows, columns = _dot_tile(kernel.processor, made, row)
    *outer, innermost = _tiles(out, made, row, rows, columns)
    alone = row == made.columns  # all loops are over columns then
    if made.has_open_columns and math.prod(made.sizes[:-1]) > 1:
        # the guard of the last columns is peeled off a loop over columns alone
        _share(kernel, made, outer)
        shared = innermost
    else:
        shared = _share(kernel, made, [*outer, innermost] if alone else outer)
    lanes = kernel.processor.lanes(made.dtype)
    _, lane = schedule[tile].split(op.reduce_axis[0], factor=lanes)
    partial = schedule[schedule.rfactor(tile, lane, factor_axis=len(op.axis))]
    folded = _fold_lanes(schedule, tile, lanes)
    total = schedule[tile]
    for stage in (partial, *folded, total):
        stage.compute_at(out, shared if alone else innermost)
    for axis in (*total.op.axis, *total.op.reduce_axis):
        total.unroll(axis)
    *own, vector = partial.op.axis
    partial.reorder(*partial.op.reduce_axis, *own, vector)
    partial.pragma(partial.op.reduce_axis[0], "loop_partition_hint", True)
    for axis in own:
        partial.unroll(axis)
    partial.vectorize(vector)
    return f"dot products, {rows} x {columns} of them in registers"


def _fold_lanes(schedule: Schedule, tile: Tensor, lanes: int) -> list[Stage]:
    """Add the quarters of wide vectors, as vectors, before their lanes are added one by one."""
    if lanes <= ADDED_LANES:
        return []
    op = schedule[tile].op
    assert isinstance(op, ComputeOp)
    _, lane = schedule[tile].split(op.reduce_axis[0], factor=ADDED_LANES)
    folded = schedule[schedule.rfactor(tile, lane, factor_axis=len(op.axis))]
    *own, vector = folded.op.axis
    for axis in (*own, *folded.op.reduce_axis):
        folded.unroll(axis)
    folded.vectorize(vector)
    return [folded]


def _dot_tile(processor: Processor, made: SumOfProducts, row: int) -> tuple[int, int]:
    """Rows and columns whose sums are in registers, beside a vector of each."""
    sizes = made.sizes
    if row == made.columns:
        most = min(COLUMNS_OF_A_ROW, sizes[-1], processor.tile_registers // 2 - 1)
        return 1, choose("columns", range(1, most + 1), near(most))
    side = min(MOST_SIDE, int(processor.tile_registers**0.5) - 1)
    rows, columns = min(side, sizes[row]), min(side, sizes[-1])
    return choose("rows", range(1, rows + 1), near(rows)), columns


def _tiles(
    out: Stage, made: SumOfProducts, row: int, rows: int, columns: int
) -> list[IterVar]:
    """The loops over tiles of the result, which are written out."""
    axes = list(out.op.axis)
    wide, column = out.split(axes[-1], factor=columns)
    outer, inside = [*axes[:-1], wide], [column]
    if row != made.columns:
        high, inner = out.split(axes[row], factor=rows)
        out.unroll(inner)
        others = [axis for n, axis in enumerate(axes[:-1]) if n != row]
        whole = made.sizes[-1] % columns == 0
        outer = [*others, wide, high] if whole else [*others, high, wide]
        inside = [inner, column]
        if not whole:  # the guard of the last columns is in the last tile of each row alone
            out.pragma(wide, "loop_partition_hint", True)
    out.reorder(*outer, *inside)
    vectorize_result(out, column, columns)
    return outer


def schedule_streamed(kernel: Kernel, tile: Tensor, made: SumOfProducts, row: int) -> str:
    """Sums of a block of columns in memory, to which a few steps of the sum are added at a time."""
    schedule, out = kernel.schedule, kernel.schedule[kernel.outputs[0]]
    lanes = kernel.processor.lanes(made.dtype)
    block = _block(kernel.processor, made, row, lanes)
    *others, last = list(out.op.axis)
    rows = [others.pop(row)] if row != made.columns else []
    wide, column = out.split(last, factor=block)
    vectors, vector = out.split(column, factor=lanes)
    out.reorder(*others, wide, *rows, vectors, vector)
    out.vectorize(vector)
    # The guard of a last vector that is not whole can be peeled off a loop over columns alone.
    if others and made.sizes[-1] % lanes:
        _share(kernel, made, others)
        place = wide
    else:
        place = _share(kernel, made, [*others, wide])
    total = schedule[tile]
    total.set_scope("global")
    total.compute_at(out, place)
    *own, last = list(total.op.axis)
    rows = [own.pop(row)] if row != made.columns else []
    step, inner = total.split(total.op.reduce_axis[0], factor=STEPS)
    vectors, vector = total.split(last, factor=lanes)
    total.reorder(*own, step, vectors, inner, *rows, vector)
    total.pragma(step, "loop_partition_hint", True)
    for axis in (inner, *rows):
        total.unroll(axis)
    total.vectorize(vector)
    return f"blocks of {block} columns, {STEPS} steps of the sum at a time"


def _block(processor: Processor, made: SumOfProducts, row: int, lanes: int) -> int:
    """Columns whose sums stay in the first cache, in even blocks, as many as threads at least."""
    rows = 1 if row == made.columns else made.sizes[row]
    room = processor.l1_bytes // 2 // (rows * made.dtype.bytes)
    vectors = -(-made.sizes[-1] // lanes)
    most = max(1, min(room // lanes, -(-vectors // processor.threads)))
    even = -(-vectors // -(-vectors // most))
    return lanes * choose("vectors of a block", range(1, most + 1), near(even))


def _share(kernel: Kernel, made: SumOfProducts, loops: list[IterVar]) -> IterVar:
    """The loops that threads share, as one."""
    out = kernel.schedule[kernel.outputs[0]]
    shared = out.fuse(*loops) if len(loops) > 1 else loops[0]
    if made.products >= PARALLEL_PRODUCTS:
        out.parallel(shared)
    return shared
