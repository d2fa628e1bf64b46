"""Long reductions: threads share each, along the memory that they read.

Where neighbours of a sum lie side by side, the threads of a row of a block take them in turns;
where neighbouring results do, each of these threads has a result of its own, and rows of threads
share the sum. Few results of very long sums are made in two steps, the first of many blocks.
"""

import math

from sterna.schedule.gpu.access import lanes_along, lies_along, reads_of
from sterna.schedule.gpu.limits import Limits
from sterna.schedule.kernel import Kernel
from sterna.schedule.loops import extents_of
from sterna.te import ComputeOp, IterVar, Stage, thread_axis

# Fewer results than this leave threads idle, so that several share the sum of each.
FEW_RESULTS = 32768
# Sums of fewer elements are not worth sharing, and those of more are shared at all times.
SHORTEST_SHARED = 32
LONG = 1024
# Steps of a sum that one thread takes before more threads share it.
OWN_STEPS = 8
# Steps of a thread whose loads are on the way together.
STEPS_AT_ONCE = 8
# Results side by side that a row of threads has.
COLUMNS = 32
# Bytes that a thread reads of a row: a warp has a line of memory then.
WORD = 4
# Steps of products whose sums are shared, and how many of all results together.
LONG_PRODUCT, SMALL_PRODUCT = 128, 1 << 21
# Rows of threads in a block, each with a result of its own.
ROWS = (8, 4, 2, 1)
# Blocks that keep a device busy, and the least elements of a sum that are worth a block of its
# own: along memory, and across it, where each thread has a sum.
BUSY = 1024
PART, PART_ACROSS = 8192, 256


def is_shared_sum(stage: Stage) -> bool:
    """Whether threads of a block reduce one element together."""
    length = math.prod(extents_of(stage.op.reduce_axis))
    results = math.prod(extents_of(stage.op.axis))
    return length >= SHORTEST_SHARED and (results < FEW_RESULTS or length >= LONG)


def is_sum_across(stage: Stage) -> bool:
    """Whether neighbouring results read neighbours, and sums are long enough to be shared."""
    length = math.prod(extents_of(stage.op.reduce_axis))
    across = bool(stage.op.axis) and lies_along(stage, stage.op.axis[-1])
    return across and length >= SHORTEST_SHARED


def schedule_sum(kernel: Kernel, limits: Limits) -> bool:
    """Schedule a kernel that is one long reduction and what follows it; False if it is none."""
    total = _sum_of(kernel)
    if total is None:
        return False
    schedule, out = kernel.schedule, kernel.outputs[0]
    stage = schedule[total.output(0)]
    _in_parts(kernel, stage, limits)
    if schedule[out].op is stage.op:
        stage = schedule[schedule.cache_write(out, "shared")]
    else:
        stage.set_scope("shared")
    result = schedule[out]
    if result.op.axis and lies_along(stage, stage.op.axis[-1]):
        _by_columns(stage, result, limits)
    else:
        _by_rows(stage, result, limits)
    return True


def is_small_product(kernel: Kernel) -> bool:
    """Whether tiles of a product would be few, and long: threads share each of its sums then."""
    total = _sum_of(kernel)
    if total is None or len(total.input_tensors) < 2:
        return False
    length = math.prod(extents_of(total.reduce_axis))
    *_, last = [axis for axis in total.reduce_axis if extents_of([axis]) != [1]]
    along = lies_along(kernel.schedule[total.output(0)], last)
    return along and length >= LONG_PRODUCT and (
        length * math.prod(extents_of(total.axis)) <= SMALL_PRODUCT
    )


def _sum_of(kernel: Kernel) -> ComputeOp | None:
    """The only reduction of a kernel, if it has an element for each of the result and is long."""
    stages = [s for s in kernel.schedule.stages if s.attach_type == "root"]
    made = [s for s in stages if isinstance(s.op, ComputeOp)]
    sums = [s for s in made if s.op.reduce_axis]
    if len(sums) != 1 or len(kernel.outputs) != 1 or any(
        not s.op.reduce_axis and not s.is_output for s in made
    ):
        return None
    op = sums[0].op
    assert isinstance(op, ComputeOp)
    out = kernel.schedule[kernel.outputs[0]].op
    same = extents_of(op.axis) == extents_of(out.axis) and op.num_outputs == 1
    return op if same and is_shared_sum(sums[0]) else None


def _in_parts(kernel: Kernel, stage: Stage, limits: Limits) -> None:
    """Where few results leave processors idle, many blocks sum parts into memory first."""
    results = math.prod(extents_of(stage.op.axis))
    length = math.prod(extents_of(stage.op.reduce_axis))
    across = bool(stage.op.axis) and lies_along(stage, stage.op.axis[-1])
    columns = COLUMNS * _lanes_across(stage) if across else 1
    blocks = -(-results // columns)
    parts = min(BUSY // max(blocks, 1), length // (PART_ACROSS if across else PART))
    if parts < 2:
        return
    part, _ = stage.split(stage.fuse(*stage.op.reduce_axis), nparts=parts)
    before = 0 if across else len(stage.op.axis)
    made = kernel.schedule.rfactor(stage.op.output(0), part, factor_axis=before)
    first = kernel.schedule[made]
    kernel.choices["parts of a sum"] = parts
    if across:
        _sum_columns(first, limits)
        return
    block = first.fuse(*first.op.axis)
    own, thread = first.split(first.fuse(*first.op.reduce_axis), factor=limits.threads)
    first.reorder(block, thread, own)
    first.bind(block, thread_axis("blockIdx.x"))
    first.bind(thread, thread_axis("threadIdx.x"))


def _sum_columns(stage: Stage, limits: Limits) -> None:
    """Sums across rows, into memory: a thread has a vector of them, and rows of threads share
    these."""
    lanes = _lanes_across(stage)
    *outer, last = stage.op.axis
    pieces, lane = stage.split(last, factor=lanes)
    blocks, column = stage.split(pieces, factor=COLUMNS)
    place = stage.fuse(*outer, blocks)
    steps, row = stage.split(
        stage.fuse(*stage.op.reduce_axis), factor=max(1, limits.threads // COLUMNS)
    )
    steps, inner = stage.split(steps, factor=STEPS_AT_ONCE)
    stage.unroll(inner)
    stage.reorder(place, column, row, steps, inner, lane)
    stage.bind(place, thread_axis("blockIdx.x"))
    stage.bind(column, thread_axis("threadIdx.x"))
    stage.bind(row, thread_axis("threadIdx.y"))
    if lanes > 1:
        stage.vectorize(lane)


def _lanes_across(stage: Stage) -> int:
    """Neighbouring sums that a thread has: what it reads of them is a word, for a warp a line."""
    widths = [read.tensor.dtype.bytes for read in reads_of(stage) or ()]
    return min(lanes_along(stage, stage.op.axis[-1]), max(1, WORD // min(widths, default=WORD)))


def _by_rows(stage: Stage, result: Stage, limits: Limits) -> None:
    """Neighbours of a sum side by side: a row of threads for each result."""
    length = math.prod(extents_of(stage.op.reduce_axis))
    threads = _shares(length, limits)
    axes = list(result.op.axis)
    if not axes:
        place = result.leaf_iter_vars[0]
        result.bind(place, thread_axis("blockIdx.x"))
    else:
        sizes = extents_of(axes)
        most = max(1, limits.threads // threads)
        at = max((n for n, size in enumerate(sizes) if size > 1), default=len(sizes) - 1)
        rows = next(n for n in ROWS if n <= most and sizes[at] % n == 0)
        outer, row = result.split(axes[at], factor=rows)
        rest = [outer if n == at else axis for n, axis in enumerate(axes)]
        result.reorder(*rest, row)
        place = result.fuse(*rest)
        result.bind(place, thread_axis("blockIdx.x"))
        result.bind(row, thread_axis("threadIdx.y"))
        stage.bind(stage.op.axis[at], thread_axis("threadIdx.y"))
    stage.compute_at(result, place)
    steps, thread = stage.split(stage.fuse(*stage.op.reduce_axis), factor=threads)
    steps, inner = stage.split(steps, factor=min(STEPS_AT_ONCE, -(-length // threads)))
    stage.unroll(inner)
    stage.reorder(*stage.op.axis, thread, steps, inner)
    stage.bind(thread, thread_axis("threadIdx.x"))


def _by_columns(stage: Stage, result: Stage, limits: Limits) -> None:
    """Neighbouring results side by side: a thread for each word of them, and rows of threads share
    the sums."""
    *outer, last = result.op.axis
    lanes = _lanes_across(stage)
    columns = min(COLUMNS, 1 << (-(-extents_of([last])[0] // lanes) - 1).bit_length())
    pieces, lane = result.split(last, factor=lanes)
    blocks, column = result.split(pieces, factor=columns)
    place = result.fuse(*outer, blocks)
    result.bind(place, thread_axis("blockIdx.x"))
    result.bind(column, thread_axis("threadIdx.x"))
    stage.compute_at(result, place)
    own, own_lane = stage.split(stage.op.axis[-1], factor=lanes)
    length = math.prod(extents_of(stage.op.reduce_axis))
    shares = min(_shares(length, limits), limits.threads // columns)
    steps, row = stage.split(stage.fuse(*stage.op.reduce_axis), factor=shares)
    steps, inner = stage.split(steps, factor=min(STEPS_AT_ONCE, -(-length // shares)))
    stage.unroll(inner)
    stage.reorder(*stage.op.axis[:-1], own, row, steps, inner, own_lane)
    stage.bind(own, thread_axis("threadIdx.x"))
    stage.bind(row, thread_axis("threadIdx.y"))
    if lanes > 1:
        result.vectorize(lane)
        stage.vectorize(own_lane)


def _shares(length: int, limits: Limits) -> int:
    """How many threads share a sum of so many elements: a power of two."""
    wanted = max(limits.warp if length >= limits.warp else 1, length // OWN_STEPS)
    return 1 << (min(wanted, limits.threads).bit_length() - 1)


def shares_of(length: int, limits: Limits) -> int:
    """Into how many parts a sum of so many elements is cut: a power of two."""
    return 1 << (min(length, limits.threads).bit_length() - 1)


def bind_sum(stage: Stage, limits: Limits) -> None:
    """Threads of a block share a sum, for sums among other stages: a block has neighbouring results
    where they lie side by side, else one."""
    if is_sum_across(stage):
        _sum_columns(stage, limits)
        return
    steps = stage.fuse(*stage.op.reduce_axis)
    length = math.prod(extents_of(stage.op.reduce_axis))
    _, thread = stage.split(steps, factor=shares_of(length, limits))
    if stage.op.axis:
        block = stage.fuse(*stage.op.axis)
        stage.bind(block, thread_axis("blockIdx.x"))
    rest: list[IterVar] = [leaf for leaf in stage.leaf_iter_vars if leaf is not thread]
    stage.reorder(*rest[:-1], thread, rest[-1])
    stage.bind(thread, thread_axis("threadIdx.x"))
