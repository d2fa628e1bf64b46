"""Images of another size, and images read at places of a grid."""

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes

from sterna.frontend.calls import axes_below, call, cast, dtype_of, rank_of, reshape, size_of
from sterna.frontend.onnx.node import Node, converter
from sterna.frontend.onnx.windows import CHANNELS_LAST, LAYOUT
from sterna.frontend.open_shapes import UndecidedError
from sterna.ir.expr import Expr
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, same_dim
from sterna.relay.arrays import numpy_dtype
from sterna.relay.expr import RelayExpr
from sterna.relay.symbols import simplified_dim

_METHOD = {"nearest": "nearest_neighbor", "linear": "linear", "bilinear": "linear",
           "cubic": "cubic"}


@dataclass(slots=True)
class _Axis:
    """How one axis changes."""

    extent: Dim
    """Its elements in the result."""
    scale: float | None = None
    """Elements of the result per element, where that is not the ratio of both extents."""
    region: tuple[float, float] = (0.0, 1.0)
    """The part that is shown, in parts of the axis."""
    rounding: str = ""
    """How places between elements are rounded, where axes differ in that."""


@converter("Resize", since=10, until=10)
@converter("Upsample")
def upsample(node: Node) -> RelayExpr:
    """Each element of the result reads the place of its index over the scale.

    What lies between two elements is the nearest one before it, or behind it on axes that shrink.
    """
    scales = node.attr("scales") if node.opset < 9 else node.array(1, "scales").tolist()
    if scales is None:
        scales = [1.0, 1.0, node.attr("height_scale"), node.attr("width_scale")]
    changes = [_Axis(_scaled(node, e, s), s, rounding="ceil" if s < 1 else "")
               for e, s in zip(node.dims(), scales, strict=True)]
    attrs = {"method": _method(node), "coordinate_transformation_mode": "asymmetric"}
    return _resized(node, changes, attrs)


@converter("Resize", since=11)
def resize(node: Node) -> RelayExpr:
    method = _method(node)
    attrs = {
        "method": method,
        "coordinate_transformation_mode":
            node.attr("coordinate_transformation_mode", "half_pixel"),
        "cubic_alpha": node.attr("cubic_coeff_a", -0.75),
        "extrapolation_value": node.attr("extrapolation_value", 0.0),
    }
    exclude = bool(node.attr("exclude_outside", 0))
    if node.attr("antialias", 0) and method != "nearest_neighbor":
        attrs["exclude_outside"] = exclude
    else:
        attrs["cubic_exclude"] = exclude
        attrs["rounding_method"] = node.attr("nearest_mode", "round_prefer_floor")
    return _resized(node, _changes(node), attrs)


def _scaled(node: Node, extent: Dim, scale: float) -> Dim:
    """The extent of the result; an open one may be multiplied, or halved some times."""
    if not math.isfinite(scale) or scale < 0:
        raise ValueError(f"scales are positive numbers, and one of them is {scale}")
    if isinstance(extent, Expr) and not isinstance(extent, AnyDim):
        if float(scale).is_integer():
            return simplified_dim(extent * int(scale))
        if math.frexp(scale)[0] == 0.5 and scale < 1:
            return simplified_dim(extent // int(1 / scale))
    if type(extent) is not int:
        return extent if scale == 1 else math.floor(node.shape()[0] * scale)
    return math.floor(extent * scale)


def _method(node: Node) -> str:
    mode = node.attr("mode", "nearest")
    if mode not in _METHOD:
        raise ValueError(f"mode is nearest, linear or cubic, not {mode}")
    return _METHOD[mode]


def _changes(node: Node) -> list[_Axis]:
    """What scales, sizes and the region of interest say about all axes."""
    shape = node.dims()
    made = [_Axis(extent) for extent in shape]
    axes = axes_below(node.attr("axes"), len(shape))
    if node.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        region = [float(v) for v in node.array(1, "roi").reshape(-1)]
        if len(region) != 2 * len(axes):
            raise ValueError(f"roi has two numbers for each of {len(axes)} axes, not {region}")
        for place, axis in enumerate(axes):
            made[axis].region = region[place], region[len(axes) + place]
    if node.has(2) and node.shape(2) != (0,):
        for axis, scale in zip(axes, node.array(2, "scales").reshape(-1), strict=True):
            made[axis].scale = float(scale)
            made[axis].extent = _scaled(node, shape[axis], float(scale))
        return made
    wanted = dict(zip(axes, node.sizes(3, "sizes"), strict=True))
    sizes = {axis: size for axis, size in wanted.items()
             if type(shape[axis]) is int or not _is_kept(shape[axis], size)}
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if policy not in ("stretch", "not_larger", "not_smaller"):
        raise ValueError(
            f"keep_aspect_ratio_policy is stretch, not_larger or not_smaller, not {policy}"
        )
    if policy == "stretch":
        for axis, size in sizes.items():
            made[axis].extent = _open_number(node, size)
        return made
    if len(sizes) < len(wanted):
        node.shape()  # its other axes would keep the ratio as well
    extents = dict(zip(sizes, node.extents(sizes), strict=True))
    scales = [_number(node, size) / extents[axis] for axis, size in sizes.items()]
    for axis in sizes:
        scale = min(scales) if policy == "not_larger" else max(scales)
        made[axis].scale = scale
        made[axis].extent = math.floor(scale * extents[axis] + 0.5)
    return made


def _is_kept(extent: Dim, size: Dim) -> bool:
    """Whether an open extent is known to be a size."""
    return size is extent or (not isinstance(extent, AnyDim) and same_dim(extent, size))


def _open_number(node: Node, size: Dim) -> Dim:
    """A size of an axis that changes, of which something must be known."""
    return _number(node, size) if isinstance(size, AnyDim) else size


def _number(node: Node, size: Dim) -> int:
    """A size of an axis that changes, which must be known."""
    return size if isinstance(size, int) else node.shape()[0]


def _resized(node: Node, changes: list[_Axis], attrs: dict[str, Any]) -> RelayExpr:
    """Data with the axes resized that change; if not all at once, then one after the other."""
    data, shape = node[0], list(node.dims())
    rank = len(shape)
    whole = (0.0, 1.0)
    moved = [
        axis for axis, to in enumerate(changes)
        if not same_dim(to.extent, shape[axis]) or to.scale not in (None, 1.0) or to.region != whole
    ]
    if not moved:
        return data
    if "exclude_outside" in attrs:
        node.extents(moved)
    if any(isinstance(dim, AnyDim) for dim in shape[min(moved):]):
        node.shape()  # what is not known has no size
    own = dtype_of(data)
    rounds = attrs["method"] != "nearest_neighbor" and not own.startswith(("float", "bfloat"))
    exact = "float32" if own in ("bool", "int8", "uint8", "int16", "uint16") else "float64"
    made = cast(data, exact) if rounds else data
    if "exclude_outside" in attrs:
        made = call("image.smooth_resize", made, **_options(moved, shape, changes, attrs))
    else:
        differ = len({changes[axis].rounding for axis in moved}) > 1
        for axes in [[axis] for axis in moved] if differ else _together(moved, rank):
            made = _stretched(made, axes, shape, changes, attrs)
            for axis in axes:
                shape[axis] = changes[axis].extent
    return _rounded(made, own) if rounds else made


def _together(moved: list[int], rank: int) -> list[list[int]]:
    """Axes that are resized at once: neighbours, or all behind the first, or some of them."""
    between, behind = (list(range(moved[0], end)) for end in (moved[-1] + 1, rank))
    for axes in (between, behind):
        if len(axes) <= 3 and (axes is behind or axes == moved):
            return [axes]
    return [moved[i : i + 3] for i in range(0, len(moved), 3)]


def _options(
    axes: list[int], shape: list[Dim], changes: list[_Axis], attrs: dict[str, Any]
) -> dict[str, Any]:
    """What operators that resize ask about these axes."""
    made: dict[str, Any] = {"size": tuple(changes[axis].extent for axis in axes), **attrs}
    for rounding in filter(None, (changes[axis].rounding for axis in axes)):
        made["rounding_method"] = rounding
    if "exclude_outside" in attrs:
        made["axes"] = tuple(axes)
    if any(changes[axis].scale is not None for axis in axes):
        made["scales"] = tuple(
            changes[axis].scale or _ratio(changes[axis].extent, shape[axis]) for axis in axes)
    if attrs["coordinate_transformation_mode"] == "tf_crop_and_resize":
        made["roi"] = tuple(changes[axis].region[end] for end in (0, 1) for axis in axes)
    return made


def _ratio(result: Dim, extent: Dim) -> float:
    if same_dim(result, extent):
        return 1.0
    if not isinstance(result, int) or not isinstance(extent, int):
        raise UndecidedError("one axis is scaled by a number, another from one open extent to one")
    return result / extent


def _stretched(
    data: RelayExpr, axes: list[int], shape: list[Dim], changes: list[_Axis],
    attrs: dict[str, Any],
) -> RelayExpr:
    """Up to three axes resized as those of images; what lies behind neighbours are channels."""
    rank, count = len(shape), len(axes)
    if axes == list(range(axes[0], axes[-1] + 1)) and axes[-1] < rank - 1:
        outer, inner = shape[: axes[0]], shape[axes[-1] + 1 :]
        flat = reshape(data, (size_of(outer), *(shape[a] for a in axes), size_of(inner)))
        made = call(f"image.resize{count}d", flat, layout=CHANNELS_LAST[count],
                    **_options(axes, shape, changes, attrs))
        return reshape(made, (*outer, *(changes[a].extent for a in axes), *inner))
    rest = [axis for axis in range(rank) if axis not in axes]
    order = [*rest, *axes]
    in_place = order == list(range(rank))
    moved = data if in_place else call("transpose", data, tuple(order))
    others = [shape[a] for a in rest]
    flat = reshape(moved, (1, size_of(others), *(shape[a] for a in axes)))
    made = call(f"image.resize{count}d", flat, layout=LAYOUT[count],
                **_options(axes, shape, changes, attrs))
    sizes = (*others, *(changes[a].extent for a in axes))
    made = reshape(made, sizes)
    return made if in_place else call("transpose", made, tuple(order.index(a) for a in range(rank)))


def _rounded(data: RelayExpr, dtype: str) -> RelayExpr:
    """Whole numbers of a type, the nearest that it has."""
    if dtype == "bool":
        return cast(data, dtype)
    ends: Any = ml_dtypes.iinfo(numpy_dtype(dtype))  # type: ignore[no-untyped-call]
    nearest = call("clip", call("round_even", data), float(ends.min), float(ends.max))
    return cast(nearest, dtype)


@converter("GridSample")
def grid_sample(node: Node) -> RelayExpr:
    rank = rank_of(node[0]) - 2
    grid = call("transpose", node[1], (0, rank + 1, *range(1, rank + 1)))
    method = {"linear": "bilinear", "cubic": "bicubic"}.get(
        node.attr("mode", "bilinear"), node.attr("mode", "bilinear")
    )
    return call(
        "image.grid_sample", node[0], grid, method=method, layout=LAYOUT[rank],
        padding_mode=node.attr("padding_mode", "zeros"),
        align_corners=bool(node.attr("align_corners", 0)),
    )


@converter("AffineGrid")
def affine_grid(node: Node) -> RelayExpr:
    size = tuple(_number(node, extent) for extent in node.sizes(1, "size")[2:])
    corners = bool(node.attr("align_corners", 0))
    made = call("image.affine_grid", node[0], target_shape=size, align_corners=corners)
    rank = len(size)
    return call("transpose", made, (0, *range(2, rank + 2), 1))
