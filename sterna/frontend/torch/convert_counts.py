"""Counts and groups: histograms, the most frequent element, segments and bags."""

import math
from collections.abc import Sequence

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of, like, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.checks import within_axis
from sterna.frontend.torch.convert_index import scatter, scatter_add
from sterna.frontend.torch.convert_matrix import cdist
from sterna.frontend.torch.convert_shape import axis_of, expand, places_of, ravel, shape_of
from sterna.frontend.torch.convert_shape import slice_ as sliced
from sterna.frontend.torch.extents import dims_of
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr

# ---- histograms ----


def _counted(bins: RelayExpr, keeps: RelayExpr, count: int, amount: RelayExpr) -> RelayExpr:
    """Sums of amounts by bin; what is not kept goes into a bin of its own, which is left out."""
    where = call("where", keeps, cast(bins, "int64"), constant(count, "int64"))
    empty = call("zeros", (count + 1,), dtype_of(amount))
    return sliced(scatter_add(empty, 0, where, amount), 0, 0, count)


def _bin_counts(
    x: RelayExpr, low: RelayExpr, high: RelayExpr, count: int, amount: RelayExpr
) -> RelayExpr:
    """How much falls into each of so many bins of one width; the last one has its upper end."""
    width = call("subtract", high, low)
    place = call("divide", call("multiply", call("subtract", x, low), like(count, x)), width)
    place = call("minimum", call("floor", place), like(count - 1, x))
    inside = call("logical_and", call("greater_equal", x, low), call("less_equal", x, high))
    return _counted(place, inside, count, amount)


def _range(x: RelayExpr, low: float, high: float) -> tuple[RelayExpr, RelayExpr]:
    """The two ends; where they are equal those of the data, and 0.5 apart from one number."""
    has_elements = math.prod(shape_of(x)) > 0
    a: RelayExpr = like(low, x)
    b: RelayExpr = like(high, x)
    if low == high and has_elements:
        a, b = call("min", x), call("max", x)
    same = call("equal", a, b)
    return (
        call("where", same, call("subtract", a, like(0.5, x)), a),
        call("where", same, call("add", b, like(0.5, x)), b),
    )


@aten("histc")
def histc(x: RelayExpr, bins: int = 100, min: float = 0, max: float = 0) -> RelayExpr:
    data = ravel(x)
    low, high = _range(data, min, max)
    return _bin_counts(data, low, high, bins, expand(like(1, data), shape_of(data)))


@aten("histogram.bin_ct")
def histogram(
    x: RelayExpr, bins: int = 100, range: Sequence[float] | None = None,
    weight: RelayExpr | None = None, density: bool = False,
) -> list[RelayExpr]:
    data = ravel(x)
    low, high = _range(data, *(range or (0.0, 0.0)))
    amount = expand(like(1, data), shape_of(data)) if weight is None else ravel(weight)
    made = _bin_counts(data, low, high, bins, amount)
    width = call("divide", call("subtract", high, low), like(bins, data))
    steps = constant(np.arange(bins + 1), dtype_of(data))
    edges = call("add", low, call("multiply", steps, width))
    return [_dense(made, width) if density else made, edges]


def _dense(counts: RelayExpr, width: RelayExpr) -> RelayExpr:
    return call("divide", call("divide", counts, call("sum", counts)), width)


@aten("histogram.bins_tensor")
def histogram_between(
    x: RelayExpr, bins: RelayExpr, weight: RelayExpr | None = None, density: bool = False
) -> list[RelayExpr]:
    """Bins between given edges."""
    data, count = ravel(x), shape_of(bins)[0] - 1
    place = call("searchsorted", bins, data, right=True, dtype="int64")
    place = call("minimum", call("subtract", place, constant(1, "int64")),
                 constant(count - 1, "int64"))
    first, last = sliced(bins, 0, 0, 1), sliced(bins, 0, count, count + 1)
    inside = call("logical_and", call("greater_equal", data, first),
                  call("less_equal", data, last))
    amount = expand(like(1, data), shape_of(data)) if weight is None else ravel(weight)
    made = _counted(place, inside, count, amount)
    width = call("subtract", sliced(bins, 0, 1, count + 1), sliced(bins, 0, 0, count))
    return [_dense(made, width) if density else made, bins]


@aten("mode")
def mode(x: RelayExpr, dim: int = -1, keepdim: bool = False) -> list[RelayExpr]:
    """The smallest of the most frequent elements along an axis, and its last place."""
    if not rank_of(x):
        return [x, constant(0, "int64")]
    if dtype_of(x) == "bool":
        value, place = mode(cast(x, "uint8"), dim, keepdim)
        return [cast(value, "bool"), place]
    at = axis_of(dim, rank_of(x))
    extent = shape_of(x)[at]
    same = call("equal", call("expand_dims", x, at), call("expand_dims", x, at + 1))
    counts = call("sum", cast(same, "int64"), axis=at + 1)
    most = call("equal", counts, call("max", counts, axis=at, keepdims=True))
    largest = call("max", x, axis=at, keepdims=True)
    least = call("min", call("where", most, x, largest), axis=at, keepdims=True)
    line = [-1 if axis == at else 1 for axis in range(rank_of(x))]
    places = reshaped(places_of((0, extent, 1)), line)
    found = call("where", call("equal", x, least), places, constant(-1, "int64"))
    place = call("max", found, axis=at, keepdims=True)
    made = [least, place]
    return made if keepdim else [call("squeeze", each, axis=(at,)) for each in made]


@aten("nonzero_static")
def nonzero_static(x: RelayExpr, size: int, fill_value: int = -1) -> RelayExpr:
    """So many places of elements that are not zero; where there are fewer, a number instead."""
    shape = shape_of(x)
    data = ravel(x)
    holds = data if dtype_of(x) == "bool" else call("not_equal", data, like(0, data))
    count = call("cumsum", cast(holds, "int64"), axis=0)
    wanted = constant(np.arange(1, size + 1), "int64")
    place = call("searchsorted", count, wanted, dtype="int64")
    total = math.prod(shape)
    is_there = call("less", place, constant(total, "int64"))
    columns = []
    stride = total
    for extent in shape:
        stride //= max(extent, 1)
        whole = call("floor_divide", place, constant(max(stride, 1), "int64"))
        columns.append(call("floor_mod", whole, constant(max(extent, 1), "int64")))
    if not columns:
        return call("zeros", (size, 0), "int64")
    made = [call("where", is_there, each, constant(fill_value, "int64")) for each in columns]
    return call("stack", made, axis=1)


# ---- segments and bags ----


@aten("segment_reduce")
def segment_reduce(
    data: RelayExpr, reduce: str, lengths: RelayExpr | None = None,
    indices: RelayExpr | None = None, offsets: RelayExpr | None = None, axis: int = 0,
    unsafe: bool = False, initial: float | None = None,
) -> RelayExpr:
    """What parts of an axis come to; parts that are empty come to the initial number."""
    mask = _segments(data, lengths, offsets, axis)
    neutral = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}[reduce]
    start = neutral if initial is None else initial
    taken = call("where", mask, call("expand_dims", data, axis), like(neutral, data))
    operator = "sum" if reduce == "mean" else reduce
    made = call(operator, taken, axis=axis + 1)
    join = {"sum": "add", "mean": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
    made = call(join[reduce], made, like(start, made))
    if reduce != "mean":
        return made
    size = call("sum", cast(mask, dtype_of(data)), axis=axis + 1)
    is_empty = call("equal", size, like(0, size))
    nothing = like(math.nan if initial is None else initial, made)
    return call("where", is_empty, nothing, call("divide", made, size))


def _segments(
    data: RelayExpr, lengths: RelayExpr | None, offsets: RelayExpr | None, axis: int
) -> RelayExpr:
    """By part and by place along the axis, whether the one holds the other."""
    if lengths is not None:
        ends = call("cumsum", lengths, axis=axis)
        starts = call("subtract", ends, lengths)
    else:
        assert offsets is not None
        count = shape_of(offsets)[axis]
        starts = sliced(offsets, axis, 0, count - 1)
        ends = sliced(offsets, axis, 1, count)
    extent, inner = shape_of(data)[axis], shape_of(data)[axis + 1 :]
    places = cast(places_of((0, extent, 1)), dtype_of(starts))
    inside = call(
        "logical_and",
        call("greater_equal", places, call("expand_dims", starts, axis + 1)),
        call("less", places, call("expand_dims", ends, axis + 1)),
    )
    return reshaped(inside, (*shape_of(inside), *(1 for _ in inner)))


@aten("_segment_reduce_backward")
def segment_reduce_backward(
    grad: RelayExpr, output: RelayExpr, data: RelayExpr, reduce: str,
    lengths: RelayExpr | None = None, offsets: RelayExpr | None = None, axis: int = 0,
    initial: float | None = None,
) -> RelayExpr:
    """What each element gets of its part's gradient; the largest of a part share it."""
    mask = _segments(data, lengths, offsets, axis)
    wide = call("expand_dims", data, axis)
    given, made = (call("expand_dims", each, axis + 1) for each in (grad, output))
    zero, one = like(0, data), like(1, data)

    def total(value: RelayExpr, operator: str = "sum") -> RelayExpr:
        return call(operator, value, axis=axis + 1, keepdims=True)

    if reduce == "prod":
        is_zero = call("equal", wide, zero)
        holes = total(call("where", call("logical_and", mask, is_zero), one, zero))
        factors = call("where", mask, call("where", is_zero, one, wide), one)
        rest = call("multiply", total(factors, "prod"), like(1.0 if initial is None else initial,
                                                             data))
        alone = call("where", call("equal", holes, one), rest, zero)
        others = call("divide", made, call("where", is_zero, one, wide))
        part = call("multiply", given, call("where", is_zero, alone, others))
    elif reduce in ("max", "min"):
        is_one = call("logical_and", mask, call("equal", wide, made))
        count = total(call("where", is_one, one, zero))
        part = call("where", is_one, call("divide", given, count), zero)
    elif reduce == "mean":
        part = call("divide", given, total(call("where", mask, one, zero)))
    else:
        part = given
    return call("sum", call("where", mask, part, zero), axis=axis)


@aten("embedding_bag")
def embedding_bag(
    weight: RelayExpr, indices: RelayExpr, offsets: RelayExpr, scale_grad_by_freq: bool = False,
    mode: int = 0, sparse: bool = False, per_sample_weights: RelayExpr | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> list[RelayExpr]:
    """Here a row that is left out may be counted from the end."""
    row = -1 if padding_idx is None else axis_of(padding_idx, shape_of(weight)[0])
    return embedding_bag_of_rows(
        weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
        include_last_offset, row,
    )


@aten("_embedding_bag_forward_only", "_embedding_bag")
def embedding_bag_of_rows(
    weight: RelayExpr, indices: RelayExpr, offsets: RelayExpr, scale_grad_by_freq: bool = False,
    mode: int = 0, sparse: bool = False, per_sample_weights: RelayExpr | None = None,
    include_last_offset: bool = False, padding_idx: int = -1,
) -> list[RelayExpr]:
    """Sums, means or maxima of rows by bag, each of which begins at an offset."""
    bags = shape_of(offsets)[0] - (1 if include_last_offset else 0)
    if include_last_offset:
        offsets = sliced(offsets, 0, 0, bags)
    count, width = shape_of(indices)[0], shape_of(weight)[1]
    bag = bag_of_place(offsets, count)
    places = within_axis(cast(indices, "int64"), dims_of(weight)[0], 0, "RuntimeError")
    rows = call("take", weight, places, axis=0)
    if per_sample_weights is not None:
        rows = call("multiply", rows, call("expand_dims", per_sample_weights, 1))
    own = bag
    if padding_idx >= 0:  # such rows go into a bag that is left out
        skipped = call("equal", indices, like(padding_idx, indices))
        own = call("where", skipped, constant(bags, "int64"), bag)
    lines = expand(call("expand_dims", own, 1), (count, width))
    rows = cast(rows, "float64" if dtype_of(weight) == "float64" else "float32")
    empty = call("zeros", (bags + 1, width), dtype_of(rows))
    kind = {0: "sum", 1: "sum", 2: "amax"}[mode]
    made = scatter(empty, 0, lines, rows, reduce=kind, include_self=kind == "sum")
    ones = expand(constant(1, "int64"), (count,))
    sizes = scatter_add(call("zeros", (bags + 1,), "int64"), 0, own, ones)
    made, sizes = sliced(made, 0, 0, bags), sliced(sizes, 0, 0, bags)
    largest = _largest_in_bags(made, rows, bag, own, indices, bags) if mode == 2 else sizes
    if mode == 1:
        divisor = call("maximum", sizes, constant(1, "int64"))
        made = call("divide", made, call("expand_dims", cast(divisor, dtype_of(made)), 1))
    made = cast(made, dtype_of(weight))
    is_plain = mode == 0 and dtype_of(weight) in ("float32", "float16")
    if is_plain and padding_idx < 0:  # PyTorch's fast path keeps none
        bag = call("zeros", (0,), "int64")
    kept = [cast(each, dtype_of(offsets)) for each in (bag, sizes, largest)]
    return [made, *kept]


def bag_of_place(offsets: RelayExpr, count: int) -> RelayExpr:
    """The number of the bag that each of so many places lies in."""
    places = cast(places_of((0, count, 1)), dtype_of(offsets))
    behind = call("searchsorted", offsets, places, right=True, dtype="int64")
    return call("subtract", behind, constant(1, "int64"))


def _largest_in_bags(
    made: RelayExpr, rows: RelayExpr, bag: RelayExpr, own: RelayExpr, indices: RelayExpr,
    bags: int,
) -> RelayExpr:
    """Which row of the weights the maxima of every bag come from, the first of equal ones."""
    count, width = shape_of(rows)
    if not count:
        return call("zeros", (bags, width), "int64")
    is_largest = call("equal", rows, call("take", made, bag, axis=0))
    place = call("expand_dims", places_of((0, count, 1)), 1)
    first = call("where", is_largest, place, constant(count - 1, "int64"))
    lines = expand(call("expand_dims", own, 1), (count, width))
    empty = call("zeros", (bags + 1, width), "int64")
    found = scatter(empty, 0, lines, first, reduce="amin", include_self=False)
    return call("take", cast(indices, "int64"), sliced(found, 0, 0, bags), axis=0)


@aten("embedding_renorm")
def embedding_renorm(
    x: RelayExpr, indices: RelayExpr, max_norm: float, norm_type: float
) -> RelayExpr:
    """Rows that are looked up are made shorter where they are longer than a norm."""
    rows = shape_of(x)[0]
    flat = cast(ravel(indices), "int64")
    ones = expand(constant(1, "int64"), shape_of(flat))
    touched = scatter_add(call("zeros", (rows,), "int64"), 0, flat, ones)
    size = call("abs", x)
    norm = call("power", call("sum", call("power", size, like(norm_type, x)), axis=1,
                              keepdims=True), like(1 / norm_type, x))
    shorter = call("divide", like(max_norm, x), call("add", norm, like(1e-7, x)))
    changes = call("logical_and", call("greater", norm, like(max_norm, x)),
                   call("expand_dims", call("greater", touched, constant(0, "int64")), 1))
    return call("where", changes, call("multiply", x, shorter), x)


@aten("_pdist_forward", "pdist")
def pdist(x: RelayExpr, p: float = 2.0) -> RelayExpr:
    """The distances of each point to those behind it."""
    count = shape_of(x)[0]
    if count < 2:
        return call("zeros", (0,), dtype_of(x))
    return call("take", ravel(cdist(x, x, p)), pdist_places(count))


def pdist_places(count: int) -> RelayExpr:
    """Where pairs of a point and one behind it stand in the matrix of all pairs."""
    first, second = np.triu_indices(count, 1)
    return constant(first * count + second, "int64")


@aten("logcumsumexp")
def logcumsumexp(x: RelayExpr, dim: int) -> RelayExpr:
    return call("logcumsumexp", x, axis=axis_of(dim, rank_of(x))) if rank_of(x) else x
