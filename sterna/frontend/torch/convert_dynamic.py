"""Elements that are found: how many there are, and so a result's extent, the data decides.

Results have room for all and are cut to what was counted when the program runs.
"""

from collections.abc import Sequence

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of, parts, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.checks import expect_equal, expected
from sterna.frontend.torch.convert_shape import (
    axis_of,
    broadcast_dims,
    expand,
    movedim,
    ravel,
    shape_of,
    slice_,
)
from sterna.frontend.torch.extents import Extent, counted, dims_of, is_same, told, total, trimmed
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr
from sterna.relay.steps import Trim
from sterna.support.errors import OpNotImplemented


@aten("nonzero", "argwhere")
def nonzero(x: RelayExpr) -> RelayExpr:
    if not rank_of(x):  # one row or none, without columns
        return slice_(nonzero(reshaped(x, (1,))), 1, 0, 0)
    rows, count = parts(call("argwhere_padded", x, dtype="int64", filled=False), 2)
    return trimmed(rows, count, 0)


@aten("where.default")
def where_it_holds(condition: RelayExpr) -> list[RelayExpr]:
    return nonzero_numpy(condition)


@aten("nonzero_numpy")
def nonzero_numpy(x: RelayExpr) -> list[RelayExpr]:
    """By axis the places of what is not zero."""
    rows = nonzero(x if rank_of(x) else reshaped(x, (1,)))
    return [
        call("take", rows, constant(axis, "int32"), axis=1, mode="clip")
        for axis in range(max(1, rank_of(x)))
    ]


@aten("masked_select")
def masked_select(x: RelayExpr, mask: RelayExpr) -> RelayExpr:
    whole = broadcast_dims(dims_of(x), dims_of(mask))
    return _compressed(ravel(expand(x, whole)), ravel(expand(mask, whole)), 0)


def _compressed(x: RelayExpr, truths: RelayExpr, axis: int) -> RelayExpr:
    """The slices along an axis where a line of truth values holds."""
    found, count = parts(call("compress_padded", x, truths, axis=axis, filled=False), 2)
    return trimmed(found, count, axis)


def selected(x: RelayExpr, indices: Sequence[RelayExpr | None]) -> RelayExpr:
    """Slices where truth values hold, which lie along as many axes as they have."""
    named = [place for place, each in enumerate(indices) if each is not None]
    mask = indices[named[0]]
    assert mask is not None
    at, rank = named[0], rank_of(mask)
    if len(named) > 1 or not rank or dtype_of(mask) not in ("bool", "uint8"):
        raise OpNotImplemented("truth values beside other places: data decides about the shape")
    dims = dims_of(x)
    if len(dims) < at + rank or not all(map(is_same, dims[at : at + rank], dims_of(mask))):
        raise ValueError(
            f"truth values of shape {dims_of(mask)} select no slices of a tensor of shape {dims}"
        )
    flat = x
    if rank > 1:
        flat = reshaped(x, (*dims[:at], total(dims[at : at + rank]), *dims[at + rank :]))
    return _compressed(flat, reshaped(mask, (total(dims_of(mask)),)), at)


# ---- different elements ----


@aten("_unique2")
def unique(
    x: RelayExpr, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> list[RelayExpr]:
    """The different elements, which come in order however they are asked for, as PyTorch's do."""
    values, inverse, counts = _different(ravel(x), None)
    return [values, reshaped(inverse, dims_of(x)), counts]


@aten("unique_dim")
def unique_dim(
    x: RelayExpr, dim: int, sorted: bool = True, return_inverse: bool = False,
    return_counts: bool = False,
) -> list[RelayExpr]:
    return _different(x, axis_of(dim, rank_of(x)))


def _different(x: RelayExpr, axis: int | None) -> list[RelayExpr]:
    """Values, for each element or slice its place among them, and how many there are of each."""
    if 0 in dims_of(x):
        raise OpNotImplemented("the different elements of none")
    made = call("unique", x, axis=axis, is_sorted=True, return_counts=True, dtype="int64")
    values, _, inverse, count, counts = parts(made, 5)
    found = trimmed(values, count, axis or 0)
    return [found, inverse, Trim(counts, count, 0, found.extent)]


@aten("unique_consecutive")
def unique_consecutive(
    x: RelayExpr, return_inverse: bool = False, return_counts: bool = False,
    dim: int | None = None,
) -> list[RelayExpr]:
    """The first element of each run of equal ones, the runs by element, and their lengths."""
    lines = reshaped(x, (-1, 1)) if dim is None else _as_lines(x, dim)
    count, _ = shape_of(lines)
    if not count:
        raise OpNotImplemented("the different elements of none")
    differs = call(
        "any", call("not_equal", slice_(lines, 0, 1, count), slice_(lines, 0, 0, count - 1)),
        axis=1,
    )
    begins = call("concatenate", (constant(np.ones(1), "bool"), differs), axis=0)
    number = call("subtract", call("cumsum", cast(begins, "int64"), axis=0), constant(1, "int64"))
    lengths = call(
        "scatter_elements", constant(np.zeros(count), "int64"), number,
        constant(np.ones(count), "int64"), axis=0, reduction="add",
    )
    runs = call("add", slice_(number, 0, count - 1, count), constant(1, "int64"))
    axis = 0 if dim is None else axis_of(dim, rank_of(x))
    found, _ = parts(
        call("compress_padded", ravel(x) if dim is None else x, begins, axis=axis, filled=False), 2
    )
    inverse = reshaped(number, shape_of(x)) if dim is None else number
    firsts = trimmed(found, runs, axis)
    return [firsts, inverse, Trim(lengths, runs, 0, firsts.extent)]


def _as_lines(x: RelayExpr, dim: int) -> RelayExpr:
    """The slices along an axis as rows of a matrix."""
    at = axis_of(dim, rank_of(x))
    return reshaped(movedim(x, at, 0), (shape_of(x)[at], -1))


# ---- extents that numbers of the data tell ----


@aten("bincount")
def bincount(
    x: RelayExpr, weights: RelayExpr | None = None, minlength: int = 0
) -> RelayExpr:
    """How often each number occurs, or the sum of its weights."""
    if minlength < 0:
        raise ValueError(f"minlength is {minlength}, which is below 0")
    kind = "int64"
    if weights is not None:
        kind = "float32" if dtype_of(weights) == "float32" else "float64"
    if is_same(total(dims_of(x)), 0):  # PyTorch looks at no weights then
        return constant(np.zeros(minlength), "int64")
    numbers = cast(x, "int64")
    largest = call("add", call("max", numbers), constant(1, "int64"))
    count = call("maximum", largest, constant(minlength, "int64"))
    # A number below 0 is no place: the extent that then comes of it is refused by the run.
    least = call("min", numbers)
    count = call("where", call("less", least, constant(0, "int64")), least, count)
    added = constant(1, kind) if weights is None else cast(weights, kind)
    return call(
        "scatter_elements", call("full", constant(0, kind), (told(count),), dtype=kind), numbers,
        expand(added, dims_of(x)), axis=0, reduction="add",
    )


_WRONG_SIZE = "repeat_interleave: the repeats come to # elements, and output_size is #"


@aten("repeat_interleave.Tensor")
def repeated_places(repeats: RelayExpr, output_size: Extent | None = None) -> RelayExpr:
    """The place of each number, as often as the number says."""
    ends = call("cumsum", cast(repeats, "int64"), axis=0)
    return cast(_places_before(repeats, ends, output_size), dtype_of(repeats))


def _places_before(
    repeats: RelayExpr, ends: RelayExpr, output_size: Extent | None
) -> RelayExpr:
    if is_same(dims_of(repeats)[0], 0):
        return constant(np.zeros(0), "int64")
    last = call("take", ends, constant(-1, "int64"), axis=0, mode="wrap")
    least = call("min", cast(repeats, "int64"))
    if output_size is not None:
        number = counted(output_size)
        ends = expected(
            ends, call("greater_equal", least, constant(0, "int64")),
            "repeat_interleave: repeats hold #, which is below 0", least,
        )
        ends = expect_equal(ends, last, output_size, _WRONG_SIZE)
    else:
        number = counted(told(
            call("where", call("less", least, constant(0, "int64")), least, last)
        ))
    return call("searchsorted", ends, number, right=True, dtype="int64")


@aten("repeat_interleave.self_Tensor")
def repeat_interleave_by(
    x: RelayExpr, repeats: RelayExpr, dim: int | None = None, output_size: Extent | None = None
) -> RelayExpr:
    """Slices one after the other, each as often as its number says."""
    lines = ravel(x) if dim is None else x
    at = 0 if dim is None else axis_of(dim, rank_of(x))
    times = reshaped(repeats, (-1,))
    if not is_same(dims_of(times)[0], dims_of(lines)[at]):
        times = expand(times, (dims_of(lines)[at],))
    ends = call("cumsum", cast(times, "int64"), axis=0)
    places = _places_before(times, ends, output_size)
    return call("take", lines, places, axis=at, mode="clip")


@aten("repeat_interleave.self_int")
def repeat_interleave(
    x: RelayExpr, repeats: int, dim: int | None = None, output_size: Extent | None = None
) -> RelayExpr:
    """Slices one after the other, all equally often."""
    lines = ravel(x) if dim is None else x
    at = 0 if dim is None else axis_of(dim, rank_of(x))
    made = call("repeat", lines, repeats, axis=at)
    return made if output_size is None else expect_equal(
        made, dims_of(made)[at], output_size, _WRONG_SIZE
    )
