"""The one cost model: cycles of the thread that ends last, so that all costs can be compared.

What the direct way takes is what every other implementation must beat.
"""

import math

from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import GROUP, INT32, LEAST_LANES, dot_lanes, fills_last_tile
from sterna.schedule.kernel import Processor
from sterna.schedule.products import FLOAT32
from sterna.schedule.register_tile import tiles_of_group

# Bytes that come from behind the second cache in a cycle.
STREAMED = 8
# Cycles in which an element goes into another layout.
MOVED = 2.5
# Cycles until threads have begun and ended together.
REGION = 3000
# Cycles until a kernel has begun. Split-K makes the average in its own that one pixel mostly is.
KERNEL = 1000
# What it takes to make vectors of float32 of narrow weights, and how many rows share them.
WIDENED, ROWS_OF_VECTORS = 2, 8
# How much longer the steps of a tile take that each are a loop's turn: those of a single channel.
ONE_CHANNEL = 2.5
# The same where numbers are loaded into all lanes, one by one, on processors that take lanes.
BROADCAST = 1.15
# How much longer depthwise products take that load all that they multiply.
LOADED = 1.3
# Sums that must be under way for each multiply-add of a cycle, and vectors of a row that are.
SUMS_AT_ONCE, SIDE_BY_SIDE = 4, 6
# How much longer a row takes that is no whole vectors.
RAGGED = 2.0
# How much longer windows take whose strides part the pixels they read, while large weights pass by.
STRIDED = 1.5
# Dot products of bytes of a cycle.
DOTS = 1.6
# Cycles in which a vector of bytes is packed, of as many as sums have lanes.
PACKED = 2.0
# Cycles in which a vector of rows is packed, and how much longer one takes, each time it is read,
# that lies apart from the other rows of its tile: in the second cache, and from behind it or where
# rows lie whole pages apart and share the places of a set.
PACKED_ROWS, NEAR_APART, FAR_APART = 2.3, 0.03, 0.15
LINE_BYTES, PAGE_BYTES = 64, 4096
# Numbers of rows that are copied at most: memory grows by as much.
MOST_PACKED = 1 << 23
# Instructions for a group of four bytes without a dot product, as they were measured: products of
# words.
BY_WORDS = 5
# Instructions for a product of bytes without vectors, as they were counted.
BY_BYTES = 4.5


def direct_cycles(made: Contraction, processor: Processor, columns: int | None = None) -> float:
    """What sums of products in register tiles take, of so many columns if that is known."""
    if made.data.is_integer and made.data.bits == 8:
        return _cycles_of_bytes(made, processor) / processor.threads
    if made.data == "bfloat16":
        vectors = -(-made.outputs // processor.lanes(INT32)) * made.products
        widened = WIDENED * -(-made.pixels // ROWS_OF_VECTORS)
        cycles = vectors * (made.pixels + widened) / processor.throughput.multiply_adds
        return cycles / processor.threads
    return _cycles_of_floats(made, processor, columns or made.outputs)


def _cycles_of_bytes(made: Contraction, processor: Processor) -> float:
    """By dot products of four bytes where there are such, else by products of words."""
    lanes, outputs = dot_lanes(made.outputs // made.groups, processor), made.outputs
    if fills_last_tile(made):
        lanes = processor.lanes(INT32)
        outputs += -outputs % lanes
    steps = made.pixels * outputs / lanes * made.products / GROUP
    if processor.has_dot4 and lanes >= LEAST_LANES and made.depth % GROUP == 0:
        return steps / DOTS
    if processor.has_dot_halves or processor.lanes(INT32) == 1:
        return made.macs * BY_BYTES  # compilers of C make no vectors of such sums
    return steps * BY_WORDS


def _cycles_of_floats(made: Contraction, processor: Processor, columns: int) -> float:
    """Threads share the pixels; where there is but one, the columns of tiles."""
    tiles = -(-made.outputs // columns)
    threads = min(processor.threads, tiles) if made.pixels == 1 else processor.threads
    large = made.weight_bytes > processor.l2_bytes // 2  # threads share channels then, else rows
    share = 1 / processor.threads if large else 1.0
    cycles = made.macs / products_per_cycle(processor) / threads
    is_window = large and made.taps > 1 and made.channels_last and not processor.by_element_fma
    cycles *= STRIDED if is_window and {*made.strides} != {1} else 1.0
    cycles += arriving(made.weight_bytes * share, processor) + regions(1, processor)
    cycles += KERNEL if made.pixels == 1 else 0.0
    if made.is_matrix:
        data, most = made.rows * made.depth * made.data.bytes, processor.l2_bytes // 2
    else:
        data = made.inputs * math.prod(made.image) * made.data.bytes
        most = processor.l2_bytes if large and made.taps > 1 else data
    if data > most:  # it comes again for every column
        again = made.matrices if made.is_matrix else made.batch
        coming = again * data * (tiles - 1) / STREAMED / processor.threads
        cycles += min(coming, _packed_instead(made, processor)) if made.is_matrix else coming
    return cycles


def _packed_instead(made: Contraction, processor: Processor) -> float:
    """What it takes to pack rows, which then come as fast as they are used; else infinite."""
    elements = made.matrices * made.rows * made.depth
    if processor.steps_together(made.out, made.depth) == 1 or elements > MOST_PACKED:
        return math.inf
    return packed_rows_cycles(elements, processor)


def rows_apart_cycles(
    elements: int, columns: int, pitch: int, processor: Processor
) -> float:
    """How much longer it takes to read so many numbers of rows as they lie, by columns of tiles."""
    is_far = elements * FLOAT32.bytes > processor.l2_bytes // 2 or pitch % PAGE_BYTES == 0
    apart = FAR_APART if is_far else NEAR_APART
    return apart * columns * elements / processor.lanes(FLOAT32) / processor.threads


def packed_rows_cycles(elements: int, processor: Processor) -> float:
    """What it takes to copy so many numbers in the order in which tiles read them."""
    cycles = PACKED_ROWS * elements / processor.lanes(FLOAT32) / processor.threads
    return cycles + regions(1, processor)


def tiled_cycles(made: Contraction, processor: Processor) -> float:
    """What the direct way takes with the loads of its tiles: of lines of pixels, times channels."""
    *above, rows = (math.prod(made.result),) if made.is_pointwise else made.result
    columns = made.outputs // made.groups
    found = tiles_of_group(processor, rows, columns, made.groups, made.out, made.depth)
    tile = min(found, key=found.__getitem__)
    steps = found[tile] * made.groups * made.products * made.batch * math.prod(above)
    steps *= ONE_CHANNEL if made.depth == made.groups == 1 and made.taps > 1 else 1.0
    if processor.by_element_fma and processor.steps_together(made.out, made.depth) == 1:
        steps *= BROADCAST
    cycles = max(0.0, steps - made.macs / products_per_cycle(processor))
    if not made.channels_last and made.weight_bytes > processor.l2_bytes // 2:
        # of a few channels they are read for every line of pixels
        cycles += made.batch * math.prod(above) * made.weight_bytes / STREAMED
    return direct_cycles(made, processor, tile.columns) + cycles / processor.threads


def depthwise_cycles(made: Contraction, processor: Processor) -> float:
    """What a depthwise convolution of float32 takes: vectors of channels where these lie last.

    Else those of the pixels of a row, which has few: their sums wait for each other, and borders
    are copied first.
    """
    lanes, rate = processor.lanes(made.out), processor.throughput.multiply_adds
    if made.channels_last:
        steps = made.pixels * -(-made.outputs // lanes) * made.taps
        return LOADED * steps / rate / processor.threads
    vectors = -(-made.result[-1] // lanes)
    steps = made.batch * made.outputs * math.prod(made.result[:-1]) * vectors * made.taps
    waiting = max(1.0, SUMS_AT_ONCE * rate / min(vectors, SIDE_BY_SIDE))
    waiting *= RAGGED if made.result[-1] % lanes else 1.0
    waiting *= LOADED if lanes * FLOAT32.bytes >= LINE_BYTES else 1.0  # most lie in two lines
    copied = made.batch * made.inputs * math.prod(made.image) if made.is_padded else 0
    return (steps / rate * waiting + copied) / processor.threads


def operand_cycles(made: Contraction, processor: Processor, is_packed: bool) -> float:
    """What a product of bytes takes whose second operand the run packs for dot products, or not."""
    lanes = processor.lanes(INT32)
    cycles = made.macs / (processor.throughput.multiply_adds * lanes)
    if is_packed:
        cycles = cycles / GROUP + PACKED * made.outputs * made.inputs / lanes
    return cycles / processor.threads


def blocked_cycles(
    made: Contraction, depth: int, width: int, processor: Processor
) -> float:
    """The same in tiles of a width, in blocks of so many steps of the sum that stay in the cache.

    What they add to the sums is loaded and stored, and rows are read as they lie.
    """
    vectors = made.pixels * made.outputs / processor.lanes(FLOAT32)
    collected = 2 * vectors * (made.depth // depth) / processor.threads
    cycles = direct_cycles(made, processor) + collected
    if processor.steps_together(made.out, made.depth) > 1:
        elements, pitch = made.matrices * made.rows * made.depth, made.depth * made.data.bytes
        cycles += rows_apart_cycles(elements, made.outputs // width, pitch, processor)
    return cycles


def split_sum_cycles(made: Contraction, parts: int, processor: Processor) -> float:
    """What one pixel takes whose sum threads share, in so many parts that are added at the end."""
    cycles = made.macs / products_per_cycle(processor) / processor.threads
    cycles += arriving(made.weight_bytes / processor.threads, processor) + regions(1, processor)
    return cycles + parts * -(-made.outputs // processor.lanes(FLOAT32))


def border_cycles(made: Contraction, processor: Processor) -> float:
    """What it takes to copy images with their border that leave the second cache."""
    image = made.inputs * math.prod(made.image) * made.data.bytes
    if not made.is_padded or image <= processor.l2_bytes // 2:
        return 0.0
    return 2 * made.batch * image / STREAMED / processor.threads


def products_per_cycle(processor: Processor) -> int:
    """Multiply-adds of float32."""
    return processor.throughput.multiply_adds * processor.lanes(FLOAT32)


def arriving(size: float, processor: Processor) -> float:
    """Cycles in which nothing but weights come: few of them come while work is done."""
    return size / STREAMED * min(1.0, size / processor.l2_bytes)


def regions(count: int, processor: Processor) -> float:
    """Cycles in which threads begin and wait for each other."""
    return REGION * count if processor.threads > 1 else 0.0
