"""The schedules of convolutions with channels last.

An image is cut into bands of rows, and the output channels into blocks; a register tile of some
pixels of a row times one block runs over the sum. Where the weights stay in the cache, bands come
first and all blocks run over one band. Where they do not, a block's weights are read once, part by
part, and each part is used for the whole image while it is in the innermost cache.

Groups of channels are contractions of their own: a tile lies in one of them, or its vectors hold
several whole ones.
"""

import math
from dataclasses import dataclass

from sterna.ir import build
from sterna.schedule.choose import choose, near
from sterna.schedule.chunked_sum_stages import add_chunks, chunk_in_registers, note_sums, sums_of
from sterna.schedule.contraction import Contraction
from sterna.schedule.default import extents_of, schedule_elements, vectorize_result
from sterna.schedule.dot4 import add_by_dots, dot_lanes, dot_tile
from sterna.schedule.gemm import ancestors, load_together, most_rows, schedule_contraction
from sterna.schedule.kernel import Kernel, Processor
from sterna.schedule.register_tile import RegisterTile, rows_that_fit, tile_of_group, vectors_of
from sterna.schedule.row_sums import compute_tile, outer_stage, pixel_axes
from sterna.schedule.sharing import RowCosts, Share, cut_finer, row_groups, share_rows
from sterna.schedule.sum_of_products import SumOfProducts, chunks_of, description_of, order_of
from sterna.te import ComputeOp, IterVar, PlaceholderOp, Stage, Tensor

# A depthwise tile has a column for so many registers: neighbours share what they load.
REGISTERS_OF_A_COLUMN = 4
# Of depthwise convolutions: what comes from another core's cache takes longer than its sums.
DEPTHWISE_COSTS = RowCosts(shared=0.5, fetched=3.0)
# So few input channels need no loop.
UNROLLED_CHANNELS = 4
# Of a larger window only the rows are written out, of one with larger rows nothing.
UNROLLED_WINDOW, UNROLLED_ROW = 9, 7
LINE_BYTES = 64
# Pixels of a band where nothing is read twice: larger bands only leave the inner cache.
BAND_PIXELS = 64


@dataclass(slots=True)
class _Conv:
    """A convolution whose channels lie last."""

    kernel: Kernel
    op: ComputeOp
    sum: SumOfProducts
    made: Contraction
    height: int
    width: int
    """Of the result: the pixels of an image may be one row."""

    @property
    def data(self) -> Tensor:
        """What the sum reads: the image, or the stage that adds a border to it."""
        return self.sum.accesses[0].tensor

    @property
    def weight(self) -> Tensor:
        return self.sum.accesses[1].tensor

    @property
    def batch(self) -> int:
        return self.made.batch

    @property
    def channels(self) -> int:
        return self.made.outputs

    @property
    def has_border(self) -> bool:
        return isinstance(self.data.op, ComputeOp)

    @property
    def element(self) -> int:
        return self.op.output(0).dtype.bytes

    @property
    def reads_far_rows(self) -> bool:
        """Whether all of the image is read, one pixel after the other, from behind the caches."""
        size = [build.int_value(extent) for extent in self.data.shape]
        whole = size == [self.batch, self.height, self.width, self.made.depth]
        in_memory = isinstance(self.data.op, PlaceholderOp)
        return whole and in_memory and _bytes_of(self.data) > self.kernel.processor.l2_bytes // 2

    def weight_bytes(self, channels: int) -> int:
        """The weights of so many output channels."""
        return channels * self.made.products * self.weight.dtype.bytes


def schedule_conv(kernel: Kernel) -> None:
    """Bands and blocks for channels that lie last; the schedule of any sum for others."""
    conv = _conv_of(kernel)
    if conv is None:
        schedule_contraction(kernel)
        return
    note_sums(kernel, conv.op)
    if conv.made.depth == 1:
        _schedule_depthwise(conv)
    else:
        _schedule_direct(conv)


def _conv_of(kernel: Kernel) -> _Conv | None:
    """The convolution of a kernel, if its channels lie last; None if its loops are others.

    Few channels of the data are read one by one, wherever they lie.
    """
    sums = sums_of(kernel)
    described = description_of(sums[0]) if len(sums) == len(kernel.outputs) == 1 else None
    made = None if described is None else described.contraction
    if described is None or made is None or made.rank != 2 or made.out_layout != "NHWC":
        return None
    few = 1 < made.depth <= UNROLLED_CHANNELS
    if not few and made.data_layout != "NHWC":
        return None
    if made.depth == 1 and (made.groups == 1 or described.chunk_roles):
        return None
    _, height, width, _ = described.sizes
    return _Conv(kernel, sums[0], described, made, height, width)


def _schedule_depthwise(conv: _Conv) -> None:
    """A vector of channels of a few columns in registers; the window is written out.

    The sum leaves out what lies outside the image: rows by a question before each row of the
    window, columns in tiles of their own at both ends.
    """
    processor = conv.kernel.processor
    stage = outer_stage(conv.kernel)
    lanes = min(processor.lanes(conv.op.output(0).dtype), conv.channels)
    columns = depthwise_columns(conv.width, processor)
    tile = _sum_in_registers(conv)
    n, h, w, c = pixel_axes(stage)
    if conv.channels % lanes:
        across, column = stage.split(w, factor=columns)
        block, vector = stage.split(c, factor=lanes)
        stage.reorder(n, h, across, block, column, vector)
        piece, why = stage.fuse(n, h), "row by row"
    else:
        share = _share_of_depthwise(conv, lanes)
        seen = _seen_at_once(conv, columns, lanes, conv.channels // share.groups)
        band, row = stage.split(h, factor=share.rows)
        stripe, across = stage.split(w, factor=seen.columns)
        across, column = stage.split(across, factor=columns)
        part, block = stage.split(c, factor=seen.channels)
        block, vector = stage.split(block, factor=lanes)
        group, part = stage.split(part, nparts=share.groups)
        stage.reorder(n, band, group, part, stripe, row, across, block, column, vector)
        piece = stage.fuse(n, band, group)
        for loop in (piece, stripe, row):
            stage.pragma(loop, "loop_partition_hint", True)
        why = f"{share.rows} rows x {seen.columns} columns x {seen.channels} channels at a time"
    stage.parallel(piece)
    stage.pragma(across, "loop_partition_hint", True)
    stage.unroll(column)
    stage.vectorize(vector)
    tile.compute_at(stage, block)
    compute_tile(conv.kernel, block)
    write_window_out(tile)
    _place_border(conv, stage, None)
    conv.kernel.choices["schedule"] = (
        f"depthwise, {columns} columns x {lanes} channels in registers, {why}"
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """What passes by from row to row: so many columns of the result of so many channels."""

    columns: int
    channels: int


def _seen_at_once(conv: _Conv, columns: int, lanes: int, channels: int) -> _Seen:
    """Columns and channels, of so many, whose window stays in half of the innermost cache.

    Rows are read once then, not once for each row of the window. All channels of a pixel if those
    of a tile stay there: what comes from far comes in order. Else lines of channels of whole rows.
    """
    room = conv.kernel.processor.l1_bytes // 2
    tiles = -(-conv.width // columns)
    fitting = [n for n in range(1, tiles + 1) if _window_bytes(conv, n * columns, channels) <= room]
    if fitting:
        stripes = -(-tiles // fitting[-1])
        return _Seen(-(-tiles // stripes) * columns, channels)
    line = _line(channels, lanes, conv.element)
    parts = [n * line for n in range(1, channels // line + 1) if channels % (n * line) == 0]
    few = [part for part in parts if _window_bytes(conv, conv.width, part) <= room]
    return _Seen(tiles * columns, max(few, default=line))


def _window_bytes(conv: _Conv, columns: int, channels: int) -> int:
    """What a row of so many columns of the result reads and writes."""
    wide = build.int_value(conv.data.shape[2]) or 1
    read = (columns - 1) * -(-wide // conv.width) + conv.made.window[1]
    return channels * (conv.made.window[0] * read + columns) * conv.element


def _line(channels: int, lanes: int, element: int) -> int:
    """The channels that lie in a line of the cache; those of a vector where lines are not whole."""
    line = max(lanes, LINE_BYTES // element)
    return lanes if channels % line else line


def _share_of_depthwise(conv: _Conv, lanes: int) -> Share:
    """A thread's rows or lines of channels: those that it has most likely written itself.

    What comes from another core's cache takes longer than the sum. A convolution that makes a small
    image shares out its channels, and one that makes a larger image shares out rows.
    """
    threads = conv.kernel.processor.threads
    _, high, wide, _ = (build.int_value(extent) or 1 for extent in conv.data.shape)
    lines = conv.channels // _line(conv.channels, lanes, conv.element)
    if high * wide > BAND_PIXELS:
        far = _bytes_of(conv.data) > conv.kernel.processor.l2_bytes // 2
        most = _rows_within(conv, conv.kernel.processor.l2_bytes // 2) if far else conv.height
        return share_rows(conv.height, conv.batch, lines, threads, most, True, DEPTHWISE_COSTS)
    groups = min(n for n in range(1, lines + 1) if lines % n == 0 and (n >= threads or n == lines))
    return Share(row_groups(conv.height, groups * conv.batch, threads), groups)


def depthwise_columns(width: int, processor: Processor) -> int:
    """Columns of a depthwise tile."""
    most = min(width, processor.vector_registers // REGISTERS_OF_A_COLUMN)
    return choose("columns", range(1, max(1, most) + 1), near(even_part(width, most)))


def write_window_out(tile: Stage) -> None:
    """A depthwise sum: its window written out as far as that is not too long."""
    along, inside = tile.op.reduce_axis
    write_out(tile, [along, inside])
    height, width = extents_of([along, inside])
    if width <= UNROLLED_ROW:
        tile.unroll(inside)
        if height * width <= UNROLLED_WINDOW:
            tile.unroll(along)


def _bytes_of(tensor: Tensor) -> int:
    extents = [build.int_value(extent) or 1 for extent in tensor.shape]
    return math.prod(extents) * tensor.dtype.bytes


def _schedule_direct(conv: _Conv) -> None:
    processor = conv.kernel.processor
    stage = conv.kernel.schedule[conv.kernel.outputs[0]]
    block, dtype = conv.sum.block, conv.sum.dtype
    lanes = processor.lanes(dtype)
    if conv.sum.is_dot and block is not None:
        lanes = dot_lanes(block, processor)
        size = dot_tile(processor, conv.width, conv.channels, lanes, conv.made.depth, block)
    else:
        groups = conv.made.groups
        depth = conv.sum.beside(0, in_groups=True) if groups > 1 else side_by_side(conv.sum)
        columns = conv.channels // groups
        size = tile_of_group(processor, conv.width, columns, groups, dtype, depth, block)
    in_bands = conv.weight_bytes(conv.channels) <= processor.l2_bytes // 2
    in_bands = in_bands and conv.height * conv.width > BAND_PIXELS
    small = conv.weight_bytes(size.columns) <= 3 * processor.l1_bytes // 4
    preferred = "bands" if in_bands or small else "parts"
    ways = ["bands"] if conv.sum.is_dot else ["bands", "parts"]
    if choose("weights", ways, lambda way: way != preferred) == "bands":
        why = _by_bands(conv, stage, size, lanes)
    else:
        why = _by_parts(conv, stage, size)
    conv.kernel.choices["tile"] = f"{size.rows} x {size.columns}"
    conv.kernel.choices["schedule"] = (
        f"direct, {size.rows} pixels x {size.columns} channels in registers, {why}"
    )


def _by_bands(conv: _Conv, stage: Stage, size: RegisterTile, lanes: int) -> str:
    """All blocks of channels run over a band of rows before the next band.

    The next weights and, of a large image, the next pixels are fetched meanwhile.
    """
    blocks = -(-conv.channels // size.columns)
    threads = conv.kernel.processor.threads
    # A loop over bands and blocks would keep the guard of a last block that is not whole inside.
    whole = conv.channels % size.columns == 0
    cut = whole and not conv.has_border
    share = share_rows(conv.height, conv.batch, blocks, threads, _most_rows(conv), cut)
    bands = -(-conv.height // share.rows) * conv.batch
    if cut:
        share = cut_finer(share, bands, blocks, threads)
    tile, chunks = _sum_in_registers(conv), chunks_of(conv.op)
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
        add_by_dots(tile, conv.sum, steps, rows, lanes, size.together)
        step = channel
    elif chunks is not None:
        made = conv.kernel.schedule[chunks]
        last = add_chunks(tile, [tile.op.axis[2]])
        chunk_in_registers(made, tile, last, steps_of(made), [made.op.axis[-2]])
        step = load_together(made, conv.sum, made.op.reduce_axis[0], size)
    else:
        write_out(tile, steps_of(tile))
        step = load_together(tile, conv.sum, tile.op.reduce_axis[0], size)
    if share.groups == 1 and (bands >= threads or (not whole and bands >= blocks)):
        piece = stage.fuse(n, band)
        _place_border(conv, stage, piece)
    elif not whole:
        stage.reorder(block, n, band)
        piece, blocks = block, 1
        _place_border(conv, stage, None)
    else:
        groups = share.groups if share.groups > 1 else blocks
        group, block = stage.split(block, nparts=groups)
        piece = stage.fuse(n, band, group)
        _place_border(conv, stage, None)
        blocks //= groups
    stage.parallel(piece)
    # one number of each channel: each step fetches one line, where windows would fetch many
    alone = math.prod(conv.made.window) == 1 and conv.made.depth > UNROLLED_CHANNELS
    reader = tile if chunks is None else conv.kernel.schedule[chunks]
    if alone and blocks > 1 and isinstance(conv.weight.op, PlaceholderOp) and not conv.sum.is_dot:
        reader.prefetch(conv.weight, step, 1, block)
    if alone and conv.reads_far_rows and not conv.sum.is_dot:
        reader.prefetch(conv.data, step, 1, across)
    for tensor in _far_residuals(conv):
        stage.prefetch(tensor, across, 0)
    return f"bands of {share.rows} rows, the weights in the cache"


def _blocks_of_a_line(conv: _Conv, columns: int, blocks: int) -> int:
    """Blocks of channels, of so many, whose groups read the same lines of the data: 1 mostly.

    They run over a tile's pixels one after the other, while these lines are close. Pixels lie far
    apart: what many of them have in the same lines leaves the innermost cache soon.
    """
    groups = LINE_BYTES // (conv.made.depth * conv.data.dtype.bytes)
    per_line = groups * (conv.channels // conv.made.groups) // columns
    if conv.made.groups == 1 or per_line <= 1 or blocks % per_line:
        return 1
    return choose("blocks of a line", (1, per_line), near(per_line))


def _far_residuals(conv: _Conv) -> list[Tensor]:
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
        if [build.int_value(extent) for extent in tensor.shape] == shape and _bytes_of(tensor) > far
    ]


def _axes_of(conv: _Conv, stage: Stage) -> list[IterVar]:
    """The axes of the result as the sum has them: the pixels of an image may be one row."""
    n, h, w, c = stage.op.axis
    if extents_of([h, w]) != [conv.height, conv.width]:
        h, w = stage.split(stage.fuse(h, w), nparts=conv.height)
    return [n, h, w, c]


def _by_parts(conv: _Conv, stage: Stage, size: RegisterTile) -> str:
    """A block's weights part by part, each for the whole image, whose sums wait in memory.

    The next part is fetched while the image passes by this one.
    """
    processor = conv.kernel.processor
    blocks = -(-conv.channels // size.columns)
    rows = row_groups(conv.height, conv.batch * blocks, processor.threads)
    tile = _sum_in_registers(conv)
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
    part = _sum_by_parts(conv, tile, size, lines)
    _place_border(conv, stage, None)
    seen = "the whole image" if rows == conv.height else f"{rows} rows"
    return f"{lines} rows at once, the weights of {part} channels at a time for {seen}"


def _sum_by_parts(conv: _Conv, tile: Stage, size: RegisterTile, lines: int) -> int:
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
        channel, *window = reduced
        outside, inside = tile.split(channel, factor=part)
        tile.reorder(n, *window, outside, high, across, inside, line, column, c)
        parts, reader = tile.fuse(*window, outside), tile
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


def _lines(conv: _Conv, size: RegisterTile) -> int:
    """Rows of the image that a tile has: several where one does not fill the registers."""
    if size.rows < conv.width:
        return 1
    processor = conv.kernel.processor
    lanes = processor.lanes(conv.sum.dtype)
    vectors = vectors_of(size.columns, lanes)
    registers = processor.registers_for(size.together)
    fitting = rows_that_fit(vectors, registers, size.together)
    return max(1, min(fitting, most_rows(conv.made.depth * conv.data.dtype.bytes)) // size.rows)


def _sum_in_registers(conv: _Conv) -> Stage:
    """The sum as a stage of its own; what follows it is computed where the result is stored."""
    schedule, out = conv.kernel.schedule, conv.kernel.outputs[0]
    if schedule[out].op is conv.op:
        return schedule[schedule.cache_write(out, "local")]
    before = ancestors(conv.op)
    for other in schedule.stages:
        kept = other.op in before or other.op is conv.op or other.is_output
        if isinstance(other.op, ComputeOp) and not kept:
            other.compute_inline()
    made = schedule[conv.op.output(0)]
    made.set_scope("local")
    return made


def steps_of(tile: Stage) -> list[IterVar]:
    """The loops of the sum, channels innermost.

    Several steps in a row would make LLVM load ahead, for which no registers are left.
    """
    channel, *window = tile.op.reduce_axis
    if extents_of([channel])[0] <= UNROLLED_CHANNELS:
        tile.unroll(channel)
    return [*window, channel]


def side_by_side(made: SumOfProducts) -> int:
    """Channels that lie side by side and are summed over in a loop."""
    return made.beside(0) if made.depths[0] > UNROLLED_CHANNELS else 1


def write_out(tile: Stage, reduced: list[IterVar]) -> None:
    """The loops of the sum around the accumulators of some columns."""
    *others, column, vector = tile.op.axis
    tile.reorder(*others, *reduced, column, vector)
    tile.unroll(column)
    tile.vectorize(vector)


def even_part(size: int, most: int) -> int:
    """The largest divisor up to a bound; the bound itself if all divisors are much smaller."""
    found = max(n for n in range(1, min(size, most) + 1) if size % n == 0)
    return found if 2 * found > most else min(size, most)


def _most_rows(conv: _Conv) -> int:
    """Rows that are computed together: what they read and write stays in the second cache."""
    most = _rows_within(conv, conv.kernel.processor.l2_bytes // 4)
    return most if conv.has_border else min(most, -(-BAND_PIXELS // conv.width))


def _rows_within(conv: _Conv, room: int) -> int:
    """Rows of the result that read and write so many bytes at most; one at least."""
    read = _bytes_of(conv.data) / (conv.batch * conv.height)
    return max(1, room // int(read + conv.width * conv.channels * conv.element + 1))


def _place_border(conv: _Conv, stage: Stage, piece: IterVar | None) -> None:
    """The border is made in the piece of work that needs it; whole before where pieces share it."""
    for op in ancestors(conv.op):
        if not isinstance(op, ComputeOp) or op.reduce_axis:
            continue
        made = conv.kernel.schedule[op]
        if made.attach_type == "inline":
            continue
        if piece is not None and op is conv.data.op:
            made.compute_at(stage, piece)
            _vectorise_last(made, conv.kernel.processor.lanes(made.op.output(0).dtype))
        else:
            schedule_elements(made, conv.kernel.processor)


def _vectorise_last(stage: Stage, lanes: int) -> None:
    last = stage.op.axis[-1]
    size = extents_of([last])[0]
    if size > lanes:
        pieces, last = stage.split(last, factor=lanes)
        stage.pragma(pieces, "loop_partition_hint", True)
    if size > 1:
        stage.vectorize(last)
