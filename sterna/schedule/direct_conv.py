"""The schedules of convolutions with channels last.

An image is cut into bands of rows, and the output channels into blocks; a register tile of some
pixels of a row times one block runs over the sum. Where the weights stay in the cache, bands come
first and all blocks run over one band. Where they do not, a block's weights are read once, part by
part, and each part is used for the whole image while it is in the innermost cache; an image that
leaves the second cache would come again for every part of a window, so that bands come first there,
unless a block's weights leave it too and would come again for every tile.
Where a block's weights and the rows that a tile reads leave it too, some input channels come after
the other: their part of the image is copied with its border and lies together.

Groups of channels are contractions of their own: a tile lies in one of them, or its vectors hold
several whole ones.
"""

import math

from sterna.ir import build
from sterna.schedule.choose import choose, near
from sterna.schedule.chunked_sum_stages import add_chunks, chunk_in_registers, note_sums
from sterna.schedule.conv_stages import (
    BAND_PIXELS,
    LINE_BYTES,
    UNROLLED_CHANNELS,
    Conv,
    bytes_of,
    conv_of,
    even_part,
    leave_out_border,
    place_border,
    rows_within,
    side_by_side,
    steps_of,
    sum_in_registers,
    write_out,
)
from sterna.schedule.cost import PAGE_BYTES, STREAMED, products_per_cycle
from sterna.schedule.default import vectorize_result
from sterna.schedule.depthwise_conv import schedule_depthwise
from sterna.schedule.dot4 import add_by_dots, dot_lanes, dot_tile, vectors_of_channels
from sterna.schedule.gemm import load_together, most_rows, schedule_contraction
from sterna.schedule.kernel import Kernel
from sterna.schedule.loops import extents_of
from sterna.schedule.register_tile import RegisterTile, rows_that_fit, tile_of_group, vectors_of
from sterna.schedule.sharing import FREE, RowCosts, cut_finer, row_groups, share_rows
from sterna.schedule.sum_of_products import chunks_of, order_of
from sterna.te import IterVar, PlaceholderOp, Stage, Tensor

# Steps of a sum before which weights are fetched that come from the second cache.
STEPS_AHEAD = 4
# Input channels of a chunk: of fewer, sums are loaded and stored too often.
LEAST_AT_ONCE = 16
# Cycles in which a pixel's part of a chunk is found that lies far from the next, the same in images
# of more pages than a processor has at hand, and those in which a line of it comes.
FOUND, FOUND_AGAIN, LINE_COMES = 60.0, 200.0, 25.0
PAGES_AT_HAND = 1536


def schedule_conv(kernel: Kernel) -> None:
    """Bands and blocks for channels that lie last; the schedule of any sum for others."""
    conv = conv_of(kernel)
    if conv is None:
        schedule_contraction(kernel)
        return
    note_sums(kernel, conv.op)
    if conv.made.depth == 1:
        schedule_depthwise(conv)
    else:
        _schedule_direct(conv)


def _schedule_direct(conv: Conv) -> None:
    processor = conv.kernel.processor
    stage = conv.kernel.schedule[conv.kernel.outputs[0]]
    block, dtype = conv.sum.block, conv.sum.dtype
    lanes, groups = processor.lanes(dtype), conv.made.groups
    columns = conv.channels // groups
    if conv.sum.is_dot and block is not None:
        lanes = dot_lanes(block, processor)
        size = dot_tile(processor, conv.width, columns, lanes, conv.made.depth, block)
    else:
        depth = conv.sum.beside(0, in_groups=True) if groups > 1 else side_by_side(conv.sum)
        size = tile_of_group(processor, conv.width, columns, groups, dtype, depth, block)
    many = conv.height * conv.width > BAND_PIXELS
    in_bands = many and conv.weight_bytes(conv.channels) <= processor.l2_bytes // 2
    # those of one tap are read in order, and come from the second cache while the core multiplies
    in_order = many and conv.made.taps == 1
    room = processor.l2_bytes // 4 if in_order else 3 * processor.l1_bytes // 4
    small = conv.weight_bytes(size.columns) <= room
    far = conv.made.taps > 1 and _bytes_of_group(conv) > 3 * processor.l2_bytes // 8
    far = far and not _image_comes_less(conv, size)
    preferred = "bands" if in_bands or small or far else "parts"
    ways = ["bands"] if conv.sum.is_dot else ["bands", "parts"]
    channels = _channels_at_once(conv, size)
    if channels:
        ways.append("chunks")
        pays = many and _leave_cache(conv, size) and _chunks_come_sooner(conv, size, channels)
        preferred = "chunks" if pays else preferred
    way = choose("weights", ways, lambda way: way != preferred)
    if way == "bands":
        why = _by_bands(conv, stage, size, lanes)
    elif way == "parts":
        why = _by_parts(conv, stage, size)
    else:
        why = _by_chunks(conv, stage, size, channels)
    conv.kernel.choices["tile"] = f"{size.rows} x {size.columns}"
    conv.kernel.choices["schedule"] = (
        f"direct, {size.rows} pixels x {size.columns} channels in registers, {why}"
    )


def _by_bands(conv: Conv, stage: Stage, size: RegisterTile, lanes: int) -> str:
    """All blocks of channels run over a band of rows before the next band.

    The next weights and, of a large image, the next pixels are fetched meanwhile.
    """
    blocks = -(-conv.channels // size.columns)
    threads = conv.kernel.processor.threads
    # A loop over bands and blocks would keep the guard of a last block that is not whole inside.
    whole = conv.channels % size.columns == 0
    cut = whole and not conv.has_border
    share = share_rows(
        conv.height, conv.batch, blocks, threads, _most_rows(conv), cut, _band_costs(conv)
    )
    bands = -(-conv.height // share.rows) * conv.batch
    if cut:
        share = cut_finer(share, bands, blocks, threads)
    tile, chunks = sum_in_registers(conv), chunks_of(conv.op)
    n, h, w, c = _axes_of(conv, stage)
    block, vector = stage.split(c, factor=size.columns)
    across, column = stage.split(w, factor=size.rows)
    band, row = stage.split(h, factor=share.rows)
    stage.reorder(n, band, block, row, across, column, vector)
    beside = _blocks_of_a_line(conv, size.columns, blocks // share.groups) if whole else 1
    place = across
    if beside > 1:
        block, place = stage.split(block, factor=beside)
        stage.reorder(block, row, across, place)
        blocks //= beside
    stage.unroll(column)
    if conv.sum.is_dot:
        stage.vectorize(vector)  # whole registers: several are narrowed together
    else:
        vectorize_result(stage, vector, size.columns)
    tile.compute_at(stage, place)
    if conv.sum.is_dot:
        channel, *window = tile.op.reduce_axis
        steps, rows = [*window, channel], [tile.op.axis[2]]
        pieces = vectors_of_channels(size.columns, lanes, conv.kernel.processor)
        add_by_dots(tile, conv.sum, steps, rows, pieces, size.together)
        step = channel
    elif chunks is not None:
        made = conv.kernel.schedule[chunks]
        last = add_chunks(tile, [tile.op.axis[2]])
        chunk_in_registers(made, tile, last, steps_of(made), [made.op.axis[-2]])
        step = load_together(made, conv.sum, made.op.reduce_axis[0], size)
    else:
        leave_out_border(conv, tile, size, (stage, place))
        write_out(tile, steps_of(tile))
        step = load_together(tile, conv.sum, tile.op.reduce_axis[0], size)
    if share.groups == 1 and (bands >= threads or (not whole and bands >= blocks)):
        piece = stage.fuse(n, band)
        place_border(conv, stage, piece)
    elif not whole:
        stage.reorder(block, n, band)
        piece, blocks = block, 1
        place_border(conv, stage, None)
    else:
        groups = share.groups if share.groups > 1 else blocks
        group, block = stage.split(block, nparts=groups)
        piece = stage.fuse(n, band, group)
        place_border(conv, stage, None)
        blocks //= groups
    stage.parallel(piece)
    # one number of each channel: each step fetches one line, where windows would fetch many
    alone = math.prod(conv.made.window) == 1 and conv.made.depth > UNROLLED_CHANNELS
    reader = tile if chunks is None else conv.kernel.schedule[chunks]
    if alone and blocks > 1 and isinstance(conv.weight.op, PlaceholderOp) and not conv.sum.is_dot:
        reader.prefetch(conv.weight, step, 1, block)
    if alone and _fetches_pixels(conv, size):
        reader.prefetch(conv.data, step, 1, across)
    for tensor in _far_residuals(conv):
        stage.prefetch(tensor, across, 0)
    return f"bands of {share.rows} rows, the weights in the cache"


def _fetches_pixels(conv: Conv, size: RegisterTile) -> bool:
    """Whether a tile's sum prefetches the pixels of the next tile, which come from far.

    Into the innermost cache, if they and this tile's pixels leave room for weights there.
    """
    if conv.sum.is_dot or not conv.reads_far_rows:
        return False
    processor, ways = conv.kernel.processor, ["fetched", "read"]
    pixels = 2 * size.rows * conv.made.depth * conv.data.dtype.bytes
    room = processor.throughput.fetched_pixels * processor.l1_bytes
    preferred = "fetched" if pixels <= room else "read"
    return choose("pixels of the next tile", ways, lambda way: way != preferred) == "fetched"


def _blocks_of_a_line(conv: Conv, columns: int, blocks: int) -> int:
    """Blocks of channels, of so many, whose groups read the same lines of the data: 1 mostly.

    They run over a tile's pixels one after the other, while these lines are close. Pixels lie far
    apart: what many of them have in the same lines leaves the innermost cache soon.
    """
    groups = LINE_BYTES // (conv.made.depth * conv.data.dtype.bytes)
    per_line = groups * (conv.channels // conv.made.groups) // columns
    if conv.made.groups == 1 or per_line <= 1 or blocks % per_line:
        return 1
    return choose("blocks of a line", (1, per_line), near(per_line))


def _bytes_of_group(conv: Conv) -> int:
    """What comes of the data for the channels of a group: they share lines with others."""
    own = conv.made.depth * conv.data.dtype.bytes
    every = own * conv.made.groups
    return bytes_of(conv.data) * min(every, -(-own // LINE_BYTES) * LINE_BYTES) // every


def _far_residuals(conv: Conv) -> list[Tensor]:
    """What is read with each element of the result, from behind the caches.

    Fetched as a tile begins it is there when the sum is ready.
    """
    out = conv.kernel.outputs[0]
    found, stack = [], [out]
    while stack:
        tensor = stack.pop()
        if isinstance(tensor.op, PlaceholderOp):
            found.append(tensor)
        elif tensor.op is not conv.op:
            stack += tensor.op.input_tensors
    far = conv.kernel.processor.l2_bytes // 2
    shape = [build.int_value(extent) for extent in out.shape]
    return [
        tensor
        for tensor in found
        if [build.int_value(extent) for extent in tensor.shape] == shape and bytes_of(tensor) > far
    ]


def _axes_of(conv: Conv, stage: Stage) -> list[IterVar]:
    """The axes of the result as the sum has them: the pixels of an image may be one row."""
    n, h, w, c = stage.op.axis
    if extents_of([h, w]) != [conv.height, conv.width]:
        h, w = stage.split(stage.fuse(h, w), nparts=conv.height)
    return [n, h, w, c]


def _sums_in_memory(conv: Conv, stage: Stage, size: RegisterTile) -> tuple[Stage, int, int]:
    """The loops of results whose sums wait in memory, for a block of channels and some rows.

    Gives the stage of these sums, the rows, and how many of them a tile has.
    """
    blocks = -(-conv.channels // size.columns)
    rows = row_groups(conv.height, conv.batch * blocks, conv.kernel.processor.threads)
    tile = sum_in_registers(conv)
    n, h, w, c = _axes_of(conv, stage)
    block, vector = stage.split(c, factor=size.columns)
    across, column = stage.split(w, factor=size.rows)
    band, row = stage.split(h, factor=rows)
    stage.reorder(n, block, band, row, across, column, vector)
    stage.unroll(column)
    vectorize_result(stage, vector, size.columns)
    piece = stage.fuse(n, block, band)
    stage.parallel(piece)
    tile.set_scope("global")
    tile.compute_at(stage, piece)
    lines = min(rows, _lines(conv, size))
    return tile, rows, lines


def _by_parts(conv: Conv, stage: Stage, size: RegisterTile) -> str:
    """A block's weights part by part, each for the whole image, whose sums wait in memory.

    The next part is fetched while the image passes by this one.
    """
    tile, rows, lines = _sums_in_memory(conv, stage, size)
    part = _sum_by_parts(conv, tile, size, lines)
    place_border(conv, stage, None)
    seen = "the whole image" if rows == conv.height else f"{rows} rows"
    return f"{lines} rows at once, the weights of {part} channels at a time for {seen}"


def _sum_by_parts(conv: Conv, tile: Stage, size: RegisterTile, lines: int) -> int:
    """The loops of sums that wait in memory; gives the channels of a part."""
    chunks, reduced = chunks_of(conv.op), list(tile.op.reduce_axis)
    # this part, the next one, and what the image and the sums need
    room = conv.kernel.processor.l1_bytes // 6 // (size.columns * conv.element)
    most = max(1, room // size.together)
    part = size.together * even_part(conv.made.depth // size.together, most)
    n, h, w, c = tile.op.axis
    across, column = tile.split(w, factor=size.rows)
    high, line = tile.split(h, factor=lines)
    if chunks is None:
        by_pixels = leave_out_border(conv, tile, size, (tile, across), lines, (line, column))
        channel, *window = reduced
        outside, inside = tile.split(channel, factor=part)
        tile.reorder(n, *window, outside, high, across, inside, line, column, c)
        # A smaller last part has loops of its own, which a fused axis would not let it have.
        is_even = conv.made.depth % part == 0 and not by_pixels
        parts, reader = tile.fuse(*window, outside) if is_even else outside, tile
    else:
        reader = conv.kernel.schedule[chunks]
        inside, part = chunks.reduce_axis[0], min(conv.made.depth, conv.sum.depths[0])
        steps = [reduced[place] for place in order_of(conv.sum.chunk_roles)]
        tile.reorder(n, *steps, high, across, line, column, c)
        parts = tile.fuse(*steps)
        chunk_in_registers(reader, tile, across, steps_of(reader), list(chunks.axis[-3:-1]))
    tile.unroll(line)
    tile.unroll(column)
    tile.vectorize(c)
    step = load_together(reader, conv.sum, inside, size)
    if isinstance(conv.weight.op, PlaceholderOp):
        reader.prefetch(conv.weight, step, 1, parts)
    return part


def _channels_at_once(conv: Conv, size: RegisterTile) -> int:
    """Input channels whose part of a block's weights and of the image stay in the second cache.

    0 where there are none, and where the image is read as it lies: it has no border.
    """
    if not conv.has_border or conv.made.groups > 1 or conv.sum.is_dot or chunks_of(conv.op):
        return 0
    depth = conv.made.depth
    each = (bytes_of(conv.data) // conv.batch + conv.weight_bytes(size.columns)) // depth
    sums = conv.height * conv.width * size.columns * conv.element
    most = (conv.kernel.processor.l2_bytes * 3 // 4 - sums) // each
    fitting = [n for n in range(LEAST_AT_ONCE, most + 1)
               if depth % n == n % size.together == 0 and n < depth]
    return max(fitting, default=0)


def _leave_cache(conv: Conv, size: RegisterTile) -> bool:
    """Whether a block's weights and what a row of results reads leave the second cache.

    Each tile of a band would wait for both. Where windows have but one row, tiles read again only
    what the window of one reaches.
    """
    (down, across), (high, wide) = conv.made.dilation, conv.made.window
    _, rows, columns, depth = (build.int_value(extent) or 1 for extent in conv.data.shape)
    if high == 1:
        columns = min(columns, size.rows + (wide - 1) * across)
    seen = min(rows, 1 + (high - 1) * down) * columns * depth * conv.element
    return conv.weight_bytes(size.columns) + seen > conv.kernel.processor.l2_bytes * 5 // 8


def _image_comes_less(conv: Conv, size: RegisterTile) -> bool:
    """Whether parts of weights bring less from behind the second cache than bands do.

    The image comes for each tap of each block then, else a block's weights for each tile.
    """
    return _leave_cache(conv, size) and _image_bytes(conv, size) < _weight_bytes(conv, size)


def _image_bytes(conv: Conv, size: RegisterTile) -> int:
    """What comes of the image where it comes for each tap of each block of channels."""
    return -(-conv.channels // size.columns) * conv.made.taps * bytes_of(conv.data)


def _weight_bytes(conv: Conv, size: RegisterTile) -> int:
    """What comes of the weights where all of them come for each tile."""
    tiles = conv.batch * conv.height * -(-conv.width // size.rows)
    return tiles * conv.weight_bytes(conv.channels)


def _chunks_come_sooner(conv: Conv, size: RegisterTile, channels: int) -> bool:
    """Whether copies of an image's chunks take less than what comes without them.

    Each block of outputs copies all of them, whose pixels lie apart by all channels.
    """
    pixels = bytes_of(conv.data) // (conv.made.depth * conv.element)
    pieces = -(-conv.channels // size.columns) * pixels * (conv.made.depth // channels)
    at_hand = bytes_of(conv.data) // conv.batch <= PAGES_AT_HAND * PAGE_BYTES
    lines = channels * conv.element / LINE_BYTES
    copied = pieces * ((FOUND if at_hand else FOUND_AGAIN) + LINE_COMES * lines)
    return copied < min(_image_bytes(conv, size), _weight_bytes(conv, size)) / STREAMED


def _by_chunks(conv: Conv, stage: Stage, size: RegisterTile, channels: int) -> str:
    """Some input channels after the other, for a block of outputs and the whole image.

    Their part of the image is copied with its border and lies together; sums wait in memory.
    """
    tile, rows, lines = _sums_in_memory(conv, stage, size)
    n, h, w, c = tile.op.axis
    across, column = tile.split(w, factor=size.rows)
    high, line = tile.split(h, factor=lines)
    leave_out_border(conv, tile, size, (tile, across), lines, (line, column))
    channel, *window = tile.op.reduce_axis
    outside, inside = tile.split(channel, factor=channels)
    tile.reorder(n, outside, high, across, *window, inside, line, column, c)
    tile.unroll(line)
    tile.unroll(column)
    tile.vectorize(c)
    step = load_together(tile, conv.sum, inside, size)
    if isinstance(conv.weight.op, PlaceholderOp):
        tile.prefetch(conv.weight, step, STEPS_AHEAD)
    place_border(conv, tile, outside)
    seen = "the whole image" if rows == conv.height else f"{rows} rows"
    return f"{lines} rows at once, {channels} channels at a time for {seen}"


def _lines(conv: Conv, size: RegisterTile) -> int:
    """Rows of the image that a tile has: several where one does not fill the registers."""
    if size.rows < conv.width:
        return 1
    processor = conv.kernel.processor
    lanes = processor.lanes(conv.sum.dtype)
    vectors = vectors_of(size.columns, lanes)
    registers = processor.registers_for(size.together)
    fitting = rows_that_fit(vectors, registers, size.together)
    return max(1, min(fitting, most_rows(conv.made.depth * conv.data.dtype.bytes)) // size.rows)


def _most_rows(conv: Conv) -> int:
    """Rows that are computed together: what they read and write stays in the second cache.

    Half of it is for weights, or more where these do not stay there.
    """
    room = conv.kernel.processor.l2_bytes // (2 if _weights_come_again(conv) else 4)
    most = rows_within(conv, room)
    return most if conv.has_border else min(most, -(-BAND_PIXELS // conv.width))


def _weights_come_again(conv: Conv) -> bool:
    """Whether every band reads its weights from behind the second cache."""
    return conv.weight_bytes(conv.channels) > conv.kernel.processor.l2_bytes // 2


def _band_costs(conv: Conv) -> RowCosts:
    """What a band takes beside its rows: the time in which weights come for it, in rows."""
    if not _weights_come_again(conv) or conv.sum.is_dot:
        return FREE
    row = conv.made.macs / conv.batch / conv.height / products_per_cycle(conv.kernel.processor)
    return RowCosts(shared=conv.weight_bytes(conv.channels) / STREAMED / max(1.0, row))
