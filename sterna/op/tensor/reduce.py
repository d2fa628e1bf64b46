"""Reductions over axes: sum, mean, prod, max, min, all, any, variance, argmax, argmin."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import axis_of, expect_dim, not_empty, of_kind, tensor
from sterna.op.indexing import dims_of, divisor
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import RelayExpr
from sterna.relay.layout_rules import reduced
from sterna.relay.op import COMM_REDUCE, Case, OpRecord, call, register
from sterna.relay.quantized import int_range
from sterna.schedule.products import narrowed, wide, widened
from sterna.support.dtype import DataType
from sterna.te import Tensor, comm_reducer, compute, isnan, reduce_axis, select
from sterna.te import max as te_max
from sterna.te import min as te_min
from sterna.te import prod as te_prod
from sterna.te import sum as te_sum

Axes = tuple[int, ...] | int | None


@attributes
class ReduceAttrs(Attrs):
    """Of reductions."""

    axis: Axes = None
    keepdims: bool = False
    exclude: bool = False


@attributes
class VarianceAttrs(ReduceAttrs):
    """Of variance."""

    unbiased: bool = False


@attributes
class ArgReduceAttrs(ReduceAttrs):
    """Of argmax and argmin."""

    select_last_index: bool = False
    dtype: DataType = DataType("int32")


def reduced_axes(attrs: ReduceAttrs, ndim: int) -> list[int]:
    """The axes that are reduced, counted from the front; all of them if none is named."""
    given = attrs.axis
    if given is None:
        return [] if attrs.exclude else list(range(ndim))
    named = [axis_of(a, ndim) for a in (given if isinstance(given, tuple) else (given,))]
    if len(set(named)) != len(named):
        raise ValueError(f"axis {given} names a dimension twice")
    if attrs.exclude:
        return [place for place in range(ndim) if place not in named]
    return sorted(named)


def reduced_shape(attrs: ReduceAttrs, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The shape that is left."""
    axes = reduced_axes(attrs, len(shape))
    if attrs.keepdims:
        return tuple(1 if place in axes else dim for place, dim in enumerate(shape))
    return tuple(dim for place, dim in enumerate(shape) if place not in axes)


def _infer(*kinds: str) -> Callable[[ReduceAttrs, Type], TensorType]:
    def infer(attrs: ReduceAttrs, data: Type) -> TensorType:
        kind = of_kind(tensor(data, "data"), "data", *kinds)
        shape = reduced_shape(attrs, kind.shape)
        if not isinstance(attrs, ArgReduceAttrs):
            return TensorType(shape, kind.dtype)
        axes = reduced_axes(attrs, kind.ndim)
        not_empty(kind, "data", axes, "one of its elements is looked for")
        return TensorType(shape, attrs.dtype)

    return infer


Element = Callable[..., Expr]
Reduction = Callable[..., Expr]


def reduce_tensor(
    attrs: ReduceAttrs, out: TensorType, data: Tensor, reduction: Reduction,
    element: Element, name: str,
) -> Tensor:
    """A stage that reduces element(indices of data) over the attributes' axes."""
    axes = reduced_axes(attrs, data.ndim)
    if not axes:
        plain: Tensor = compute(out.shape, lambda *i: element(*i), name=name)
        return plain
    ranges = {place: reduce_axis((0, data.shape[place]), f"k{place}") for place in axes}

    def total(*indices: Expr) -> Any:
        rest = iter(indices)
        place_of: list[Any] = []
        for place in range(data.ndim):
            if place in ranges:
                place_of.append(ranges[place].var)
                if attrs.keepdims:
                    next(rest)
            else:
                place_of.append(next(rest))
        return reduction(element(*place_of), list(ranges.values()))

    made: Tensor = compute(out.shape, total, name=name)
    return made


def _count(attrs: ReduceAttrs, data: Tensor) -> Any:
    """How many elements are reduced into one."""
    extents = [data.shape[place] for place in reduced_axes(attrs, data.ndim)]
    product: Any = 1
    for extent in extents:
        product = product * extent
    return product


def _compute(name: str, reduction: Element) -> Callable[..., Tensor]:
    def build_it(attrs: ReduceAttrs, out: TensorType, data: Tensor) -> Tensor:
        kind = wide(out.dtype) if name in ("sum", "prod") else out.dtype
        made = reduce_tensor(
            attrs, out, data, reduction, lambda *i: data(*i).astype(kind), f"T_{name}"
        )
        return narrowed(made, out.dtype, f"T_{name}_cast")

    return build_it


def _compute_mean(attrs: ReduceAttrs, out: TensorType, data: Tensor) -> Tensor:
    kind = wide(out.dtype)
    total = reduce_tensor(
        attrs, out, data, te_sum, lambda *i: data(*i).astype(kind), "T_mean_sum"
    )
    count = _count(attrs, data)

    def divided(*i: Expr) -> Any:
        if kind.is_float:
            return (total(*i) / build.cast(kind, build.as_expr(count))).astype(out.dtype)
        return build.truncdiv(total(*i), build.cast(kind, build.as_expr(divisor(count))))

    made: Tensor = compute(out.shape, divided, name="T_mean")
    return made


def _axes_of(attrs: ReduceAttrs, array: Array) -> tuple[int, ...]:
    return tuple(reduced_axes(attrs, array.ndim))


def _reference(function: Callable[..., Array]) -> Callable[..., Array]:
    def reference(attrs: ReduceAttrs, data: Array) -> Array:
        axes = _axes_of(attrs, data)
        if not axes:
            return data
        values = widened(data, str(data.dtype))
        made = function(values, axis=axes, keepdims=attrs.keepdims)
        return np.asarray(made).astype(data.dtype)

    return reference


def _reference_mean(attrs: ReduceAttrs, data: Array) -> Array:
    axes = _axes_of(attrs, data)
    count = math.prod(data.shape[place] for place in axes)
    total = widened(data, str(data.dtype)).sum(axis=axes, keepdims=attrs.keepdims)
    if np.issubdtype(data.dtype, np.integer):
        return np.asarray(np.fix(total / max(count, 1))).astype(data.dtype)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(total / np.asarray(count, total.dtype)).astype(data.dtype)


def _cases(*more: Case) -> list[Case]:
    return [
        Case(((3, 4, 5),), {"axis": 1}),
        Case(((2, 3, 4),), {"axis": (0, -1), "keepdims": True}),
        Case(((2, 35),), {"axis": -1}),
        Case(((2, 3, 64),), {"axis": 0, "exclude": True}),
        Case(((4, 3),)),
        Case(((),)),
        *more,
    ]


def _register(
    name: str, infer: Callable[..., TensorType], compute_it: Callable[..., Tensor],
    reference: Callable[..., Array], doc: str, cases: list[Case],
    attrs: type[Attrs] = ReduceAttrs, **more: Any,
) -> None:
    register(OpRecord(
        name, inputs=("data",), attrs=attrs, infer=infer, compute=compute_it, reference=reference,
        pattern=COMM_REDUCE, layout=reduced, cases=cases, doc=doc, **more,
    ))


_NUMBERS = ("float", "int", "uint")
_INTEGERS = Case((((3, 4), "int32"),), {"axis": 0})
_NANS = Case((np.array([[1, np.nan, 3, 2], [np.nan, 2, 1, 0], [1, 2, 3, np.nan]], "float32"),),
             {"axis": 1})
_EMPTY = Case((((0, 3), "float32"),), {"axis": 0})


def _keep_nan(pick: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    """The larger or the smaller, or whichever is no number."""

    def combine(a: Expr, b: Expr) -> Expr:
        return select(isnan(a), a, pick(a, b)) if a.dtype.is_float else pick(a, b)

    return combine


def _start(dtype: DataType, lowest: bool) -> float:
    """What nothing is smaller, or larger, than: the extreme of no elements."""
    if dtype.is_float:
        return -math.inf if lowest else math.inf
    low, high = int_range(dtype)
    return low if lowest else high


def _as_pool(attrs: ReduceAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    """The mean over an image is a pool, which convolutions around it know."""
    kind = args[0].checked_type
    if not isinstance(kind, TensorType) or kind.ndim != 4 or not kind.dtype.is_float:
        return None
    axes = tuple(reduced_axes(attrs, kind.ndim))
    layouts: dict[tuple[int, ...], str] = {(2, 3): "NCHW", (1, 2): "NHWC"}
    layout = layouts.get(axes)
    if layout is None or 0 in kind.shape:
        return None
    pooled = call("nn.global_avg_pool2d", args[0], layout=layout)
    return pooled if attrs.keepdims else call("squeeze", pooled, axis=axes)


def _extreme(name: str, pick: Callable[[Expr, Expr], Expr], lowest: bool) -> Any:
    def identity(dtype: DataType) -> Expr:
        return build.const(_start(dtype, lowest), dtype)

    return comm_reducer(_keep_nan(pick), identity, name=name)


def _reference_extreme(function: Callable[..., Array], lowest: bool) -> Callable[..., Array]:
    def from_start(values: Array, **how: Any) -> Array:
        start = _start(DataType(str(values.dtype)), lowest)
        return np.asarray(function(values, initial=start, **how))

    return _reference(from_start)


_register("sum", _infer(*_NUMBERS), _compute("sum", te_sum), _reference(np.sum),
          "The sum over axes.", _cases(_INTEGERS, _EMPTY), mixed_precision="never")
_register("prod", _infer(*_NUMBERS), _compute("prod", te_prod), _reference(np.prod),
          "The product over axes.", _cases(_INTEGERS, _EMPTY), mixed_precision="never")
_register("max", _infer(*_NUMBERS), _compute("max", _extreme("max", te_max, True)),
          _reference_extreme(np.max, True), "The largest element over axes.",
          _cases(_INTEGERS, _NANS, _EMPTY))
_register("min", _infer(*_NUMBERS), _compute("min", _extreme("min", te_min, False)),
          _reference_extreme(np.min, False), "The smallest element over axes.",
          _cases(_INTEGERS, _NANS, _EMPTY))
_register("mean", _infer(*_NUMBERS), _compute_mean, _reference_mean, "The mean over axes.",
          _cases(_INTEGERS), mixed_precision="never", canonicalize=_as_pool)

_all_of = comm_reducer(lambda a, b: a & b, lambda t: build.const(True, t), name="all")
_any_of = comm_reducer(lambda a, b: a | b, lambda t: build.const(False, t), name="any")
_FLAGS = [
    Case((((3, 4), "bool"),), {"axis": 1}),
    Case((((2, 2, 2), "bool"),), {"axis": (0, 2), "keepdims": True}),
    Case((((5,), "bool"),)),
]
_register("all", _infer("bool"), _compute("all", _all_of), _reference(np.all),
          "Whether all elements over axes hold.", _FLAGS)
_register("any", _infer("bool"), _compute("any", _any_of), _reference(np.any),
          "Whether an element over axes holds.", _FLAGS)


def _compute_variance(attrs: VarianceAttrs, out: TensorType, data: Tensor, mean: Tensor) -> Tensor:
    kind = wide(out.dtype)
    axes = reduced_axes(attrs, data.ndim)

    def centre(i: tuple[Expr, ...]) -> Any:
        return mean(*[build.const(0) if place in axes else at for place, at in enumerate(i)])

    def square(*i: Expr) -> Any:
        deviation = data(*i).astype(kind) - centre(i).astype(kind)
        return deviation * deviation

    total = reduce_tensor(attrs, out, data, te_sum, square, "T_variance_sum")
    count = build.as_expr(_count(attrs, data) - (1 if attrs.unbiased else 0))
    made: Tensor = compute(
        out.shape, lambda *i: (total(*i) / build.cast(kind, count)).astype(out.dtype),
        name="T_variance",
    )
    return made


def _infer_variance(attrs: VarianceAttrs, data: Type, mean: Type) -> TensorType:
    kind = of_kind(tensor(data, "data"), "data", "float")
    centre = tensor(mean, "mean", kind.ndim)
    axes = reduced_axes(attrs, kind.ndim)
    for place, (have, want) in enumerate(zip(centre.shape, kind.shape, strict=True)):
        expect_dim(have, 1 if place in axes else want, f"dimension {place} of mean")
    return TensorType(reduced_shape(attrs, kind.shape), kind.dtype)


def _reference_variance(attrs: VarianceAttrs, data: Array, mean: Array) -> Array:
    axes = _axes_of(attrs, data)
    values = widened(data, str(data.dtype))
    deviation = values - mean.astype(values.dtype)
    total = np.sum(deviation * deviation, axis=axes, keepdims=attrs.keepdims)
    count = math.prod(data.shape[place] for place in axes) - (1 if attrs.unbiased else 0)
    return np.asarray(total / np.asarray(count, total.dtype)).astype(data.dtype)


def variance(
    data: RelayExpr, axis: int | Sequence[int] | None = None, keepdims: bool = False,
    exclude: bool = False, unbiased: bool = False, with_mean: RelayExpr | None = None,
) -> RelayExpr:
    """The variance over axes: the mean of the squared distances from the mean."""
    mean = with_mean
    if mean is None:
        mean = call("mean", data, axis=axis, keepdims=True, exclude=exclude)
    return call(
        "variance", data, mean, axis=axis, keepdims=keepdims, exclude=exclude, unbiased=unbiased
    )


register(OpRecord(
    "variance",
    inputs=("data", "mean"),
    attrs=VarianceAttrs,
    infer=_infer_variance,
    compute=_compute_variance,
    reference=_reference_variance,
    pattern=COMM_REDUCE,
    builder=variance,
    mixed_precision="never",
    cases=[
        Case(((3, 4), (3, 1)), {"axis": 1}),
        Case(((3, 4), (1, 1)), {"keepdims": True, "unbiased": True}),
    ],
    doc=variance.__doc__ or "",
))


def _compute_arg(largest: bool) -> Callable[..., Tensor]:
    """The extreme of each row first, then the first or the last place that has it.

    Two reductions of numbers are vectors; one of pairs is not.
    """
    name = "T_argmax" if largest else "T_argmin"
    extreme_of = _extreme(name, te_max if largest else te_min, largest)

    def build_it(attrs: ArgReduceAttrs, out: TensorType, data: Tensor) -> Tensor:
        axes = reduced_axes(attrs, data.ndim)
        if not axes:  # each element stands alone
            zero: Tensor = compute(out.shape, lambda *_: build.const(0, out.dtype), name=name)
            return zero
        kept = attrs.replace(keepdims=True)
        compared = DataType("uint8") if data.dtype.is_bool else data.dtype

        def value_of(*indices: Any) -> Any:
            return data(*indices).astype(compared)

        rows = TensorType(reduced_shape(kept, tuple(dims_of(data))), compared)
        extreme = reduce_tensor(kept, rows, data, extreme_of, value_of, f"{name}_value")
        count = build.int_value(_count(attrs, data))
        kind = DataType("int32") if count is not None and count < 1 << 31 else out.dtype
        last = attrs.select_last_index
        far = build.const(-1 if last else (1 << kind.bits - 1) - 1, kind)

        def place_of(*indices: Any) -> Any:
            place: Any = build.const(0, kind)
            for axis in axes:
                step = build.cast(kind, build.as_expr(data.shape[axis]))
                place = place * step + build.cast(kind, indices[axis])
            value = value_of(*indices)
            row = [build.const(0) if i in axes else index for i, index in enumerate(indices)]
            found = build.equal(value, extreme(*row))
            if data.dtype.is_float:  # one that is no number is the extreme, and equals nothing
                found = build.logical_or(found, isnan(value))
            return select(found, place, far)

        places = reduce_tensor(
            attrs, out, data, te_max if last else te_min, place_of, f"{name}_place"
        )
        made: Tensor = compute(
            out.shape, lambda *i: build.cast(out.dtype, places(*i)), name=name
        )
        return made

    return build_it


def _reference_arg(largest: bool) -> Callable[..., Array]:
    def reference(attrs: ArgReduceAttrs, data: Array) -> Array:
        axes = _axes_of(attrs, data)
        kept = [place for place in range(data.ndim) if place not in axes]
        rows = data.transpose(*kept, *axes).reshape([data.shape[p] for p in kept] + [-1])
        find = np.argmax if largest else np.argmin
        if attrs.select_last_index:
            place = rows.shape[-1] - 1 - find(rows[..., ::-1], axis=-1)
        else:
            place = find(rows, axis=-1)
        shape = [1 if p in axes else data.shape[p] for p in range(data.ndim)]
        made = np.asarray(place).astype(str(attrs.dtype))
        return made.reshape(shape) if attrs.keepdims else made

    return reference


for _name, _largest in (("argmax", True), ("argmin", False)):
    _register(
        _name,
        _infer(*_NUMBERS, "bool"),
        _compute_arg(_largest),
        _reference_arg(_largest),
        f"The place of the {'largest' if _largest else 'smallest'} element over axes.",
        [
            Case(((3, 4, 5),), {"axis": 1}),
            Case(((3, 4),), {"axis": (0, 1), "keepdims": True, "dtype": "int64"}),
            Case((((4, 6), "int8"),), {"axis": -1, "select_last_index": True}),
            Case((((4, 37), "bool"),), {"axis": -1}),
            Case(((),)),
            Case(((2, 3),), {"axis": (), "keepdims": True}),
            Case((np.array([[1, np.nan, 3], [2, 2, 1]], "float32"),), {"axis": 1}),
        ],
        ArgReduceAttrs,
        mixed_precision="never",
    )

