"""Schedules for operators that ask for nothing special: by the shape of their loops alone."""

import math
from collections.abc import Sequence

from sterna.ir.expr import Call, Max, Min, Select, variables_in
from sterna.ir.node import post_order
from sterna.schedule.axes_in_order import axes_in_order
from sterna.schedule.choose import choose
from sterna.schedule.kernel import Kernel, Processor
from sterna.schedule.loops import (
    PARALLEL_ELEMENTS,
    extent_of,
    extents_of,
    parallelise,
)
from sterna.schedule.moved_elements import (
    LINE_BITS,
    all_read_across,
    fills_gathers,
    places_told,
    repeated_rows,
    schedule_gathered,
    schedule_one_by_one,
    shared_axis,
    transpose_tiles,
)
from sterna.schedule.registry import generic_schedule
from sterna.schedule.row_stages import rows_of, schedule_row_by_row
from sterna.te import ComputeOp, IterVar, Operation, Stage, Tensor
from sterna.te.tensor import ProducerLoad, Reduce
from sterna.tir.intrinsics import INTRINSICS

# Vectors that collect a sum side by side.
CHAINS = 4
# Lanes of the vectors by which a row is reduced at least, unless numbers are too wide for so many.
LEAST_LANES = 4
# Registers that this many side by side need: each has some values, and all share coefficients.
REGISTERS_FOR_CHAINS = 32
# Reductions of so many elements read whole rows at a time; a part of a row of sums of so many
# elements stays in the cache, and each of them takes so many rows at once.
LONG_REDUCTION = 16
LONGEST_PART = 2048
ROWS_AT_ONCE = (4, 5, 3, 7)
PIECES_OF_A_THREAD = 2
# Rows that threads share whole, if each has so many: where one is read from is found once.
ROWS_OF_A_THREAD = 2
# Rows of so many vectors may have some lanes left over.
UNEVEN_VECTORS = 4
# Elements that one shuffle brings together from three vectors.
MOST_SHUFFLED = 32
# So many results side by side, if a vector holds more, are reduced as a part of one.
LEAST_BESIDE = 3
# Vectors of results that are reduced at once at most.
MOST_BESIDE = 8


def loads_of(body: Reduce) -> list[ProducerLoad]:
    """What the sum reads, in order."""
    loads: list[ProducerLoad] = []

    def visit(item: object) -> None:
        if isinstance(item, ProducerLoad):
            loads.append(item)

    post_order(body.source[0], visit)
    return loads


def hold_in_registers(stage: Stage, data: Tensor, place: IterVar) -> None:
    """Load what an iteration of a loop of a stage reads of a tensor as vectors, before it."""
    schedule = stage.schedule
    assert schedule is not None
    held = schedule[schedule.cache_read(data, "local", [stage.op.output(0)])]
    held.compute_at(stage, place)
    *others, last = held.op.axis
    for axis in others:
        held.unroll(axis)
    held.vectorize(last)


def vectorize_result(stage: Stage, axis: IterVar, width: int, most: int | None = None) -> None:
    """Vectors of a power of two: what follows a sum may be more than LLVM takes apart itself."""
    even = min(width & -width, most or width)
    if even < width:
        pieces, axis = stage.split(axis, factor=even)
        stage.unroll(pieces)
    stage.vectorize(axis)


@generic_schedule("cpu")
def schedule_default(kernel: Kernel) -> None:
    """Every stage by its own loops: outer ones in parallel, the innermost as vectors."""
    schedule_stages(kernel)


def schedule_stages(kernel: Kernel, inner: bool = False) -> None:
    """The same; inner: stages that others read are transposed by register tiles too."""
    rows = rows_of(kernel)
    made_by_row = [stage for made in rows.values() for stage in made]
    for stage in list(kernel.schedule.stages):
        ready = stage.attach_type != "root" or stage in made_by_row
        if isinstance(stage.op, ComputeOp) and not ready:
            if stage in rows:
                schedule_row_by_row(kernel, stage, rows[stage])
            elif stage.op.reduce_axis:
                schedule_reduction(kernel, stage)
            elif _brings_together(stage, kernel.processor):
                _schedule_together(kernel, stage)
            elif not kernel.is_flat and (along := all_read_across(stage, inner)) is not None:
                transpose_tiles(kernel, stage, along)
            else:
                schedule_elements(stage, kernel.processor, kernel.is_flat)


def schedule_as_written(kernel: Kernel) -> None:
    """Operators of statements: the loops as they stand, and in the report what they say of them."""
    schedule_default(kernel)
    kernel.choices["schedule"] = kernel.anchor[0].op.attrs["schedule"]


def schedule_elements(stage: Stage, processor: Processor, flat: bool = False) -> None:
    """Independent elements: rows in parallel, vectors along the last axis.

    flat: every operand is read at the very index that is written, so all axes can be one.
    """
    axes = list(stage.op.axis)
    if not axes:
        return
    sizes = extents_of(axes)
    if not functions_of(stage) and (told := places_told(stage, processor)):
        channel = shared_axis(stage, told)
        if channel is not None and (len(told) > 1 or fills_gathers(stage, processor)):
            schedule_gathered(stage, channel, processor, axes_in_order(stage))
            return
        if not (channel is None and fills_gathers(stage, processor)):
            schedule_one_by_one(stage, axes, sizes)
            return
    lanes = processor.lanes(stage.op.output(0).dtype) * vectors_at_once(stage, processor)
    across = None if flat else _read_across(stage)
    if across is not None:  # whole lines are written while they are in the cache
        lanes = max(lanes, LINE_BITS // max(8, stage.op.output(0).dtype.bits))
    together = len(axes) if flat else axes_in_order(stage) if across is None else 1
    period = None if flat or across is not None or together > 1 else repeated_rows(stage, lanes)
    if period is not None:
        axes[-1:] = stage.split(axes[-1], factor=period)
        sizes[-1:] = [sizes[-1] // period, period]
    if together > 1:
        axes = [*axes[:-together], stage.fuse(*axes[-together:])]
        sizes = [*sizes[:-together], math.prod(sizes[-together:])]
    *outer, inner = axes
    length = sizes[-1]
    if length > lanes:
        wide, narrow = stage.split(inner, factor=lanes)
        stage.vectorize(narrow)
        outer.append(wide)
        sizes[-1] = -(-sizes[-1] // lanes)
    elif length > 1:
        stage.vectorize(inner)
        sizes.pop()
    work = math.prod(sizes) * lanes
    uneven = len(outer) == len(axes) > 1 and length % lanes > 0
    if across is not None and math.prod(sizes) >= processor.threads * extents_of([across])[0]:
        place = outer.index(across)
        sizes.pop(place)
        outer.append(outer.pop(place))
        stage.reorder(*outer)
        outer.pop()
    rows = len(outer) == len(axes) > 1
    uneven = uneven or (rows and _has_borders(stage, inner))
    many = math.prod(sizes[:-1]) >= ROWS_OF_A_THREAD * processor.threads
    uneven = uneven or (rows and together > 1 and many and _picks_rows(stage, together))
    if uneven:  # fused, its guard would stay: threads share rows, or each row
        shared = slice(-1) if math.prod(sizes[:-1]) >= processor.threads else slice(-1, None)
        outer, sizes = outer[shared], sizes[shared]
    if outer and work >= PARALLEL_ELEMENTS:
        parallelise(stage, outer, sizes)
    split_at_borders(stage)


def vectors_at_once(stage: Stage, processor: Processor) -> int:
    """How many vectors run side by side: several where each waits for a polynomial's last step.

    Half as many where one is computed in float64, or of float16 in float32: that takes two vectors.
    """
    names = functions_of(stage)
    if not names:
        return 1
    few = processor.vector_registers < REGISTERS_FOR_CHAINS
    widened = stage.op.output(0).dtype.is_float and stage.op.output(0).dtype.bits == 16
    doubled = widened or any(INTRINSICS[name].in_double for name in names)
    return max(1, CHAINS >> few + doubled)


def functions_of(stage: Stage) -> set[str]:
    """The polynomials that a stage, or those that are computed where it reads them, asks for."""
    schedule = stage.schedule
    assert schedule is not None
    found: set[str] = set()
    seen = [stage]

    def visit(item: object) -> None:
        if isinstance(item, Call) and item.op in INTRINSICS:
            row = INTRINSICS[item.op]
            if row.name == "reinterpret" or (row.polynomial and not row.llvm):
                found.add(row.name)
        elif isinstance(item, ProducerLoad) and item.tensor.op in schedule.stage_map:
            maker = schedule.stage_map[item.tensor.op]
            if maker.attach_type == "inline" and maker not in seen:
                seen.append(maker)

    for one in seen:  # it grows on the way
        if isinstance(one.op, ComputeOp):
            for part in one.op.body:
                post_order(part, visit)
    return found


def split_at_borders(stage: Stage) -> None:
    """Loop partitioning of the two innermost loops: between borders lie whole vectors."""
    marked = {axis for axis, how in stage.iter_var_attrs.items() if how.kind is not None}
    for loop in [axis for axis in stage.leaf_iter_vars if axis not in marked][-2:]:
        stage.pragma(loop, "loop_partition_hint", True)


def _has_borders(stage: Stage, last: IterVar) -> bool:
    """Whether what is read depends on how far along the last axis an element lies."""
    assert isinstance(stage.op, ComputeOp)
    found = False

    def visit(item: object) -> None:
        nonlocal found
        if isinstance(item, Call) and item.op == "if_then_else":
            found = found or last.var in variables_in(item.args[0])

    for part in stage.op.body:
        post_order(part, visit)
    return found


def _picks_rows(stage: Stage, length: int) -> bool:
    """Whether a row of so many axes is read from a place that is found by comparing its own."""
    assert isinstance(stage.op, ComputeOp)
    outer = {axis.var for axis in stage.op.axis[:-length]}
    found = False

    def visit_place(item: object) -> None:
        nonlocal found
        if isinstance(item, (Select, Min, Max)):
            found = found or not outer.isdisjoint(variables_in(item))

    def visit(item: object) -> None:
        nonlocal found
        if isinstance(item, Call) and item.op == "if_then_else":
            found = found or not outer.isdisjoint(variables_in(item.args[0]))
        if isinstance(item, ProducerLoad):
            for index in item.indices:
                post_order(index, visit_place)

    for part in stage.op.body:
        post_order(part, visit)
    return found


def _read_across(stage: Stage) -> IterVar | None:
    """An axis along which neighbours lie in something that is read, if that is not the last one.

    It becomes the innermost loop around vectors: each line that these read is then read whole
    while it is in the cache.
    """
    assert isinstance(stage.op, ComputeOp)
    *outer, last = stage.op.axis
    found: list[IterVar] = []

    def visit(item: object) -> None:
        if isinstance(item, ProducerLoad) and len(item.indices) > 1:
            of_lane = any(last.var in variables_in(index) for index in item.indices[:-1])
            neighbours = [axis for axis in outer if item.indices[-1] is axis.var]
            found.extend(neighbours if of_lane else [])

    for part in stage.op.body:
        post_order(part, visit)
    return found[0] if found and (extent_of(found[0]) or 0) > 1 else None


def _brings_together(stage: Stage, processor: Processor) -> bool:
    """Whether few elements lie side by side that come from rows far apart, such as channels."""
    if not stage.is_output or len(stage.op.axis) < 2:
        return False
    *_, row, last = stage.op.axis
    count, few = extent_of(row), extent_of(last)
    if few not in (2, 3, 4, 8) or count is None:
        return False
    columns = _columns_together(processor.lanes(stage.op.output(0).dtype), few)
    reads: list[ProducerLoad] = []

    def visit(node: object) -> None:
        if isinstance(node, ProducerLoad) and node.indices:
            reads.append(node)

    assert isinstance(stage.op, ComputeOp)
    for part in stage.op.body:
        post_order(part, visit)
    along = bool(reads) and all(load.indices[-1] is row.var for load in reads)
    return along and count >= columns >= 4


def _columns_together(lanes: int, few: int) -> int:
    """How many of the few lie in vectors that are stored at once: one vector, or one for each."""
    if lanes % few:
        return min(lanes, MOST_SHUFFLED)
    return lanes // few if lanes // few >= 4 else lanes


def _schedule_together(kernel: Kernel, stage: Stage) -> None:
    """Whole vectors along the rows that are read; a shuffle of a few of them is what is stored."""
    out = stage.op.output(0)
    made = kernel.schedule[kernel.schedule.cache_write(out, "local")]
    made.transform_layout(lambda *at: [*at[:-2], at[-1], at[-2]])
    *outer, row, last = stage.op.axis
    few = extents_of([last])[0]
    columns = _columns_together(kernel.processor.lanes(out.dtype), few)
    across, column = stage.split(row, factor=columns)
    stage.pragma(across, "loop_partition_hint", True)
    beside = stage.fuse(column, last)
    if columns % few:  # each vector has elements of all that are read
        pieces, beside = stage.split(beside, factor=columns)
        stage.unroll(pieces)
    stage.vectorize(beside)
    made.compute_at(stage, across)
    *_, which, along = made.op.axis
    made.unroll(which)
    made.vectorize(along)
    if outer and math.prod(extents_of(stage.op.axis)) >= PARALLEL_ELEMENTS:
        parallelise(stage, outer, extents_of(outer))


def schedule_reduction(kernel: Kernel, stage: Stage) -> None:
    """Reductions: rows in parallel, vectors along the last axis or across partial results."""
    axes, reduced = list(stage.op.axis), list(stage.op.reduce_axis)
    sizes = extents_of(axes)
    lanes = kernel.processor.lanes(stage.op.output(0).dtype)
    if axes and sizes[-1] >= LEAST_BESIDE:
        lanes = min(lanes, sizes[-1])
    work = math.prod(sizes) * math.prod(extents_of(reduced))
    together = _read_together(stage.op)
    size = math.prod(extents_of(together))
    in_registers = size <= (lanes if size % lanes else MOST_BESIDE * lanes)
    if not in_registers and math.prod(extents_of(reduced)) >= LONG_REDUCTION:
        _add_up_rows(kernel, stage, together, work >= PARALLEL_ELEMENTS)
        return
    outer = axes
    if axes and sizes[-1] >= lanes and not along_last(stage.op):
        wide, narrow = stage.split(axes[-1], factor=lanes)
        pieces = -(-sizes[-1] // lanes)
        rows, threads = math.prod(sizes[:-1]), kernel.processor.threads
        last = extent_of(axes[-1])
        whole = lanes > 1 and last is not None and last % lanes == 0
        beside = vectors_beside(rows, pieces, threads) if whole else 1
        wide, vector = stage.split(wide, factor=beside)
        stage.reorder(*axes[:-1], wide, *reduced, vector, narrow)
        stage.unroll(vector)
        stage.vectorize(narrow)
        outer, sizes = [*axes[:-1], wide], [*sizes[:-1], pieces // beside]
    else:
        partials = reduce_by_vectors(kernel, stage)
        outer = list(stage.op.axis)
        if outer:
            for partial in partials:
                kernel.schedule[partial].compute_at(stage, outer[-1])
    if work >= PARALLEL_ELEMENTS and outer:
        parallelise(stage, outer, sizes)


def _read_together(op: Operation) -> list[IterVar]:
    """The last axes whose elements lie side by side in all that is read, none of it a window."""
    assert isinstance(op, ComputeOp)
    body = op.body[0]
    assert isinstance(body, Reduce)
    reads = [load.indices for load in loads_of(body) if load.indices]
    count = 0
    while reads and count < len(op.axis) and all(
        len(read) > count and read[-count - 1] is op.axis[-count - 1].var for read in reads
    ):
        count += 1
    found = op.axis[len(op.axis) - count :]
    steps = {axis.var for axis in op.reduce_axis}
    alone = all(index in steps or not steps & set(variables_in(index))
                for read in reads for index in read)
    return list(found) if alone and op.num_outputs == 1 else []


def _add_up_rows(
    kernel: Kernel, stage: Stage, together: Sequence[IterVar], parallel: bool
) -> None:
    """Reductions across rows: some rows at a time are added to a part that stays in the cache.

    Memory is read in order; that each element is summed in the order of the rows stays as it is.
    """
    outer = list(stage.op.axis[: len(stage.op.axis) - len(together)])
    reduced = list(stage.op.reduce_axis)
    lanes = kernel.processor.lanes(stage.op.output(0).dtype)
    size = math.prod(extents_of(together))
    rows = math.prod(extents_of(outer))
    least = -(-PIECES_OF_A_THREAD * kernel.processor.threads // rows) if parallel else 1
    part = part_of_row(size, lanes, least)
    parts, within = stage.split(stage.fuse(*together), factor=part)
    wide, narrow = stage.split(within, factor=lanes)
    count = extents_of(reduced)[-1]
    at_once = next((n for n in ROWS_AT_ONCE if count % n == 0), ROWS_AT_ONCE[0])
    step, beside = stage.split(reduced[-1], factor=at_once)
    stage.reorder(*outer, parts, *reduced[:-1], step, wide, beside, narrow)
    stage.unroll(beside)
    stage.vectorize(narrow)
    uneven = size % part > 0 and (rows == 1 or not parallel or rows >= kernel.processor.threads)
    if uneven:  # the guard of the last vector is in the last part alone
        for loop in (parts, wide):
            stage.pragma(loop, "loop_partition_hint", True)
    if parallel:
        stage.parallel(stage.fuse(*outer, *([] if uneven and rows > 1 else [parts])))


def part_of_row(size: int, lanes: int, least: int) -> int:
    """The part of a row that is reduced at once: in so many parts at least, of whole vectors."""
    vectors = -(-size // lanes)
    parts = min(vectors, max(least, -(-size // LONGEST_PART)))
    even = next((n for n in range(parts, 2 * parts) if vectors % n == 0), parts)
    return lanes * -(-vectors // even)


def vectors_beside(rows: int, vectors: int, threads: int) -> int:
    """How many vectors of each row are reduced at once, with which the last thread ends soonest.

    A vector waits for the one before it, for as long as some others take.
    """

    def end(beside: int) -> int:
        turns = -(-rows * vectors // beside // threads)
        return turns * max(CHAINS, beside)

    fitting = [n for n in range(1, MOST_BESIDE + 1) if vectors % n == 0]
    return choose("vectors beside", fitting, end)


def reduce_by_vectors(kernel: Kernel, stage: Stage) -> list[Tensor]:
    """Reduce a row into the lanes of vectors first, if it pays; gives the partial results.

    An addition waits for the one before it: long rows are collected in several vectors at once,
    and what these hold is reduced by a quarter at a time. Rows of many vectors need not be whole
    ones: the last step takes the rest lane by lane.
    """
    op = stage.op
    assert isinstance(op, ComputeOp)
    whole = lanes = kernel.processor.lanes(op.output(0).dtype)
    inner = read_in_order(op)
    count = math.prod(extents_of(inner))
    while lanes > 1 and count < UNEVEN_VECTORS * lanes and (count % lanes or count < 2 * lanes):
        lanes //= 2
    if lanes < min(LEAST_LANES, whole) or lanes < 2 or op.num_outputs > 1 or not along_last(op):
        return []
    several = count >= 2 * CHAINS * lanes and (
        count % (CHAINS * lanes) == 0 or count >= UNEVEN_VECTORS * CHAINS * lanes
    )
    width = CHAINS * lanes if several else lanes
    made = [_reduce_to(kernel, stage, inner, width)]
    while width // CHAINS >= LEAST_LANES:
        width //= CHAINS
        made.append(_reduce_to(kernel, stage, stage.op.reduce_axis, width))
    return made


def read_in_order(op: Operation) -> list[IterVar]:
    """The last axes of a reduction that all that is read along them has as its last ones; one at
    least."""
    assert isinstance(op, ComputeOp)
    body = op.body[0]
    assert isinstance(body, Reduce)
    axes = list(op.reduce_axis)
    steps = {axis.var for axis in axes}
    reads = [load.indices for load in loads_of(body)
             if any(steps & {*variables_in(index)} for index in load.indices)]
    count = 1
    while count < len(axes) and all(
        len(read) > count and read[-count - 1] is axes[-count - 1].var
        and read[-count] is axes[-count].var for read in reads
    ):
        count += 1
    return axes[len(axes) - count :]


def _reduce_to(kernel: Kernel, stage: Stage, inner: Sequence[IterVar], width: int) -> Tensor:
    op = stage.op
    _, lane = stage.split(stage.fuse(*inner), factor=width)
    made: Tensor = kernel.schedule.rfactor(op.output(0), lane, factor_axis=len(op.axis))
    partial = kernel.schedule[made]
    *outer, vector = partial.op.axis
    partial.reorder(*outer, *partial.op.reduce_axis, vector)
    partial.vectorize(vector)
    return made


def along_last(op: Operation) -> bool:
    """Whether a reduction's innermost axis is the last index of something that it reads."""
    assert isinstance(op, ComputeOp)
    last = op.reduce_axis[-1].var
    body = op.body[0]
    assert isinstance(body, Reduce)
    found = False

    def visit(item: object) -> None:
        nonlocal found
        if isinstance(item, ProducerLoad) and item.indices:
            found = found or last in variables_in(item.indices[-1])

    post_order(body.source[0], visit)
    return found
