"""Gradients of distances, of sampling at points, and of what is put in place by a mask."""

import itertools
import math
from collections.abc import Sequence
from functools import reduce

from sterna.frontend.calls import call, cast, constant, dtype_of, like, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.convert_counts import pdist_places
from sterna.frontend.torch.convert_index import scatter_add
from sterna.frontend.torch.convert_shape import expand, ravel, shape_of, slice_
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr

# ---- distances ----


@aten("_cdist_backward")
def cdist_backward(
    grad: RelayExpr, x1: RelayExpr, x2: RelayExpr, p: float, cdist: RelayExpr
) -> RelayExpr:
    """The gradient of the first points; where two are one there is none."""
    difference = call("subtract", call("expand_dims", x1, rank_of(x1) - 1),
                 call("expand_dims", x2, rank_of(x2) - 2))
    far = call("expand_dims", cdist, rank_of(cdist))
    zero, size = like(0, difference), call("abs", difference)
    if p == 0:
        slope: RelayExpr = call("multiply", difference, zero)
    elif p == 1:
        slope = call("sign", difference)
    elif p == math.inf:
        slope = call("where", call("equal", size, far), call("sign", difference), zero)
    else:
        if p == 2:
            rise = call("divide", difference, far)
        else:
            ratio = call("power", call("divide", size, far), like(p - 1, size))
            rise = call("multiply", call("sign", difference), ratio)
        here = call("logical_or", call("equal", far, zero), call("equal", difference, zero))
        slope = call("where", here, zero, rise)
    return call("sum", call("multiply", slope, call("expand_dims", grad, rank_of(grad))), axis=-2)


@aten("_pdist_backward")
def pdist_backward(grad: RelayExpr, x: RelayExpr, p: float, pdist: RelayExpr) -> RelayExpr:
    """That of all pairs, each of which stands twice among them."""
    count = shape_of(x)[0]
    if count < 2:
        return call("zeros", shape_of(x), dtype_of(x))
    places = pdist_places(count)

    def both(pairs: RelayExpr) -> RelayExpr:
        empty = call("zeros", (count * count,), dtype_of(x))
        upper = reshaped(scatter_add(empty, 0, places, pairs), (count, count))
        return call("add", upper, call("transpose", upper, (1, 0)))

    return cdist_backward(both(grad), x, x, p, both(pdist))


# ---- masks ----


@aten("masked_scatter_backward")
def masked_scatter_backward(
    grad_output: RelayExpr, mask: RelayExpr, sizes: Sequence[int]
) -> RelayExpr:
    """Where the mask holds, gradients one behind another; the rest of the source has none."""
    count = math.prod(sizes)
    flat, holds = ravel(grad_output), ravel(expand(mask, shape_of(grad_output)))
    before = call("subtract", call("cumsum", cast(holds, "int64"), axis=0), constant(1, "int64"))
    places = call("where", holds, before, constant(count, "int64"))
    empty = call("zeros", (count + 1,), dtype_of(grad_output))
    return reshaped(slice_(scatter_add(empty, 0, places, flat), 0, 0, count), sizes)


# ---- sampling ----

_CUBIC = -0.75

Tap = tuple[RelayExpr, RelayExpr, RelayExpr, RelayExpr]
"""An element that a sample reads along an axis: its place, whether it lies inside, its weight, and
how the weight grows with the coordinate of the grid."""


@aten("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sampler_backward(
    grad_output: RelayExpr, input: RelayExpr, grid: RelayExpr, interpolation_mode: int,
    padding_mode: int, align_corners: bool, output_mask: Sequence[bool],
) -> list[RelayExpr | None]:
    """Shares of the samples' gradients go to the elements they were read from, and what elements
    differ by goes to the grid."""
    batch, channels, *extents = shape_of(input)
    rank, count = len(extents), math.prod(shape_of(grid)[1:-1])
    points = reshaped(grid, (batch, count, rank))
    axes = [
        _taps(reshaped(slice_(points, 2, rank - 1 - axis, rank - axis), (batch, count)), extent,
              interpolation_mode, padding_mode, align_corners)
        for axis, extent in enumerate(extents)
    ]
    grads = reshaped(grad_output, (batch, channels, count))
    flat = reshaped(input, (batch, channels, math.prod(extents)))
    spread: RelayExpr = call("zeros", shape_of(flat), dtype_of(input))
    slopes: list[RelayExpr | None] = [None] * rank
    for taps in itertools.product(*axes):
        place = taps[0][0]
        for (own, *_), extent in zip(taps[1:], extents[1:], strict=True):
            place = call("add", call("multiply", place, constant(extent, "int64")), own)
        inside = reduce(lambda a, b: call("logical_and", a, b), [tap[1] for tap in taps])
        weights = [tap[2] for tap in taps]
        held = expand(call("expand_dims", place, 1), (batch, channels, count))
        if output_mask[0]:
            part = call("multiply", grads, _kept(inside, weights))
            spread = call("scatter_elements", spread, held, part, axis=2, reduction="add")
        if output_mask[1]:
            read = call("sum", call("multiply", call("gather", flat, 2, held), grads), axis=1,
                        keepdims=True)
            for axis in range(rank):
                rises = [*weights[:axis], taps[axis][3], *weights[axis + 1 :]]
                part = call("multiply", read, _kept(inside, rises))
                known = slopes[axis]
                slopes[axis] = part if known is None else call("add", known, part)
    found: list[RelayExpr | None] = [None, None]
    if output_mask[0]:
        found[0] = reshaped(spread, shape_of(input))
    if output_mask[1]:  # the grid has its last axis first
        columns = [call("transpose", each, (0, 2, 1)) for each in slopes[::-1]]
        found[1] = reshaped(call("concatenate", columns, axis=2), shape_of(grid))
    return found


def _kept(inside: RelayExpr, factors: Sequence[RelayExpr]) -> RelayExpr:
    """The product of factors where a place lies inside, for every channel."""
    product = reduce(lambda a, b: call("multiply", a, b), factors)
    return call("expand_dims", call("where", inside, product, like(0, product)), 1)


def _taps(
    points: RelayExpr, extent: int, method: int, padding: int, aligned: bool
) -> list[Tap]:
    """What samples read along an axis of the input: 1, 2 or 4 elements."""
    scale = (extent - 1) / 2 if aligned else extent / 2
    shifted = call("add", points, like(1, points))
    place = call("multiply", shifted, like(scale, points))
    place = place if aligned else call("subtract", place, like(0.5, points))
    slope: RelayExpr = like(scale, points)
    if method != 2:
        place, turn = _padded(place, extent, padding, aligned)
        slope = call("multiply", turn, slope)
    if method == 1:
        return [_tap(call("round", place), extent, like(1, place), like(0, place))]
    floor = call("floor", place)
    part = call("subtract", place, floor)
    if method == 0:
        rest = call("subtract", like(1, part), part)
        return [
            _tap(floor, extent, rest, call("negative", slope)),
            _tap(call("add", floor, like(1, floor)), extent, part, slope),
        ]
    found = []
    for offset in (-1, 0, 1, 2):
        weight, rise = _cubic(call("subtract", part, like(offset, part)), offset in (0, 1))
        own, _ = _padded(call("add", floor, like(offset, floor)), extent, padding, aligned)
        found.append(_tap(own, extent, weight, call("multiply", rise, slope)))
    return found


def _tap(place: RelayExpr, extent: int, weight: RelayExpr, rise: RelayExpr) -> Tap:
    inside = call("logical_and", call("greater_equal", place, like(0, place)),
                  call("less_equal", place, like(extent - 1, place)))
    held = call("clip", place, 0.0, float(extent - 1))
    shape = shape_of(place)
    return cast(held, "int64"), inside, expand(weight, shape), expand(rise, shape)


def _padded(
    place: RelayExpr, extent: int, padding: int, aligned: bool
) -> tuple[RelayExpr, RelayExpr]:
    """Where a coordinate is read, and how that moves with it: 1, -1 if it is mirrored, or 0."""
    one, zero = like(1, place), like(0, place)
    if padding == 0:
        return place, one
    turn: RelayExpr = one
    if padding == 2:
        low, span = (0.0, extent - 1.0) if aligned else (-0.5, float(extent))
        if span == 0:
            return call("multiply", place, zero), zero
        start = call("subtract", place, like(low, place))
        far = call("abs", start)
        flips = call("floor", call("divide", far, like(span, far)))
        rest = call("subtract", far, call("multiply", flips, like(span, far)))
        even = call("equal", call("floor_mod", flips, like(2, flips)), zero)
        mirrored = call("where", even, rest, call("subtract", like(span, rest), rest))
        place = call("add", mirrored, like(low, place))
        turn = call("where", even, one, like(-1, one))
        turn = call("where", call("less", start, zero), call("negative", turn), turn)
    held = call("clip", place, 0.0, float(extent - 1))
    inside = call("logical_and", call("greater", place, zero),
                  call("less", place, like(extent - 1, place)))
    return held, call("where", inside, turn, zero)


def _cubic(distance: RelayExpr, near: bool) -> tuple[RelayExpr, RelayExpr]:
    """The weight of an element at a distance, and its derivative, by cubic convolution."""
    a = _CUBIC
    factors = (a + 2, -(a + 3), 0, 1) if near else (a, -5 * a, 8 * a, -4 * a)
    size = call("abs", distance)
    weight: RelayExpr = like(factors[0], size)
    for factor in factors[1:]:
        weight = call("add", call("multiply", weight, size), like(factor, size))
    rise: RelayExpr = like(3 * factors[0], size)
    for factor in (2 * factors[1], factors[2]):
        rise = call("add", call("multiply", rise, size), like(factor, size))
    return weight, call("multiply", rise, call("sign", distance))
