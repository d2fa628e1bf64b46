"""Poolings, padding, resizing and sampling of images."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of, like, parts, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.limits import expect_moderate
from sterna.frontend.torch.convert_layers import LAYOUT, Numbers, per_axis
from sterna.frontend.torch.convert_shape import places_of, shape_of, squeeze, unsqueeze
from sterna.frontend.torch.extents import Extent, dims_of
from sterna.frontend.torch.promotion import in_float32, is_float
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr
from sterna.relay.symbols import simplified_dim
from sterna.support.errors import OpNotImplemented


def _batched(x: RelayExpr, rank: int) -> tuple[RelayExpr, bool]:
    """Data with a batch, and whether it had none."""
    alone = rank_of(x) == rank + 1
    return (unsqueeze(x, 0) if alone else x), alone


def _pooled(
    operator: str, x: RelayExpr, kernel_size: Numbers, stride: Numbers, padding: Numbers,
    rank: int, dilation: Numbers, ceil_mode: bool, **more: object,
) -> list[RelayExpr]:
    data, alone = _batched(x, rank)
    window = per_axis(kernel_size, rank)
    made = call(
        f"nn.{operator.format(rank)}", data, pool_size=window,
        strides=per_axis(stride, rank) if stride else window,
        padding=per_axis(padding, rank) * 2, dilation=per_axis(dilation, rank),
        layout=LAYOUT[rank], ceil_mode=ceil_mode, **more,
    )
    found = parts(made, 2) if operator.endswith("indices") else [made]
    return [squeeze(each, 0) if alone else each for each in found]


for _rank in (1, 2, 3):

    def _max_pool(
        x: RelayExpr, kernel_size: Numbers, stride: Numbers = (), padding: Numbers = 0,
        dilation: Numbers = 1, ceil_mode: bool = False, _rank: int = _rank,
    ) -> list[RelayExpr]:
        return _pooled(
            "max_pool{}d", x, kernel_size, stride, padding, _rank, dilation, ceil_mode
        )

    def _max_pool_indices(
        x: RelayExpr, kernel_size: Numbers, stride: Numbers = (), padding: Numbers = 0,
        dilation: Numbers = 1, ceil_mode: bool = False, _rank: int = _rank,
    ) -> list[RelayExpr]:
        made, places = _pooled(
            "max_pool{}d_with_indices", x, kernel_size, stride, padding, _rank, dilation,
            ceil_mode,
        )
        return [made, _within_channel(cast(places, "int64"), shape_of(x), _rank)]

    def _avg_pool(
        x: RelayExpr, kernel_size: Numbers, stride: Numbers = (), padding: Numbers = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None, _rank: int = _rank,
    ) -> list[RelayExpr]:
        data, alone = _batched(x, _rank)
        if divisor_override is not None and not is_float(x):
            data = cast(data, "float64")  # it holds every sum, which is what is divided
        window = per_axis(kernel_size, _rank)
        steps = per_axis(stride, _rank) if stride else window
        zeros = per_axis(padding, _rank)
        if divisor_override is not None or (count_include_pad and ceil_mode):
            # Padding that counts is data; what ceil_mode adds behind it does not count.
            data = _padded(data, zeros, window, steps, ceil_mode, divisor_override is not None)
            zeros, count_include_pad = (0,) * _rank, False
        made = _pooled(
            "avg_pool{}d", data, window, steps, zeros, _rank, 1, ceil_mode,
            count_include_pad=count_include_pad,
        )[0]
        if divisor_override is not None:
            made = _divided(made, math.prod(window), divisor_override, dtype_of(x))
        return [squeeze(made, 0) if alone else made]

    def _adaptive_average(
        x: RelayExpr, output_size: Numbers, _rank: int = _rank
    ) -> RelayExpr:
        data, alone = _batched(x, _rank)
        size = per_axis(output_size, _rank)
        made = call(f"nn.adaptive_avg_pool{_rank}d", data, output_size=size, layout=LAYOUT[_rank])
        return squeeze(made, 0) if alone else made

    aten(f"max_pool{_rank}d")(_max_pool)
    aten(f"max_pool{_rank}d_with_indices")(_max_pool_indices)
    aten(f"avg_pool{_rank}d")(_avg_pool)
    aten(f"adaptive_avg_pool{_rank}d", f"_adaptive_avg_pool{_rank}d")(_adaptive_average)


def _divided(means: RelayExpr, count: int, divisor: int, dtype: str) -> RelayExpr:
    """Sums of which the means are known, over another divisor; of integers without a fraction."""
    if dtype == dtype_of(means):
        return call("multiply", means, like(count / divisor, means))
    sums = cast(call("round", call("multiply", means, like(count, means))), dtype)
    return call("trunc_divide", sums, like(divisor, sums))


def _padded(
    data: RelayExpr, zeros: Sequence[int], window: Sequence[int], steps: Sequence[int],
    ceil_mode: bool, whole: bool,
) -> RelayExpr:
    """Data with its padding, and as much behind as makes every window whole if that is asked.

    A window that would begin in the padding behind is none: what it alone would read is left out.
    """
    width = [(0, 0), (0, 0)]
    for extent, pad, size, step in zip(shape_of(data)[2:], zeros, window, steps, strict=True):
        full = extent + 2 * pad
        count = -(-(full - size) // step) + 1 if ceil_mode else (full - size) // step + 1
        begins_behind = (count - 1) * step >= extent + pad
        if begins_behind:
            count -= 1
        missing = (count - 1) * step + size - full
        if not (begins_behind if missing < 0 else whole):
            missing = 0
        width.append((pad, pad + missing))
    return call("nn.pad", data, tuple(width), like(0, data))


for _rank in (1, 2, 3):

    def _adaptive_max(x: RelayExpr, output_size: Numbers, _rank: int = _rank) -> list[RelayExpr]:
        """The largest of each window, and their places."""
        data, alone = _batched(x, _rank)
        outs = [
            extent if out is None else out
            for extent, out in zip(shape_of(data)[2:], per_axis(output_size, _rank), strict=True)
        ]
        made = [call(
            f"nn.adaptive_max_pool{_rank}d", data, output_size=tuple(outs), layout=LAYOUT[_rank]
        )]
        pairs = list(zip(shape_of(data)[2:], outs, strict=True))
        if all(extent % out == 0 for extent, out in pairs):
            window = [extent // out for extent, out in pairs]
            _, places = _pooled(
                "max_pool{}d_with_indices", data, window, window, 0, _rank, 1, False
            )
            made.append(_within_channel(cast(places, "int64"), shape_of(data), _rank))
        else:
            made.append(_largest_places(data, pairs))
        return [squeeze(each, 0) if alone else each for each in made]

    aten(f"adaptive_max_pool{_rank}d")(_adaptive_max)


def _largest_places(data: RelayExpr, pairs: Sequence[tuple[int, int]]) -> RelayExpr:
    """The places of the largest elements in windows of several sizes.

    Windows are filled up to one size with their last element, which changes no maximum.
    """
    windows = []
    for extent, out in pairs:
        low = np.arange(out) * extent // out
        high = -(-(np.arange(out) + 1) * extent // out)
        widest = int((high - low).max(initial=1))
        windows.append(np.minimum(low[:, None] + np.arange(widest), high[:, None] - 1))
    places = np.zeros((1,) * 2 * len(pairs), np.int64)
    for axis, (window, (extent, _)) in enumerate(zip(windows, pairs, strict=True)):
        shape = [1] * 2 * len(pairs)
        shape[axis], shape[axis + len(pairs)] = window.shape
        places = places * extent + window.reshape(shape)
    outs = tuple(out for _, out in pairs)
    flat = places.reshape(*outs, -1)
    batch, channels = shape_of(data)[:2]
    rows = reshaped(data, (batch, channels, math.prod(extent for extent, _ in pairs)))
    expect_moderate(flat.size, "its windows")
    found = call("take", rows, constant(flat), axis=2)
    which = call("argmax", found, axis=-1, keepdims=True)
    lines = call("broadcast_to", constant(flat), shape_of(found))
    return squeeze(call("gather", lines, rank_of(lines) - 1, cast(which, "int64")), -1)


def _within_channel(places: RelayExpr, shape: Sequence[int], rank: int) -> RelayExpr:
    """Places counted within their own channel."""
    size = constant(math.prod(shape[-rank:]), "int64")
    return call("floor_mod", places, size)


@aten("max_unpool2d", "max_unpool3d")
def max_unpool(
    x: RelayExpr, indices: RelayExpr, output_size: Sequence[int], stride: Numbers = (),
    padding: Numbers = (),
) -> RelayExpr:
    outer = shape_of(x)[: rank_of(x) - len(output_size)]
    count, size = math.prod(outer), math.prod(output_size)
    values = reshaped(x, (count, -1))
    places = reshaped(indices, (count, -1))
    empty = call("zeros", (count, size), dtype_of(x))
    made = call("scatter_elements", empty, places, values, axis=1, strict=True)
    return reshaped(made, (*outer, *output_size))


# ---- padding ----


def _width(x: RelayExpr, pad: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Padding by axis; the list has the last axis first."""
    rank = rank_of(x)
    pairs = [(pad[at], pad[at + 1]) for at in range(0, len(pad), 2)]
    return ((0, 0),) * (rank - len(pairs)) + tuple(reversed(pairs))


@aten("constant_pad_nd")
def constant_pad(x: RelayExpr, pad: Sequence[int], value: float = 0) -> RelayExpr:
    return call("nn.pad", x, _width(x, pad), like(value, x)) if any(pad) else x


@aten("pad")
def pad_(
    x: RelayExpr, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> RelayExpr:
    if mode == "constant":
        return constant_pad(x, pad, value or 0)
    if mode == "circular":
        return circular_pad(x, pad)
    return _mirrored(x, pad, {"reflect": "reflect", "replicate": "edge"}[mode])


def _mirrored(x: RelayExpr, padding: Sequence[int], mode: str) -> RelayExpr:
    return call("nn.pad", x, _width(x, padding), pad_mode=mode)


@aten("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(x: RelayExpr, padding: Sequence[int]) -> RelayExpr:
    return _mirrored(x, padding, "reflect")


@aten("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(x: RelayExpr, padding: Sequence[int]) -> RelayExpr:
    return _mirrored(x, padding, "edge")


@aten("_pad_circular")
def circular_pad(x: RelayExpr, pad: Sequence[int]) -> RelayExpr:
    for axis, (before, behind) in enumerate(_width(x, pad)):
        whole = shape_of(x)[axis]
        if before or behind:
            places = places_of((-before, whole + before + behind, 1))
            places = call("floor_mod", places, constant(whole, "int64"))
            x = call("take", x, places, axis=axis)
    return x


# ---- resizing ----


# The parts of one that a factor of an open extent is counted in.
MOST_PARTS = 1 << 16


def _resized(
    x: RelayExpr, size: Sequence[Extent], method: str, mode: str, **more: object
) -> RelayExpr:
    rank = rank_of(x) - 2
    return call(
        f"image.resize{rank}d", x, tuple(size), layout=LAYOUT[rank], method=method,
        coordinate_transformation_mode=mode, **more,
    )


def _sizes(
    x: RelayExpr, size: Sequence[Extent] | None, scales: Sequence[float] | None
) -> list[Extent]:
    """The extents of a result, by themselves or by factors."""
    if size:
        return list(size)
    assert scales is not None
    return [_scaled(extent, scale) for extent, scale in zip(dims_of(x)[2:], scales, strict=True)]


def _scaled(extent: Extent, scale: float) -> Extent:
    """The whole part of an extent times a factor, which is that of integers where it is open."""
    if isinstance(extent, int):
        return int(extent * scale)
    above, below = scale.as_integer_ratio()
    if below > MOST_PARTS:
        raise OpNotImplemented(f"an open extent times {scale}, which is no fraction of few bits")
    return simplified_dim(extent * above // below)


def _factors(
    x: RelayExpr, given: Sequence[float | None], sizes: Sequence[Any]
) -> tuple[float, ...]:
    """Factors as the user said them, which decide about places; none if sizes do."""
    if not given or all(each is None for each in given):
        return ()
    if None not in given:
        return tuple(each for each in given if each is not None)
    pairs = zip(given, sizes, shape_of(x)[2:], strict=True)
    return tuple(size / extent if each is None else each for each, size, extent in pairs)


@aten("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def nearest(
    x: RelayExpr | None = None, output_size: Sequence[int] | None = None,
    scales: float | None = None, scales_d: float | None = None, scales_h: float | None = None,
    scales_w: float | None = None, scale_factors: Sequence[float] | None = None,
    input: RelayExpr | None = None,
) -> RelayExpr:
    given = _given(scale_factors, scales, scales_d, scales_h, scales_w)
    return _nearest(x if x is not None else input, output_size, scale_factors, given,
                    "asymmetric", "floor")


@aten("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d")
def nearest_exact(
    x: RelayExpr | None = None, output_size: Sequence[int] | None = None,
    scales: float | None = None, scales_d: float | None = None, scales_h: float | None = None,
    scales_w: float | None = None, scale_factors: Sequence[float] | None = None,
    input: RelayExpr | None = None,
) -> RelayExpr:
    given = _given(scale_factors, scales, scales_d, scales_h, scales_w)
    return _nearest(x if x is not None else input, output_size, scale_factors, given,
                    "half_pixel", "round_prefer_ceil")


def _nearest(
    data: RelayExpr | None, output_size: Sequence[int] | None, listed: Sequence[float] | None,
    given: Sequence[float | None], places: str, rounding: str,
) -> RelayExpr:
    assert data is not None
    sizes = _sizes(data, output_size, listed)
    factors = _factors(data, _by_axis(given, len(sizes)), sizes)
    return _resized(
        data, sizes, "nearest_neighbor", places, rounding_method=rounding, scales=factors
    )


def _given(listed: Sequence[float] | None, *single: float | None) -> list[float | None]:
    return list(listed) if listed else list(single)


def _by_axis(given: Sequence[float | None], count: int) -> list[float | None]:
    return list(given) if len(given) == count else list(given[-count:])


@aten("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
@in_float32
def linear(
    align_corners: bool, x: RelayExpr | None = None, output_size: Sequence[int] | None = None,
    scales: float | None = None, scales_d: float | None = None, scales_h: float | None = None,
    scales_w: float | None = None, scale_factors: Sequence[float] | None = None,
    input: RelayExpr | None = None,
) -> RelayExpr:
    data = x if x is not None else input
    assert data is not None
    sizes = _sizes(data, output_size, scale_factors)
    given = _given(scale_factors, scales, scales_d, scales_h, scales_w)
    if align_corners:
        return _resized(data, sizes, "linear", "align_corners")
    factors = _factors(data, _by_axis(given, len(sizes)), sizes)
    return _resized(data, sizes, "linear", "half_pixel", scales=factors)


@aten("upsample_bicubic2d")
@in_float32
def bicubic(
    align_corners: bool, x: RelayExpr | None = None, output_size: Sequence[int] | None = None,
    scales_h: float | None = None, scales_w: float | None = None,
    scale_factors: Sequence[float] | None = None, input: RelayExpr | None = None,
) -> RelayExpr:
    data = x if x is not None else input
    assert data is not None
    sizes = _sizes(data, output_size, scale_factors)
    if align_corners:
        return _resized(data, sizes, "cubic", "align_corners", cubic_alpha=-0.75)
    given = _given(scale_factors, scales_h, scales_w)
    factors = _factors(data, given, sizes)
    return _resized(data, sizes, "cubic", "half_pixel", cubic_alpha=-0.75, scales=factors)


for _kind, _method in (("bilinear", "linear"), ("bicubic", "cubic")):

    def _antialiased(
        align_corners: bool, x: RelayExpr | None = None, output_size: Sequence[int] | None = None,
        scales_h: float | None = None, scales_w: float | None = None,
        scale_factors: Sequence[float] | None = None, input: RelayExpr | None = None,
        _method: str = _method,
    ) -> RelayExpr:
        data = x if x is not None else input
        assert data is not None
        if align_corners:
            raise OpNotImplemented("antialiasing with align_corners")
        sizes = _sizes(data, output_size, scale_factors)
        factors = _factors(data, _given(scale_factors, scales_h, scales_w), sizes)
        return call(
            "image.smooth_resize", data, tuple(sizes), axes=(2, 3), method=_method,
            cubic_alpha=-0.5, exclude_outside=True, scales=factors,
        )

    aten(f"_upsample_{_kind}2d_aa")(_antialiased)


# ---- sampling ----


@aten("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
@in_float32
def grid_sampler(
    input: RelayExpr, grid: RelayExpr, interpolation_mode: int, padding_mode: int,
    align_corners: bool,
) -> RelayExpr:
    rank = rank_of(input) - 2
    axes = (0, rank + 1, *range(1, rank + 1))
    return call(
        "image.grid_sample", input, call("transpose", grid, axes),
        method=("bilinear", "nearest", "bicubic")[interpolation_mode], layout=LAYOUT[rank],
        padding_mode=("zeros", "border", "reflection")[padding_mode], align_corners=align_corners,
    )


@aten("affine_grid_generator")
@in_float32
def affine_grid_generator(
    theta: RelayExpr, size: Sequence[int], align_corners: bool
) -> RelayExpr:
    """Where the pixels of a picture lie in another one, of which an affine map is known."""
    batch, _, *extents = size
    rank = len(extents)
    expect_moderate(math.prod(size), "affine_grid_generator")
    lines = [np.linspace(-1, 1, n) if n > 1 else np.zeros(n) for n in extents]
    if not align_corners:
        lines = [line * ((n - 1) / n) for line, n in zip(lines, extents, strict=True)]
    grid = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*reversed(grid), np.ones_like(grid[0])], -1).reshape(1, -1, rank + 1)
    whole = constant(np.repeat(points, batch, 0), dtype_of(theta))
    return reshaped(call("nn.batch_matmul", whole, theta), (batch, *extents, rank))


@aten("im2col")
def im2col(
    x: RelayExpr, kernel_size: Numbers, dilation: Numbers, padding: Numbers, stride: Numbers
) -> RelayExpr:
    """Windows of an image as columns."""
    data, alone = _batched(x, 2)
    window, widths, steps, zeros = (
        per_axis(each, 2) for each in (kernel_size, dilation, stride, padding)
    )
    data = call("nn.pad", data, ((0, 0), (0, 0), (zeros[0],) * 2, (zeros[1],) * 2))
    batch, channels, *extents = shape_of(data)
    columns = 1
    for axis in range(2):
        count = (extents[axis] - widths[axis] * (window[axis] - 1) - 1) // steps[axis] + 1
        places = places_of((0, window[axis], widths[axis]), (0, count, steps[axis]))
        data = call("take", data, places, axis=2 + 2 * axis)
        columns *= count
    data = call("transpose", data, (0, 1, 2, 4, 3, 5))
    made = reshaped(data, (batch, channels * math.prod(window), columns))
    return squeeze(made, 0) if alone else made


@aten("col2im")
def col2im(
    x: RelayExpr, output_size: Sequence[int], kernel_size: Numbers, dilation: Numbers,
    padding: Numbers, stride: Numbers,
) -> RelayExpr:
    alone = rank_of(x) == 2
    made = call(
        "nn.col2im", unsqueeze(x, 0) if alone else x, image_shape=tuple(output_size),
        block_shape=per_axis(kernel_size, 2), strides=per_axis(stride, 2),
        padding=per_axis(padding, 2) * 2, dilation=per_axis(dilation, 2),
    )
    return squeeze(made, 0) if alone else made
