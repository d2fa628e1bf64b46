"""Sums of the rows of an image, made beside it while its rows are in the innermost cache.

The stage of the sums has the loops over rows and channels, and the image is computed in them.
"""

from collections.abc import Sequence

from sterna.ir import build
from sterna.schedule.default import loads_of, schedule_reduction
from sterna.schedule.kernel import Kernel
from sterna.te import ComputeOp, IterVar, Stage, Tensor
from sterna.te.tensor import Reduce


def sums_rows(outputs: Sequence[Tensor]) -> bool:
    """Whether the second of two outputs is the sums of the rows of the first."""
    if len(outputs) != 2:
        return False
    image, sums = outputs
    body = sums.op.body[0] if isinstance(sums.op, ComputeOp) else None
    if not isinstance(body, Reduce) or image.ndim != 4:
        return False
    batch, height, _, channels = map(build.int_value, image.shape)
    if list(map(build.int_value, sums.shape)) != [batch, height, 1, channels]:
        return False
    terms = [load.tensor for load in loads_of(body)]
    while len(terms) == 1 and terms[0] != image and isinstance(terms[0].op, ComputeOp):
        terms = list(terms[0].op.input_tensors)
    return terms == [image]


def outer_stage(kernel: Kernel) -> Stage:
    """The stage whose loops are around everything else: that of the sums if there are any."""
    first = kernel.outputs[0] if kernel.row_sums is None else kernel.row_sums
    return kernel.schedule[first]


def pixel_axes(stage: Stage) -> list[IterVar]:
    """The axes of an image, which are also those of the sums of its rows."""
    n, h, w, c = stage.op.axis
    return [n, h, *(stage.op.reduce_axis or [w]), c]


def compute_tile(kernel: Kernel, place: IterVar) -> None:
    """Compute the pixels that a loop of the sums of rows adds up inside it."""
    image, sums = kernel.schedule[kernel.outputs[0]], outer_stage(kernel)
    if image is not sums:
        image.compute_at(sums, place)
        image.unroll(image.op.axis[2])
        image.vectorize(image.op.axis[3])


def sum_afterwards(kernel: Kernel, sums: Tensor) -> None:
    """Let sums read a finished image, unless the schedule has made the image in their loops."""
    if kernel.schedule[kernel.outputs[0]].attach_type == "root":
        schedule_reduction(kernel, kernel.schedule[sums])
