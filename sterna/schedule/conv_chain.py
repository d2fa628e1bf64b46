"""A convolution of single pixels and the depthwise one that reads its result, in one kernel.

The first makes many channels of few. Where they would not stay in the second cache, both run over
one band of rows after the other, and what lies between them is never in memory. Bands overlap by
the height of the window less its step; those rows are computed twice.
"""

import math
from dataclasses import dataclass

from sterna.ir.types import Type, flatten_type
from sterna.relay.expr import Call
from sterna.schedule.choose import choose, deciding, near
from sterna.schedule.chunked_sum_stages import sums_of
from sterna.schedule.contraction import Contraction
from sterna.schedule.conv_stages import side_by_side, steps_of, write_out
from sterna.schedule.cost import KERNEL, STREAMED, products_per_cycle, regions
from sterna.schedule.default import schedule_as_written, vectorize_result
from sterna.schedule.depthwise_conv import depthwise_columns, write_window_out
from sterna.schedule.direct_conv import schedule_conv
from sterna.schedule.gemm import load_together
from sterna.schedule.kernel import Kernel, Processor
from sterna.schedule.loops import extents_of
from sterna.schedule.packed import contraction_of_call, expression_of
from sterna.schedule.register_tile import tile_of_rows
from sterna.schedule.row_sums import compute_tile, outer_stage, pixel_axes, sum_afterwards
from sterna.schedule.split_k import averages_itself, is_split, schedule_split_k
from sterna.schedule.sum_of_products import DIRECT, description_of
from sterna.te import ComputeOp, IterVar, Stage, Tensor

# The largest share of what lies between that is computed twice.
MOST_TWICE = 1 / 8


SEPARATE, TOGETHER = "in two kernels", "in one kernel"


@dataclass(frozen=True, slots=True)
class Chain:
    """What two calls cost beside their products, in cycles: in two kernels, and in one."""

    separate: float
    together: float


def runs_in_chain(conv: Call, before: Call, processor: Processor) -> bool:
    """Whether a convolution is computed together with what its data comes from.

    One of a single pixel with the average that this is. A depthwise one with the one before it
    where what lies between them leaves the second cache and little of it is computed twice.
    """
    chain = _chain_of(conv, before, processor)
    if chain is None:
        return False
    costs = {SEPARATE: chain.separate, TOGETHER: chain.together}
    with deciding(str(contraction_of_call(conv))):
        return choose("chain", tuple(costs), costs.__getitem__) == TOGETHER


def _chain_of(conv: Call, before: Call, processor: Processor) -> Chain | None:
    """The costs of two calls that can run in one kernel; None if they cannot."""
    if averages_itself(conv, before):
        image = _bytes_of(before.args[0].checked_type)
        far = image > processor.l2_bytes  # parts of lines come from there, in several passes
        moved = KERNEL + 2 * _bytes_of(before.checked_type) / STREAMED
        return Chain(moved + regions(1, processor), image / STREAMED if far else 0.0)
    second, first = contraction_of_call(conv), contraction_of_call(before)
    if first is None or second is None or conv.args[0].checked_type != before.checked_type:
        return None
    if not _reads_channels(conv, second, processor) or not _is_of_single_pixels(before, first):
        return None
    row = second.image[1] * second.inputs * second.data.bytes
    window, step = second.window[0], second.strides[0]
    rows = rows_of_a_band(second.result[0], row, window, step, processor)
    twice = max(0, window - step) / (rows * step)
    if twice > MOST_TWICE:
        return None
    far = second.image[0] * row > processor.l2_bytes // 2
    moved = 2 * _bytes_of(before.checked_type) / STREAMED if far else 0.0
    products = first.macs / products_per_cycle(processor) / processor.threads
    return Chain(moved, twice * products)


def _reads_channels(conv: Call, made: Contraction, processor: Processor) -> bool:
    """Whether a convolution is a depthwise one of whole vectors of floats, channels last."""
    how = expression_of(conv.attrs)
    if how is None or not made.is_depthwise or not made.channels_last or made.rank != 2:
        return False
    layout = how.weights or conv.attrs.kernel_layout  # type: ignore[union-attr]
    plain = layout == "HWOI" and made.border == 0 and {*made.dilation} == {1}
    floats = made.data.is_float and made.data == made.out
    return plain and floats and made.outputs % processor.lanes(made.out) == 0


def _is_of_single_pixels(conv: Call, made: Contraction) -> bool:
    """Whether a convolution is a pointwise one, channels last, whose sums are made at once."""
    how = expression_of(conv.attrs)
    if how is None or how.schedule != DIRECT or how.flat or how.chunk not in (0, made.depth):
        return False
    return made.is_pointwise and made.channels_last and not made.is_matrix and made.groups == 1


def _bytes_of(kind: Type) -> int:
    kinds = flatten_type(kind)
    return sum(math.prod(each.concrete_shape) * each.dtype.bytes for each in kinds)


def rows_of_a_band(
    height: int, row_bytes: int, window: int, step: int, processor: Processor
) -> int:
    """Rows of the result for which what they read fills half of the second cache at most."""
    most = (processor.l2_bytes // 2 // row_bytes - window) // step + 1
    bands = -(-height // max(1, most))
    bands += -bands % processor.threads
    return -(-height // min(bands, height))


def schedule_convs(kernel: Kernel) -> None:
    """A convolution, alone or with the convolution or the average that its data comes from."""
    if not isinstance(kernel.anchor[0].op, ComputeOp):
        schedule_as_written(kernel)
        return
    sums = sums_of(kernel)
    described = [found for total in sums if (found := description_of(total)) is not None]
    if len(sums) == len(described) == 2 and len(kernel.outputs) == 1:
        _schedule_chain(kernel, sums[0], sums[1])
    elif sums and is_split(kernel, sums[-1]):
        schedule_split_k(kernel, sums)
    else:
        schedule_conv(kernel)
    if kernel.row_sums is not None:
        sum_afterwards(kernel, kernel.row_sums)


def gives_row_sums(conv: Call, processor: Processor) -> bool:
    """Whether a convolution is a depthwise one of whole vectors of floats."""
    made = contraction_of_call(conv)
    return made is not None and _reads_channels(conv, made, processor)


def _schedule_chain(kernel: Kernel, first: ComputeOp, second: ComputeOp) -> None:
    schedule, processor = kernel.schedule, kernel.processor
    reader = description_of(second)
    assert reader is not None
    between = reader.accesses[0].tensor
    for other in schedule.stages:
        if isinstance(other.op, ComputeOp) and not other.op.reduce_axis and not other.is_output:
            other.compute_inline()
    _, height, *_ = extents_of(second.axis)
    _, high, wide, channels = extents_of(first.axis)
    window = extents_of(second.reduce_axis)[0]
    row = wide * channels * between.dtype.bytes
    fitting = rows_of_a_band(height, row, window, -(-high // height), processor)
    rows = choose("band rows", range(1, height + 1), near(fitting))
    result, piece = _tile_result(kernel, second, rows)
    made = _in_registers(kernel, between, first)
    schedule[between].compute_at(result, piece)
    tile = _tile_between(kernel, schedule[between], made)
    kernel.choices["tile"] = tile
    kernel.choices["schedule"] = f"in a chain, tiles of {tile}, bands of {rows} rows"


def _in_registers(kernel: Kernel, result: Tensor, total: ComputeOp) -> Stage:
    """The sum as a stage of its own."""
    schedule = kernel.schedule
    if result.op is total:
        return schedule[schedule.cache_write(result, "local")]
    made = schedule[total.output(0)]
    made.set_scope("local")
    return made


def _tile_result(kernel: Kernel, total: ComputeOp, rows: int) -> tuple[Stage, IterVar]:
    """The loops of the depthwise sum; gives that over bands."""
    out, processor = kernel.outputs[0], kernel.processor
    tile, stage = _in_registers(kernel, out, total), outer_stage(kernel)
    n, h, w, c = pixel_axes(stage)
    columns = depthwise_columns(extents_of([w])[0], processor)
    band, row = stage.split(h, factor=rows)
    across, column = stage.split(w, factor=columns)
    block, vector = stage.split(c, factor=processor.lanes(out.dtype))
    stage.reorder(n, band, row, across, block, column, vector)
    piece = stage.fuse(n, band)
    stage.parallel(piece)
    stage.pragma(across, "loop_partition_hint", True)
    stage.unroll(column)
    stage.vectorize(vector)
    tile.compute_at(stage, block)
    compute_tile(kernel, block)
    write_window_out(tile)
    return stage, piece


def _tile_between(kernel: Kernel, stage: Stage, tile: Stage) -> str:
    """The loops of the first sum within a band; gives the size of their tile."""
    processor = kernel.processor
    n, h, w, c = stage.op.axis
    _, _, width, channels = extents_of(stage.op.axis)
    made, dtype = description_of(tile.op), stage.op.output(0).dtype
    assert made is not None
    size = tile_of_rows(processor, width, channels, dtype, side_by_side(made), made.block)
    block, vector = stage.split(c, factor=size.columns)
    across, column = stage.split(w, factor=size.rows)
    stage.reorder(n, block, h, across, column, vector)
    stage.unroll(column)
    vectorize_result(stage, vector, size.columns)
    tile.compute_at(stage, across)
    write_out(tile, steps_of(tile))
    load_together(tile, made, tile.op.reduce_axis[0], size)
    return f"{size.rows} x {size.columns}"
