"""Rows in registers, on GPUs whose lanes hand values on: softmax, norms, sums of rows.

Some lanes of a warp, or some warps, have a row among them. Each loads its vectors of it once, all
of them at the same time, sums what it has, and joins that with the others by shuffles. Warps that
share a row meet once for each sum, in shared memory. Rows that registers of a block have no room
for are shared by the blocks of a cluster, where a GPU has clusters, or go into shared memory; those
that even that has no room for are read again for every sum, and a cache has them by then. Where
rows do not begin at whole vectors, the elements before the first whole vector and behind the last
one are single elements of some of the threads.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import product

from sterna.codegen.nvptx.architecture import Architecture
from sterna.ir.expr import variables_in
from sterna.ir.node import post_order
from sterna.schedule.choose import choose
from sterna.schedule.gpu.access import VECTOR_BYTES
from sterna.schedule.gpu.cluster_rows import ClusterWriter, meets_once, suits_clusters
from sterna.schedule.gpu.row_program import RowProgram, row_program
from sterna.schedule.gpu.row_writer import (
    FLOAT,
    READ_AGAIN,
    REGISTERS,
    REGISTERS_HAVE,
    SHARED_HAS,
    WARP,
    RowWriter,
    Share,
)
from sterna.schedule.gpu.rows_ahead import AheadWriter
from sterna.schedule.gpu.sums import PART
from sterna.schedule.kernel import ScheduleTarget
from sterna.support.dtype import DataType
from sterna.te import Tensor
from sterna.te.tensor import ProducerLoad

SHORTEST_ROW = 32
# Lanes that share a row: as many as read whole lines of memory, up to all that a block has.
LANES = tuple(1 << n for n in range(3, 11))
AHEAD_LANES = LANES[5:]
# Blocks of a cluster that share a row, and the threads of each.
CLUSTERS, CLUSTER_LANES = (2, 4, 8), LANES[5:7]
# Threads of a block where rows are short, and blocks that keep a device busy.
BLOCK, BUSY = 128, 264
# Elements of a row that a thread holds: what is read, and what is made of it.
MOST_HELD = 32
# The part of a cluster's threads that have a vector at last, where rows of 16 bits are longer.
FILLED = 0.95
# Rows of 16 bits that all threads of a block have in shared memory, three vectors of each, are the
# quickest where they fill no cluster: measured on an H200 for 18,000 to 22,000 elements.
QUICK_VECTORS, MOSTLY_FILLED, QUICK_TIME = 3, 0.92, 0.7
# How much of the time that is counted long rows of 16 bits take of the largest clusters.
LONG_TIME = 0.7
# Vectors of each lane of a warp from which on rows need not begin at whole ones.
SHIFTED_VECTORS = 1
# Shared memory that sums take beside a row.
SUMS_BYTES = 2048
# Processors of a device, and the memory that the blocks of one share.
PROCESSORS, ALL_SHARED = 132, 228 * 1024
# From so many elements on a row keeps several processors busy.
LONG = 16384
# Registers of a thread that has rows brought ahead.
LEAST_REGISTERS = 64


def rows_in_registers(outputs: Sequence[Tensor], target: ScheduleTarget | None) -> Tensor | None:
    """The statements of a kernel of rows for a GPU with shuffles; None if it is no such kernel."""
    if len(outputs) != 1 or not has_shuffles(target):
        return None
    program = row_program(outputs[0])
    length = 0 if program is None else math.prod(program.row)
    if program is None or length < SHORTEST_ROW:
        return None
    rows = math.prod(program.rows)
    if not program.is_element and rows < BUSY and length >= 2 * PART:
        return None  # many blocks share each sum
    held = held_of(program)
    kinds = [*(t.dtype for t in held), *([outputs[0].dtype] if program.is_element else [])]
    if not held or any(kind.bits < 8 for kind in kinds):
        return None
    beside = _beside_of(program, held)
    shifts = rows * length < 1 << 31
    room = _room_of(program, held, target)
    most_blocks = _most_blocks(program, held, kinds, target)
    ahead: dict[Share, float] = {}
    if beside is not None:
        ahead = _ahead_of(program, held, beside, kinds, target, most_blocks)
    lanes = VECTOR_BYTES // max(kind.bytes for kind in kinds)
    long = _long_shares(program, held, beside, lanes, target)
    share = _share_of(
        length, kinds, room, shifts and beside == [], {**ahead, **dict.fromkeys(long, LONG_TIME)},
        most_blocks, meets_once(program), rows if _has_clusters(program, target) else BUSY)
    if share.is_ahead:
        assert beside is not None
        at_once = _blocks_at_once(share, _shared_bytes(share, held, beside))
        blocks = min(PROCESSORS * at_once, rows)
        if beside and share.is_shifted and blocks < rows:
            # So that all rows of a block begin alike in vectors.
            blocks = max(1, blocks // share.lanes) * share.lanes
        return AheadWriter(
            program, outputs[0], held, beside, share, blocks, at_once).tensor()
    if share.blocks > 1:
        return ClusterWriter(program, outputs[0], held, share, share in long).tensor()
    counts = [n for n in (16, 8, 4, 2, 1) if n * share.threads <= max(2 * BLOCK, share.threads)]
    together = choose(
        "rows of a block", counts, lambda n: abs(math.log2(BLOCK / (n * share.threads)))
        if rows >= n * BUSY else 100 + n)
    return RowWriter(program, outputs[0], held, share, together).tensor()


def has_shuffles(target: ScheduleTarget | None) -> bool:
    """Whether lanes of a warp hand values on."""
    if target is None or "cuda" not in target.keys:
        return False
    arch = target.attrs.get("arch")
    return isinstance(arch, str) and Architecture.of(arch).number >= 70


def held_of(program: RowProgram) -> list[Tensor]:
    """What is read of a row element by element, and in no other way."""
    found: dict[Tensor, bool] = {}

    def note(node: object) -> None:
        if isinstance(node, ProducerLoad):
            along = program.along(node) and not node.tensor.dtype.is_bool
            found[node.tensor] = found.get(node.tensor, True) and along

    for expr in (*(step.source for step in program.sums), program.result):
        post_order(expr, note)
    return [tensor for tensor, along in found.items() if along]


def _long_shares(
    program: RowProgram, held: Sequence[Tensor], beside: Sequence[Tensor] | None, lanes: int,
    target: ScheduleTarget | None,
) -> list[Share]:
    """How the largest clusters have long rows of 16 bits that fill no other ones: by threads that
    have all that they can hold, of no more warps than that takes.

    Measured on an H200: rows of 50,257 and of 100,000 elements took 9 and 17 % less time so, if
    their loads go past the processor's cache.
    """
    arch = None if target is None else target.attrs.get("arch")
    length = math.prod(program.row)
    has_clusters = isinstance(arch, str) and Architecture.of(arch).number >= 90
    is_narrow = all(tensor.dtype.bytes < FLOAT.bytes for tensor in held)
    if not has_clusters or not is_narrow or beside != [] or length <= MOST_HELD * LANES[-1]:
        return []
    if not suits_clusters(program) or not meets_once(program):
        return []
    own, blocks = MOST_HELD // lanes, CLUSTERS[-1]
    threads = -(-(length // lanes) // (blocks * own * WARP)) * WARP
    share = Share(blocks * threads, lanes, length, REGISTERS_HAVE, blocks=blocks)
    is_new = threads <= CLUSTER_LANES[-1] and share not in _filling(length, lanes)
    return [share] if is_new and math.prod(program.rows) * length < 1 << 31 else []


def _has_clusters(program: RowProgram, target: ScheduleTarget | None) -> bool:
    """Whether blocks of a cluster may share a row."""
    arch = None if target is None else target.attrs.get("arch")
    has = isinstance(arch, str) and Architecture.of(arch).number >= 90
    return has and suits_clusters(program)


def _room_of(
    program: RowProgram, held: Sequence[Tensor], target: ScheduleTarget | None
) -> int:
    """The longest row that shared memory has room for; 0 where rows are read but once."""
    arch = None if target is None else target.attrs.get("arch")
    if not isinstance(arch, str) or len(program.sums) + program.is_element < 2:
        return 0
    most = Architecture.of(arch).most_shared - SUMS_BYTES
    return most // sum(tensor.dtype.bytes for tensor in held)


def _most_blocks(
    program: RowProgram, held: Sequence[Tensor], kinds: Sequence[DataType],
    target: ScheduleTarget | None,
) -> int:
    """Blocks that may share a row: more than one where they run in clusters, and rows are so long
    that one block's threads take more than half of a processor's registers for one.

    Measured on an H200: rows of 16 bits leave less time to meet. They gain only where blocks meet
    but once, rows begin at whole vectors and another way would need all registers, or where hardly
    a thread is idle.
    """
    arch = None if target is None else target.attrs.get("arch")
    has_clusters = isinstance(arch, str) and Architecture.of(arch).number >= 90
    length, lanes = math.prod(program.row), VECTOR_BYTES // max(kind.bytes for kind in kinds)
    if not has_clusters or length <= MOST_HELD * CLUSTER_LANES[-1]:
        return 1
    is_narrow = any(tensor.dtype.bytes < FLOAT.bytes for tensor in held)
    if is_narrow and (length % lanes or not meets_once(program)):
        return 1
    if is_narrow and length > MOST_HELD * LANES[-1] and not _filling(length, lanes):
        return 1
    return CLUSTERS[-1] if suits_clusters(program) else 1


def _filling(length: int, lanes: int) -> list[Share]:
    """Shares of a row among the blocks of clusters whose threads have all that they can hold, and
    hardly one less."""
    shares = [
        Share(blocks * threads, lanes, length, REGISTERS_HAVE, blocks=blocks)
        for threads, blocks in product(CLUSTER_LANES, CLUSTERS)
    ]
    return [
        share for share in shares
        if share.own * lanes == MOST_HELD and share.most >= FILLED * share.own * share.threads
    ]


def _beside_of(program: RowProgram, held: Sequence[Tensor]) -> list[Tensor] | None:
    """Arrays that have no rows and are read along one, such as the scales of a norm: where rows
    begin inside of vectors, theirs do not. None if a sum reads one, or not at the very place."""
    found: dict[Tensor, None] = {}
    is_other = False

    def note(node: object, in_sum: bool) -> None:
        nonlocal is_other
        if isinstance(node, ProducerLoad) and node.tensor not in held:
            used = {var for index in node.indices for var in variables_in(index)}
            if used.isdisjoint(program.inner):
                return
            is_other = is_other or in_sum or not program.at_place(node)
            found[node.tensor] = None

    for step in program.sums:
        post_order(step.source, lambda node: note(node, True))
    post_order(program.result, lambda node: note(node, False))
    return None if is_other else list(found)


def _ahead_of(
    program: RowProgram, held: Sequence[Tensor], beside: Sequence[Tensor],
    kinds: Sequence[DataType], target: ScheduleTarget | None, most_blocks: int,
) -> dict[Share, float]:
    """Who may have a row, if another is brought meanwhile, and how much longer work takes then.

    Measured on an H200: blocks of one row each take turns well as long as two of them have room.
    Rows that registers do not keep, not even those of a cluster, gain, and so do those that begin
    inside of vectors, beside scales that do not.
    """
    arch = None if target is None else target.attrs.get("arch")
    length, rows = math.prod(program.row), math.prod(program.rows)
    lanes = VECTOR_BYTES // max(kind.bytes for kind in kinds)
    is_whole = all(tensor.dtype.bytes * lanes == VECTOR_BYTES for tensor in held)
    if not isinstance(arch, str) or Architecture.of(arch).number < 80 or not program.is_element:
        return {}
    if not is_whole or rows < 2 * BUSY or rows * length >= 1 << 31 or length < WARP * lanes:
        return {}
    room = Architecture.of(arch).most_shared - SUMS_BYTES
    found: dict[Share, float] = {}
    for threads, kept in product(AHEAD_LANES, (REGISTERS_HAVE, SHARED_HAS)):
        share = Share(threads, lanes, length, kept, True)
        bytes_of = _shared_bytes(share, held, beside)
        if share.own < 2 or bytes_of > room or (share.held and share.own * lanes > MOST_HELD):
            continue
        most_lanes = LANES[-1] if most_blocks == 1 else most_blocks * CLUSTER_LANES[-1]
        gains = length > MOST_HELD * most_lanes
        if beside:
            gains = share.held and share.is_shifted and _blocks_at_once(share, bytes_of) > 1
        found[share] = 0.9 if gains else 4.0
    return found


def _shared_bytes(share: Share, held: Sequence[Tensor], beside: Sequence[Tensor]) -> int:
    """Of a block that has rows brought ahead."""
    elements = share.own * share.threads * share.lanes
    return elements * sum(tensor.dtype.bytes for tensor in (*held, *beside))


def _blocks_at_once(share: Share, bytes_of: int) -> int:
    """Blocks of a processor that bring rows ahead."""
    registers = max(share.registers if share.held else 0, LEAST_REGISTERS * share.threads)
    return max(1, min(REGISTERS // registers, ALL_SHARED // (bytes_of + SUMS_BYTES)))


def _fits(share: Share, room: int) -> bool:
    """Whether a block keeps its part of a row; room: elements that its shared memory has."""
    if share.held:
        return share.own * share.lanes <= MOST_HELD and share.registers <= REGISTERS
    return share.kept == READ_AGAIN or share.own * share.in_block * share.lanes <= room


def _share_of(
    length: int, kinds: Sequence[DataType], room: int, may_shift: bool,
    ahead: Mapping[Share, float], most_blocks: int, meets: bool, rows: int,
) -> Share:
    """Who has a row of so many elements; several arrays of a row take as many registers.

    meets: whether the threads of a row meet but once. rows: how many there are, where blocks of
    clusters may share them.
    """
    lanes = VECTOR_BYTES // max(kind.bytes for kind in kinds)
    shifts = may_shift and length >= SHIFTED_VECTORS * WARP * lanes
    while lanes > 1 and length % lanes and not shifts:
        lanes //= 2
    counts = [n for n in LANES if n >= WARP or length % lanes == 0]
    fitting = [
        share for threads in counts
        if _fits(share := Share(threads, lanes, length, REGISTERS_HAVE), room)
    ]
    is_narrow = max(kind.bytes for kind in kinds) < FLOAT.bytes
    is_quick = is_narrow and meets and length % lanes == 0
    if most_blocks > 1 and is_narrow and length > MOST_HELD * LANES[-1]:
        fitting += _filling(length, lanes)
    else:
        fitting += [
            share for threads, blocks in product(CLUSTER_LANES, CLUSTERS)
            if blocks <= most_blocks
            and (share := Share(
                blocks * threads, lanes, length, REGISTERS_HAVE, blocks=blocks)).own * lanes
            <= MOST_HELD
        ]
    # Two blocks of a processor take turns at memory where both have room.
    for threads, most in ((LANES[-2], room // 2), (LANES[-1], room)):
        share = Share(threads, lanes, length, SHARED_HAS)
        fitting += [share] if _fits(share, most) else []
    fitting += [Share(threads, lanes, length, READ_AGAIN) for threads in LANES[5:]]
    full = {
        share: QUICK_TIME for share in fitting
        if share.kept == SHARED_HAS and share.threads == LANES[-1] and share.own == QUICK_VECTORS
        and is_quick and share.most < MOSTLY_FILLED * share.own * share.threads
    }
    times = {**ahead, **full}
    if length >= LONG and rows <= PROCESSORS:
        # Few long rows leave processors idle: what counts is the work of the busiest one.
        spread = [
            share for threads, blocks, kept in product(
                CLUSTER_LANES[-1:], CLUSTERS, (REGISTERS_HAVE, SHARED_HAS, READ_AGAIN))
            if _fits(
                share := Share(blocks * threads, lanes, length, kept, blocks=blocks), room // 2)
        ]
        fitting = list(dict.fromkeys([*fitting, *spread]))
        times |= {
            share: times.get(share, 1.0) * -(-rows * share.blocks // PROCESSORS) / share.blocks
            for share in [*fitting, *ahead] if share.blocks > 1
        }
    return choose(
        "threads of a row", [*fitting, *ahead], lambda share: share.cost * times.get(share, 1.0))
