"""Convolutions and dense layers that fill no vectors, with further channels, cut off again.

    nn.conv2d(%x, const of 255 channels)  ->  strided_slice(nn.conv2d(%x, const of 256 channels))

Channels that lie side by side are computed as vectors; what these do not divide would be computed
one by one, which takes many times as long as some channels of zeros.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from sterna.ir.types import TensorType
from sterna.op.nn._conv_shape import contraction_of
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.expr import Call, Constant, RelayExpr, Tuple, const
from sterna.relay.infer import infer
from sterna.relay.layout import layout_of
from sterna.relay.op import call, find
from sterna.schedule.caches import with_caches
from sterna.schedule.choose import choose, deciding
from sterna.schedule.contraction import Contraction
from sterna.schedule.conv_stages import UNROLLED_CHANNELS
from sterna.schedule.cost import KERNEL, MOVED, STREAMED
from sterna.schedule.implementation import least_cycles
from sterna.schedule.implementations.direct import pixel_cycles
from sterna.schedule.kernel import Processor
from sterna.schedule.products import FLOAT32
from sterna.schedule.register_tile import group_widths, tiles_of_group, vectors_of
from sterna.target import processor_of

# So few channels are computed by vectors of pixels, if the window is large enough to pay for it.
FEW_CHANNELS = 4
LARGE_WINDOW = 25
# How much longer products take with weights that no tile's width divides, as they are not packed,
# where these do not stay in the first cache.
RAGGED = 2.0
# Vectors side by side of the widest tile of a dense layer, and of one that has a single row.
WIDEST, WIDE = 4, 8
# Those of a tile of many rows, of which each number then serves several vectors.
SIDE_BY_SIDE = (2, 3)
# With fewer rows weights take longer to come than products, and half a vector costs nothing.
MANY_ROWS = 128


def has_few_channels(channels: int, window: int) -> bool:
    """Whether vectors of pixels pay, of channels that lie one behind the other."""
    return channels <= FEW_CHANNELS and window >= LARGE_WINDOW


def with_whole_vectors(
    attrs: Any, args: tuple[RelayExpr, ...], target: Any
) -> RelayExpr | None:
    """A convolution with known weights of float32, where vectors and its channels do not fit."""
    processor, kinds = _processor(target), _known_floats(attrs, args)
    if processor is None or kinds is None:
        return None
    kernel, out = (layout_of(name) for name in (attrs.kernel_layout, _out_layout(attrs)))
    if kernel.is_blocked or out.is_blocked:
        return None
    place = kernel.index_of("O")
    extents: Any = kernel.dims(kinds[1].shape)
    channels, window = extents["O"], extents["H"] * extents["W"]
    made = contraction_of(attrs, *kinds)
    if made is None or made.macs == 0:
        return None
    if attrs.groups > 1:
        return _with_whole_groups(attrs, args, made, processor)
    if attrs.data_layout == "NCHW" and has_few_channels(channels, window):
        return None
    more = _more_channels(made, processor)
    if not more or _pixels_cost_less(made, more, processor):
        return None
    own = {**dict(attrs.items()), "channels": channels + more}
    wider = call("nn.conv2d", args[0], widened(args[1], place, more), **own)
    return call("strided_slice", wider, begin=(0,), end=(channels,), axes=(out.index_of("C"),))


def with_wide_weights(
    made: Contraction, weights: Array, processor: Processor
) -> tuple[Contraction, Array]:
    """A convolution, described with weights (O, window, I), as with_wide_channels makes it."""
    more = _late_padding(made, processor)
    if not more:
        return made, weights
    wide = np.pad(weights, [(0, more), *((0, 0),) * (weights.ndim - 1)])
    return replace(made, outputs=made.outputs + more), wide


def with_wide_channels(call_: Call, made: Contraction, processor: Processor) -> Call | None:
    """A convolution with its channels last, with further ones where these then fill vectors.

    They were as few for vectors of pixels, in a graph that has its channels last all the same.
    """
    more, attrs = _late_padding(made, processor), call_.attrs
    if not more or not isinstance(call_.args[1], Constant):
        return None
    place = layout_of(attrs.kernel_layout).index_of("O")  # type: ignore[union-attr]
    own = {**dict(attrs.items()), "channels": made.outputs + more}  # type: ignore[union-attr]
    return call("nn.conv2d", call_.args[0], widened(call_.args[1], place, more), **own)


def _late_padding(made: Contraction, processor: Processor) -> int:
    floats = {*map(str, made.dtypes)} == {"float32"} and made.macs > 0
    if not processor.whole_vectors or not floats or made.groups > 1:
        return 0
    return _more_channels(made, processor) if made.channels_last and made.rank == 2 else 0


def _more_channels(made: Contraction, processor: Processor) -> int:
    """How many channels of zeros the one group gets.

    Tiles take halves of vectors, but no transform does: then other ways decide.
    """
    lanes = processor.lanes(FLOAT32)
    if made.outputs % (lanes // 2 or 1):
        return _padding(made, processor)
    more = -made.outputs % lanes
    if not more or made.taps == 1:
        return 0
    last = replace(made, data_layout="NHWC", out_layout="NHWC")
    wide = replace(last, outputs=made.outputs + more)

    def cycles(outputs: int) -> float:
        seen = last if outputs == made.outputs else wide
        weights = np.broadcast_to(np.float32(1), (outputs, *made.window, made.depth))
        return least_cycles(seen, weights, processor) + (_cut(made) if seen is wide else 0.0)

    with deciding(str(made)):
        return choose("padded channels", [made.outputs, wide.outputs], cycles) - made.outputs


def _cut(made: Contraction) -> float:
    """Cycles of a kernel that copies all channels but some."""
    return 2 * made.pixels * made.outputs * made.out.bytes / STREAMED + KERNEL


def _pixels_cost_less(made: Contraction, more: int, processor: Processor) -> bool:
    """Whether vectors of pixels beat so many more channels, for which data has to move."""
    if made.data_layout != "NCHW" or made.out_layout != "NCHW" or made.rank != 2:
        return False
    wide = replace(made, outputs=made.outputs + more, data_layout="NHWC", out_layout="NHWC")
    nothing = np.broadcast_to(np.float32(1), (wide.outputs, *made.window, made.depth))
    moved = made.batch * (made.inputs * math.prod(made.image) + made.outputs * made.pixels)
    other = least_cycles(wide, nothing, processor) + MOVED * moved / processor.threads
    return pixel_cycles(made, processor) < other


def _with_whole_groups(
    attrs: Any, args: tuple[RelayExpr, ...], made: Contraction, processor: Processor
) -> RelayExpr | None:
    """The same in each group, where no width that divides it fills half as much of vectors."""
    own, lanes = made.outputs // attrs.groups, processor.lanes(FLOAT32)
    filled = max(width / (vectors_of(width, lanes) * lanes) for width in group_widths(own, lanes))
    if made.depth == 1 or own / (own + -own % lanes) <= 2 * filled:
        return None
    more = _padding(made, processor)
    if not more:
        return None
    return with_wider_groups(attrs, args, own, more)


def with_wider_groups(
    attrs: Any, args: tuple[RelayExpr, ...], own: int, more: int
) -> RelayExpr:
    """A convolution whose groups of so many channels have more of zeros, cut off group by group."""
    (data, weight), place = args, layout_of(attrs.kernel_layout).index_of("O")
    assert isinstance(weight, Constant)
    plain = np.moveaxis(to_numpy(weight.data), place, 0)
    by_group = plain.reshape(attrs.groups, own, *plain.shape[1:])
    wide = np.pad(by_group, [(0, more if axis == 1 else 0) for axis in range(by_group.ndim)])
    packed = np.moveaxis(wide.reshape(-1, *plain.shape[1:]), 0, place)
    given = {**dict(attrs.items()), "channels": attrs.groups * (own + more)}
    wider = call("nn.conv2d", data, const(np.ascontiguousarray(packed)), **given)
    axis = layout_of(_out_layout(attrs)).index_of("C")
    firsts = range(0, attrs.groups * (own + more), own + more)
    parts = [call("strided_slice", wider, begin=(n,), end=(n + own,), axes=(axis,)) for n in firsts]
    return call("concatenate", Tuple(tuple(parts)), axis=axis)


def with_whole_units(attrs: Any, args: tuple[RelayExpr, ...], target: Any) -> RelayExpr | None:
    """A dense layer with known weights of float32, where vectors and its units do not fit."""
    processor, kinds = _processor(target), _known_floats(attrs, args)
    if processor is None or kinds is None:
        return None
    lanes = processor.lanes(FLOAT32)
    units = kinds[1].concrete_shape[0]
    rows = math.prod(kinds[0].concrete_shape[:-1])
    whole = _fill_tiles(units, lanes, rows)
    described = None if whole else find("nn.dense").contraction.describe
    made = None if described is None else described(attrs, *kinds)
    more = 0 if made is None or made.macs == 0 else _padding(made, processor)
    if not more:
        return None
    own = {**dict(attrs.items()), "units": units + more}
    wider = call("nn.dense", args[0], widened(args[1], 0, more), **own)
    last = kinds[0].ndim - 1
    return call("strided_slice", wider, begin=(0,), end=(units,), axes=(last,))


def _fill_tiles(units: int, lanes: int, rows: int) -> bool:
    """Whether wide tiles divide units: of many rows several vectors, of few one and a half."""
    half = lanes // 2
    if rows >= MANY_ROWS:
        return any(units % width == 0 for width in range(2 * lanes, WIDEST * lanes + 1, lanes))
    return units == half or any(
        units % width == 0 for width in range(lanes, WIDEST * lanes + 1, half)
    )


def _known_floats(attrs: Any, args: tuple[RelayExpr, ...]) -> list[TensorType] | None:
    """The operands' types, if weights are known and all is of float32 and of known shape."""
    if not isinstance(args[1], Constant):
        return None
    kinds = [infer(arg) for arg in args]
    found = [kind for kind in kinds if isinstance(kind, TensorType) and kind.is_static]
    if len(found) != 2 or attrs.out_dtype or any(kind.dtype != "float32" for kind in found):
        return None
    return found


def widened(weight: RelayExpr, axis: int, more: int) -> RelayExpr:
    """Known weights with so many zeros behind the others along an axis."""
    assert isinstance(weight, Constant)
    array = to_numpy(weight.data)
    return const(np.pad(array, [(0, more if place == axis else 0) for place in range(array.ndim)]))


def _out_layout(attrs: Any) -> str:
    return str(attrs.out_layout or attrs.data_layout)


def _processor(target: Any) -> Processor | None:
    """Where code runs that has vectors, if filling them up pays."""
    if target is None or not target.kind.picks_instructions:
        return None
    found = processor_of(target)
    return with_caches(found) if found.whole_vectors else None


def _padding(made: Contraction, processor: Processor) -> int:
    """How many channels of zeros each group gets: none, or so many that they fill vectors.

    In cycles: of the tiles' steps, and of the kernel that cuts channels off; a dense layer of many
    rows leaves units out itself.
    """
    columns, lanes = made.outputs // made.groups, processor.lanes(FLOAT32)
    depth = made.depth if made.depth > UNROLLED_CHANNELS or made.groups > 1 else 1
    many = made.is_matrix and made.pixels >= MANY_ROWS

    def cycles(padded: int) -> float:
        rows = made.result[-1]
        found = tiles_of_group(processor, rows, padded, made.groups, made.out, depth)
        steps = made.products * made.groups * (made.pixels // rows)
        unpacked = RAGGED if made.weight_bytes > processor.l1_bytes // 2 else 1.0
        if made.is_matrix:
            whole = {tile: each for tile, each in found.items()
                     if padded % tile.columns == 0 and tile.columns >= lanes}
            found, unpacked = whole or found, 1.0 if whole else unpacked
        products = min(found.values()) * steps / processor.threads
        if padded == columns:
            return unpacked * products
        return products if many else products + _cut(made)

    # Of one row a tile is many vectors wide, and divides what is packed for it.
    wide = [lanes]
    if made.is_matrix and made.pixels == 1:
        wide.append(WIDE * lanes)
    if many:
        wide += [several * lanes for several in SIDE_BY_SIDE]
    offered = dict.fromkeys([columns, *(columns + -columns % each for each in wide)])
    with deciding(str(made)):
        return choose("padded channels", list(offered), cycles) - columns
