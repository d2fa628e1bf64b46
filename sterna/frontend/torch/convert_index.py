"""Elements by their places: taken, written and added."""

import math
from collections.abc import Sequence

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of, like, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.checks import expect_equal, within_axis
from sterna.frontend.torch.convert_dynamic import selected
from sterna.frontend.torch.convert_elementwise import mul
from sterna.frontend.torch.convert_shape import (
    axis_of,
    broadcast_dims,
    broadcast_shape,
    expand,
    movedim,
    permute,
    places_of,
    ravel,
    shape_of,
    unsqueeze,
)
from sterna.frontend.torch.extents import Extent, Extents, as_tensor, dims_of, is_same, total
from sterna.frontend.torch.promotion import Operand, in_float32, is_float, scalar, together
from sterna.frontend.torch.table import aten
from sterna.relay.arrays import to_numpy
from sterna.relay.expr import Constant, RelayExpr
from sterna.support.errors import OpNotImplemented


def from_front(places: RelayExpr, extent: Extent) -> RelayExpr:
    """Places counted from the front; negative ones are from behind."""
    if dtype_of(places) == "uint8":
        places = cast(places, "int64")
    whole = like(extent, places) if isinstance(extent, int) else as_tensor(extent)
    behind = call("add", places, cast(whole, dtype_of(places)))
    return call("where", call("less", places, like(0, places)), behind, places)


# ---- taking ----


@aten("index_select", "index_select_copy")
def index_select(x: RelayExpr, dim: int, index: RelayExpr) -> RelayExpr:
    if not rank_of(x):
        return x
    at = axis_of(dim, rank_of(x))
    places = index if rank_of(index) else unsqueeze(index, 0)
    return call("take", x, within_axis(places, dims_of(x)[at], at), axis=at)


@aten("take")
def take(x: RelayExpr, index: RelayExpr) -> RelayExpr:
    return call("take", ravel(x), _among_all(index, x))


def _among_all(index: RelayExpr, x: RelayExpr) -> RelayExpr:
    """Places among all elements of a tensor, counted from the front."""
    count = math.prod(shape_of(x))
    text = "out of range: tried to access index {} on a tensor of {} elements."
    return from_front(within_axis(index, count, 0, from_end=True, text=text), count)


@aten("gather")
def gather(x: RelayExpr, dim: int, index: RelayExpr, sparse_grad: bool = False) -> RelayExpr:
    if rank_of(x):
        at = axis_of(dim, rank_of(x))
        index = within_axis(index, dims_of(x)[at], at, "RuntimeError")
    return gathered(x, dim, index)


def gathered(x: RelayExpr, dim: int, index: RelayExpr) -> RelayExpr:
    """Elements by their places along an axis, all of which are there."""
    if not rank_of(x) or 0 in dims_of(index):  # of no places the rank may be another
        return expand(x if not rank_of(x) else like(0, x), shape_of(index))
    if not rank_of(index):
        return reshaped(gathered(x, dim, unsqueeze(index, 0)), ())
    at = axis_of(dim, rank_of(x))
    for axis, (have, want) in enumerate(zip(shape_of(x), shape_of(index), strict=True)):
        if axis != at and want < have:
            x = call("strided_slice", x, begin=(0,), end=(want,), axes=(axis,))
    return call("gather", x, at, index)


@aten("take_along_dim")
def take_along_dim(x: RelayExpr, indices: RelayExpr, dim: int | None = None) -> RelayExpr:
    if dim is None:
        return take_along_dim(ravel(x), ravel(indices), 0)
    at = axis_of(dim, rank_of(x))
    a, b = list(shape_of(x)), list(shape_of(indices))
    if a[at]:  # places go round
        indices = call("floor_mod", indices, like(a[at], indices))
    a[at] = b[at] = 1
    whole = broadcast_shape(a, b)
    wide = [
        expand(each, [shape_of(each)[at] if axis == at else e for axis, e in enumerate(whole)])
        for each in (x, indices)
    ]
    return gathered(wide[0], at, wide[1])


@aten("index")
def index(x: RelayExpr, indices: Sequence[RelayExpr | None]) -> RelayExpr:
    return index_unchecked(x, _expected(x, indices))


def _expected(
    x: RelayExpr, indices: Sequence[RelayExpr | None]
) -> Sequence[RelayExpr | None]:
    """Places by axis, which the run checks; truth values are as they were."""
    if any(each is not None and dtype_of(each) in ("bool", "uint8") for each in indices):
        return indices  # these stand for several axes
    return [
        None if each is None else within_axis(each, dims_of(x)[axis], axis, from_end=True)
        for axis, each in enumerate(indices)
    ]


@aten("_unsafe_index")
def index_unchecked(x: RelayExpr, indices: Sequence[RelayExpr | None]) -> RelayExpr:
    """Advanced indexing: the axes that have places first, then the others."""
    if any(each is not None and _are_unknown_truths(each) for each in indices):
        return selected(x, indices)
    given = _places(x, indices)
    axes = [axis for axis, each in enumerate(given) if each is not None]
    if not axes:
        return x
    places = [from_front(each, dims_of(x)[axis])
              for axis, each in enumerate(given) if each is not None]
    if len(axes) == 1:
        return call("take", x, places[0], axis=axes[0])
    rest = [axis for axis in range(rank_of(x)) if axis not in axes]
    front = permute(x, [*axes, *rest])
    extents = dims_of(front)
    flat = reshaped(front, (total(extents[: len(axes)]), *extents[len(axes) :]))
    made = call("take", flat, _flat_places(places, extents[: len(axes)]), axis=0)
    if axes == list(range(axes[0], axes[-1] + 1)):  # side by side, the results take their place
        count = max(map(rank_of, places))
        return movedim(made, range(count), range(axes[0], axes[0] + count)) if count else made
    return made


def _flat_places(places: Sequence[RelayExpr], extents: Sequence[Extent]) -> RelayExpr:
    """Places along several axes as places along one."""
    found = cast(places[0], "int64")
    for each, extent in zip(places[1:], extents[1:], strict=True):
        found = call("multiply", found, as_tensor(extent))
        found = call("add", found, cast(each, "int64"))
    return found


def _are_unknown_truths(places: RelayExpr) -> bool:
    return dtype_of(places) in ("bool", "uint8") and not isinstance(places, Constant)


def _places(x: RelayExpr, indices: Sequence[RelayExpr | None]) -> list[RelayExpr | None]:
    """Places by axis; truth values that are known become the places where they hold."""
    found: list[RelayExpr | None] = []
    for each in indices:
        if each is None or dtype_of(each) not in ("bool", "uint8"):
            found.append(each)
            continue
        if not isinstance(each, Constant):
            raise OpNotImplemented("places by truth values: data decides how many are written")
        held = np.nonzero(to_numpy(each.data))
        found += [constant(line, "int64") for line in held]
    return found + [None] * (rank_of(x) - len(found))


# ---- writing ----


@aten("index_put", "_index_put_impl")
def index_put(
    x: RelayExpr, indices: Sequence[RelayExpr | None], values: RelayExpr,
    accumulate: bool = False, unsafe: bool = False,
) -> RelayExpr:
    return index_put_unchecked(x, _expected(x, indices), values, accumulate)


@aten("_unsafe_index_put")
def index_put_unchecked(
    x: RelayExpr, indices: Sequence[RelayExpr | None], values: RelayExpr,
    accumulate: bool = False,
) -> RelayExpr:
    if len(indices) == 1 and indices[0] is not None and not accumulate:
        mask = indices[0]
        if dtype_of(mask) == "bool" and not isinstance(mask, Constant) and (
            is_same(total(dims_of(values)), 1)
        ):
            more = (1,) * (rank_of(x) - rank_of(mask))
            wide = reshaped(mask, (*dims_of(mask), *more))
            return call("where", wide, reshaped(scalar(values, x), ()), x)
    if len(indices) == 1 and indices[0] is not None and _are_unknown_truths(indices[0]):
        return _put_where(x, indices[0], values, accumulate)
    given = _places(x, indices)
    axes = [axis for axis, each in enumerate(given) if each is not None]
    if not axes:
        made = expand(values, dims_of(x))
        return call("add", x, made) if accumulate else made
    places = [from_front(each, dims_of(x)[axis])
              for axis, each in enumerate(given) if each is not None]
    whole = broadcast_dims(*(dims_of(each) for each in places))
    rest = [axis for axis in range(rank_of(x)) if axis not in axes]
    order = [*axes, *rest]
    front = permute(x, order)
    extents = dims_of(front)
    inner = extents[len(axes) :]
    size = total(inner)
    rows = reshaped(front, (total(extents[: len(axes)]), size))
    count = total(whole)
    flat = expand(_flat_places(places, extents[: len(axes)]), whole)
    wanted = _values(values, whole, inner, axes)
    updates = reshaped(wanted, (count, size))
    lines = expand(reshaped(flat, (count, 1)), (count, size))
    kind = "add" if accumulate else "update"
    made = _combined(rows, lines, cast(updates, dtype_of(x)), 0, kind)
    back = [order.index(axis) for axis in range(len(order))]
    return permute(reshaped(made, extents), back)


def _put_where(
    x: RelayExpr, mask: RelayExpr, values: RelayExpr, accumulate: bool
) -> RelayExpr:
    """Slices one after the other where truth values hold, or one slice in all these places."""
    inner = rank_of(x) - rank_of(mask)
    holds = cast(reshaped(mask, (*dims_of(mask), *(1,) * inner)), "bool")
    wanted = cast(values, dtype_of(x))
    if rank_of(values) > inner and not is_same(dims_of(values)[0], 1):
        number = call("cumsum", cast(ravel(mask), "int64"), axis=0)
        number = expect_equal(
            number, call("sum", cast(mask, "int64")), dims_of(values)[0],
            "index_put: the truth values hold in # places, and # values are written there",
        )
        place = call("maximum", call("subtract", number, like(1, number)), like(0, number))
        border = ((0, 1), *(((0, 0),) * (rank_of(wanted) - 1)))
        some = call("nn.pad", wanted, pad_width=border)  # there may be no value
        wanted = call("take", some, reshaped(place, dims_of(mask)), axis=0, mode="clip")
    elif rank_of(values) > inner:
        wanted = reshaped(wanted, dims_of(values)[1:])
    return call("where", holds, call("add", x, wanted) if accumulate else wanted, x)


def _values(
    values: RelayExpr, whole: Extents, inner: Extents, axes: Sequence[int]
) -> RelayExpr:
    """Values in the order of the rows that they are written to."""
    at = axes[0] if list(axes) == list(range(axes[0], axes[-1] + 1)) else 0
    shape = (*inner[:at], *whole, *inner[at:])
    wide = expand(values, shape)
    places = range(at, at + len(whole))
    return movedim(wide, places, range(len(whole))) if at and whole else wide


@aten("scatter", "scatter_reduce")
def scatter(
    x: RelayExpr, dim: int, index: RelayExpr, src: RelayExpr | None = None,
    value: Operand | None = None, reduce: str = "", include_self: bool = True,
) -> RelayExpr:
    return _scattered(x, dim, index, src, value, reduce, include_self, strict=True)


_REDUCTIONS = {
    "": "update", "add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max",
    "amin": "min",
}


def _neutral(kind: str, x: RelayExpr) -> RelayExpr:
    """What does not count in a reduction of such elements."""
    if kind in ("add", "mul"):
        return like(int(kind == "mul"), x)
    if dtype_of(x) == "bool":
        return like(kind == "min", x)
    if is_float(x):
        return like(math.inf if kind == "min" else -math.inf, x)
    limits = np.iinfo(dtype_of(x))
    return like(limits.max if kind == "min" else limits.min, x)


def _scattered(
    x: RelayExpr, dim: int, index: RelayExpr, src: RelayExpr | None, value: Operand | None,
    reduce: str, include_self: bool, strict: bool = False,
) -> RelayExpr:
    """strict: whether the places are to be checked."""
    if not rank_of(x):
        parts = [reshaped(each, (1,)) for each in (x, index)]
        source = None if src is None else reshaped(src, (1,))
        made = _scattered(parts[0], 0, parts[1], source, value, reduce, include_self, strict)
        return reshaped(made, ())
    if not rank_of(index):
        index = unsqueeze(index, 0)
        src = None if src is None else reshaped(src, (1,))
    at = axis_of(dim, rank_of(x))
    if src is None:
        assert value is not None
        src = expand(scalar(value, x), dims_of(index))
    for axis, (have, want) in enumerate(zip(dims_of(src), dims_of(index), strict=True)):
        if not is_same(have, want):
            src = call("strided_slice", src, begin=(0,), end=(want,), axes=(axis,))
    if reduce == "mean":
        return _scattered_mean(x, at, index, src, include_self, strict)
    kind = _REDUCTIONS[reduce]
    if not include_self:
        x = _cleared(x, at, index, kind)
    return _combined(x, index, cast(src, dtype_of(x)), at, kind, strict)


# The sum of truth values is whether one holds, the product whether all do.
_OF_TRUTH = {"add": "max", "mul": "min"}


def _combined(
    x: RelayExpr, index: RelayExpr, src: RelayExpr, axis: int, reduction: str,
    strict: bool = False,
) -> RelayExpr:
    """Elements written to places along an axis, together with what is there."""
    if dtype_of(x) == "bool" and reduction != "update":
        kind = _OF_TRUTH.get(reduction, reduction)
        made = _combined(cast(x, "uint8"), index, cast(src, "uint8"), axis, kind, strict)
        return cast(made, "bool")
    if reduction in ("add", "mul"):
        return _accumulated(x, index, src, axis, reduction, strict)
    return call("scatter_elements", x, index, src, axis=axis, reduction=reduction, strict=strict)


@in_float32
def _accumulated(
    x: RelayExpr, index: RelayExpr, src: RelayExpr, axis: int, reduction: str, strict: bool
) -> RelayExpr:
    """Sums or products of what is written to one place."""
    return call("scatter_elements", x, index, src, axis=axis, reduction=reduction, strict=strict)


def _cleared(x: RelayExpr, at: int, index: RelayExpr, kind: str) -> RelayExpr:
    """Data that does not count where something is written to."""
    neutral = expand(_neutral(kind, x), dims_of(index))
    return call("scatter_elements", x, index, neutral, axis=at)


@in_float32
def _scattered_mean(
    x: RelayExpr, at: int, index: RelayExpr, src: RelayExpr, include_self: bool, strict: bool
) -> RelayExpr:
    start = x if include_self else _cleared(x, at, index, "add")
    added = call("scatter_elements", start, index, src, axis=at, reduction="add", strict=strict)
    ones = expand(like(1, x), dims_of(index))
    first = call("full", like(1 if include_self else 0, x), dims_of(x))
    count = call("scatter_elements", first, index, ones, axis=at, reduction="add")
    divide = "divide" if is_float(added) else "floor_divide"
    return call(divide, added, call("maximum", count, like(1, count)))


@aten("scatter_add")
def scatter_add(x: RelayExpr, dim: int, index: RelayExpr, src: RelayExpr) -> RelayExpr:
    return _scattered(x, dim, index, src, None, "add", True, strict=True)


def _lines(x: RelayExpr, at: int, index: RelayExpr) -> RelayExpr:
    """Places of whole slices as places of their elements."""
    count = total(dims_of(index))
    shape = [count if axis == at else 1 for axis in range(rank_of(x))]
    whole = [count if axis == at else extent for axis, extent in enumerate(dims_of(x))]
    return expand(reshaped(index, shape), whole)


@aten("index_copy", "index_reduce")
def index_copy(
    x: RelayExpr, dim: int, index: RelayExpr, source: RelayExpr, reduce: str = "",
    include_self: bool = True, alpha: float = 1,
) -> RelayExpr:
    if not rank_of(x):
        made = index_copy(
            reshaped(x, (1,)), 0, reshaped(index, (1,)), reshaped(source, (1,)), reduce,
            include_self, alpha,
        )
        return reshaped(made, ())
    at = axis_of(dim, rank_of(x))
    error = "RuntimeError" if reduce == "add" else "IndexError"
    lines = _lines(x, at, within_axis(index, dims_of(x)[at], at, error))
    src = expand(source, dims_of(lines)) if rank_of(source) != rank_of(x) else source
    if alpha != 1:
        src = mul(src, like(alpha, src))
    return _scattered(x, at, lines, src, None, reduce, include_self)


@aten("index_add")
def index_add(
    x: RelayExpr, dim: int, index: RelayExpr, source: RelayExpr, alpha: float = 1
) -> RelayExpr:
    return index_copy(x, dim, index, source, "add", True, alpha)


@aten("index_fill")
def index_fill(x: RelayExpr, dim: int, index: RelayExpr, value: Operand) -> RelayExpr:
    if not rank_of(x):
        return scalar(value, x)
    at = axis_of(dim, rank_of(x))
    index = within_axis(index, dims_of(x)[at], at, from_end=True)
    lines = _lines(x, at, from_front(index, dims_of(x)[at]))
    return _scattered(x, at, lines, None, value, "", True)


@aten("slice_scatter")
def slice_scatter(
    x: RelayExpr, src: RelayExpr, dim: int = 0, start: int | None = None,
    end: int | None = None, step: int = 1,
) -> RelayExpr:
    at = axis_of(dim, rank_of(x))
    first, last, _ = slice(start, end).indices(shape_of(x)[at])
    count = max(0, -(-(last - first) // step))
    return index_copy(x, at, places_of((first, count, step)), src) if count else x


@aten("select_scatter")
def select_scatter(x: RelayExpr, src: RelayExpr, dim: int, index: int) -> RelayExpr:
    at = axis_of(dim, rank_of(x))
    place = index + shape_of(x)[at] if index < 0 else index
    return index_copy(x, at, constant([place], "int64"), unsqueeze(src, at))


@aten("diagonal_scatter")
def diagonal_scatter(
    x: RelayExpr, src: RelayExpr, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> RelayExpr:
    rank = rank_of(x)
    moved = movedim(x, (dim1, dim2), (rank - 2, rank - 1))
    *outer, rows, columns = shape_of(moved)
    count = shape_of(src)[-1]
    first = (max(-offset, 0), max(offset, 0))
    places = places_of((first[0] * columns + first[1], count, columns + 1))
    flat = reshaped(moved, (*outer, rows * columns))
    made = index_copy(flat, rank - 2, places, src)
    return movedim(reshaped(made, shape_of(moved)), (rank - 2, rank - 1), (dim1, dim2))


@aten("put")
def put(
    x: RelayExpr, index: RelayExpr, source: RelayExpr, accumulate: bool = False
) -> RelayExpr:
    places = ravel(_among_all(index, x))
    made = _scattered(
        ravel(x), 0, places, ravel(source), None, "add" if accumulate else "", True
    )
    return reshaped(made, shape_of(x))


@aten("one_hot")
def one_hot(x: RelayExpr, num_classes: int = -1) -> RelayExpr:
    if num_classes < 0:
        raise OpNotImplemented("a number of classes that the data decides")
    text = "Class values are not negative and smaller than num_classes: {} is not, of {}"
    x = within_axis(x, num_classes, 0, "RuntimeError", text=text)
    on, off = constant(1, "int64"), constant(0, "int64")
    return call("one_hot", x, on, off, num_classes, -1, "int64")


@aten("searchsorted", "bucketize")
def searchsorted(
    sorted_sequence: RelayExpr | None = None, x: Operand | None = None, out_int32: bool = False,
    right: bool = False, side: str | None = None, boundaries: RelayExpr | None = None,
    sorter: RelayExpr | None = None,
) -> RelayExpr:
    lines = sorted_sequence if sorted_sequence is not None else boundaries
    assert lines is not None and x is not None
    if sorter is not None:
        lines = gather(lines, -1, sorter)
    lines, values = together(lines, x)
    single = not rank_of(values)
    values = reshaped(values, (1,)) if single else values
    if rank_of(lines) == 1 and rank_of(values) > 1:
        made = call("searchsorted", lines, ravel(values), right=right or side == "right",
                    dtype="int32" if out_int32 else "int64")
        return reshaped(made, shape_of(values))
    made = call("searchsorted", lines, values, right=right or side == "right",
                dtype="int32" if out_int32 else "int64")
    return reshaped(made, ()) if single else made
