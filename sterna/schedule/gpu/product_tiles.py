"""Which tile a product is made in: by the time that it should take, from measurements.

A product has tiles of some sizes, with or without parts of sums (split-K), turned or not, by blocks
that stay or not; data that is float32 in memory is rounded in the kernel, ahead of it or before it.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sterna.schedule.choose import choose
from sterna.schedule.gpu.lane_kernel import Lanes
from sterna.schedule.gpu.operand import ROW_BYTES
from sterna.schedule.gpu.ring import SPREAD, Product, Ring
from sterna.schedule.gpu.rounded_persistent_kernel import FIRST_PIECE, PIECE
from sterna.support.dtype import DataType

HALVES = ("bfloat16", "float16")
"""Types of 16 bits."""
STORED = (*HALVES, "float32", "int32")
"""The types of results that copies take out of shared memory."""
WHOLE_BYTES = 16
"""Rows of arrays take a multiple of so many bytes."""
STAGES = (12, 8, 6, 4, 3)
STAGES_OF_WARPS = (4, 3)
SPLITS, UNEVEN_SPLITS = (1, 2, 4, 8), (3,)
"""Blocks that share a sum, and those that share the columns of wide tiles unevenly."""
STAGES_OF_TILES = (8, 6, 4)
SHORT_STAGES = (2, 1)
"""Of sums that have no more: so more blocks share a processor."""
SHORTEST_PART = 3
"""Blocks of a sum that are worth a block of threads of their own."""
MOST_IN_CLUSTERS = 104
"""Blocks that run in clusters of more than two, or in pairs of large tiles: of more, some wait for
room in one place."""
MOST_BY_LANES = 120
"""The same of clusters of four by lanes, which leave other blocks room."""
LEAST_TO_STAY = 128, 32
"""Rows and columns of tiles whose blocks stay: of smaller ones several share a processor. Half of
such a tile at least is to be filled: 64 columns of 128 took twice as long as tiles of 64."""
THRICE = 3
"""Products of tf32 that stand for one of float32."""
AHEAD = (8, 16)
"""Tiles down the result whose data is rounded ahead of their products."""
MOST_FILLED = 64
"""Blocks of a sum up to which it pays that stages are filled before a kernel begins."""
LEAST_APART = 32
"""Blocks of a part of a sum that is worth being added up by another kernel."""
LONG_SUM, LEAST_ROWS_APART, TILE_APART = 96, 128, (64, 128)
"""Blocks of a sum from which on reading its operands is what takes long; the rows of products whose
parts of sums another kernel adds up, and the smallest tile of those."""
KEPT_STAGES_BYTES, KEPT_LEAST = 96 * 1024, 64 * 1024
"""What the stages of a processor take best where the columns' operand is kept beside them, and what
they should take at least."""
LONG_BYTES = 144 * 1024
"""What the stages of longer sums take best."""
MANY_WAVES = 4
"""Blocks for each processor from which on others wait for memory while one begins or ends."""
MOST_TURNED = 256
"""Rows of products that turned tiles are offered for."""
USUAL = ((64, 64), (64, 128), (128, 128), (128, 256))
"""Tiles of all products; others have fewer columns behind the last one of the result."""
FEWEST_COLUMNS, LEAST_TO_SHARE, MOST_COLUMNS = 64, 128, 256
"""Columns of tiles of products that have more, of those that others are held against, and of the
widest."""
MOST_PARTS, TALLEST = range(1, 5), 128
"""In how many parts tiles may have all columns of a product, and the rows of these."""
MOST_TOGETHER, RESERVED_BYTES = 128, 1024
"""Columns of tiles whose blocks stay two by two: more sums leave too few registers. Shared memory
that a processor keeps of each block."""
LEAST_SHARED = 96
"""Columns of tiles that blocks share unevenly."""
PROCESSORS, PROCESSOR_BYTES = 132, 227 * 1024
"""Of the device, an H100's, and the shared memory of each."""

# By measurement on an H200, in microseconds: one block of a sum for each tile that is offered, by
# Tensor Cores and by lanes; what 64 x 64 results of a tile take, and what their parts take to be
# sent; what a kernel takes beside.
_BLOCK_TIME = {
    (64, 32): 0.15, (64, 64): 0.19, (64, 96): 0.23, (64, 128): 0.27, (128, 32): 0.2,
    (128, 64): 0.25, (128, 96): 0.31, (128, 128): 0.39, (128, 256): 0.72,
}
# Those of other tiles of 128 rows: beside what each column takes.
_ALONE_TIME, _COLUMN_TIME = 0.064, 0.00256
# What is left of two blocks' time that stay on one processor, where rows are short.
_PAIRED_TIME = 0.9
_TURNED_BLOCK_TIME = {(64, 16): 0.14, (64, 32): 0.16}
_LANES_BLOCK_TIME = {
    (64, 32): 0.5, (64, 48): 0.69, (64, 64): 0.87, (64, 96): 1.28, (128, 128): 2.9,
    (40, 64): 0.62, (40, 96): 0.85, (40, 128): 1.1, (56, 64): 0.79,
}
_WARPS_BLOCK_TIME = {(64, 64): 0.3, (64, 128): 0.45, (128, 128): 0.8}
_TILE_TIME, _START_TIME = 0.1, 1.5
# What is left of a block's time by lanes where two blocks share a processor. Where there is room
# for more of them than that, or for two where one would do, some processors get more than others.
_SHARED_TIME = 0.87
_UNEVEN_TIME, _UNEVEN_WAVE, _MOST_TOGETHER = 1.25, 0.68, 4
# Of products in one wave: what a step takes at least, what 64 x 64 products of a block take, what
# all blocks read together, and what exchanging parts takes, more with many blocks in clusters.
_STEP_TIME, _MULTIPLY_TIME, _BYTES_A_MICROSECOND = 0.05, 0.082, 25e6
_EXCHANGE_TIME, _CLUSTERED_TIME = 0.35, 0.006
# What all blocks of long sums read together: neighbouring tiles have what one cache gives both, the
# blocks of a cluster, each at another part of the sums, do not.
_LONG_BYTES_A_MICROSECOND, _APART_BYTES_A_MICROSECOND = 20e6, 9e6
# What a kernel takes at least that adds parts up, and the bytes of parts that are stored and added.
_ADDING_TIME, _ADDED_A_MICROSECOND = 1.5, 2.6e6
# What is left of a block's time where the columns' operand stays, what blocks of single taps take
# more, and the bytes of that operand that a processor loads.
_KEPT_TIME, _SINGLE_TAP_TIME, _KEPT_A_MICROSECOND = 0.65, 0.03, 2e5
_FEW_STAGES_TIME = 1.25
# What rounding adds to a block: for 64 rows and for each column that these are multiplied with,
# whose operand shared memory gives at the same time; for each column of a turned tile. What a
# kernel takes at least that only rounds, and the bytes that it moves.
_ROUNDING_TIME, _BESIDE_TIME, _TURNED_TIME = 0.05, 0.0006, 0.0025
_BEFORE_TIME, _ROUNDED_A_MICROSECOND = 2.5, 3.2e6


def ring_of_warps(product: Product, most_shared: int) -> Ring:
    """The tile of single warps that should take the least time."""
    offered = [
        ring
        for rows, columns in _WARPS_BLOCK_TIME
        for stages in STAGES_OF_WARPS
        if (ring := Ring(rows, columns, stages)).stages * ring.stage_bytes <= most_shared
        and product.has_whole(columns)
    ]
    return choose("tile of a block", offered, lambda ring: _WARPS_BLOCK_TIME[
        ring.rows, ring.columns] * -(-_blocks(product, ring) // PROCESSORS) - 0.01 * ring.stages
    )


def ring_of(
    product: Product, most_shared: int, stored: DataType, is_wide: bool = False
) -> Ring:
    """The tile that should take the least time.

    stored: the type of results; is_wide: whether the data is float32 in memory, so that it is
    rounded by this kernel or by one before it.
    """
    before = _rounding_time(product) if is_wide else 0.0

    def cost(ring: Ring) -> float:
        if ring.ahead:
            first = ring.ahead * ring.rows / product.rows
            return microseconds(product, ring) + before * first
        if ring.thrice:
            return microseconds(product, ring) + _rests_time(product)
        return microseconds(product, ring) + (0.0 if ring.wide else before)

    return choose("tile of a block", _offered(product, most_shared, stored, is_wide), cost)


def least_time(product: Product, most_shared: int, stored: DataType) -> float:
    """The microseconds that a product takes in the tile that suits it best."""
    rings = _offered(product, most_shared, stored, False)
    return min(microseconds(product, ring) for ring in rings)


def _offered(product: Product, most_shared: int, stored: DataType, is_wide: bool) -> list[Ring]:
    """The tiles that a product may have."""
    rings = _plain_rings(product)
    stores_rows = product.a.kind.bits == 16 and are_whole(product.columns, product.a.kind)
    if stores_rows and product.rows <= MOST_TURNED and not product.group:
        rings += [
            Ring(rows, columns, stages, split, turned=True)
            for rows, columns in _TURNED_BLOCK_TIME
            if not product.a.along_rows or columns % product.a.unit == 0  # whole boxes
            for split in SPLITS
            for stages in STAGES
            # The deepest ring only where it holds the whole sum: filled again, it was not seen to
            # end on an H200.
            if stages < STAGES[0] or stages * split >= product.blocks
        ]
    if product.tf32 == THRICE and not product.group:
        rings += [
            Ring(rows, columns, stages, split, thrice=True)
            for rows, columns in _BLOCK_TIME for split in SPLITS for stages in (*STAGES, 2)
        ]
    if _sums_apart(product):
        rings += [ring for ring in map(partial(_apart, product), rings) if ring.apart > 1]
    by_copies = are_whole(product.columns, stored) and str(stored) in STORED
    if by_copies:
        stay = [
            ring for ring in rings
            if ring.split * ring.apart == 1 and not ring.turned and ring.stages >= STAGES[-1]
            and ring.rows >= LEAST_TO_STAY[0] and ring.columns >= LEAST_TO_STAY[1]
            and _blocks(product, ring) > PROCESSORS and not product.by_lanes(ring)
            and (2 * product.columns > ring.columns or ring.columns == LEAST_TO_STAY[1])
        ]
        stay += _keeping(product, stay)
        rings += [
            replace(ring, resident=_even_share(_blocks(product, ring), together), together=together)
            for ring in stay for together in _together(ring)
        ]
    if is_wide and not product.a.along_rows:
        several = [
            replace(ring, wide=True, pitch=ROW_BYTES)
            for ring in rings
            if ring.is_even and ring.together == 1 and ring.stages >= STAGES[-1] and not ring.kept
        ]
        several += [
            replace(ring, ahead=high)
            for ring in rings for high in AHEAD if _rounds_ahead(product, ring, high)
        ]
        rings += several
    return [
        ring for ring in rings if ring.shared_bytes <= most_shared and _suits_split(product, ring)
    ]


def _plain_rings(product: Product) -> list[Ring]:
    """Tiles of all sizes, in parts of sums or not, with as many stages as sums have use for."""
    pitch, taps = product.least_pitch, product.taps_together
    tiles = _tiles(product)
    splits, stage_counts = [*SPLITS, *UNEVEN_SPLITS], [*STAGES, *SHORT_STAGES]
    if product.is_exact:
        tiles, splits, stage_counts = list(_LANES_BLOCK_TIME), [*SPLITS], [*STAGES]
    found: list[Ring] = []
    tiles = [tile for tile in tiles if product.has_whole(tile[1])]
    for (rows, columns), split, stages in itertools.product(tiles, splits, stage_counts):
        steps = -(-product.blocks // (taps * split))
        short = stages in SHORT_STAGES
        if split in UNEVEN_SPLITS and columns < LEAST_SHARED:
            continue
        # Of blocks that stay, stages have several tiles.
        stays = stages in STAGES_OF_TILES and split == 1 and steps <= SHORT_STAGES[0]
        stays = stays and not product.is_exact
        if stages == steps if short else stages == STAGES[-1] or stages < 2 * steps or stays:
            found.append(Ring(rows, columns, stages, split, pitch=pitch, taps=taps))
    return found


def _tiles(product: Product) -> list[tuple[int, int]]:
    """Rows and columns: those that suit many products, and such as have a part of all columns."""
    def made(columns: int) -> int:
        return -(-product.columns // columns) * columns

    found = [
        (rows, columns) for rows, columns in _BLOCK_TIME
        if (rows, columns) in USUAL
        or (product.columns <= columns if columns < FEWEST_COLUMNS
            else made(columns) < made(LEAST_TO_SHARE))
    ]
    for parts in MOST_PARTS:
        columns, rest = divmod(product.group or product.columns, parts)
        fits = not rest and columns % SPREAD == 0 and LEAST_TO_SHARE < columns < MOST_COLUMNS
        if fits and (TALLEST, columns) not in found:
            found.append((TALLEST, columns))
    if product.b.along_rows:  # whole boxes
        found = [tile for tile in found if tile[1] % product.b.unit == 0]
    return found


def _sums_apart(product: Product) -> bool:
    """Whether sums are so long and tiles so few that parts of sums fill the processors."""
    parts = PROCESSORS // _blocks(product, Ring(*TILE_APART, STAGES[-1]))
    long_enough = product.blocks >= max(LONG_SUM, LEAST_APART * parts)
    is_plain = product.taps == 1 and not product.sums.is_integer and not product.is_exact
    is_plain = is_plain and not product.group
    return is_plain and product.rows >= LEAST_ROWS_APART and parts > 1 and long_enough


def _apart(product: Product, ring: Ring) -> Ring:
    """The same with as many parts of sums as there are processors for."""
    is_plain = ring.split == 1 and not ring.turned and not ring.thrice and ring.stages > 2
    if not is_plain or ring.columns != TILE_APART[1]:
        return ring
    parts = min(PROCESSORS // _blocks(product, ring), product.blocks // LEAST_APART)
    return replace(ring, apart=parts) if parts > 1 else ring


def _keeping(product: Product, stay: Sequence[Ring]) -> list[Ring]:
    """The same with the columns' operand kept, where one tile has all columns; stages may have one
    tap each, so that there is room for all taps of the columns' operand."""
    if product.batch > 1:
        return []
    return list(dict.fromkeys(
        replace(ring, stages=stages, taps=taps, kept=-(-product.blocks // taps))
        for ring in stay if product.columns <= ring.columns and not ring.thrice
        for stages in (*STAGES_OF_TILES, STAGES[-1]) for taps in {ring.taps: 0, 1: 0}
    ))


def _rounds_ahead(product: Product, ring: Ring, high: int) -> bool:
    """Whether the data can be rounded ahead: in whole pieces, beside products that take longer."""
    group = high * ring.rows
    return (
        ring.resident > 0 and ring.moves_registers and product.batch == 1 and not ring.kept
        and ring.pitch == ROW_BYTES
        and product.rows % ring.rows == 0 and product.rows > group
        and ring.rows * product.depth % PIECE == 0 and group * product.depth % FIRST_PIECE == 0
    )


def _rounding_time(product: Product) -> float:
    """What a kernel takes that rounds the data first."""
    numbers = product.rows * product.depth * product.batch
    return _BEFORE_TIME + numbers * (4 + product.a.kind.bytes) / _ROUNDED_A_MICROSECOND


def _rests_time(product: Product) -> float:
    """What a kernel takes that writes the rests of the columns' operand first."""
    numbers = product.columns * product.depth * product.batch
    return _BEFORE_TIME + numbers * 2 * product.b.kind.bytes / _ROUNDED_A_MICROSECOND


def _block_time(product: Product, ring: Ring) -> float:
    """What one block of a sum takes a tile."""
    if ring.turned:
        return _TURNED_BLOCK_TIME[ring.rows, ring.columns]
    if product.by_lanes(ring):
        return _LANES_BLOCK_TIME[ring.rows, ring.columns]
    fitted = _ALONE_TIME + _COLUMN_TIME * ring.columns
    whole = _BLOCK_TIME.get((ring.rows, ring.columns), fitted)
    return whole * (THRICE if ring.thrice else 1) * ring.tap_bytes / ROW_BYTES


def _even_share(tiles: int, together: int) -> int:
    """The fewest blocks that take as many turns as all processors would."""
    turns = -(-tiles // (PROCESSORS * together))
    return -(-tiles // turns)


def _together(ring: Ring) -> tuple[int, ...]:
    """How many blocks that stay a processor has room for."""
    stored = ring.consumers * 2 * ring.rows // ring.consumers * ROW_BYTES
    held = ring.stages * ring.stage_bytes + ring.kept_bytes
    room = 2 * (held + stored + RESERVED_BYTES) <= PROCESSOR_BYTES
    return (1, 2) if room and ring.columns <= MOST_TOGETHER and not ring.thrice else (1,)


def _blocks(product: Product, ring: Ring) -> int:
    """Blocks of threads."""
    if ring.turned:
        product = product.turned()
    down, across = -(-product.rows // ring.rows), -(-product.columns // ring.columns)
    return down * across * product.batch * ring.split * ring.apart


def _suits_split(product: Product, ring: Ring) -> bool:
    """Whether threads have whole parts of sums, which are long enough, and clusters find room."""
    by_lanes = product.by_lanes(ring)
    if by_lanes and not Lanes.of(ring).suits(product):
        return False
    if ring.split == 1:
        return True
    if product.sums.is_integer:
        return False
    # What is behind the end of a sum is zero; behind the last channel of a tap or of a group the
    # next one begins.
    whole = product.taps == 1 and not product.group
    whole = whole or product.blocks % (ring.split * ring.taps) == 0
    whole = whole and -(-product.blocks // ring.split) >= SHORTEST_PART
    is_small = ring.wide or by_lanes or ring.columns <= 64
    most = PROCESSORS if ring.split == 2 and is_small else MOST_IN_CLUSTERS
    if by_lanes and ring.split == 4:
        most = MOST_BY_LANES
    if not by_lanes and ring.own_columns % 8:
        return False
    return whole and _blocks(product, ring) <= most


def microseconds(product: Product, ring: Ring) -> float:
    """What a product takes in such tiles, by measurements."""
    blocks = _blocks(product, ring)
    waves = -(-blocks // PROCESSORS)
    steps = -(-product.blocks // (ring.split * ring.apart * ring.taps))
    results = ring.rows * ring.columns / (64 * 64)
    step = _block_time(product, ring)
    if waves == 1 and not product.by_lanes(ring):
        rate = _BYTES_A_MICROSECOND
        if _sums_apart(product):
            shares = ring.split == 1 or ring.turned
            rate = _LONG_BYTES_A_MICROSECOND if shares else _APART_BYTES_A_MICROSECOND
        read = blocks * ring.stage_bytes / rate
        multiplied = _MULTIPLY_TIME * results * (THRICE if ring.thrice else 1)
        multiplied *= ring.tap_bytes / ROW_BYTES
        step = min(step, max(multiplied, _STEP_TIME + read))
    elif waves > 1 and product.by_lanes(ring) and ring.consumers == 1:
        step *= _SHARED_TIME
    if ring.wide:
        straight = _ROUNDING_TIME * ring.consumers + _BESIDE_TIME * ring.columns
        step += _TURNED_TIME * ring.columns if ring.turned else straight
    if ring.kept:
        step *= _KEPT_TIME
        if ring.pitch == ROW_BYTES and ring.stages * ring.stage_bytes * ring.together < KEPT_LEAST:
            step *= _FEW_STAGES_TIME
        if ring.taps < product.taps_together:
            step += _SINGLE_TAP_TIME
    each = steps * step
    if not ring.resident:  # else the next tile hides it
        each += _TILE_TIME * results
    turns = float(waves)
    if ring.together > 1:  # blocks share a processor; of short rows one waits while another stores
        turns = float(-(-blocks // (ring.together * PROCESSORS)))
        is_short = ring.pitch < ROW_BYTES or (ring.kept > 0 and steps <= SHORT_STAGES[0])
        each *= ring.together * (_PAIRED_TIME if is_short else 1.01)
    if product.by_lanes(ring):
        together = min(_MOST_TOGETHER, PROCESSOR_BYTES // ring.shared_bytes)
        if waves == 1 and together > 1:
            each *= _UNEVEN_TIME
        elif waves > 1 and together > 2:
            turns += (together - 2) * _UNEVEN_WAVE
    exchanged = 0.0
    if ring.apart > 1:
        numbers = product.rows * product.columns * product.batch * ring.apart
        exchanged = _ADDING_TIME + numbers * 2 * product.sums.bytes / _ADDED_A_MICROSECOND
    elif ring.split > 1:
        exchanged = results * (_EXCHANGE_TIME + _CLUSTERED_TIME * blocks)
    # More stages hold weights that come before the kernels in front are done, if there is room.
    wanted = STAGES[0] if blocks <= PROCESSORS and ring.apart == 1 else 6
    if blocks <= PROCESSORS and steps > MOST_FILLED and ring.apart == 1:
        wanted = LONG_BYTES // ring.stage_bytes
    elif ring.resident and steps < 2 * wanted:
        # The next tile comes while this one is stored, whatever is left.
        wanted = 3 if ring.together == 1 and ring.pitch < ROW_BYTES else 4
    elif blocks > PROCESSORS and steps <= SHORT_STAGES[0]:
        wanted = steps
    elif blocks > MANY_WAVES * PROCESSORS and results < 2:
        wanted = 4  # so that three blocks share a processor
    if ring.kept:
        wanted = KEPT_STAGES_BYTES // (ring.stage_bytes * ring.together)
        exchanged = ring.kept_bytes / (_KEPT_A_MICROSECOND * turns)
    # Data that comes from outside has none in front; tiles by lanes leave another block room.
    if (ring.wide and not ring.turned) or (product.by_lanes(ring) and blocks > PROCESSORS):
        wanted = 4
    return _START_TIME + turns * (each + exchanged) + 0.01 * abs(ring.stages - wanted)


def are_whole(count: int, kind: DataType) -> bool:
    """Whether so many numbers fill a multiple of 16 bytes."""
    return count * kind.bytes % WHOLE_BYTES == 0


def whole_count(count: int, kind: DataType) -> int:
    """The least count from that many on that fills a multiple of 16 bytes."""
    each = WHOLE_BYTES // kind.bytes
    return -(-count // each) * each
