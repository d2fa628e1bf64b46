"""Direct: sums of products in register tiles, computed by tensor expressions and their schedule.

Every contraction can run this way. Weights are packed by the register tile that will compute them:
the columns of a tile lie side by side for every step of the sum.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr
from sterna.relay.layout import from_plain, layout_of, to_plain
from sterna.relay.op import call as call_of
from sterna.schedule.choose import choose
from sterna.schedule.chunked_sum import chunk_of, expect_chunk, whole_chunk
from sterna.schedule.contraction import Contraction
from sterna.schedule.conv_stages import UNROLLED_CHANNELS
from sterna.schedule.cost import (
    SIDE_BY_SIDE,
    STREAMED,
    SUMS_AT_ONCE,
    border_cycles,
    direct_cycles,
)
from sterna.schedule.dot4 import GROUP, dot_width, fills_last_tile, has_bytes
from sterna.schedule.expression import Expression, weight_axes, weight_layout
from sterna.schedule.implementation import Arranged, Candidate, Packing, Plan, expect_shape
from sterna.schedule.kernel import Processor
from sterna.schedule.pixel_blocks import ARRANGED, PixelBlocks
from sterna.schedule.products import wide
from sterna.schedule.register_tile import tile_of_group, tile_of_rows, tiles_of_group
from sterna.schedule.sum_of_products import DIRECT
from sterna.support.dtype import DataType

# Vectors side by side of the widest tile of a dense layer.
WIDEST = 4
# How much longer products take with channels first, whose numbers lie far apart, and where vectors
# of pixels are picked from those between them.
FIRST, PICKED = 2.0, 1.75
# What an element of an image takes that C copies with its border.
BORDERED = 4
# What answers call it where pixels lie in blocks.
BLOCKS = "direct, pixels in blocks"
# Pixels of an image of which threads make channels rather than rows.
SHARED_BY_CHANNELS = 64


class Direct(Packing):
    """Any contraction; weights are packed for products of matrices and for channels last."""

    name = DIRECT
    takes_open = True

    def cycles(self, made: Contraction, how: Expression, processor: Processor) -> float | None:
        """What it costs there with weights packed so; None if it does not suit."""
        cycles = direct_cycles(made, processor, how.width if how.weights else None)
        if processor.is_scalar_controller and not made.is_matrix and made.is_padded:
            cycles += BORDERED * made.batch * made.inputs * math.prod(
                size + before + after for size, before, after
                in zip(made.image, made.before, made.after, strict=True))
        if made.out_layout != "NCHW":
            return cycles
        first = FIRST * (PICKED if made.strides[-1:] > (1,) else 1.0)
        first *= _waiting_sums(made, processor) if made.groups > 1 else 1.0
        return cycles * first * _idle_lanes(made, processor) + border_cycles(made, processor)

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor
    ) -> Sequence[Candidate]:
        how = packing_of(made, processor)
        cycles = self.cycles(made, how, processor)
        if cycles is None:
            return []
        if not how.weights:
            return [Candidate(Plan(self.name), cycles)]
        plan = how.plan(self.name)
        packed = partial(_packed, made, how, weights)
        found = [Candidate(plan, cycles, packed, label=self.name)]
        return [*found, *self.of_blocks(made, weights, processor)]

    def of_blocks(
        self, made: Contraction, weights: Array, processor: Processor
    ) -> Sequence[Candidate]:
        """Bytes of few channels with a stride: pixels in blocks, which are sums of many bytes.

        Channels whose weights are all zero only filled up groups of four: they are left out.
        """
        if not has_bytes(made) or made.groups > 1 or {*made.strides} == {1} or made.rank != 2:
            return []
        used = int(np.flatnonzero(weights.any(axis=(0, 1, 2))).max(initial=0)) + 1
        few = replace(made, inputs=used)
        blocks = PixelBlocks.of(few, GROUP) if {*made.dilation} == {1} else None
        if blocks is None:
            return []
        seen = blocks.contraction(few)
        how = packing_of(seen, processor)
        cycles = self.cycles(seen, how, processor)
        if cycles is None or not how.in_groups:
            return []
        axis = made.data_layout.index("C")

        def arrange(data: RelayExpr) -> RelayExpr:
            if used < made.inputs:
                data = call_of("strided_slice", data, begin=(0,), end=(used,), axes=(axis,))
            return blocks.data(data)

        def pack() -> tuple[Array, ...]:
            return _packed(seen, how, blocks.weight(weights[..., :used]))

        cycles += math.prod(blocks.shape) / ARRANGED / processor.threads
        arranged = Arranged(seen, arrange)
        return [Candidate(how.plan(self.name), cycles, pack, arranged, label=BLOCKS)]

    def expect(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        how = Expression.of(plan)
        layout = weight_layout(made, how)
        extents = _extents(made)
        if fills_last_tile(made):
            extents["O"] += -made.outputs % max(1, layout.factor_of("O"))
        for axis, extent in extents.items():
            if extent % max(1, layout.factor_of(axis)):
                raise ValueError(f"the blocks of {layout} do not divide {extent}, its {axis}")
        expect_shape(operands, layout.shape(extents))  # type: ignore[arg-type]
        if how.flat and (not made.is_pointwise or made.out_layout != "NHWC"):
            raise ValueError("flat is for pointwise convolutions with results in the layout NHWC")
        expect_chunk(how.chunk, _summed(made))

    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        layout = weight_layout(made, Expression.of(plan))
        plain = to_plain(operands[0], layout, weight_axes(made))[: made.outputs]
        return plain.reshape(made.outputs, *made.window, made.depth)


def pixel_cycles(made: Contraction, processor: Processor) -> float:
    """What vectors of pixels take with channels first, where rows come for all lines of windows.

    Infinite for groups of channels, which other ways suit.
    """
    if made.groups > 1:
        return math.inf
    image = made.batch * made.inputs * math.prod(made.image) * made.data.bytes
    streamed = image * made.window[0] / STREAMED if image > processor.l1_bytes else 0.0
    cycles = IMPLEMENTATION.cycles(made, Expression(), processor)
    assert cycles is not None, "every contraction can run this way"
    return cycles + streamed / processor.threads


def _waiting_sums(made: Contraction, processor: Processor) -> float:
    """How much longer groups take: a tile is one channel, whose few sums wait for each other."""
    vectors = -(-made.result[-1] // processor.lanes(made.data))
    rate = processor.throughput.multiply_adds
    return max(1.0, SUMS_AT_ONCE * rate / min(vectors, SIDE_BY_SIDE))


def _idle_lanes(made: Contraction, processor: Processor) -> float:
    """How much longer vectors of pixels take where a row of them does not fill one."""
    columns, lanes = made.result[-1], processor.lanes(made.data)
    if columns >= lanes or columns < 1:
        return 1.0
    taken = 1 << columns.bit_length() - 1  # a row is made by vectors of a power of two
    return lanes / columns * -(-columns // taken)


def _extents(made: Contraction) -> dict[str, int]:
    window = () if made.is_matrix else made.window
    return dict(zip(weight_axes(made), (made.outputs, *window, made.depth), strict=True))


def _packed(made: Contraction, how: Expression, weights: Array) -> tuple[Array, ...]:
    plain = weights.reshape(tuple(_extents(made).values()))
    return (from_plain(plain, weight_axes(made), layout_of(how.weights)),)


def packing_of(made: Contraction, processor: Processor) -> Expression:
    """How weights are packed; as they are where a tile would not read them as vectors."""
    if made.macs == 0:
        return Expression()
    if made.is_matrix:
        return _packing_of_rows(made, processor)
    if made.rank != 2 or made.out_layout != "NHWC" or made.data_layout not in ("NHWC", "NCHW"):
        return Expression()
    return _packing_of_images(made, processor)


def _packing_of_images(made: Contraction, p: Processor) -> Expression:
    """Of a convolution: window by window, the columns of a tile innermost."""
    chunk = _chunk(made, p)
    if made.groups == made.inputs > 1:
        return Expression("HWOI", chunk)
    if has_bytes(made):
        own, filled = made.outputs // made.groups, fills_last_tile(made)
        width = dot_width(made.result[1], own, made.depth, p, filled)
        return Expression("HWIO" if width is None else f"OHWI{width}o4i")
    if made.groups > 1 and not made.out.is_float:
        return Expression("HWIO", chunk)
    return _packing_of_tiles(made, p, chunk)


def _packing_of_tiles(made: Contraction, p: Processor, chunk: int) -> Expression:
    in_loop = made.depth > UNROLLED_CHANNELS or made.groups > 1
    depth = made.depth if in_loop and made.data == made.out else 1
    (height, width), columns = made.result, made.outputs // made.groups
    tile = tile_of_group(p, width, columns, made.groups, made.out, depth)
    flat = False
    if made.is_pointwise and depth > 1 == tile.together and made.out.bits >= 32:
        left_over = height > 1 and width % tile.rows != 0

        def cycles(flat: bool) -> float:
            rows, lines = (height * width, 1) if flat else (width, height)
            found = tiles_of_group(p, rows, columns, made.groups, made.out, depth)
            each = min(found.values()) * made.groups * depth / p.threads
            return lines * each + (_arriving(made, tile.columns, p) if flat else 0.0)

        flat = choose("flat pixels", [False, True] if left_over else [False], cycles)
    if flat:
        tile = tile_of_group(p, height * width, columns, made.groups, made.out, depth)
    if columns % tile.columns and made.groups == 1:
        return Expression("HWIO", chunk)
    return Expression(f"OHWI{tile.columns}o", chunk, flat)


def _arriving(made: Contraction, columns: int, p: Processor) -> float:
    """Cycles in which pixels come to a thread that shares channels: once for every column of tiles.

    None where all of them stay in the second cache, and few come from the threads that made them.
    """
    pixels = math.prod(made.result)
    size = pixels * max(made.outputs, made.inputs) * made.out.bytes
    near = p.threads == 1 or pixels <= SHARED_BY_CHANNELS
    if near and size <= p.l2_bytes // 2:
        return 0.0
    return size * -(-made.outputs // columns) / STREAMED


def _chunk(made: Contraction, p: Processor) -> int:
    """How many products are summed in float16; all or none where there are several groups."""
    if not p.fp16_arithmetic or {*map(str, made.dtypes)} != {"float16"}:
        return 0
    return chunk_of(_summed(made)) if made.groups == 1 else whole_chunk(_summed(made))


def _summed(made: Contraction) -> list[int]:
    """The extents of the sum; a depthwise one has only the window's."""
    window = () if made.is_matrix else made.window
    return [*window] if made.depth == 1 and window else [made.depth, *window]


def _packing_of_rows(made: Contraction, p: Processor) -> Expression:
    """Of a dense layer: a vector of units lies together for every step of the sum."""
    if has_bytes(made):
        columns = dot_width(made.pixels, made.outputs, made.depth, p)
        return Expression() if columns is None else Expression(f"OI{columns}o4i")
    chunk = _chunk(made, p)
    # each number of narrow data is widened once for all columns of a tile
    kinds = {made.data} if chunk else {made.data, wide(made.data)}
    width = max(_width_of_rows(made, p, kind) for kind in kinds)
    if width < min(p.lanes(made.data), 4):
        return Expression()
    return Expression(f"OI{width}o", chunk)


def _width_of_rows(made: Contraction, p: Processor, kind: DataType) -> int:
    """The units of a tile whose vectors have as many lanes as those of a type."""
    most = _columns_that_fit(made, p.lanes(kind), p.l2_bytes // made.data.bytes)
    width = tile_of_rows(
        p, made.pixels, most, kind, made.depth, throughput=p.smt_throughput, whole=made.outputs,
    ).columns
    while made.outputs % width:
        width //= 2
    return width


def _columns_that_fit(made: Contraction, lanes: int, cache: int) -> int:
    """How many units a tile may be wide: with those behind it, which are fetched meanwhile.

    Both stay in the second cache, of so many elements, beside the data; data that is larger than
    half of it comes in blocks, and nothing is fetched ahead of time for a single row.
    """
    rows, units, depth = made.pixels, made.outputs, made.depth
    most = (cache - rows * depth) // max(1, 2 * depth)
    if rows == 1 or 2 * rows * depth > cache or most >= WIDEST * lanes:
        return units
    fitting = [n * lanes for n in range(2, WIDEST) if units % (n * lanes) == 0]
    return max([n for n in fitting if n <= most], default=min(fitting, default=units))


IMPLEMENTATION = Direct()
