"""A given number of windows that share each axis evenly: adaptive and global pooling.

Window y of `count` over an axis of n elements reaches from y*n // count to (y + 1)*n / count,
rounded up.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sterna.ir.build import as_expr, const
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, Type, has_no_elements
from sterna.op.checks import not_empty, of_kind, tensor
from sterna.op.integer_rules import averaged, carried
from sterna.op.largest import largest, lowest
from sterna.op.nn.pool import divided, same_blocks, sum_type, to_power, to_root
from sterna.op.windows import SPATIAL, axis_names, positive, spatial_layout, whole_blocks
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.expr import const as scalar
from sterna.relay.layout import Layout, from_plain, to_plain
from sterna.relay.layout_rules import with_layout
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, call, register
from sterna.schedule.products import narrowed, wide, widened
from sterna.support.dtype import DataType
from sterna.te import IterVar, Tensor, compute, div, if_then_else, reduce_axis
from sterna.te import all as all_of
from sterna.te import sum as te_sum


@attributes
class GlobalAttrs(Attrs):
    """Of one window for the whole of each axis."""

    RANK: ClassVar[int] = 0

    layout: str = ""
    out_layout: str = ""


@attributes
class Global1DAttrs(GlobalAttrs):
    """Of one window along one axis."""

    RANK = 1
    layout: str = "NCW"


@attributes
class Global2DAttrs(GlobalAttrs):
    """Of one window along two axes."""

    RANK = 2
    layout: str = "NCHW"


@attributes
class Global3DAttrs(GlobalAttrs):
    """Of one window along three axes."""

    RANK = 3
    layout: str = "NCDHW"


@attributes
class GlobalLp1DAttrs(Global1DAttrs):
    """Of nn.global_lp_pool1d."""

    p: int = 2


@attributes
class GlobalLp2DAttrs(Global2DAttrs):
    """Of nn.global_lp_pool2d."""

    p: int = 2


@attributes
class GlobalLp3DAttrs(Global3DAttrs):
    """Of nn.global_lp_pool3d."""

    p: int = 2


@attributes
class AdaptiveAttrs(Attrs):
    """Of a number of windows; None for one per element, along all axes or along one."""

    RANK: ClassVar[int] = 0

    output_size: tuple[int | None, ...] | int | None = None
    layout: str = ""
    out_layout: str = ""


@attributes
class Adaptive1DAttrs(AdaptiveAttrs):
    """Of windows along one axis."""

    RANK = 1
    layout: str = "NCW"


@attributes
class Adaptive2DAttrs(AdaptiveAttrs):
    """Of windows along two axes."""

    RANK = 2
    layout: str = "NCHW"


@attributes
class Adaptive3DAttrs(AdaptiveAttrs):
    """Of windows along three axes."""

    RANK = 3
    layout: str = "NCDHW"


@dataclass(frozen=True, slots=True)
class _Windows:
    """Where the windows lie."""

    layout: Layout
    out: Layout
    spatial: str
    extents: tuple[Dim, ...]
    counts: tuple[Dim, ...]
    shape: tuple[Dim, ...]

    def span(self, i: int, place: Dim) -> tuple[Dim, Dim]:
        """Begin and length of a window along an axis."""
        extent, count = self.extents[i], self.counts[i]
        if type(count) is int and count == 1:
            return 0, extent
        if isinstance(extent, int) and isinstance(count, int) and extent % count == 0:
            return place * (extent // count), extent // count
        begin = place * extent // count
        return begin, ((place + 1) * extent + (count - 1)) // count - begin

    def longest(self, i: int) -> Dim:
        """The length of the longest window along an axis, or a bound on it."""
        extent, count = self.extents[i], self.counts[i]
        if isinstance(extent, int) and isinstance(count, int):
            lengths = [self.span(i, place)[1] for place in range(count)]
            return max(length for length in lengths if isinstance(length, int))
        return extent if type(count) is int and count == 1 else extent // count + 2


_PoolAttrs = GlobalAttrs | AdaptiveAttrs
_LpAttrs = GlobalLp1DAttrs | GlobalLp2DAttrs | GlobalLp3DAttrs


def _windows(attrs: _PoolAttrs, data: Type) -> _Windows:
    spatial = SPATIAL[attrs.RANK]
    layout = spatial_layout(attrs.layout, f"NC{spatial}", "layout")
    out = spatial_layout(attrs.out_layout or attrs.layout, f"NC{spatial}", "out_layout")
    dims = layout.dims(tensor(data, "data", len(layout)).shape)
    whole_blocks(out, dims["C"])
    extents = tuple(dims[axis] for axis in spatial)
    counts = _counts(attrs, extents)
    shape = out.shape({**dims, **dict(zip(spatial, counts, strict=True))})
    return _Windows(layout, out, spatial, extents, counts, shape)


def _counts(attrs: _PoolAttrs, extents: tuple[Dim, ...]) -> tuple[Dim, ...]:
    if isinstance(attrs, GlobalAttrs):
        return (1,) * len(extents)
    given = attrs.output_size
    if given is None or given == ():
        return extents
    counts = given if isinstance(given, tuple) else (given,)
    counts = counts * len(extents) if len(counts) == 1 else counts
    if len(counts) != len(extents):
        raise ValueError(f"output_size is a number or {len(extents)} of them, not {given}")
    positive([count for count in counts if count is not None], "output_size")
    return tuple(n if count is None else count for count, n in zip(counts, extents, strict=True))


def _infer(attrs: _PoolAttrs, data: Type) -> TensorType:
    kind = of_kind(tensor(data, "data"), "data", "float", "int", "uint")
    windows = _windows(attrs, kind)
    made = TensorType(windows.shape, kind.dtype)
    if not has_no_elements(made):
        read = [windows.layout.index_of(axis) for axis in windows.spatial]
        not_empty(kind, "data", read, "windows lie in it")
    return made


def _infer_lp(attrs: _LpAttrs, data: Type) -> TensorType:
    positive([attrs.p], "p")
    return _infer(attrs, of_kind(tensor(data, "data"), "data", "float"))


def _stage(
    windows: _Windows, data: Tensor, element: Callable[[Expr], Expr],
    reduction: Callable[[Expr, list[IterVar]], Expr], border: Expr, name: str,
) -> Tensor:
    """A reduction of element(read) over each window."""
    axes = [
        reduce_axis((0, windows.longest(i)), f"r{letter.lower()}")
        for i, letter in enumerate(windows.spatial)
    ]

    def total(*indices: Expr) -> Any:
        place = windows.out.coordinates(indices)
        inside = []
        for i, letter in enumerate(windows.spatial):
            begin, length = windows.span(i, place[letter])
            if isinstance(length, Expr) and length is not windows.extents[i]:
                inside.append(axes[i].var < length)
            place[letter] = begin + axes[i].var
        value = element(data(*same_blocks(windows.layout, windows.out, place, indices)))
        return reduction(if_then_else(all_of(*inside), value, border) if inside else value, axes)

    made: Tensor = compute(
        windows.shape, total, name=name, varargs_names=axis_names(windows.out)
    )
    return made


def _name(attrs: _PoolAttrs, kind: str) -> str:
    manner = "global" if isinstance(attrs, GlobalAttrs) else "adaptive"
    return f"T_{manner}_{kind}_pool{attrs.RANK}d"


def _compute_max(attrs: _PoolAttrs, out: TensorType, data: Tensor) -> Tensor:
    windows = _windows(attrs, TensorType(data.shape, data.dtype))
    border = lowest(data.dtype)
    return _stage(windows, data, lambda read: read, largest, border, _name(attrs, "max"))


def _compute_avg(attrs: _PoolAttrs, out: TensorType, data: Tensor) -> Tensor:
    windows = _windows(attrs, TensorType(data.shape, data.dtype))
    dtype, name = sum_type(data.dtype), _name(attrs, "avg")
    zero = const(0, dtype)
    total = _stage(windows, data, lambda read: read.astype(dtype), te_sum, zero, f"{name}_sum")

    def element(*indices: Expr) -> Any:
        place = windows.out.coordinates(indices)
        count: Any = 1
        for i, letter in enumerate(windows.spatial):
            count = count * windows.span(i, place[letter])[1]
        return div(total(*indices), as_expr(count).astype(dtype)).astype(out.dtype)

    made: Tensor = compute(out.shape, element, name=name, varargs_names=axis_names(windows.out))
    return made


def _compute_lp(attrs: _LpAttrs, out: TensorType, data: Tensor) -> Tensor:
    windows = _windows(attrs, TensorType(data.shape, data.dtype))
    dtype, name = wide(data.dtype), _name(attrs, "lp")
    total = _stage(
        windows, data, lambda read: to_power(read.astype(dtype), attrs.p), te_sum,
        const(0, dtype), f"{name}_sum",
    )
    root = compute(out.shape, lambda *i: to_root(total(*i), attrs.p), name=name)
    return narrowed(root, out.dtype, f"{name}_cast")


def _each_window(attrs: _PoolAttrs, data: Array, function: Callable[[Array], Array]) -> Array:
    """A function of the elements of every window, which are the last axis."""
    windows = _windows(attrs, TensorType(data.shape, DataType(str(data.dtype))))
    axes = f"NC{windows.spatial}"
    plain = to_plain(data, windows.layout, axes)
    counts = TensorType(windows.counts).concrete_shape
    made = np.empty((*plain.shape[:2], *counts), data.dtype)
    for place in np.ndindex(*counts):
        seen: list[Any] = []
        for i, y in enumerate(place):
            begin, length = windows.span(i, y)
            seen.append(slice(begin, begin + length))
        window = plain[(..., *seen)].reshape(*plain.shape[:2], -1)
        made[(..., *place)] = function(window).astype(data.dtype)
    return from_plain(made, axes, windows.out)


def _reference_max(attrs: _PoolAttrs, data: Array) -> Array:
    dtype = str(data.dtype)
    return _each_window(attrs, data, lambda x: np.max(widened(x, dtype), -1))


def _reference_avg(attrs: _PoolAttrs, data: Array) -> Array:
    dtype = sum_type(DataType(str(data.dtype)))

    def average(window: Array) -> Array:
        total = np.sum(window.astype(dtype), -1, dtype=dtype)
        return divided(total, np.asarray(window.shape[-1], dtype))

    return _each_window(attrs, data, average)


def _reference_lp(attrs: _LpAttrs, data: Array) -> Array:
    def norm(window: Array) -> Array:
        total = np.sum(np.abs(widened(window, str(data.dtype))) ** attrs.p, -1)
        return np.asarray(total ** (1.0 / attrs.p))

    return _each_window(attrs, data, norm)


def _average_of_row_sums(pool: Call, sums: RelayExpr) -> RelayExpr | None:
    """The average of the averages of rows, each of which has as many elements."""
    attrs: Any = pool.attrs
    kind = pool.args[0].checked_type
    assert isinstance(kind, TensorType)
    if {attrs.layout, attrs.out_layout or attrs.layout} != {"NHWC"}:
        return None
    if not kind.dtype.is_float or kind.dtype.bits > 32:
        return None
    width = kind.concrete_shape[2]
    total = call("nn.global_avg_pool2d", sums, layout="NHWC")
    average = call("multiply", total, scalar(1 / width))
    return average if kind.dtype == "float32" else call("cast", average, dtype=kind.dtype)


def _integer_rule(manner: str, kind: str, rank: int) -> Any:
    if kind == "max":
        return carried(f"nn.{manner}_max_pool{rank}d")
    return averaged if (manner, kind) == ("global", "avg") else None


def _of_row_sums(manner: str, kind: str, rank: int) -> Any:
    return _average_of_row_sums if (manner, kind, rank) == ("global", "avg", 2) else None


def _register(
    manner: str, kind: str, attrs: Sequence[type[Attrs]], computation: Any, cases: list[list[Case]]
) -> None:
    infer, compute_it, reference, what = computation
    for rank, kind_of_rank in enumerate(attrs, 1):
        windows = "the whole of every channel" if manner == "global" else "evenly spread windows"
        axes = "one axis" if rank == 1 else f"{rank} axes"
        register(OpRecord(
            f"nn.{manner}_{kind}_pool{rank}d",
            inputs=("data",),
            attrs=kind_of_rank,
            infer=infer,
            compute=compute_it,
            reference=reference,
            pattern=OUT_ELEMWISE_FUSABLE,
            layout=with_layout,
            integer=_integer_rule(manner, kind, rank),
            of_row_sums=_of_row_sums(manner, kind, rank),
            cases=cases[rank - 1],
            doc=f"{what} of {windows}, along {axes}.",
        ))


_GLOBAL = (Global1DAttrs, Global2DAttrs, Global3DAttrs)
_GLOBAL_LP = (GlobalLp1DAttrs, GlobalLp2DAttrs, GlobalLp3DAttrs)
_ADAPTIVE = (Adaptive1DAttrs, Adaptive2DAttrs, Adaptive3DAttrs)
_MAX = (_infer, _compute_max, _reference_max, "The largest element")
_AVG = (_infer, _compute_avg, _reference_avg, "The average")
_LP = (_infer_lp, _compute_lp, _reference_lp, "The p-th root of the sum of p-th powers")

_WHOLE = [
    [Case(((2, 3, 5),))],
    [Case(((1, 3, 4, 5),)), Case(((1, 4, 5, 3),), {"layout": "NHWC"}),
     Case(((1, 2, 4, 5, 4),), {"layout": "NCHW4c"})],
    [Case(((1, 2, 3, 4, 5),))],
]
_WHOLE_AVG = [
    _WHOLE[0],
    [*_WHOLE[1], Case((((1, 2, 5, 5), "int8"),)), Case((((1, 2, 8, 8), "float16"),), {}, 2e-3)],
    _WHOLE[2],
]
_POWERS = [
    [Case(((2, 3, 5),), {"p": 1})],
    [Case(((1, 3, 4, 5),)), Case(((1, 4, 5, 3),), {"layout": "NHWC", "p": 3})],
    [Case((((1, 2, 3, 4, 5), "float16"),), {}, 2e-3)],
]
_EVEN = [
    [Case(((2, 3, 10),), {"output_size": 4}), Case(((2, 3, 9),), {"output_size": (3,)})],
    [Case(((1, 3, 7, 9),), {"output_size": (3, 4)}),
     Case(((1, 7, 9, 3),), {"output_size": (None, 2), "layout": "NHWC"}),
     Case(((1, 2, 6, 6, 4),), {"output_size": 3, "layout": "NCHW4c", "out_layout": "NHWC"}),
     Case((((1, 2, 3, 3), "int8"),), {"output_size": 5})],
    [Case(((1, 2, 4, 5, 6),), {"output_size": (2, 3, 1)}), Case(((1, 2, 2, 3, 2),))],
]

_register("global", "max", _GLOBAL, _MAX, _WHOLE)
_register("global", "avg", _GLOBAL, _AVG, _WHOLE_AVG)
_register("global", "lp", _GLOBAL_LP, _LP, _POWERS)
_register("adaptive", "max", _ADAPTIVE, _MAX, _EVEN)
_register("adaptive", "avg", _ADAPTIVE, _AVG, _EVEN)
