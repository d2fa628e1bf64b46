"""Independent elements: vectors for threads, windows in registers, transposes through tiles.

A thread has a vector of neighbours where all that it reads of them lies together. What sums a short
window for each element, such as pooling or a depthwise convolution, keeps the sums in registers.
Where all is read along another axis than it is written, blocks bring squares into shared memory.
"""

import math

from sterna.ir.expr import Var
from sterna.schedule.choose import choose
from sterna.schedule.gpu.access import lanes_along, lies_along, reads_of
from sterna.schedule.gpu.limits import Limits
from sterna.schedule.gpu.window_tiles import WindowTile, tile_of_windows, unrolled_steps
from sterna.schedule.kernel import Kernel
from sterna.schedule.loops import extents_of
from sterna.te import ComputeOp, IterVar, Stage, thread_axis

# Rows that lie side by side in what is read, and follow each other in blocks.
NEIGHBOURS, WANTED_NEIGHBOURS = (1, 2, 4, 8), 4
# Blocks that keep all processors of a device busy; fewer threads are in each before there are less.
BUSY = 128
LEAST_THREADS = 64
# Vectors of one thread where there are many: their loads are on the way together.
VECTORS_AT_ONCE = 4
# Threads of a block where each has several windows.
WINDOW_THREADS = 128
# Rows that are read by all threads at once when a square is transposed, and the bytes of its side.
SQUARE_THREADS = 256
SQUARE_BYTES = 128
SMALLEST_SQUARE = 8


def bind_elements(kernel: Kernel, stage: Stage, limits: Limits) -> IterVar | None:
    """Vectors, blocks and threads of a stage of independent elements; gives the loop of threads."""
    axes: list[IterVar] = list(stage.op.axis)
    if not axes:
        return None
    across = None if stage.op.reduce_axis or kernel.is_flat else _read_across(stage)
    if across is not None:
        _transpose(kernel, stage, across)
        return None
    if kernel.is_flat:
        axes = [stage.fuse(*axes)]
        lanes = _flat_lanes(kernel, stage)
    else:
        lanes = lanes_along(stage, axes[-1])
        axes = _with_neighbours(stage, axes)
    return _bind(stage, axes, lanes, limits)


def _with_neighbours(stage: Stage, axes: list[IterVar]) -> list[IterVar]:
    """The axes in the order of blocks: where rows change places, a few that are neighbours in what
    is read follow each other, so that both sides have longer pieces of memory at hand."""
    sizes = extents_of(axes)
    reads = reads_of(stage) or []
    if len(reads) != 1 or stage.op.reduce_axis or len(axes) < 3:
        return axes
    places = {axis.var: n for n, axis in enumerate(axes)}
    order = [places[index] for index in reads[0].indices
             if isinstance(index, Var) and index in places and sizes[places[index]] > 1]
    kept = [n for n in range(len(axes)) if sizes[n] > 1]
    if sorted(order) != kept or len(order) < 3 or order[-1] != kept[-1] or order[-2] == kept[-2]:
        return axes
    near = order[-2]
    counts = [n for n in NEIGHBOURS if sizes[near] % n == 0]
    count = choose("rows of a permutation", counts, lambda n: abs(n - WANTED_NEIGHBOURS))
    if count == 1:
        return axes
    outer, inner = stage.split(axes[near], factor=count)
    made = [*axes[:near], outer, *axes[near + 1:kept[-1]], inner, *axes[kept[-1]:]]
    stage.reorder(*made)
    return made


def _bind(stage: Stage, axes: list[IterVar], lanes: int, limits: Limits) -> IterVar:
    count = math.prod(extents_of(stage.op.axis)) // lanes
    if lanes > 1:
        *outer, last = axes
        pieces, vector = stage.split(last, factor=lanes)
        axes = [*outer, pieces]
    every = stage.fuse(*axes)
    threads = limits.threads
    while threads > LEAST_THREADS and count < BUSY * threads:
        threads //= 2
    several = VECTORS_AT_ONCE if count >= 4 * BUSY * VECTORS_AT_ONCE * threads else 1
    inner = []
    if several > 1:
        block, rest = stage.split(every, factor=threads * several)
        vectors, thread = stage.split(rest, factor=threads)
        stage.reorder(block, thread, vectors)
        stage.unroll(vectors)
        inner.append(vectors)
    else:
        block, thread = stage.split(every, factor=threads)
    if lanes > 1:
        inner.append(vector)
        stage.vectorize(vector)
    stage.reorder(block, thread, *stage.op.reduce_axis, *inner)
    stage.bind(block, thread_axis("blockIdx.x"))
    stage.bind(thread, thread_axis("threadIdx.x"))
    return inner[0] if several > 1 else thread


def _flat_lanes(kernel: Kernel, stage: Stage) -> int:
    """How many elements are a vector where every operand is read at the very index."""
    operands = [t for s in kernel.schedule.stages for t in s.op.input_tensors if t.shape]
    kinds = [t.dtype for t in (*operands, stage.op.output(0))]
    count = math.prod(extents_of(stage.op.axis))
    if stage.op.num_outputs > 1 or any(kind.bits < 8 for kind in kinds):
        return 1
    lanes = 16 // max(kind.bytes for kind in kinds)
    while lanes > 1 and count % lanes:
        lanes //= 2
    return max(1, lanes)


def schedule_windows(kernel: Kernel, limits: Limits) -> bool:
    """Schedule a kernel of elements that each sum a window; False if it is none."""
    found = _window_of(kernel)
    if found is None:
        return False
    schedule, out = kernel.schedule, kernel.outputs[0]
    if schedule[out].op is found:
        total = schedule[schedule.cache_write(out, "local")]
    else:
        total = schedule[found.output(0)]
        total.set_scope("local")
    result = schedule[out]
    most = min(lanes_along(total, total.op.axis[-1]), lanes_along(result, result.op.axis[-1]))
    tile = tile_of_windows(total, result, most, limits)
    if tile.outputs == 1:
        thread = _bind(result, list(result.op.axis), tile.lanes, limits)
    else:
        thread = _bind_tiles(result, tile, limits)
    total.compute_at(result, thread)
    *others, last = total.op.axis
    own = [others[place] for place in tile.places]
    outer = [axis for axis in others if axis not in own]
    total.reorder(*outer, *total.op.reduce_axis, *own, last)
    for step in unrolled_steps(total) if limits.warp > 1 else ():
        total.unroll(step)
    for axis in own:
        total.unroll(axis)
    if tile.lanes > 1:
        total.vectorize(last)
    kernel.choices["vector"] = tile.lanes
    return True


def _bind_tiles(stage: Stage, tile: WindowTile, limits: Limits) -> IterVar:
    """Neighbouring results for each thread, whose windows overlap."""
    axes, inner = list(stage.op.axis), []
    for place, size in zip(tile.places, tile.sizes, strict=True):
        axes[place], own = stage.split(axes[place], factor=size)
        inner.append(own)
    if tile.lanes > 1:
        axes[-1], vector = stage.split(axes[-1], factor=tile.lanes)
    inner += [vector] if tile.lanes > 1 else []
    stage.reorder(*axes, *inner)
    every = stage.fuse(*axes)
    count = math.prod(extents_of(stage.op.axis)) // tile.lanes // tile.outputs
    threads = min(limits.threads, WINDOW_THREADS)
    while threads > LEAST_THREADS and count < BUSY * threads:
        threads //= 2
    block, thread = stage.split(every, factor=threads)
    for own in inner[: len(tile.sizes)]:
        stage.unroll(own)
    if tile.lanes > 1:
        stage.vectorize(vector)
    stage.bind(block, thread_axis("blockIdx.x"))
    stage.bind(thread, thread_axis("threadIdx.x"))
    return thread


def _window_of(kernel: Kernel) -> ComputeOp | None:
    """The only sum of a kernel, if it has an element for each of the result and is short."""
    stages = [s for s in kernel.schedule.stages if s.attach_type == "root"]
    made = [s for s in stages if isinstance(s.op, ComputeOp)]
    sums = [s.op for s in made if s.op.reduce_axis]
    if len(sums) != 1 or len(kernel.outputs) != 1 or any(
        not s.op.reduce_axis and not s.is_output for s in made
    ):
        return None
    (total,) = sums
    assert isinstance(total, ComputeOp)
    out = kernel.schedule[kernel.outputs[0]].op
    same = extents_of(total.axis) == extents_of(out.axis)
    if not same or not out.axis or total.num_outputs > 1 or out.num_outputs > 1:
        return None
    return total


def _read_across(stage: Stage) -> IterVar | None:
    """The axis along which all that is read lies side by side, if it is not the last one."""
    *outer, last = stage.op.axis
    if not stage.is_output or stage.op.num_outputs > 1 or lies_along(stage, last):
        return None
    sizes = dict(zip(stage.op.axis, extents_of(stage.op.axis), strict=True))
    if sizes[last] < SMALLEST_SQUARE:
        return None
    along = [axis for axis in outer if sizes[axis] >= SMALLEST_SQUARE and lies_along(stage, axis)]
    return max(along, key=lambda axis: sizes[axis], default=None)


def _transpose(kernel: Kernel, stage: Stage, across: IterVar) -> None:
    """Squares in shared memory, written along what is read and read along what is written."""
    schedule, out = kernel.schedule, stage.op.output(0)
    side = SQUARE_BYTES // max(2, min(4, out.dtype.bytes))
    place = list(stage.op.axis).index(across)
    held = schedule[schedule.cache_write(out, "shared")]
    result = schedule[out]
    *outer, last = result.op.axis
    across = outer.pop(place)
    rows, row = result.split(across, factor=side)
    columns, column = result.split(last, factor=side)
    result.reorder(*outer, rows, columns, row, column)
    block = result.fuse(*outer, rows, columns)
    result.bind(block, thread_axis("blockIdx.x"))
    _share(result, row, column, side)
    held.compute_at(result, block)
    *others, own_last = held.op.axis
    own_across = others.pop(place)
    held.reorder(*others, own_last, own_across)
    _share(held, own_last, own_across, side)
    held.storage_align(_before_last(held), side, max(1, 4 // out.dtype.bytes))
    kernel.choices["tile"] = f"{side} x {side}, transposed"


def _before_last(stage: Stage) -> IterVar:
    found: IterVar = stage.op.axis[-2]
    return found


def _share(stage: Stage, slow: IterVar, fast: IterVar, side: int) -> None:
    """All threads of a block: neighbours along one axis, and as many rows as are left."""
    _, rows = stage.split(slow, factor=SQUARE_THREADS // side)
    stage.bind(rows, thread_axis("threadIdx.y"))
    stage.bind(fast, thread_axis("threadIdx.x"))


