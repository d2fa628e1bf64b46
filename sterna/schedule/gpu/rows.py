"""Operators that reduce rows and use the results in the same rows: softmax, norms.

The threads of a row fetch it once into shared memory, by vectors; they share the sums, and then
the elements of the row. A row that one warp has in a few vectors of each thread is one warp's, and
a block has several of these.
"""

import math

from sterna.ir import build
from sterna.schedule.gpu.access import VECTOR_BYTES, lanes_along, lies_along, reads_of
from sterna.schedule.gpu.limits import Limits
from sterna.schedule.kernel import Kernel
from sterna.schedule.loops import extents_of
from sterna.te import ComputeOp, PlaceholderOp, Stage, Tensor, thread_axis

SHORTEST_ROW = 32
# Threads that run in step on most devices.
WARP = 32
# Blocks that keep a device busy.
BUSY = 264
# Vectors of a row that each thread has before more threads share it.
OWN_VECTORS = 4
# Of the memory that a block may share, the part that its rows may take.
ROWS_SHARE = 2
# Rows of a block, where each is one warp's.
ROWS = (8, 4, 2)


def schedule_rows(kernel: Kernel, limits: Limits) -> bool:
    """Schedule a kernel of rows; False if it is none."""
    schedule = kernel.schedule
    stages = [s for s in schedule.stages if s.attach_type == "root"]
    made = [s for s in stages if isinstance(s.op, ComputeOp)]
    if any(not isinstance(s.op, ComputeOp) and s.op.axis for s in stages):
        return False
    sums = [s for s in made if s.op.reduce_axis]
    rest = [s for s in made if not s.op.reduce_axis]
    if not sums or len(rest) != 1 or len(kernel.outputs) != 1 or not rest[0].is_output:
        return False
    out = rest[0]
    prefix = _row_prefix(sums, out)
    if prefix is None or not all(_numbers_alike(stage, sums, prefix) for stage in made):
        return False
    length = math.prod(extents_of(out.op.axis)[prefix:])
    if prefix == 0 or length < SHORTEST_ROW:
        return False
    lanes = lanes_along(out, out.op.axis[-1])
    threads = _threads_of(length, lanes, limits)
    at, rows = _rows_together(out, prefix, length, threads, limits)
    held = _hold_rows(kernel, sums, out, length * rows, limits)
    outer = list(out.op.axis[:prefix])
    if rows > 1:
        outer[at], own_row = out.split(outer[at], factor=rows)
        out.reorder(*outer, own_row)
        out.bind(own_row, thread_axis("threadIdx.y"))
    row = out.fuse(*outer)
    rest_of_row = out.fuse(*out.op.axis[prefix:])
    if lanes > 1:
        rest_of_row, vector = out.split(rest_of_row, factor=lanes)
        out.vectorize(vector)
    _, thread = out.split(rest_of_row, factor=threads)
    out.bind(row, thread_axis("blockIdx.x"))
    out.bind(thread, thread_axis("threadIdx.x"))
    for tensor in held:
        stage = schedule[tensor]
        stage.compute_at(out, row)
        _fetch(stage, at if rows > 1 else None, threads)
    for stage in sums:
        stage.set_scope("shared")
        stage.compute_at(out, row)
        if rows > 1:
            stage.bind(stage.op.axis[at], thread_axis("threadIdx.y"))
        _share(stage, threads, lanes)
    kernel.choices["threads of a row"] = threads
    return True


def _rows_together(
    out: Stage, prefix: int, length: int, threads: int, limits: Limits
) -> tuple[int, int]:
    """The axis whose neighbours are rows of one block, and how many of them: 1 for long rows."""
    sizes = extents_of(out.op.axis[:prefix])
    at = max((n for n, size in enumerate(sizes) if size > 1), default=prefix - 1)
    most = limits.threads // threads if threads <= WARP < limits.threads else 1
    bytes_of = length * 4 * ROWS_SHARE
    blocks = math.prod(sizes)
    fitting = [
        n for n in ROWS
        if n <= most and sizes[at] % n == 0 and n * bytes_of <= limits.shared_bytes
        and blocks >= n * BUSY
    ]
    return at, max(fitting, default=1)


def _threads_of(length: int, lanes: int, limits: Limits) -> int:
    """A warp for short rows, more threads for longer ones: a power of two."""
    vectors = max(1, length // lanes)
    wanted = max(WARP, vectors // OWN_VECTORS)
    return 1 << (min(wanted, limits.threads).bit_length() - 1)


def _hold_rows(
    kernel: Kernel, sums: list[Stage], out: Stage, length: int, limits: Limits
) -> list[Tensor]:
    """What sums and results both read comes into shared memory, if it has room for a row."""
    inlined = [s for s in kernel.schedule.stages if s.attach_type == "inline"]
    found: list[Tensor] = []
    for stage in list(kernel.schedule.stages):
        if not isinstance(stage.op, PlaceholderOp):
            continue
        tensor = stage.op.output(0)
        readers = [s for s in (*sums, out, *inlined) if tensor in s.op.input_tensors]
        reading = [s for s in sums if _reads(kernel, s, tensor)]
        along = any(lies_along(s, s.op.reduce_axis[-1]) for s in reading)
        room = length * tensor.dtype.bytes * ROWS_SHARE <= limits.shared_bytes
        alike = [build.int_value(n) for n in tensor.shape] == extents_of(out.op.axis)
        if room and along and alike and _reads(kernel, out, tensor):
            found.append(kernel.schedule.cache_read(tensor, "shared", [r.op for r in readers]))
    return found


def _reads(kernel: Kernel, stage: Stage, tensor: Tensor) -> bool:
    """Whether a stage reads a tensor, itself or by others that are inlined."""
    waiting, seen = [stage], {stage}
    while waiting:
        for read in waiting.pop().op.input_tensors:
            if read == tensor:
                return True
            maker = kernel.schedule.stage_map.get(read.op)
            if maker is not None and maker.attach_type == "inline" and maker not in seen:
                seen.add(maker)
                waiting.append(maker)
    return False


def _fetch(held: Stage, row: int | None, threads: int) -> None:
    """All threads bring rows into shared memory, by vectors; row: the axis of those of a block."""
    last = extents_of(held.op.axis)[-1]
    lanes = VECTOR_BYTES // held.op.output(0).dtype.bytes
    while lanes > 1 and last % lanes:
        lanes //= 2
    axes = list(held.op.axis)
    if row is not None:
        own = axes.pop(row)
        held.reorder(own, *axes)
        held.bind(own, thread_axis("threadIdx.y"))
    every = held.fuse(*axes)
    if lanes > 1:
        every, vector = held.split(every, factor=lanes)
        held.vectorize(vector)
    _, thread = held.split(every, factor=threads)
    held.bind(thread, thread_axis("threadIdx.x"))


def _share(stage: Stage, threads: int, lanes: int) -> None:
    """A sum of a row: each thread adds vectors, and then all join what they have."""
    steps = math.prod(extents_of(stage.op.reduce_axis))
    every = stage.fuse(*stage.op.reduce_axis)
    own = []
    if lanes > 1 and steps % lanes == 0:
        every, vector = stage.split(every, factor=lanes)
        stage.unroll(vector)
        own, steps = [vector], steps // lanes
    shares = 1 << (min(steps, threads).bit_length() - 1)
    outer, share = stage.split(every, factor=shares)
    stage.reorder(share, outer, *own)
    stage.bind(share, thread_axis("threadIdx.x"))


def _numbers_alike(stage: Stage, sums: list[Stage], prefix: int) -> bool:
    """Whether a stage reads of sums those of its own row: rows along other axes may be as many."""
    reads = reads_of(stage)
    axes = [axis for axis in stage.op.axis[:prefix] if extents_of([axis]) != [1]]
    made = [one.op for one in sums]
    return reads is not None and all(
        [axis.var for axis in axes]
        == [i for i, n in zip(read.indices, read.tensor.shape, strict=True)
            if not build.is_const(n, 1)]
        for read in reads if read.tensor.op in made
    )


def _row_prefix(sums: list[Stage], out: Stage) -> int | None:
    """How many axes of the result number the rows, if they do so in all sums."""
    shape = extents_of(out.op.axis)
    counts: set[int] = set()
    for stage in sums:
        sizes = extents_of(stage.op.axis)
        while sizes and sizes[-1] == 1 and len(sizes) > 1:
            sizes.pop()
        if sizes != shape[: len(sizes)] or len(stage.op.axis) not in (len(sizes), len(shape)):
            return None
        counts.add(len(sizes))
    return counts.pop() if len(counts) == 1 else None
