"""Pooling: the largest, the average or a norm of what each of the windows that move sees.

A window of ceil_mode may stick out behind the padding, but begins before it. The average divides
by the elements that it sees, with those of the padding if count_include_pad is set; what sticks
out behind the padding never counts.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.ir.build import as_expr, const, maximum, minimum, select
from sterna.ir.expr import Expr, ExprLike
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import map_dims, of_kind, tensor
from sterna.op.integer_rules import carried
from sterna.op.largest import largest, lowest
from sterna.op.nn._pool_axes import axis_by_axis
from sterna.op.nn._pool_quantize import pool_first, pool_sums_first
from sterna.op.windows import (
    SPATIAL,
    Padding,
    Windowed,
    axis_names,
    pad_array,
    padded,
    padded_by,
    positive,
    spatial_layout,
    whole_blocks,
    window_result,
)
from sterna.relay.arrays import Array
from sterna.relay.attributes import attributes
from sterna.relay.expr import RelayExpr
from sterna.relay.infer import infer
from sterna.relay.layout import Layout, from_plain, to_plain
from sterna.relay.layout_rules import with_layout
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Args, Case, OpRecord, call, register
from sterna.schedule.pool_windows import schedule_windows
from sterna.schedule.products import narrowed, wide, widened
from sterna.support.dtype import DataType
from sterna.te import IterVar, Tensor, abs, compute, div, power, reduce_axis, sqrt
from sterna.te import sum as te_sum


@attributes
class PoolAttrs(Windowed):
    """Of all moving windows."""

    pool_size: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    padding: Padding = 0
    layout: str = ""
    out_layout: str = ""
    ceil_mode: bool = False


@attributes
class Pool1DAttrs(PoolAttrs):
    """Of windows along one axis."""

    pool_size: tuple[int] = (1,)
    strides: tuple[int] = (1,)
    dilation: tuple[int] = (1,)
    padding: Padding = (0,)
    layout: str = "NCW"


@attributes
class Pool2DAttrs(PoolAttrs):
    """Of windows along two axes."""

    pool_size: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0)
    layout: str = "NCHW"


@attributes
class Pool3DAttrs(PoolAttrs):
    """Of windows along three axes."""

    pool_size: tuple[int, int, int] = (1, 1, 1)
    strides: tuple[int, int, int] = (1, 1, 1)
    dilation: tuple[int, int, int] = (1, 1, 1)
    padding: Padding = (0, 0, 0)
    layout: str = "NCDHW"


@attributes
class AvgPool1DAttrs(Pool1DAttrs):
    """Of nn.avg_pool1d."""

    count_include_pad: bool = False
    rounds: bool = False
    """Whether averages of whole numbers are rounded, halves away from zero, instead of cut off."""


@attributes
class AvgPool2DAttrs(Pool2DAttrs):
    """Of nn.avg_pool2d."""

    count_include_pad: bool = False
    rounds: bool = False
    """Whether averages of whole numbers are rounded, halves away from zero, instead of cut off."""


@attributes
class AvgPool3DAttrs(Pool3DAttrs):
    """Of nn.avg_pool3d."""

    count_include_pad: bool = False
    rounds: bool = False
    """Whether averages of whole numbers are rounded, halves away from zero, instead of cut off."""


@attributes
class LpPool1DAttrs(Pool1DAttrs):
    """Of nn.lp_pool1d."""

    p: int = 2


@attributes
class LpPool2DAttrs(Pool2DAttrs):
    """Of nn.lp_pool2d."""

    p: int = 2


@attributes
class LpPool3DAttrs(Pool3DAttrs):
    """Of nn.lp_pool3d."""

    p: int = 2


AvgAttrs = AvgPool1DAttrs | AvgPool2DAttrs | AvgPool3DAttrs
LpAttrs = LpPool1DAttrs | LpPool2DAttrs | LpPool3DAttrs


@dataclass(frozen=True, slots=True)
class Windows:
    """Where the windows of a pooling lie."""

    layout: Layout
    out: Layout
    spatial: str
    extents: tuple[Dim, ...]
    counts: tuple[Dim, ...]
    """How many windows there are along each axis."""
    shape: tuple[Dim, ...]

    @staticmethod
    def of(attrs: PoolAttrs, data: TensorType) -> "Windows":
        """The windows that attributes describe."""
        positive(attrs.pool_size, "pool_size")
        spatial = SPATIAL[len(attrs.pool_size)]
        layout = spatial_layout(attrs.layout, f"NC{spatial}", "layout")
        out = spatial_layout(attrs.out_layout or attrs.layout, f"NC{spatial}", "out_layout")
        dims = layout.dims(tensor(data, "data", len(layout)).shape)
        extents = tuple(dims[axis] for axis in spatial)
        counts = tuple(_count(attrs, i, extent) for i, extent in enumerate(extents))
        whole_blocks(out, dims["C"])
        shape = out.shape({**dims, **dict(zip(spatial, counts, strict=True))})
        return Windows(layout, out, spatial, extents, counts, shape)


def _count(attrs: PoolAttrs, i: int, extent: Dim) -> Dim:
    stride, window, before = attrs.strides[i], attrs.pool_size[i], attrs.before[i]
    both = before + attrs.after[i]
    if not attrs.ceil_mode:
        return window_result(extent, window, stride, both, attrs.dilation[i])
    ceiled = window_result(extent, window, stride, both + stride - 1, attrs.dilation[i])
    return map_dims(
        lambda count, n: minimum(count, (n + (before - 1)) // stride + 1), ceiled, extent
    )


def _reach(attrs: PoolAttrs, i: int) -> int:
    return int((attrs.pool_size[i] - 1) * attrs.dilation[i] + 1)


def _tail(attrs: PoolAttrs, windows: Windows, i: int) -> int:
    """How far data must be padded behind its end for the last window."""
    extent, count = windows.extents[i], windows.counts[i]
    after: int = attrs.after[i]
    if isinstance(extent, int) and isinstance(count, int):
        last = (count - 1) * attrs.strides[i] + _reach(attrs, i) - attrs.before[i]
        return int(max(0, last - extent))
    return after + (attrs.strides[i] - 1 if attrs.ceil_mode else 0)


def infer_pool(attrs: PoolAttrs, data: Type) -> TensorType:
    """One element for each window."""
    kind = of_kind(tensor(data, "data"), "data", "float", "int", "uint")
    return TensorType(Windows.of(attrs, kind).shape, kind.dtype)


# reduced(what is read, where, over which axes): the reduction of a window.
Reduced = Callable[[Expr, dict[str, Expr], list[IterVar]], Expr]


def window_stage(
    attrs: PoolAttrs, data: Tensor, value: ExprLike, reduced: Reduced, name: str
) -> Any:
    """A stage that reduces each window; reduced(read, indices in data, axes) gives its element."""
    windows = Windows.of(attrs, TensorType(data.shape, data.dtype))
    rank = range(len(windows.spatial))
    source = padded(
        data, windows.layout, windows.spatial, attrs.before,
        [_tail(attrs, windows, i) for i in rank], value,
    )
    axes = [
        reduce_axis((0, attrs.pool_size[i]), f"r{windows.spatial[i].lower()}") for i in rank
    ]

    def element(*indices: Expr) -> Any:
        place = windows.out.coordinates(indices)
        for i in rank:
            letter = windows.spatial[i]
            moved = place[letter] * attrs.strides[i] + axes[i].var * attrs.dilation[i]
            place[letter] = moved
        where = same_blocks(windows.layout, windows.out, place, indices)
        return reduced(source(*where), place, axes)

    return compute(windows.shape, element, name=name, varargs_names=axis_names(windows.out))


def same_blocks(
    layout: Layout, out: Layout, place: dict[str, Expr], indices: tuple[Expr, ...]
) -> list[Expr]:
    """Indices in a layout, in which channels keep the very indices of an equal layout."""
    made = list(layout.index(place))
    if layout == out:
        for i, part in enumerate(layout.parts):
            if part.axis == "C":
                made[i] = indices[i]
    return made


def _compute_max(attrs: PoolAttrs, out: TensorType, data: Tensor) -> Tensor:
    name = f"T_max_pool{len(attrs.pool_size)}d"
    made: Tensor = window_stage(
        attrs, data, lowest(data.dtype), lambda read, place, axes: largest(read, axes), name
    )
    return made


def sum_type(dtype: DataType) -> DataType:
    """The type in which elements are summed for an average."""
    if dtype.is_integer:
        return DataType("int32") if dtype.bits < 32 else DataType(f"{dtype.kind}64")
    return wide(dtype)


def _compute_avg(attrs: AvgAttrs, out: TensorType, data: Tensor) -> Tensor:
    name = f"T_avg_pool{len(attrs.pool_size)}d"
    windows = Windows.of(attrs, TensorType(data.shape, data.dtype))
    dtype = sum_type(data.dtype)
    total = window_stage(
        attrs, data, 0, lambda read, place, axes: te_sum(read.astype(dtype), axes), f"{name}_sum"
    )

    def element(*indices: Expr) -> Any:
        place = windows.out.coordinates(indices)
        seen: Any = 1
        for i, letter in enumerate(windows.spatial):
            seen = seen * _seen(attrs, windows, i, place[letter])
        count = as_expr(seen if isinstance(seen, int) else maximum(seen, 1)).astype(dtype)
        whole = total(*indices)
        if attrs.rounds and dtype.is_integer:
            half = div(count, const(2, dtype))
            whole = whole + (select(whole < 0, -half, half) if dtype.is_int else half)
        return div(whole, count).astype(out.dtype)

    made: Tensor = compute(out.shape, element, name=name, varargs_names=axis_names(windows.out))
    return made


def _seen(attrs: AvgAttrs, windows: Windows, i: int, place: Expr) -> Dim:
    """How many elements along an axis a window counts."""
    extent, window, dilation = windows.extents[i], attrs.pool_size[i], attrs.dilation[i]
    before, after = attrs.before[i], attrs.after[i]
    start = place * attrs.strides[i] - before
    end = extent + after if attrs.count_include_pad else extent
    first: Dim = 0
    if before and not attrs.count_include_pad:
        first = minimum(maximum((dilation - 1 - start) // dilation, 0), window)
    counted = after if attrs.count_include_pad else 0
    if _tail(attrs, windows, i) <= counted:
        return window - first
    last = minimum(maximum((end - start + (dilation - 1)) // dilation, 0), window)
    return maximum(last - first, 0)


def _compute_lp(attrs: LpAttrs, out: TensorType, data: Tensor) -> Tensor:
    name = f"T_lp_pool{len(attrs.pool_size)}d"
    dtype = wide(data.dtype)

    def powers(read: Expr, place: dict[str, Expr], axes: list[IterVar]) -> Expr:
        total: Expr = te_sum(to_power(read.astype(dtype), attrs.p), axes)
        return total

    total = window_stage(attrs, data, 0, powers, f"{name}_sum")
    root = compute(out.shape, lambda *i: to_root(total(*i), attrs.p), name=name)
    return narrowed(root, out.dtype, f"{name}_cast")


def to_power(x: Expr, p: int) -> Expr:
    """The absolute value to a power."""
    if p == 1:
        return abs(x)
    return x * x if p == 2 else power(abs(x), float(p))


def to_root(x: Expr, p: int) -> Expr:
    """The root that belongs to a power."""
    if p == 1:
        return x
    return sqrt(x) if p == 2 else power(x, 1.0 / p)


class Seen:
    """An array, and what its windows see at each place of theirs."""

    def __init__(self, attrs: PoolAttrs, data: Array) -> None:
        self.attrs = attrs
        self.windows = Windows.of(attrs, TensorType(data.shape, DataType(str(data.dtype))))
        self.axes = f"NC{self.windows.spatial}"
        self.plain = to_plain(data, self.windows.layout, self.axes)
        self.counts = TensorType(self.windows.counts).concrete_shape
        self.tails = [_tail(attrs, self.windows, i) for i in range(len(self.counts))]

    def places(self, padded_array: Array) -> Iterator[Array]:
        """For each place in the window, what all windows see there."""
        for place in np.ndindex(*self.attrs.pool_size):
            seen: list[Any] = []
            for i, count in enumerate(self.counts):
                first, stride = place[i] * self.attrs.dilation[i], self.attrs.strides[i]
                seen.append(slice(first, first + (count - 1) * stride + 1, stride))
            yield padded_array[(..., *seen)]

    def result(self, plain: Array, dtype: npt.DTypeLike) -> Array:
        """An array with one element for each window, in the layout of the result."""
        return from_plain(plain.astype(dtype), self.axes, self.windows.out)


def _reference_max(attrs: PoolAttrs, data: Array) -> Array:
    seen = Seen(attrs, data)
    dtype = wide(str(data.dtype))
    border = lowest(dtype).value  # type: ignore[attr-defined]
    x = pad_array(widened(seen.plain, dtype), attrs.before, seen.tails, border)
    return seen.result(reduce(np.maximum, seen.places(x)), data.dtype)


def _reference_avg(attrs: AvgAttrs, data: Array) -> Array:
    seen = Seen(attrs, data)
    x = pad_array(seen.plain.astype(sum_type(DataType(str(data.dtype)))), attrs.before, seen.tails)
    ones = np.ones(seen.plain.shape[2:], x.dtype)
    counted = pad_array(ones, attrs.before, attrs.after, int(attrs.count_include_pad))
    behind = [max(0, tail - after) for tail, after in zip(seen.tails, attrs.after, strict=True)]
    counted = pad_array(counted, [0] * ones.ndim, behind)
    zero = np.zeros((), x.dtype)
    total = sum(seen.places(x), zero)
    count = np.maximum(sum(seen.places(counted), zero), 1)
    if attrs.rounds and np.issubdtype(x.dtype, np.integer):
        total = total + np.where(total < 0, -(count // 2), count // 2)
    return seen.result(divided(total, count), data.dtype)


def divided(total: Array, count: Array) -> Array:
    """A quotient; of integers without its fraction."""
    if np.issubdtype(total.dtype, np.integer):
        whole: Array = np.abs(total) // count * np.sign(total)
        return whole
    quotient: Array = total / count
    return quotient


def _reference_lp(attrs: LpAttrs, data: Array) -> Array:
    seen = Seen(attrs, data)
    x = pad_array(widened(seen.plain, str(data.dtype)), attrs.before, seen.tails)
    total = sum(np.abs(part) ** attrs.p for part in seen.places(x))
    return seen.result(np.asarray(total) ** (1.0 / attrs.p), data.dtype)


def _infer_lp(attrs: LpAttrs, data: Type) -> TensorType:
    positive([attrs.p], "p")
    return infer_pool(attrs, of_kind(tensor(data, "data"), "data", "float"))


_HOLES = np.array([[[1, np.nan, 3, -np.inf, -np.inf, -np.inf, 2]]], "float32")

_LINE = {"pool_size": 3, "strides": 2}
_PLANE = {"pool_size": (3, 2), "strides": (2, 3), "padding": (1, 0, 2, 1)}

_CASES: dict[str, dict[int, list[Case]]] = {
    "max": {
        1: [Case(((2, 3, 9),), {**_LINE, "padding": 1}), Case((_HOLES,), {"pool_size": 2})],
        2: [
            Case(((1, 3, 8, 9),), _PLANE),
            Case(((1, 8, 9, 3),), {**_PLANE, "layout": "NHWC", "ceil_mode": True}),
            Case(((1, 2, 7, 7, 4),), {**_PLANE, "layout": "NCHW4c", "out_layout": "NHWC"}),
            Case((((1, 2, 8, 8), "int8"),), {"pool_size": 3, "dilation": 2, "padding": 1}),
            Case(((1, 3, 13, 11),), {"pool_size": (9, 5), "padding": (4, 2, 3, 2)}),
            Case((((1, 2, 8, 8), "float16"),), {"pool_size": 2, "strides": 2}),
        ],
        3: [Case(((1, 2, 4, 5, 6),), {"pool_size": 2, "strides": (1, 2, 2), "padding": (0, 1, 0)})],
    },
    "avg": {
        1: [
            Case(((2, 3, 9),), {**_LINE, "padding": 1}),
            Case(((2, 3, 8),), {**_LINE, "padding": 1, "ceil_mode": True, "dilation": 2}),
        ],
        2: [
            Case(((1, 3, 8, 9),), _PLANE),
            Case(((1, 3, 8, 9),), {**_PLANE, "count_include_pad": True}),
            Case((((1, 8, 9, 3), "int8"),), {**_PLANE, "layout": "NHWC", "rounds": True}),
            Case(((1, 8, 8, 4),), {
                **_PLANE, "layout": "NHWC", "ceil_mode": True, "count_include_pad": True,
            }),
            Case(((1, 2, 7, 7, 4),), {"pool_size": 3, "dilation": 2, "padding": 2,
                                      "layout": "NCHW4c"}),
            Case((((1, 2, 8, 8), "int8"),), {"pool_size": 3, "padding": 1}),
            Case((((1, 2, 8, 8), "float16"),), {"pool_size": 4}, 2e-3),
        ],
        3: [Case(((1, 4, 5, 6, 2),), {"pool_size": (2, 3, 2), "layout": "NDHWC", "padding": 1})],
    },
    "lp": {
        1: [Case(((2, 3, 9),), {**_LINE, "padding": 1, "p": 1})],
        2: [
            Case(((1, 3, 8, 9),), _PLANE),
            Case(((1, 8, 9, 3),), {**_PLANE, "layout": "NHWC", "ceil_mode": True, "p": 3}),
        ],
        3: [Case((((1, 2, 4, 5, 6), "float16"),), {"pool_size": 2}, 2e-3)],
    },
}

_DOCS = {
    "max": "The largest element that each window sees",
    "avg": "The average of the elements that each window sees",
    "lp": "The p-th root of the sum of p-th powers that each window sees",
}


def _take_border(
    neutral: float
) -> Callable[[PoolAttrs, Sequence[tuple[int, int]], float], PoolAttrs | None]:
    """A border of what the padding is; windows of ceil_mode end elsewhere without it."""

    def take(attrs: PoolAttrs, width: Sequence[tuple[int, int]], value: float) -> PoolAttrs | None:
        if attrs.ceil_mode or value != neutral:
            return None
        if not isinstance(attrs, AvgAttrs):
            return padded_by(attrs, attrs.layout, width)
        if any((*attrs.before, *attrs.after)) and not attrs.count_include_pad:
            return None  # one border counts and the other does not
        return padded_by(attrs.replace(count_include_pad=True), attrs.layout, width)

    return take


def _legalize(kind: str, attrs: Any, args: Args, target: Any) -> RelayExpr | None:
    """Axis by axis, unless sources for small machines are made: one loop without memory between.

    A window that is a whole image is a global pooling. Of sums that become bytes the largest come
    first; layers of small machines make bytes at once. Averages of float32 or float64, as others
    are rounded between the axes.
    """
    data = infer(args[0])
    if target is None or not target.kind.picks_instructions or not isinstance(data, TensorType):
        return None
    sums_first = pool_sums_first(attrs, args[0]) if kind == "max" else None
    if sums_first is not None:
        return sums_first
    if kind == "avg" and (not data.dtype.is_float or data.dtype.bits < 32):
        return None
    windows = Windows.of(attrs, data)
    whole = tuple(attrs.pool_size) == windows.extents and all(n == 1 for n in windows.counts)
    if whole and not any((*attrs.before, *attrs.after)) and attrs.out_layout in ("", attrs.layout):
        return call(f"nn.global_{kind}_pool{len(windows.counts)}d", args[0], layout=attrs.layout)
    return axis_by_axis(kind, attrs, args, windows.extents, windows.counts)


def _register(
    kind: str, attrs: Sequence[type[PoolAttrs]], compute_it: Callable[..., Tensor],
    reference: Callable[..., Array], infer: Callable[..., TensorType],
) -> None:
    for rank, attributes_of_rank in enumerate(attrs, 1):
        axes = "one axis" if rank == 1 else f"{rank} axes"
        register(OpRecord(
            f"nn.{kind}_pool{rank}d",
            inputs=("data",),
            attrs=attributes_of_rank,
            infer=infer,
            compute=compute_it,
            reference=reference,
            pattern=OUT_ELEMWISE_FUSABLE,
            layout=with_layout,
            schedules={"cpu": schedule_windows},
            legalize=partial(_legalize, kind) if kind in ("max", "avg") else None,
            rewrites=[pool_first] if kind == "max" else [],
            take_border=_take_border(-np.inf if kind == "max" else 0.0),
            integer=carried(f"nn.max_pool{rank}d") if kind == "max" else None,
            cases=_CASES[kind][rank],
            doc=f"{_DOCS[kind]}; windows move along {axes}.",
        ))


_register("max", (Pool1DAttrs, Pool2DAttrs, Pool3DAttrs), _compute_max, _reference_max, infer_pool)
_register(
    "avg", (AvgPool1DAttrs, AvgPool2DAttrs, AvgPool3DAttrs), _compute_avg, _reference_avg,
    infer_pool,
)
_register(
    "lp", (LpPool1DAttrs, LpPool2DAttrs, LpPool3DAttrs), _compute_lp, _reference_lp, _infer_lp
)
