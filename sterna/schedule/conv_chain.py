"""A convolution of single pixels and the depthwise one that reads its result, in one kernel.

The first makes many channels of few. Where they would not stay in the second cache, both run over
one band of rows after the other, and what lies between them is never in memory. Bands overlap by
the height of the window less its step; those rows are computed twice.
"""

from typing import Any

from sterna.ir.types import TensorType
from sterna.relay.expr import Call
from sterna.relay.layout import layout_of
from sterna.relay.op import is_call_of
from sterna.schedule.choose import choose, near
from sterna.schedule.chunked_sum_stages import sums_of
from sterna.schedule.conv_stages import side_by_side, steps_of, write_out
from sterna.schedule.default import extents_of, schedule_as_written, vectorize_result
from sterna.schedule.depthwise_conv import depthwise_columns, write_window_out
from sterna.schedule.direct_conv import schedule_conv
from sterna.schedule.gemm import load_together
from sterna.schedule.kernel import Kernel, Processor
from sterna.schedule.register_tile import tile_of_rows
from sterna.schedule.row_sums import compute_tile, outer_stage, pixel_axes, sum_afterwards
from sterna.schedule.split_k import averages_itself, is_squeeze, schedule_squeeze
from sterna.schedule.sum_of_products import description_of
from sterna.te import ComputeOp, IterVar, Stage, Tensor

# The largest share of what lies between that is computed twice.
MOST_TWICE = 1 / 8


def is_direct(conv: Call) -> bool:
    """Whether a convolution runs as a sum of products, and by no other implementation."""
    return not conv.attrs.implementation  # type: ignore[union-attr]


def runs_in_chain(conv: Call, before: Call, processor: Processor) -> bool:
    """Whether a convolution is computed together with what its data comes from.

    One of a single pixel with the average that this is. A depthwise one with the one before it
    where what lies between them leaves the second cache and little of it is computed twice.
    """
    if not is_direct(conv):
        return False
    if not is_call_of(before, "nn.conv2d"):
        return averages_itself(conv, before, processor)
    if not is_direct(before):
        return False
    kinds = [part.checked_type for part in (conv, conv.args[0], before)]
    known = [kind for kind in kinds if isinstance(kind, TensorType) and kind.is_static]
    if len(known) < len(kinds) or known[1] != known[2]:
        return False
    result, between, _ = known
    if not _is_depthwise(conv, between.shape[-1]) or not _is_of_single_pixels(before):
        return False
    attrs: Any = conv.attrs
    _, _, wide, channels = between.concrete_shape
    row = wide * channels * between.dtype.bytes
    if channels % processor.lanes(between.dtype) or between.dtype != result.dtype:
        return False
    if not between.dtype.is_float:
        return False
    if between.concrete_shape[1] * row <= processor.l2_bytes // 2:
        return False
    window, step = _window(conv)[0], attrs.strides[0]
    rows = rows_of_a_band(result.concrete_shape[1], row, window, step, processor)
    return bool(max(0, window - step) <= MOST_TWICE * rows * step)


def _is_depthwise(conv: Call, channels: Any) -> bool:
    attrs: Any = conv.attrs
    layouts = {attrs.data_layout, attrs.out_layout or attrs.data_layout}
    alone = attrs.groups == channels > 1 and attrs.kernel_layout == "HWOI" and not attrs.border
    weights: Any = conv.args[1].checked_type
    return alone and layouts == {"NHWC"} and set(attrs.dilation) == {1} and weights.shape[-1] == 1


def _is_of_single_pixels(conv: Call) -> bool:
    attrs: Any = conv.attrs
    layouts = {attrs.data_layout, attrs.out_layout or attrs.data_layout}
    moves = {*attrs.strides, *_window(conv)} != {1} or any((*attrs.before, *attrs.after))
    data: Any = conv.args[0].checked_type
    at_once = attrs.run in (0, data.shape[-1])
    return layouts == {"NHWC"} and attrs.groups == 1 and not moves and at_once


def _window(conv: Call) -> tuple[Any, Any]:
    attrs: Any = conv.attrs
    weights: Any = conv.args[1].checked_type
    extents = layout_of(attrs.kernel_layout).dims(weights.shape)
    return extents["H"], extents["W"]


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
    elif is_squeeze(kernel, sums):
        schedule_squeeze(kernel, sums)
    else:
        schedule_conv(kernel)
    if kernel.row_sums is not None:
        sum_afterwards(kernel, kernel.row_sums)


def gives_row_sums(conv: Call, processor: Processor) -> bool:
    """Whether a convolution is a depthwise one of whole vectors of floats."""
    kind = conv.checked_type
    assert isinstance(kind, TensorType)
    channels: Any = kind.shape[-1]
    whole = is_direct(conv) and kind.dtype.is_float and channels % processor.lanes(kind.dtype) == 0
    return whole and _is_depthwise(conv, channels)


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
