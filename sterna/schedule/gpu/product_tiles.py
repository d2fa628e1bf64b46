"""Which tile a product is made in: by the time that it should take, from measurements.

A product has tiles of some sizes, with or without parts of sums (split-K), turned or not, by blocks
that stay or not; data that is float32 in memory is rounded in the kernel, ahead of it or before it.
"""

from dataclasses import replace

from sterna.schedule.choose import choose
from sterna.schedule.gpu.lane_kernel import Lanes
from sterna.schedule.gpu.ring import Product, Ring
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
SPLITS = (1, 2, 4, 8)
SHORTEST_PART = 3
"""Blocks of a sum that are worth a block of threads of their own."""
MOST_IN_CLUSTERS = 104
"""Blocks that run in clusters of more than two, or in pairs of large tiles: of more, some wait for
room in one place."""
MOST_BY_LANES = 120
"""The same of clusters of four by lanes, which leave other blocks room."""
LEAST_TO_STAY = 128
"""Rows and columns of tiles whose blocks stay: of smaller ones several share a processor. Half of
such a tile at least is to be filled: 64 columns of 128 took twice as long as tiles of 64."""
THRICE = 3
"""Products of tf32 that stand for one of float32."""
AHEAD = (8, 16)
"""Tiles down the result whose data is rounded ahead of their products."""
MOST_FILLED = 64
"""Blocks of a sum up to which it pays that stages are filled before a kernel begins."""
LONG_BYTES = 144 * 1024
"""What the stages of longer sums take best."""
MANY_WAVES = 4
"""Blocks for each processor from which on others wait for memory while one begins or ends."""
MOST_TURNED = 256
"""Rows of products that turned tiles are offered for."""
PROCESSORS, PROCESSOR_BYTES = 132, 227 * 1024
"""Of the device, an H100's, and the shared memory of each."""

# By measurement on an H200, in microseconds: one block of a sum for each tile that is offered, by
# Tensor Cores and by lanes; what 64 x 64 results of a tile take, and what their parts take to be
# sent; what a kernel takes beside.
_BLOCK_TIME = {(64, 64): 0.19, (64, 128): 0.27, (128, 128): 0.39, (128, 256): 0.72}
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
    rings = [
        Ring(rows, columns, stages, split)
        for rows, columns in (_LANES_BLOCK_TIME if product.is_exact else _BLOCK_TIME)
        for split in SPLITS
        for stages in STAGES
        if stages == STAGES[-1] or stages < 2 * product.blocks // split
    ]
    stores_rows = product.a.kind.bits == 16 and are_whole(product.columns, product.a.kind)
    if stores_rows and product.rows <= MOST_TURNED:
        rings += [
            Ring(rows, columns, stages, split, turned=True)
            for rows, columns in _TURNED_BLOCK_TIME
            for split in SPLITS
            for stages in STAGES
            # The deepest ring only where it holds the whole sum: filled again, it was not seen to
            # end on an H200.
            if stages < STAGES[0] or stages * split >= product.blocks
        ]
    if product.tf32 == THRICE:
        rings += [
            Ring(rows, columns, stages, split, thrice=True)
            for rows, columns in _BLOCK_TIME for split in SPLITS for stages in (*STAGES, 2)
        ]
    by_copies = are_whole(product.columns, stored) and str(stored) in STORED
    if by_copies:
        rings += [
            replace(ring, resident=_even_share(_blocks(product, ring)))
            for ring in rings
            if ring.split == 1 and not ring.turned and min(ring.rows, ring.columns) >= LEAST_TO_STAY
            and _blocks(product, ring) > PROCESSORS and not product.by_lanes(ring)
            and 2 * product.columns > ring.columns
        ]
    if is_wide and not product.a.along_rows:
        several = [replace(ring, wide=True) for ring in rings]
        several += [
            replace(ring, ahead=high)
            for ring in rings for high in AHEAD if _rounds_ahead(product, ring, high)
        ]
        rings += several
    offered = [
        ring for ring in rings if ring.shared_bytes <= most_shared and _suits_split(product, ring)
    ]
    before = _rounding_time(product) if is_wide else 0.0


    def cost(ring: Ring) -> float:
        if ring.ahead:
            first = ring.ahead * ring.rows / product.rows
            return microseconds(product, ring) + before * first
        if ring.thrice:
            return microseconds(product, ring) + _rests_time(product)
        return microseconds(product, ring) + (0.0 if ring.wide else before)

    return choose("tile of a block", offered, cost)


def _rounds_ahead(product: Product, ring: Ring, high: int) -> bool:
    """Whether the data can be rounded ahead: in whole pieces, beside products that take longer."""
    group = high * ring.rows
    return (
        ring.resident > 0 and ring.moves_registers and product.batch == 1
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
    table = _LANES_BLOCK_TIME if product.by_lanes(ring) else _BLOCK_TIME
    return table[ring.rows, ring.columns] * (THRICE if ring.thrice else 1)


def _even_share(tiles: int) -> int:
    """The fewest blocks that take as many turns as all processors would."""
    turns = -(-tiles // PROCESSORS)
    return -(-tiles // turns)


def _blocks(product: Product, ring: Ring) -> int:
    """Blocks of threads."""
    if ring.turned:
        product = product.turned()
    down, across = -(-product.rows // ring.rows), -(-product.columns // ring.columns)
    return down * across * product.batch * ring.split


def _suits_split(product: Product, ring: Ring) -> bool:
    """Whether threads have whole parts of sums, which are long enough, and clusters find room."""
    by_lanes = product.by_lanes(ring)
    if by_lanes and not Lanes.of(ring).suits(product):
        return False
    if ring.split == 1:
        return True
    if product.sums.is_integer:
        return False
    # What is behind the end of a sum is zero; behind the last channel of a tap the next one begins.
    whole = product.taps == 1 or product.blocks % ring.split == 0
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
    waves, steps = -(-blocks // PROCESSORS), -(-product.blocks // ring.split)
    results = ring.rows * ring.columns / (64 * 64)
    step = _block_time(product, ring)
    if waves == 1 and not product.by_lanes(ring):
        read = blocks * ring.stage_bytes / _BYTES_A_MICROSECOND
        multiplied = _MULTIPLY_TIME * results * (THRICE if ring.thrice else 1)
        step = min(step, max(multiplied, _STEP_TIME + read))
    elif waves > 1 and product.by_lanes(ring) and ring.consumers == 1:
        step *= _SHARED_TIME
    if ring.wide:
        straight = _ROUNDING_TIME * ring.consumers + _BESIDE_TIME * ring.columns
        step += _TURNED_TIME * ring.columns if ring.turned else straight
    each = steps * step
    if not ring.resident:  # else the next tile hides it
        each += _TILE_TIME * results
    turns = float(waves)
    if product.by_lanes(ring):
        together = min(_MOST_TOGETHER, PROCESSOR_BYTES // ring.shared_bytes)
        if waves == 1 and together > 1:
            each *= _UNEVEN_TIME
        elif waves > 1 and together > 2:
            turns += (together - 2) * _UNEVEN_WAVE
    exchanged = 0.0
    if ring.split > 1:
        exchanged = results * (_EXCHANGE_TIME + _CLUSTERED_TIME * blocks)
    # More stages hold weights that come before the kernels in front are done, if there is room.
    wanted = STAGES[0] if blocks <= PROCESSORS else 6
    if blocks <= PROCESSORS and steps > MOST_FILLED:
        wanted = LONG_BYTES // ring.stage_bytes
    elif ring.resident and steps < 2 * wanted:
        wanted = 4  # the next tile comes while this one is stored, whatever is left
    elif blocks > MANY_WAVES * PROCESSORS and results == 1:
        wanted = 4  # so that three blocks share a processor
    # Data that comes from outside has none in front; tiles by lanes leave another block room.
    if (ring.wide and not ring.turned) or (product.by_lanes(ring) and blocks > PROCESSORS):
        wanted = 4
    return _START_TIME + turns * (each + exchanged) + 0.01 * abs(ring.stages - wanted)


def are_whole(count: int, kind: DataType) -> bool:
    """Whether so many numbers fill a multiple of 16 bytes."""
    return count * kind.bytes % WHOLE_BYTES == 0
