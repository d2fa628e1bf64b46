"""Shapes: views, orders of axes, parts of a tensor and tensors put together."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from sterna.frontend.calls import (
    axis_below,
    call,
    cast,
    constant,
    dtype_of,
    parts,
    rank_of,
    type_of,
)
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.limits import MOST_NUMBERS, expect_moderate
from sterna.frontend.torch.checks import expect_equal, expected
from sterna.frontend.torch.extents import (
    FAR,
    Extent,
    Extents,
    are_same,
    as_tensor,
    counted,
    dims_of,
    is_known,
    is_same,
    is_told,
    left_over,
    told,
    total,
)
from sterna.frontend.torch.promotion import result_type
from sterna.frontend.torch.table import aten
from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.relay.expr import RelayExpr
from sterna.relay.symbols import simplified_dim
from sterna.support.dtype import DataType
from sterna.support.errors import OpNotImplemented


def shape_of(x: RelayExpr) -> tuple[int, ...]:
    """The shape of a tensor, which must be known."""
    kind = type_of(x)
    if not kind.is_static:
        raise OpNotImplemented("an operand whose shape is not known")
    return tuple(int(extent) for extent in kind.concrete_shape)


def extent_of(x: RelayExpr, axis: int) -> int:
    """An extent that must be known, whatever those of other axes are."""
    found = dims_of(x)[axis]
    if type(found) is not int:
        raise OpNotImplemented(f"an operand whose extent along axis {axis} is open")
    return found


def axis_of(dim: int, rank: int) -> int:
    """An axis from the front; a tensor of one number counts as one of one axis."""
    return axis_below(dim, max(rank, 1))


# ---- views ----


@aten("view", "reshape", "_unsafe_view", "view_copy", "_reshape_alias", "_reshape_copy")
def view(
    x: RelayExpr, size: Extents = (), shape: Extents = (), stride: Extents = (),
) -> RelayExpr:
    wanted, have = list(size or shape), dims_of(x)
    if -1 in wanted:
        wanted[wanted.index(-1)] = left_over(have, [each for each in wanted if each != -1])
    if is_known((*wanted, *have)) and total(wanted) != total(have):
        raise ValueError(f"{list(have)} cannot be seen as {wanted}")
    return reshaped(x, wanted)


@aten("view.dtype", "view_copy.dtype")
def view_as_type(x: RelayExpr, dtype: str) -> RelayExpr:
    """The same bits; elements of another size join or part along the last axis, the low first."""
    have, want = DataType(dtype_of(x)).bits, DataType(dtype).bits
    if have == want or "bool" in (dtype, dtype_of(x)):
        return call("reinterpret", x, dtype)
    small, times = min(have, want), max(have, want) // min(have, want)
    bits, kind, outer = call("reinterpret", x, f"uint{have}"), f"uint{small * times}", dims_of(x)
    shifts = constant(np.arange(times) * small, kind)
    if have > want:
        each = call("right_shift", call("expand_dims", bits, rank_of(x)), shifts)
        each = call("reinterpret", cast(each, f"uint{want}"), dtype)
        return reshaped(each, (*outer[:-1], outer[-1] * times))
    if isinstance(outer[-1], int) and outer[-1] % times:
        raise ValueError(f"{outer[-1]} elements of {have} bits are no elements of {want}")
    each = cast(reshaped(bits, (*outer[:-1], outer[-1] // times, times)), kind)
    whole = call("sum", call("left_shift", each, shifts), axis=-1)
    return call("reinterpret", whole, dtype)


@aten("view_as", "reshape_as")
def view_as(x: RelayExpr, other: RelayExpr) -> RelayExpr:
    return reshaped(x, dims_of(other))


@aten("flatten")
def flatten(x: RelayExpr, start_dim: int = 0, end_dim: int = -1) -> RelayExpr:
    shape = dims_of(x)
    if not shape:
        return reshaped(x, (1,))
    first, last = axis_of(start_dim, len(shape)), axis_of(end_dim, len(shape))
    middle = total(shape[first : last + 1])
    return reshaped(x, (*shape[:first], middle, *shape[last + 1 :]))


@aten("ravel")
def ravel(x: RelayExpr) -> RelayExpr:
    return reshaped(x, (total(dims_of(x)),))


@aten("unflatten")
def unflatten(x: RelayExpr, dim: int, sizes: Extents) -> RelayExpr:
    shape = dims_of(x)
    at = axis_of(dim, len(shape))
    known = [size for size in sizes if size != -1]
    parts = [left_over(shape[at : at + 1], known) if size == -1 else size for size in sizes]
    return view(x, (*shape[:at], *parts, *shape[at + 1 :]))


@aten("unsqueeze", "unsqueeze_copy")
def unsqueeze(x: RelayExpr, dim: int) -> RelayExpr:
    return call("expand_dims", x, axis_below(dim, rank_of(x) + 1))


@aten("squeeze", "squeeze_copy")
def squeeze(x: RelayExpr, dim: int | Sequence[int] | None = None) -> RelayExpr:
    shape = dims_of(x)
    named = range(len(shape)) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {at for each in named if shape and shape[at := axis_of(each, len(shape))] == 1}
    return reshaped(x, [e for at, e in enumerate(shape) if at not in gone]) if gone else x


@aten("expand", "expand_copy", "broadcast_to")
def expand(x: RelayExpr, size: Extents, implicit: bool = False) -> RelayExpr:
    have = dims_of(x)
    more = len(size) - len(have)
    wanted = [have[at - more] if e == -1 else e for at, e in enumerate(size)]
    return x if are_same(wanted, have) else call("broadcast_to", x, tuple(wanted))


@aten("expand_as")
def expand_as(x: RelayExpr, other: RelayExpr) -> RelayExpr:
    return expand(x, dims_of(other))


@aten("broadcast_tensors")
def broadcast_tensors(tensors: Sequence[RelayExpr]) -> list[RelayExpr]:
    whole = broadcast_dims(*(dims_of(each) for each in tensors))
    return [expand(each, whole) for each in tensors]


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that all of these broadcast to, which are known."""
    return tuple(int(extent) for extent in broadcast_dims(*shapes))  # type: ignore[arg-type]


def broadcast_dims(*shapes: Extents) -> tuple[Extent, ...]:
    """The shape that all of these broadcast to."""
    rank = max(map(len, shapes), default=0)
    wide = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(
        next((extent for extent in extents if extent != 1), 1)
        for extents in zip(*wide, strict=True)
    )


@aten("permute", "permute_copy")
def permute(x: RelayExpr, dims: Sequence[int]) -> RelayExpr:
    axes = tuple(axis_of(dim, rank_of(x)) for dim in dims)
    return x if axes == tuple(range(len(axes))) else call("transpose", x, axes)


@aten("transpose", "transpose_copy", "swapaxes", "swapdims")
def transpose(
    x: RelayExpr, dim0: int = 0, dim1: int = 0, axis0: int = 0, axis1: int = 0
) -> RelayExpr:
    rank = rank_of(x)
    order = list(range(rank))
    if not order:
        return x
    a, b = axis_of(dim0 or axis0, rank), axis_of(dim1 or axis1, rank)
    order[a], order[b] = b, a
    return permute(x, order)


@aten("t", "t_copy", "matrix_H", "mT", "mH", "adjoint")
def turned(x: RelayExpr) -> RelayExpr:
    """The last two axes change places."""
    rank = rank_of(x)
    return x if rank < 2 else transpose(x, rank - 2, rank - 1)


@aten("numpy_T")
def reversed_axes(x: RelayExpr) -> RelayExpr:
    return permute(x, range(rank_of(x))[::-1])


@aten("movedim", "moveaxis")
def movedim(
    x: RelayExpr, source: int | Sequence[int], destination: int | Sequence[int]
) -> RelayExpr:
    rank = rank_of(x)
    from_axes = [axis_of(a, rank) for a in ([source] if isinstance(source, int) else source)]
    into = [destination] if isinstance(destination, int) else destination
    placed = dict(zip((axis_of(a, rank) for a in into), from_axes, strict=True))
    rest = iter(axis for axis in range(rank) if axis not in from_axes)
    return permute(x, [placed[at] if at in placed else next(rest) for at in range(rank)])


# ---- parts ----


def expect_few(count: int) -> None:
    """So many tensors can be results of one operator."""
    if count > MOST_NUMBERS:
        raise ValueError(f"it has {count} results, more than {MOST_NUMBERS}")


def places_of(*lines: tuple[int, int, int]) -> RelayExpr:
    """Sums of numbers along axes, each from a first one, so many, at a distance."""
    expect_moderate(math.prod(count for _, count, _ in lines), "its places")
    found = np.zeros((), np.int64)
    for first, count, step in lines:
        found = found[..., None] + (first + step * np.arange(count))
    return constant(found, "int64")


@aten("slice", "slice_copy")
def slice_(
    x: RelayExpr, dim: int = 0, start: Extent | None = None, end: Extent | None = None,
    step: int = 1,
) -> RelayExpr:
    shape = dims_of(x)
    at = axis_of(dim, len(shape))
    extent = shape[at]
    if isinstance(extent, Expr) or isinstance(start, Expr) or isinstance(end, Expr):
        first = 0 if start is None else start
        return _open_slice(x, at, first, extent if end is None else end, step)
    first, last, _ = slice(start, end).indices(extent)
    if (first, step) == (0, 1) and last >= extent:
        return x
    return call(
        "strided_slice", x, begin=(first,), end=(max(first, last),), strides=(step,), axes=(at,),
    )


def _open_slice(
    x: RelayExpr, at: int, start: Extent, end: Extent, step: int
) -> RelayExpr:
    """A part of an axis where its extent or the part's ends are open."""
    extent = dims_of(x)[at]
    if is_same(end, extent):
        end = FAR
    if isinstance(start, int) and isinstance(end, int):
        if (start, step) == (0, 1) and end >= FAR:
            return x
        last = min(end, FAR)
        return call("strided_slice", x, begin=(start,), end=(last,), strides=(step,), axes=(at,))
    if is_told(start) or is_told(end):
        return _told_slice(x, at, start, end, step)
    if start != 0 or step != 1 or isinstance(end, int):
        raise OpNotImplemented("a slice from a place that an open extent decides")
    shown = [end if axis == at else 1 for axis in range(rank_of(x))]
    return call("slice_like", x, call("zeros", tuple(shown), "int8"), axes=(at,))


def _told_slice(x: RelayExpr, at: int, start: Extent, end: Extent, step: int) -> RelayExpr:
    """A part of an axis between places that the data decides; those behind its end are its end."""
    if step != 1:
        raise OpNotImplemented("steps between places that the data decides")
    whole = as_tensor(dims_of(x)[at])
    first = _place_in(start, whole)
    last = call("maximum", _place_in(end, whole), first)
    places = call("add", counted(told(call("subtract", last, first))), first)
    return call("take", x, places, axis=at, mode="clip")


def _place_in(place: Extent, whole: RelayExpr) -> RelayExpr:
    """A place along an axis of so many elements; below 0 it counts from the end."""
    number = as_tensor(place)
    if isinstance(place, int) and place < 0:
        number = call("maximum", call("add", number, whole), constant(0, "int64"))
    return call("minimum", number, whole)


@aten("narrow", "narrow_copy")
def narrow(x: RelayExpr, dim: int, start: Extent, length: Extent) -> RelayExpr:
    whole = dims_of(x)[dim]
    first = start + whole if isinstance(start, int) and start < 0 else start
    end = simplified_dim(first + length)
    if is_told(start) or is_told(length):
        reason = "narrow: # elements from place # on are more than the # along the axis"
        x = expected(x, build.less_equal(end, whole), reason, length, first, whole)
        places = call("add", counted(length), as_tensor(first))
        return call("take", x, places, axis=axis_of(dim, rank_of(x)), mode="clip")
    return slice_(x, dim, first, end)


@aten("select", "select_copy")
def select(x: RelayExpr, dim: int, index: int | RelayExpr) -> RelayExpr:
    shape = dims_of(x)
    at = axis_of(dim, len(shape))
    if isinstance(index, RelayExpr):
        return _selected(x, at, call("add", cast(index, "int64"), constant(0, "int64")))
    if type(shape[at]) is not int:
        end = index + 1 if index != -1 else None
        rest = (*shape[:at], *shape[at + 1 :])
        return reshaped(slice_(x, at, index, end), rest)
    place = index + shape[at] if index < 0 else index
    if not 0 <= place < shape[at]:
        raise ValueError(f"index {index} is none of {shape[at]}")
    return squeeze(slice_(x, at, place, place + 1), at)


def _selected(x: RelayExpr, at: int, index: RelayExpr) -> RelayExpr:
    """The slice at a place that the data decides; below 0 it counts from the end."""
    whole = as_tensor(dims_of(x)[at])
    zero = constant(0, "int64")
    place = call("where", call("less", index, zero), call("add", index, whole), index)
    inside = call(
        "logical_and", call("greater_equal", place, zero), call("less", place, whole)
    )
    place = expected(place, inside, "select: index # is none of the # along the axis", index, whole)
    return call("take", x, place, axis=at, mode="clip")


@aten("split", "split_copy", "split_with_sizes", "split_with_sizes_copy", "unsafe_split",
      "unsafe_split_with_sizes")
def split(
    x: RelayExpr, split_size: int | Sequence[int] = 0, dim: int = 0,
    split_sizes: Sequence[int] = (),
) -> list[RelayExpr]:
    sizes = split_sizes or split_size
    if not isinstance(sizes, int) and any(map(is_told, sizes)):
        return _told_parts(x, axis_of(dim, rank_of(x)), sizes)
    whole = extent_of(x, axis_of(dim, rank_of(x)))
    if isinstance(sizes, int):
        count = max(1, -(-whole // max(sizes, 1)))
        expect_few(count)
        sizes = [min(sizes, whole - place * sizes) for place in range(count)]
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    return _cut(x, ends[:-1], axis_of(dim, rank_of(x)))


def _told_parts(x: RelayExpr, at: int, sizes: Extents) -> list[RelayExpr]:
    """Parts one behind the other, some of whose sizes the data decides."""
    made: list[RelayExpr] = []
    end: Extent = 0
    first = end
    reason = "split: the sizes come to #, and the axis has # elements"
    for size in sizes:
        end = simplified_dim(end + size)
    x = expect_equal(x, end, dims_of(x)[at], reason)
    for size in sizes:
        places = call("add", counted(size), as_tensor(first))
        made.append(call("take", x, places, axis=at, mode="clip"))
        first = simplified_dim(first + size)
    return made


def _cut(x: RelayExpr, places: Sequence[int], at: int) -> list[RelayExpr]:
    """The parts of a tensor between places along an axis."""
    bounds = [0, *places, extent_of(x, at)]
    if len(bounds) == 2:
        return [x]
    if all(low < high for low, high in pairwise(bounds)):
        return parts(call("split", x, tuple(places), axis=at), len(places) + 1)
    return [slice_(x, at, low, max(low, high)) for low, high in pairwise(bounds)]


@aten("chunk", "unsafe_chunk")
def chunk(x: RelayExpr, chunks: int, dim: int = 0) -> list[RelayExpr]:
    whole = extent_of(x, axis_of(dim, rank_of(x)))
    if not whole:
        expect_few(chunks)
        return [x] * chunks
    return split(x, -(-whole // chunks), dim)


@aten("tensor_split")
def tensor_split(
    x: RelayExpr, sections: int = 0, dim: int = 0, indices: Sequence[int] | None = None
) -> list[RelayExpr]:
    at = axis_of(dim, rank_of(x))
    whole = extent_of(x, at)
    if indices is not None:
        places = [min(slice(place, None).indices(whole)[0], whole) for place in indices]
        return _cut(x, places, at)
    expect_few(sections)
    small, more = divmod(whole, sections)
    return split(x, dim=at, split_sizes=[small + (part < more) for part in range(sections)])


@aten("hsplit", "vsplit", "dsplit")
def axis_split(
    x: RelayExpr, sections: int = 0, indices: Sequence[int] | None = None
) -> list[RelayExpr]:
    return tensor_split(x, sections, min(1, rank_of(x) - 1), indices)


@aten("unbind", "unbind_copy")
def unbind(x: RelayExpr, dim: int = 0) -> list[RelayExpr]:
    at = axis_of(dim, rank_of(x))
    whole = extent_of(x, at)
    pieces = split(x, 1, at) if whole else []
    return [squeeze(piece, at) for piece in pieces]


@aten("unfold", "unfold_copy")
def unfold(x: RelayExpr, dimension: int, size: int, step: int) -> RelayExpr:
    """Windows along an axis, their elements along a last one."""
    shape = shape_of(x)
    if not shape:
        return reshaped(x, (size,))
    at = axis_of(dimension, len(shape))
    count = (shape[at] - size) // step + 1
    made = call("take", x, places_of((0, count, step), (0, size, 1)), axis=at)
    return movedim(made, at + 1, -1)


@aten("diagonal", "diagonal_copy")
def diagonal(x: RelayExpr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> RelayExpr:
    rank = rank_of(x)
    moved = movedim(x, (dim1, dim2), (rank - 2, rank - 1))
    *outer, rows, columns = shape_of(moved)
    first = (max(-offset, 0), max(offset, 0))
    count = max(0, min(rows - first[0], columns - first[1]))
    places = places_of((first[0] * columns + first[1], count, columns + 1))
    flat = reshaped(moved, (*outer, rows * columns))
    return call("take", flat, places, axis=rank - 2)


@aten("linalg_diagonal")
def linalg_diagonal(
    A: RelayExpr, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> RelayExpr:
    return diagonal(A, offset, dim1, dim2)


# ---- tensors put together ----


@aten("cat", "concat", "concatenate")
def cat(tensors: Sequence[RelayExpr], dim: int = 0) -> RelayExpr:
    dtype = result_type(*tensors)
    whole = [cast(each, dtype) for each in tensors if not are_same(dims_of(each), (0,))]
    if not whole:
        return cast(tensors[0], dtype)
    at = axis_of(dim, rank_of(whole[0]))
    return whole[0] if len(whole) == 1 else call("concatenate", whole, axis=at)


@aten("stack")
def stack(tensors: Sequence[RelayExpr], dim: int = 0) -> RelayExpr:
    at = axis_below(dim, rank_of(tensors[0]) + 1)
    return cat([unsqueeze(each, at) for each in tensors], at)


def _at_least(x: RelayExpr, rank: int) -> RelayExpr:
    shape = shape_of(x)
    wide: tuple[int, ...] = shape
    if rank == 1 and not shape:
        wide = (1,)
    elif rank == 2 and len(shape) < 2:
        wide = (1, *(shape or (1,)))
    elif rank == 3 and len(shape) < 3:
        wide = (1, 1, 1) if not shape else (1, shape[0], 1) if len(shape) == 1 else (*shape, 1)
    return x if wide == shape else reshaped(x, wide)


@aten("atleast_1d")
def at_least_one(x: RelayExpr) -> RelayExpr:
    return _at_least(x, 1)


@aten("atleast_2d")
def at_least_two(x: RelayExpr) -> RelayExpr:
    return _at_least(x, 2)


@aten("atleast_3d")
def at_least_three(x: RelayExpr) -> RelayExpr:
    return _at_least(x, 3)


@aten("hstack")
def hstack(tensors: Sequence[RelayExpr]) -> RelayExpr:
    made = [_at_least(each, 1) for each in tensors]
    return cat(made, 0 if rank_of(made[0]) == 1 else 1)


@aten("vstack", "row_stack")
def vstack(tensors: Sequence[RelayExpr]) -> RelayExpr:
    return cat([_at_least(each, 2) for each in tensors], 0)


@aten("dstack")
def dstack(tensors: Sequence[RelayExpr]) -> RelayExpr:
    return cat([_at_least(each, 3) for each in tensors], 2)


@aten("column_stack")
def column_stack(tensors: Sequence[RelayExpr]) -> RelayExpr:
    wide = [
        reshaped(x, (math.prod(shape_of(x)), 1)) if rank_of(x) < 2 else x for x in tensors
    ]
    return cat(wide, 1)


@aten("repeat")
def repeat(x: RelayExpr, repeats: Sequence[int]) -> RelayExpr:
    if 0 in repeats:
        more = (1,) * (len(repeats) - rank_of(x))
        whole = [e * r for e, r in zip((*more, *shape_of(x)), repeats, strict=True)]
        return call("zeros", tuple(whole), str(type_of(x).dtype))
    return call("tile", x, tuple(repeats)) if repeats else x


@aten("tile")
def tile(x: RelayExpr, dims: Sequence[int]) -> RelayExpr:
    return repeat(x, [1] * (rank_of(x) - len(dims)) + list(dims))
