"""Reductions over axes, running ones, orders and extremes."""

import math
from collections.abc import Sequence

from sterna.frontend.calls import axes_below, call, cast, constant, dtype_of, like, parts, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.convert_compare import truth
from sterna.frontend.torch.convert_elementwise import power
from sterna.frontend.torch.convert_shape import axis_of, ravel, shape_of, squeeze
from sterna.frontend.torch.extents import as_tensor, dims_of
from sterna.frontend.torch.extents import total as total_of
from sterna.frontend.torch.promotion import as_float, in_float32, is_float, together
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr

Dims = int | Sequence[int] | None


def axes_of(x: RelayExpr, dim: Dims) -> tuple[int, ...]:
    """The axes that a reduction names; all if it names none."""
    named = [dim] if isinstance(dim, int) else dim
    if not named:
        return tuple(range(rank_of(x)))
    return tuple(axes_below(named, rank_of(x))) if rank_of(x) else ()


def reduced(operator: str, x: RelayExpr, dim: Dims, keepdim: bool) -> RelayExpr:
    """A reduction over axes; a tensor of one number is its own."""
    axes = axes_of(x, dim)
    return call(operator, x, axis=axes, keepdims=keepdim) if axes else x


def _summed_type(x: RelayExpr, dtype: str | None) -> RelayExpr:
    """Whole numbers are summed as those of 64 bits."""
    return cast(x, dtype or (dtype_of(x) if is_float(x) else "int64"))


@aten("sum")
def sum_(
    x: RelayExpr, dim: Dims = None, keepdim: bool = False, dtype: str | None = None
) -> RelayExpr:
    return reduced("sum", _summed_type(x, dtype), dim, keepdim)


@aten("nansum")
def nansum(
    x: RelayExpr, dim: Dims = None, keepdim: bool = False, dtype: str | None = None
) -> RelayExpr:
    known = call("where", call("isnan", x), like(0, x), x) if is_float(x) else x
    return sum_(known, dim, keepdim, dtype)


@aten("mean")
def mean(
    x: RelayExpr, dim: Dims = None, keepdim: bool = False, dtype: str | None = None
) -> RelayExpr:
    return reduced("mean", cast(x, dtype) if dtype else as_float(x), dim, keepdim)


@aten("nanmean")
def nanmean(
    x: RelayExpr, dim: Dims = None, keepdim: bool = False, dtype: str | None = None
) -> RelayExpr:
    x = cast(x, dtype) if dtype else x
    count = cast(call("logical_not", call("isnan", x)), dtype_of(x))
    return call("divide", nansum(x, dim, keepdim), reduced("sum", count, dim, keepdim))


@aten("prod")
def prod(
    x: RelayExpr, dim: Dims = None, keepdim: bool = False, dtype: str | None = None
) -> RelayExpr:
    if dtype == "bool":  # whether all hold
        return cast(prod(cast(x, "bool"), dim, keepdim, "uint8"), "bool")
    return reduced("prod", _summed_type(x, dtype), dim, keepdim)


@aten("amax")
def amax(x: RelayExpr, dim: Dims = None, keepdim: bool = False) -> RelayExpr:
    return _extreme("max", x, dim, keepdim)


@aten("amin")
def amin(x: RelayExpr, dim: Dims = None, keepdim: bool = False) -> RelayExpr:
    return _extreme("min", x, dim, keepdim)


def _extreme(operator: str, x: RelayExpr, dim: Dims, keepdim: bool) -> RelayExpr:
    """The largest or smallest; NaN where one is among the elements."""
    if dtype_of(x) == "bool":
        return reduced("any" if operator == "max" else "all", x, dim, keepdim)
    return reduced(operator, x, dim, keepdim)


@aten("max.default", "max.dim", "max")
def max_(x: RelayExpr, dim: int | None = None, keepdim: bool = False) -> list[RelayExpr]:
    if dim is None:
        return [amax(x)]
    return [amax(x, dim, keepdim), argmax(x, dim, keepdim)]


@aten("min.default", "min.dim", "min")
def min_(x: RelayExpr, dim: int | None = None, keepdim: bool = False) -> list[RelayExpr]:
    if dim is None:
        return [amin(x)]
    return [amin(x, dim, keepdim), argmin(x, dim, keepdim)]


@aten("aminmax")
def aminmax(x: RelayExpr, dim: int | None = None, keepdim: bool = False) -> list[RelayExpr]:
    return [amin(x, dim, keepdim), amax(x, dim, keepdim)]


@aten("argmax")
def argmax(x: RelayExpr, dim: int | None = None, keepdim: bool = False) -> RelayExpr:
    return _place_of("argmax", x, dim, keepdim)


@aten("argmin")
def argmin(x: RelayExpr, dim: int | None = None, keepdim: bool = False) -> RelayExpr:
    return _place_of("argmin", x, dim, keepdim)


def _place_of(operator: str, x: RelayExpr, dim: int | None, keepdim: bool) -> RelayExpr:
    rank = rank_of(x)
    if not rank:
        return constant(0, "int64")
    x = cast(x, "int8") if dtype_of(x) == "bool" else x
    if dim is None:
        made = call(operator, ravel(x), axis=0, dtype="int64")
        return reshaped(made, (1,) * rank) if keepdim else made
    return call(operator, x, axis=axis_of(dim, rank), keepdims=keepdim, dtype="int64")


@aten("all", "_is_all_true")
def all_(x: RelayExpr, dim: Dims = None, keepdim: bool = False) -> RelayExpr:
    return _of_truth("all", x, dim, keepdim)


@aten("any", "_is_any_true")
def any_(x: RelayExpr, dim: Dims = None, keepdim: bool = False) -> RelayExpr:
    return _of_truth("any", x, dim, keepdim)


def _of_truth(operator: str, x: RelayExpr, dim: Dims, keepdim: bool) -> RelayExpr:
    """A truth value; of uint8, from the time before there was bool, one of uint8."""
    made = reduced(operator, truth(x), dim, keepdim)
    return cast(made, "uint8") if dtype_of(x) == "uint8" else made


@aten("count_nonzero")
def count_nonzero(x: RelayExpr, dim: Dims = None) -> RelayExpr:
    return reduced("sum", cast(truth(x), "int64"), dim, False)


# ---- variance and norms ----


@aten("var", "var.correction")
@in_float32
def var(
    x: RelayExpr, dim: Dims = None, correction: float | None = 1, keepdim: bool = False,
    unbiased: bool = True,
) -> RelayExpr:
    return _variance(x, dim, _correction(correction, unbiased), keepdim)


def _correction(correction: float | None, unbiased: bool) -> float:
    return 1 if correction is None else correction if unbiased else 0


def _variance(x: RelayExpr, dim: Dims, correction: float, keepdim: bool) -> RelayExpr:
    axes = axes_of(x, dim)
    middle = call("mean", x, axis=axes, keepdims=True) if axes else x
    difference = call("subtract", x, middle)
    total = reduced("sum", call("multiply", difference, difference), axes, keepdim)
    count = total_of(dims_of(x)[axis] for axis in axes)
    if isinstance(count, int):
        return call("divide", total, like(max(count - correction, 0), total))
    degrees = call("subtract", cast(as_tensor(count), dtype_of(total)), like(correction, total))
    return call("divide", total, call("maximum", degrees, like(0, total)))


@aten("std")
@in_float32
def std(
    x: RelayExpr, dim: Dims = None, correction: float | None = 1, keepdim: bool = False,
    unbiased: bool = True,
) -> RelayExpr:
    return call("sqrt", _variance(x, dim, _correction(correction, unbiased), keepdim))


@aten("var_mean")
@in_float32
def var_mean(
    x: RelayExpr, dim: Dims = None, correction: float | None = 1, keepdim: bool = False,
    unbiased: bool = True,
) -> list[RelayExpr]:
    spread = _variance(x, dim, _correction(correction, unbiased), keepdim)
    return [spread, reduced("mean", x, dim, keepdim)]


@aten("std_mean")
@in_float32
def std_mean(
    x: RelayExpr, dim: Dims = None, correction: float | None = 1, keepdim: bool = False,
    unbiased: bool = True,
) -> list[RelayExpr]:
    spread, middle = var_mean(x, dim, correction, keepdim, unbiased)
    return [call("sqrt", spread), middle]


@aten("dist")
def dist(x: RelayExpr, other: RelayExpr, p: float = 2) -> RelayExpr:
    return vector_norm(call("subtract", *together(x, other)), p)


@aten("linalg_vector_norm")
@in_float32
def vector_norm(
    x: RelayExpr, ord: float = 2, dim: Dims = None, keepdim: bool = False,
    dtype: str | None = None,
) -> RelayExpr:
    x = cast(x, dtype) if dtype else as_float(x)
    size = call("abs", x)
    if ord == math.inf:
        return amax(size, dim, keepdim)
    if ord == -math.inf:
        return amin(size, dim, keepdim)
    if ord == 0:
        return cast(reduced("sum", cast(truth(x), dtype_of(x)), dim, keepdim), dtype_of(x))
    if ord == 1:
        return reduced("sum", size, dim, keepdim)
    if ord == 2:
        return call("sqrt", reduced("sum", call("multiply", x, x), dim, keepdim))
    return power(reduced("sum", power(size, float(ord)), dim, keepdim), 1.0 / ord)


@aten("norm", "frobenius_norm")
@in_float32
def norm(
    x: RelayExpr, p: float | None = 2, dim: Dims = None, keepdim: bool = False,
    dtype: str | None = None,
) -> RelayExpr:
    return vector_norm(x, 2 if p is None else p, dim, keepdim, dtype)


@aten("logsumexp", "special_logsumexp")
def logsumexp(x: RelayExpr, dim: Dims, keepdim: bool = False) -> RelayExpr:
    x = as_float(x)
    if not rank_of(x):
        return x
    axes = axes_of(x, dim)
    high = call("max", x, axis=axes, keepdims=True)
    safe = call("where", call("isfinite", high), high, like(0, high))
    total = call("sum", call("exp", call("subtract", x, safe)), axis=axes, keepdims=True)
    made = call("add", call("log", total), safe)
    return made if keepdim else squeeze(made, axes)


# ---- running reductions ----


def _running(operator: str, x: RelayExpr, dim: int, dtype: str | None) -> RelayExpr:
    x = _summed_type(x, dtype)
    return call(operator, x, axis=axis_of(dim, rank_of(x))) if rank_of(x) else x


@aten("cumsum")
def cumsum(x: RelayExpr, dim: int, dtype: str | None = None) -> RelayExpr:
    return _running("cumsum", x, dim, dtype)


@aten("cumprod")
def cumprod(x: RelayExpr, dim: int, dtype: str | None = None) -> RelayExpr:
    return _running("cumprod", x, dim, dtype)


# ---- order ----


@aten("sort")
def sort(
    x: RelayExpr, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> list[RelayExpr]:
    if not rank_of(x):
        return [x, constant(0, "int64")]
    at = axis_of(dim, rank_of(x))
    order = call("argsort", x, axis=at, is_ascend=not descending, dtype="int64")
    return [call("gather", x, at, order), order]


@aten("argsort")
def argsort(
    x: RelayExpr, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> RelayExpr:
    return sort(x, dim, descending)[1]


@aten("msort")
def msort(x: RelayExpr) -> RelayExpr:
    return sort(x, 0)[0]


@aten("topk")
def topk(
    x: RelayExpr, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[RelayExpr]:
    if not rank_of(x):
        return [x, constant(0, "int64")]
    at = axis_of(dim, rank_of(x))
    made = call("topk", x, k, axis=at, is_ascend=not largest, dtype="int64")
    return parts(made, 2)


@aten("kthvalue")
def kthvalue(x: RelayExpr, k: int, dim: int = -1, keepdim: bool = False) -> list[RelayExpr]:
    if not rank_of(x):
        return [x, constant(0, "int64")]
    at = axis_of(dim, rank_of(x))
    return [_line(each, at, k - 1, keepdim) for each in sort(x, at)]


def _line(x: RelayExpr, at: int, place: int, keepdim: bool) -> RelayExpr:
    made = call("take", x, constant([place], "int64"), axis=at)
    return made if keepdim else squeeze(made, at)


@aten("median", "median.default")
def median(x: RelayExpr, dim: int | None = None, keepdim: bool = False) -> list[RelayExpr]:
    """The lower of the two in the middle; NaN if one is among the elements."""
    if dim is None:
        x, dim, only = ravel(x), 0, True
    else:
        only = False
    if not rank_of(x):
        return [x, constant(0, "int64")]
    at = axis_of(dim, rank_of(x))
    made = [_line(each, at, (shape_of(x)[at] - 1) // 2, keepdim) for each in sort(x, at)]
    if is_float(x):
        lost = reduced("any", call("isnan", x), at, keepdim)
        made = [
            call("where", lost, like(math.nan, x), made[0]),
            call("where", lost, argmax(call("isnan", x), at, keepdim), made[1]),
        ]
    return made[:1] if only else made




@aten("nanmedian", "nanmedian.default")
def nanmedian(x: RelayExpr, dim: int | None = None, keepdim: bool = False) -> list[RelayExpr]:
    """The lower of the two in the middle of what is no NaN, which comes last in the order."""
    only = dim is None
    if dim is None:
        x, dim = ravel(x), 0
    if not is_float(x):
        made = median(x, dim, keepdim)
        return made[:1] if only else made
    if not rank_of(x):
        return [x, constant(0, "int64")]
    at = axis_of(dim, rank_of(x))
    known = reduced("sum", cast(call("logical_not", call("isnan", x)), "int64"), at, True)
    middle = call("floor_divide", call("subtract", known, like(1, known)), like(2, known))
    place = call("maximum", middle, like(0, middle))
    made = [call("gather", each, at, place) for each in sort(x, at)]
    if not keepdim:
        made = [squeeze(each, at) for each in made]
    return made[:1] if only else made
