"""The schedule of depthwise convolutions with channels last.

A vector of channels of a few columns is in registers, and the window is written out. Rows pass by
in bands whose window stays in the innermost cache.
"""

from dataclasses import dataclass

from sterna.ir import build
from sterna.schedule.choose import choose, near
from sterna.schedule.conv_stages import (
    BAND_PIXELS,
    LINE_BYTES,
    Conv,
    bytes_of,
    even_part,
    place_border,
    rows_within,
    sum_in_registers,
    write_out,
)
from sterna.schedule.default import functions_of
from sterna.schedule.kernel import Processor
from sterna.schedule.loops import extents_of
from sterna.schedule.row_sums import compute_tile, outer_stage, pixel_axes
from sterna.schedule.sharing import RowCosts, Share, row_groups, share_rows
from sterna.te import Stage

# A tile has a column for so many registers: neighbours share what they load. Those of long rows of
# the window share it with many, and wait for no other sums.
REGISTERS_OF_A_COLUMN, OF_A_LONG_ROW = 4, 2
# What comes from another core's cache takes longer than its sums.
DEPTHWISE_COSTS = RowCosts(shared=0.5, fetched=3.0)
# Of a larger window only the rows are written out, of one with larger rows nothing. Vectors of long
# rows are written out too: neighbours read the same pixels, and each column leaves the border out
# at steps that are known.
UNROLLED_WINDOW, UNROLLED_ROW, LONG_ROW = 9, 7, 32


def schedule_depthwise(conv: Conv) -> None:
    """A vector of channels of a few columns in registers; the window is written out.

    The sum leaves out what lies outside the image: rows by a question before each row of the
    window, columns in tiles of their own at both ends.
    """
    processor = conv.kernel.processor
    stage = outer_stage(conv.kernel)
    lanes = min(processor.lanes(conv.op.output(0).dtype), conv.channels)
    columns = depthwise_columns(conv.width, processor, conv.made.window[1])
    tile = sum_in_registers(conv)
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
        stage.pragma(stripe, "loop_partition_hint", True)
        stage.pragma(row, "loop_unswitch_hint", True)
        why = f"{share.rows} rows x {seen.columns} columns x {seen.channels} channels at a time"
    stage.parallel(piece)
    stage.pragma(across, "loop_partition_hint", True)
    stage.unroll(column)
    stage.vectorize(vector)
    tile.compute_at(stage, block)
    compute_tile(conv.kernel, block)
    write_window_out(tile, LONG_ROW if lanes > 1 else UNROLLED_ROW)
    place_border(conv, stage, None)
    conv.kernel.choices["schedule"] = (
        f"depthwise, {columns} columns x {lanes} channels in registers, {why}"
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """What passes by from row to row: so many columns of the result of so many channels."""

    columns: int
    channels: int


def _seen_at_once(conv: Conv, columns: int, lanes: int, channels: int) -> _Seen:
    """Columns and channels, of so many, whose window stays in half of the innermost cache.

    Rows are read once then, not once for each row of the window. All channels of a pixel if those
    of a tile stay there: what comes from far comes in order. Else lines of channels of whole rows.

    Functions that follow take longer than what comes for them, where steps are single: a stripe is
    one tile wide then. No stripe has a border and tiles within, whose window would be written out
    once more for it.
    """
    room = conv.kernel.processor.l1_bytes // 2
    tiles = -(-conv.width // columns)
    fitting = [n for n in range(1, tiles + 1) if _window_bytes(conv, n * columns, channels) <= room]
    if fitting:
        stripes = -(-tiles // fitting[-1])
        made, stage = conv.made, conv.kernel.schedule[conv.kernel.outputs[0]]
        repeated = stripes > 1 and made.taps <= UNROLLED_WINDOW and {*made.strides} == {1}
        if repeated and functions_of(stage):
            return _Seen(columns, channels)
        return _Seen(-(-tiles // stripes) * columns, channels)
    line = _line(channels, lanes, conv.element)
    parts = [n * line for n in range(1, channels // line + 1) if channels % (n * line) == 0]
    few = [part for part in parts if _window_bytes(conv, conv.width, part) <= room]
    return _Seen(tiles * columns, max(few, default=line))


def _window_bytes(conv: Conv, columns: int, channels: int) -> int:
    """What a row of so many columns of the result reads and writes."""
    wide = build.int_value(conv.data.shape[2]) or 1
    read = (columns - 1) * -(-wide // conv.width) + conv.made.window[1]
    return channels * (conv.made.window[0] * read + columns) * conv.element


def _line(channels: int, lanes: int, element: int) -> int:
    """The channels that lie in a line of the cache; those of a vector where lines are not whole."""
    line = max(lanes, LINE_BYTES // element)
    return lanes if channels % line else line


def _share_of_depthwise(conv: Conv, lanes: int) -> Share:
    """A thread's rows or lines of channels: those that it has most likely written itself.

    What comes from another core's cache takes longer than the sum. A convolution that makes a small
    image shares out its channels, and one that makes a larger image shares out rows.
    """
    threads = conv.kernel.processor.threads
    _, high, wide, _ = (build.int_value(extent) or 1 for extent in conv.data.shape)
    lines = conv.channels // _line(conv.channels, lanes, conv.element)
    if high * wide > BAND_PIXELS:
        far = bytes_of(conv.data) > conv.kernel.processor.l2_bytes // 2
        most = rows_within(conv, conv.kernel.processor.l2_bytes // 2) if far else conv.height
        return share_rows(conv.height, conv.batch, lines, threads, most, True, DEPTHWISE_COSTS)
    groups = min(n for n in range(1, lines + 1) if lines % n == 0 and (n >= threads or n == lines))
    return Share(row_groups(conv.height, groups * conv.batch, threads), groups)


def depthwise_columns(width: int, processor: Processor, steps: int = 1) -> int:
    """Columns of a depthwise tile, whose window has so many columns."""
    each = OF_A_LONG_ROW if steps > UNROLLED_ROW else REGISTERS_OF_A_COLUMN
    most = min(width, processor.vector_registers // each)
    return choose("columns", range(1, max(1, most) + 1), near(even_part(width, most)))


def write_window_out(tile: Stage, longest: int = UNROLLED_ROW) -> None:
    """A depthwise sum: its window written out, if its rows are not too long."""
    along, inside = tile.op.reduce_axis
    write_out(tile, [along, inside])
    height, width = extents_of([along, inside])
    if width <= longest:
        tile.unroll(inside)
        if height * width <= UNROLLED_WINDOW:
            tile.unroll(along)
