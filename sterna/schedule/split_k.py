"""A convolution of one pixel that makes few channels of many, as in squeeze-and-excite blocks.

There are too few results for threads to share them: they share the sum. Each multiplies some of the
channels, of which it makes the averages itself where the pixel is an average of an image; what the
parts give is added at the end.
"""

import math
from typing import Any

from sterna.ir.types import TensorType
from sterna.relay.expr import Call
from sterna.relay.layout import layout_of
from sterna.relay.op import is_call_of
from sterna.schedule.choose import choose
from sterna.schedule.default import (
    MOST_BESIDE,
    PARALLEL_ELEMENTS,
    extents_of,
    vectorize_result,
)
from sterna.schedule.gemm import ancestors
from sterna.schedule.kernel import Kernel, Processor
from sterna.schedule.sum_of_products import description_of
from sterna.te import ComputeOp, Stage

# About so many parts of a sum: enough for many threads, and few to add.
PARTS = 16


def averages_itself(conv: Call, before: Call, processor: Processor) -> bool:
    """Whether a convolution runs in one kernel with the average over an image that it reads."""
    kinds = [part.checked_type for part in (conv, *conv.args, before)]
    if not is_call_of(before, "nn.global_avg_pool2d"):
        return False
    if not all(isinstance(k, TensorType) and k.is_static and k.dtype == "float32" for k in kinds):
        return False
    attrs: Any = conv.attrs
    pool: Any = before.attrs
    layouts = {attrs.data_layout, attrs.out_layout or attrs.data_layout}
    layouts |= {pool.layout, pool.out_layout or pool.layout}
    result, pixel, weight, average = (kind.concrete_shape for kind in kinds)  # type: ignore[attr-defined]
    window = layout_of(attrs.kernel_layout).dims(weight)
    if layouts != {"NHWC"} or attrs.groups > 1 or {window["H"], window["W"]} != {1}:
        return False
    return pixel == average and _gives_few(result, pixel[-1], processor)


def _gives_few(result: tuple[int, ...] | list[int], channels: int, processor: Processor) -> bool:
    """Whether a sum over so many channels gives few numbers, which registers hold."""
    *others, made = result
    lanes = processor.vector_bits // 32
    few = 1 < made <= min(channels - 1, lanes * processor.vector_registers // 2)
    return math.prod(others) == 1 and few and channels % lanes == 0


def is_squeeze(kernel: Kernel, sums: list[ComputeOp]) -> bool:
    """Whether a kernel is a convolution of one pixel to few channels, or of an average."""
    if not 1 <= len(sums) <= 2 or len(kernel.outputs) != 1 or kernel.row_sums is not None:
        return False
    *averages, total = sums
    made = None if (described := description_of(total)) is None else described.contraction
    if made is None or made.groups > 1 or made.taps > 1 or made.out_layout != "NHWC":
        return False
    if {*map(str, made.dtypes)} != {"float32"}:
        return False
    if averages and averages[0] not in ancestors(total):
        return False
    return _gives_few((made.pixels, made.outputs), made.depth, kernel.processor)


def schedule_squeeze(kernel: Kernel, sums: list[ComputeOp]) -> None:
    """The sum in parts that threads share, with the averages that they read."""
    *averages, total = sums
    schedule, out = kernel.schedule, kernel.outputs[0]
    made = description_of(total)
    assert made is not None
    pixel, channels = made.accesses[0].tensor, made.depths[0]
    lanes = kernel.processor.lanes(out.dtype)
    parts = _parts(channels // lanes)
    final = _in_registers(kernel, total)
    part, _ = final.split(final.op.reduce_axis[0], nparts=parts)
    partial = schedule[schedule.rfactor(final.op.output(0), part)]
    place, *ones, column = partial.op.axis
    partial.set_scope("global")
    partial.reorder(place, *ones, *partial.op.reduce_axis, column)
    partial.vectorize(column)
    work = channels * extents_of(total.axis)[-1]
    for average in averages:
        work += math.prod(extents_of([*average.axis, *average.reduce_axis]))
        for stage in (schedule[average], schedule[pixel]):
            stage.compute_at(partial, place)
            _by_vectors(stage, channels // parts // lanes, lanes)
    if work >= PARALLEL_ELEMENTS:
        partial.parallel(place)
    _add_parts(schedule[out], final)
    kernel.choices["schedule"] = f"one pixel, {channels} channels in {parts} parts"


def _parts(vectors: int) -> int:
    """Into how many parts of the same size so many vectors are cut."""
    fitting = [n for n in range(1, vectors + 1) if vectors % n == 0]
    return choose("split-K parts", fitting, lambda n: abs(n - PARTS))


def _in_registers(kernel: Kernel, total: ComputeOp) -> Stage:
    """The sum as a stage of its own; what follows it is computed where the result is stored."""
    schedule, out = kernel.schedule, kernel.outputs[0]
    if schedule[out].op is total:
        return schedule[schedule.cache_write(out, "local")]
    for stage in schedule.stages:
        op = stage.op
        if isinstance(op, ComputeOp) and not op.reduce_axis and not stage.is_output:
            stage.compute_inline()
    found = schedule[total]
    found.set_scope("local")
    return found


def _by_vectors(stage: Stage, count: int, lanes: int) -> None:
    """So many vectors of channels, several of them side by side."""
    *_, channel = stage.op.axis
    beside = max(n for n in range(1, MOST_BESIDE + 1) if count % n == 0)
    outer, inner = stage.split(channel, factor=beside * lanes)
    several, vector = stage.split(inner, factor=lanes)
    stage.reorder(outer, *stage.op.reduce_axis, several, vector)
    stage.unroll(several)
    stage.vectorize(vector)


def _add_parts(result: Stage, final: Stage) -> None:
    """The sum of what the parts gave, and what follows it."""
    *_, one, column = result.op.axis
    final.compute_at(result, one)
    *ones, own = final.op.axis
    final.reorder(*ones, *final.op.reduce_axis, own)
    final.vectorize(own)
    vectorize_result(result, column, extents_of([column])[0])
