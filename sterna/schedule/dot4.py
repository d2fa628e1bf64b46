"""Sums of products of bytes by an instruction that adds four of them: dot4.

Weights lie in blocks of a register tile's columns, in these the four that one lane adds together:
OHWI32o4i, OI32o4i. The innermost loops, over a vector's lanes and those four, are one instruction.
"""

import math
from functools import cache
from typing import Any

from sterna.ir import build
from sterna.ir.types import TensorType, Type
from sterna.schedule.choose import choose
from sterna.schedule.contraction import Contraction
from sterna.schedule.default import hold_in_registers
from sterna.schedule.kernel import Processor
from sterna.schedule.register_tile import MOST_ROWS, RegisterTile, TileSpace
from sterna.schedule.sum_of_products import SumOfProducts
from sterna.support.dtype import DataType
from sterna.te import (
    IterVar,
    Stage,
    compute,
    decl_tensor_intrin,
    placeholder,
    reduce_axis,
)
from sterna.te import sum as te_sum
from sterna.te.intrin import TensorIntrin
from sterna.tir import decl_buffer, dot4, ir_builder

GROUP = 4
LEAST_LANES = 4
# Vectors side by side of the widest tile.
WIDEST = 4
# How much longer dot products take whose four bytes are loaded into all lanes, one group at a time,
# on processors that take lanes of what holds several groups; as it was measured.
ONE_GROUP = 1.6
INT32 = DataType("int32")


def are_bytes(*kinds: Type) -> bool:
    """Whether all operands of a product are integers of 8 bits."""
    return all(
        isinstance(kind, TensorType) and kind.dtype.is_integer and kind.dtype.bits == 8
        for kind in kinds
    )


def has_bytes(made: Contraction) -> bool:
    """Whether bytes are multiplied and summed in 32 bits."""
    kinds = (made.data, made.weight)
    return made.out == INT32 and all(kind.is_integer and kind.bits == 8 for kind in kinds)


def fills_last_tile(made: Contraction) -> bool:
    """Whether packed weights may have further output channels of zeros, which are not stored."""
    images = made.rank == 2 and made.out_layout == "NHWC" and not made.is_matrix
    return images and made.groups == 1 and made.depth % GROUP == 0 and has_bytes(made)


def dot_lanes(channels: int, processor: Processor) -> int:
    """How many lanes vectors of sums have that fill so many channels."""
    lanes = processor.lanes(INT32)
    while channels % lanes:
        lanes //= 2
    return lanes


def takes_dot4(channels: int, depth: int, processor: Processor) -> bool:
    """Whether sums of so many bytes for so many channels come in groups of four."""
    return dot_lanes(channels, processor) >= LEAST_LANES and depth % GROUP == 0


def bytes_missing(depth: int, processor: Processor) -> int:
    """How many bytes of zeros a sum of so many gets, that it comes in groups, or in pairs of them.

    One load brings two groups of a row or more, where their number is even.
    """
    single, pairs = -depth % GROUP, -depth % (2 * GROUP)
    if not (processor.has_dot4 and processor.by_element_fma):
        return single
    is_odd = (depth + single) % (2 * GROUP) != 0
    return pairs if is_odd and depth + pairs < ONE_GROUP * (depth + single) else single


def dot_width(
    rows: int, channels: int, depth: int, processor: Processor, filled: bool = False
) -> int | None:
    """How many channels a register tile has; None if an instruction would have too few lanes.

    filled: the last tile may have further channels, of zeros, where these fill vectors.
    """
    found = dot_tiles(rows, channels, depth, processor, filled)
    return choose("tile", tuple(found), found.__getitem__).columns if found else None


def dot_tiles(
    rows: int, channels: int, depth: int, processor: Processor, filled: bool
) -> dict[RegisterTile, float]:
    """The tiles of which dot_width takes one, with their cycles for a step over all channels."""
    found: dict[RegisterTile, float] = {}
    whole = processor.lanes(INT32)
    if takes_dot4(channels, depth, processor):
        lanes = dot_lanes(channels, processor)
        widest = min(channels, WIDEST * whole)
        widths = tuple(n for n in range(lanes, widest + 1, lanes) if channels % n == 0)
        found = dot_space(processor, rows, channels, lanes, depth, widths=widths).cycles()
    if filled and channels % whole and whole >= LEAST_LANES and depth % GROUP == 0:
        for width in range(whole, min(channels, WIDEST * whole) + 1, whole):
            more = -channels % width
            found |= dot_space(
                processor, rows, channels + more, whole, depth, widths=(width,)).cycles()
    return found


def dot_tile(
    processor: Processor, rows: int, channels: int, lanes: int, depth: int,
    block: int | None = None, most_rows: int = MOST_ROWS,
) -> RegisterTile:
    """The tile of a sum over so many bytes that lie side by side in every row."""
    return dot_space(processor, rows, channels, lanes, depth, block, most_rows).choose()


def dot_space(
    processor: Processor, rows: int, channels: int, lanes: int, depth: int,
    block: int | None = None, most_rows: int = MOST_ROWS, widths: tuple[int, ...] = (),
) -> TileSpace:
    """The tiles of such a sum: whole registers, and parts of one behind them.

    lanes: those of vectors that fill the channels evenly.
    """
    whole = processor.lanes(INT32)
    by_lanes = processor.has_dot4 and lanes == whole
    together = _groups_together(processor, depth // GROUP) if by_lanes else 1
    return TileSpace(
        rows, channels, whole, processor.registers_for(together), block, most_rows, widths,
        together, processor.throughput,
    )


def _groups_together(processor: Processor, groups: int) -> int:
    """Groups of a row that one load brings, whose lanes are operands of their products."""
    if not processor.by_element_fma:
        return 1
    return math.gcd(groups, processor.lanes(INT32))


@cache
def dot_intrinsic(data: str, weight: str, pieces: tuple[int, ...], scope: str) -> TensorIntrin:
    """Vectors of sums, to which four products per lane are added; scope: where the data lies.

    pieces: how many lanes each vector has.
    """
    lanes = sum(pieces)
    a = placeholder((GROUP,), data, name="a")
    b = placeholder((lanes, GROUP), weight, name="b")
    k = reduce_axis((0, GROUP), "k")
    total = compute(
        (lanes,), lambda i: te_sum(a[k].astype(INT32) * b[i, k].astype(INT32), axis=k), name="c"
    )
    binds = {
        a: decl_buffer((GROUP,), data, "a", offset_factor=1, strides=[1], scope=scope),
        b: decl_buffer((lanes, GROUP), weight, "b", offset_factor=1, strides=[GROUP, 1]),
        total: decl_buffer((lanes,), INT32, "c", offset_factor=1, strides=[1], scope="local"),
    }

    def write(ins: Any, outs: Any) -> Any:
        (sums,) = outs
        none, more = ir_builder.create(), ir_builder.create()
        first = 0
        for width in pieces:
            kind = f"int32x{width}"
            none.emit(sums.vstore(first, build.const(0, DataType(kind))))
            four = ins[0].vload(0, f"{data}x{GROUP}")
            every = ins[1].vload((first, 0), f"{weight}x{GROUP * width}")
            more.emit(sums.vstore(first, dot4(sums.vload(first, kind), four, every)))
            first += width
        return None, none.get(), more.get()

    return decl_tensor_intrin(total.op, write, name="dot4", binds=binds)


def vectors_of_channels(channels: int, lanes: int, processor: Processor) -> tuple[int, ...]:
    """The lanes of vectors that fill a tile's channels: whole registers first, halves behind them.

    lanes: those of the vectors that fill them evenly.
    """
    whole = processor.lanes(INT32)
    if lanes >= whole or channels % lanes:
        return (lanes,)
    made: list[int] = []
    while channels:
        while whole > channels:
            whole //= 2
        made.append(whole)
        channels -= whole
    return tuple(made)


def add_by_dots(
    tile: Stage, made: SumOfProducts, reduced: list[IterVar], rows: list[IterVar],
    pieces: tuple[int, ...], together: int = 1,
) -> IterVar:
    """Order the loops of a tile in registers and let an instruction do the innermost ones.

    reduced: the loops of the sum, that over what lies in groups last; gives the one over groups.
    pieces: the lanes of the vectors that one step over channels adds to.
    together: groups of a row that one load brings.
    """
    op = tile.op
    data, weight = made.accesses
    groups, four = tile.split(reduced[-1], factor=GROUP)
    vectors, lane = tile.split(op.axis[-1], factor=sum(pieces))
    others = [axis for axis in op.axis[:-1] if axis not in rows]
    steps = [groups]
    if together > 1:
        steps = list(tile.split(groups, factor=together))
    tile.reorder(*others, *reduced[:-1], *steps, *rows, vectors, lane, four)
    for axis in (*steps[1:], *rows, vectors):
        tile.unroll(axis)
    if together > 1:
        hold_in_registers(tile, data.tensor, steps[0])
    scope = "local" if together > 1 else "global"
    intrinsic = dot_intrinsic(str(data.dtype), str(weight.dtype), pieces, scope)
    tile.tensorize(lane, intrinsic)
    return steps[0]
