"""A convolution of one pixel that makes few channels of many, as in squeeze-and-excite blocks.

There are too few results for threads to share them: they share the sum. Each multiplies some of the
channels, of which it makes the averages itself where the pixel is an average of an image; what the
parts give is added at the end.
"""

import math

from sterna.relay.expr import Call, Var
from sterna.relay.op import record_of
from sterna.schedule.choose import choose, near
from sterna.schedule.contraction import Contraction
from sterna.schedule.default import MOST_BESIDE, vectorize_result
from sterna.schedule.implementation import plan_of
from sterna.schedule.kernel import Kernel, Processor
from sterna.schedule.loops import PARALLEL_ELEMENTS, extents_of
from sterna.schedule.sum_of_products import description_of
from sterna.te import ComputeOp, Stage

SPLIT_K = "split_k"
# About so many parts of a sum: enough for many threads, and few to add.
PARTS = 16


def has_one_pixel(made: Contraction) -> bool:
    """Whether a contraction is a pointwise convolution of one pixel of float32, channels last."""
    floats = {*map(str, made.dtypes)} == {"float32"}
    one = made.pixels == made.groups == made.taps == 1
    return floats and one and made.out_layout == "NHWC"


def fills_registers(made: Contraction, processor: Processor) -> bool:
    """Whether a sum over channels in whole vectors gives few numbers, which registers hold."""
    lanes = processor.lanes(made.out)
    few = 1 < made.outputs <= min(made.depth - 1, lanes * processor.vector_registers // 2)
    return few and made.depth % lanes == 0


def averages_itself(conv: Call, before: Call) -> bool:
    """Whether a convolution runs in one kernel with the average over an image that it reads."""
    record, plan = record_of(before), plan_of(conv.attrs)
    if record is None or record.of_row_sums is None or plan is None or plan.name != SPLIT_K:
        return False
    sums = Var("sums", before.args[0].checked_type)
    same = conv.args[0].checked_type == before.checked_type
    return same and record.of_row_sums(before, sums) is not None


def is_split(kernel: Kernel, total: ComputeOp) -> bool:
    """Whether a sum is planned so, and its channels fill this processor's vectors."""
    made = description_of(total)
    if made is None or made.implementation != SPLIT_K:
        return False
    return made.depths[0] % kernel.processor.lanes(kernel.outputs[0].dtype) == 0


def schedule_split_k(kernel: Kernel, sums: list[ComputeOp]) -> None:
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
    return choose("split-K parts", fitting, near(PARTS))


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
