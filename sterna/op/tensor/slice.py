"""Parts of a tensor cut out: strided_slice."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import axis_of, expect_dim, tensor
from sterna.op.dynamic import (
    DimsLike,
    known_dims,
    length_of,
    open_dims,
    tensor_type,
    told_by_shape,
)
from sterna.op.indexing import Index, as_index, dims_of, taken_from
from sterna.op.integer_rules import carried
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import Call, RelayExpr, RelayExprLike, const
from sterna.relay.layout_rules import LayoutPlan, Operands
from sterna.relay.op import INJECTIVE, Case, OpRecord, call, register
from sterna.relay.symbolic_values import is_extent, is_of_shapes
from sterna.te import Tensor


@attributes
class StridedSliceAttrs(Attrs):
    """Of strided_slice."""

    begin: tuple[Dim, ...]
    end: tuple[Dim, ...]
    strides: tuple[int, ...] = (1,)
    axes: tuple[int, ...] | None = None
    slice_mode: str = "end"

    def normalize(self) -> None:
        self.strides = _all_strides(self.strides, len(self.begin), self.slice_mode)


@attributes
class DynStridedSliceAttrs(Attrs):
    """Of dyn.strided_slice."""

    axes: tuple[int, ...] | None = None
    slice_mode: str = "end"

    def normalize(self) -> None:
        _expect_mode(self.slice_mode)


def _expect_mode(slice_mode: str) -> None:
    if slice_mode not in ("end", "size"):
        raise ValueError(f"slice_mode is 'end' or 'size', not {slice_mode!r}")


def _all_strides(strides: Sequence[int], count: int, slice_mode: str) -> tuple[int, ...]:
    """A stride for every begin: those that are not given are 1."""
    _expect_mode(slice_mode)
    if 0 in strides:
        raise ValueError(f"strides are not 0, as in {strides}")
    if slice_mode == "size":
        return (1,) * count
    return (*strides[:count], *(1,) * (count - len(strides)))


def _slices(
    begin: Sequence[Any], end: Sequence[Any], strides: Sequence[int], axes: Sequence[int] | None,
    slice_mode: str, ndim: int,
) -> dict[int, slice]:
    """The slice of each axis that is cut, as Python understands slices."""
    if len(begin) != len(end):
        raise ValueError(f"begin has {len(begin)} numbers, end has {len(end)}")
    places = range(len(begin)) if axes is None else axes
    if len(places) != len(begin):
        raise ValueError(f"axes has {len(places)} numbers, begin has {len(begin)}")
    found: dict[int, slice] = {}
    for place, first, last, stride in zip(places, begin, end, strides, strict=True):
        axis = axis_of(place, ndim, "axes" if axes is not None else "begin's dimension")
        if slice_mode == "size":  # a size below 0 goes to the end
            stop = None if last < 0 else first + last
            found[axis] = slice(first, None if stop is None or first < 0 <= stop else stop)
        else:
            found[axis] = slice(first, last, stride)
    return found


def slices_of(attrs: StridedSliceAttrs, ndim: int) -> dict[int, slice]:
    return _slices(
        attrs.begin, attrs.end, attrs.strides, attrs.axes, attrs.slice_mode, ndim
    )


# Ends at least as large as this mean the end of the axis, whatever its extent.
FAR = 2**31 - 1


def _is_plain(part: slice) -> bool:
    """Whether a slice begins and ends at numbers."""
    return not isinstance(part.start, Expr) and not isinstance(part.stop, Expr)


def _extent(dim: Dim, part: slice) -> Dim:
    if type(dim) is int and _is_plain(part):
        return len(range(*part.indices(dim)))
    stride = part.step or 1
    if stride == 1 and _is_plain(part) and not part.start and _is_far(part.stop):
        return dim
    if isinstance(dim, AnyDim):
        return AnyDim()
    begin, end = first_of(dim, part), _last_of(dim, part)
    span = end - begin if stride > 0 else begin - end
    count = (span + (abs(stride) - 1)) // abs(stride)
    return count if is_extent(span) else build.maximum(count, 0)


def _is_far(stop: Any) -> bool:
    """Whether a slice goes to the end, whatever the extent."""
    return stop is None or (not isinstance(stop, Expr) and stop >= FAR)


def _last_of(dim: Dim, part: slice) -> Expr:
    """Behind the last element of a slice."""
    stride, stop = part.step or 1, part.stop
    if _is_far(stop) or (stride < 0 and type(stop) is int and stop <= -FAR):
        return build.as_expr(dim) if stride > 0 else build.const(-1)
    return _place(stop, stride, dim)


def _place(number: Any, stride: int, dim: Dim) -> Expr:
    """Where a slice begins or ends; extents need not be counted from the end."""
    if isinstance(number, Expr) and stride > 0 and is_extent(number):
        return build.minimum(dim, number)
    return first_index(build.as_expr(number), build.const(stride), dim)


def infer_slice(attrs: StridedSliceAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    parts = slices_of(attrs, kind.ndim)
    shape = [
        _extent(dim, parts[axis]) if axis in parts else dim for axis, dim in enumerate(kind.shape)
    ]
    return TensorType(tuple(shape), kind.dtype)


def first_of(dim: Dim, part: slice) -> Any:
    """Where a slice begins in a dimension that may be known only when the program runs."""
    if type(dim) is int and not isinstance(part.start, Expr):
        return slice(part.start, None, part.step).indices(dim)[0]
    start, step = part.start, part.step or 1
    if start is None and step > 0:
        return build.const(0)
    if _is_far(start):
        return dim if step > 0 else dim - 1
    return _place(start, step, dim)


def first_index(begin: Expr, stride: Expr, dim: Dim) -> Expr:
    """Where a slice begins: from the end if begin is below 0, and within the dimension."""
    forward = stride > 0
    counted = build.select(begin < 0, begin + dim, begin)
    low = build.select(forward, build.const(0, counted.dtype), build.const(-1, counted.dtype))
    high = build.select(forward, build.as_expr(dim), build.as_expr(dim) - 1)
    return build.maximum(low, build.minimum(high, counted))


def _compute(attrs: StridedSliceAttrs, out: TensorType, data: Tensor) -> Tensor:
    parts = slices_of(attrs, data.ndim)
    dims = dims_of(data)

    def where(i: Index) -> Index:
        return [
            index * (parts[axis].step or 1) + first_of(dims[axis], parts[axis])
            if axis in parts else index
            for axis, index in enumerate(i)
        ]

    return taken_from(data, out.shape, where, "T_strided_slice")


def _cut(data: Array, parts: dict[int, slice]) -> Array:
    return data[tuple(parts.get(axis, slice(None)) for axis in range(data.ndim))]


def _everything(cut: Call) -> RelayExpr | None:
    """strided_slice(x) of all there is -> x"""
    (data,) = cut.args
    kind = tensor(data.checked_type, "data")
    assert isinstance(cut.attrs, StridedSliceAttrs)
    for axis, part in slices_of(cut.attrs, kind.ndim).items():
        dim = kind.shape[axis]
        if type(dim) is not int or not _is_plain(part):
            return None
        if range(*part.indices(dim)) != range(dim):
            return None
    return data


def _length(begin: RelayExpr | Array) -> int:
    if isinstance(begin, RelayExpr):
        return length_of(begin.checked_type, "begin")
    return begin.size


def _strided_slice(
    data: RelayExprLike, begin: DimsLike, end: DimsLike, strides: DimsLike | None = None,
    axes: DimsLike | None = None, slice_mode: str = "end",
) -> Any:
    """The part of data from begin to end, every so many elements, for the first or some axes.

    Numbers below 0 count from the end, as in Python. With slice_mode="size" end holds sizes, and
    -1 means all that is left.
    """
    read = open_dims if slice_mode == "end" else known_dims
    numbers = [read(begin), read(end), known_dims(strides if strides is not None else 1)]
    chosen = None if axes is None else known_dims(axes)
    if axes is not None and chosen is None:
        raise ValueError("strided_slice: axes are not known before the run; give numbers")
    if None not in numbers:
        first, last, steps = numbers
        return make(
            "strided_slice", data, begin=first, end=last, strides=steps, axes=chosen,
            slice_mode=slice_mode,
        )
    arrays: list[RelayExpr | Array] = []
    for name, given in (("begin", begin), ("end", end), ("strides", strides)):
        if isinstance(given, RelayExpr):
            arrays.append(given)
        elif given is None:
            arrays.append(np.ones(_length(arrays[0]), np.int64))
        elif known_dims(given) is None:
            raise ValueError(f"strided_slice: some of {name} is computed; give one tensor of all")
        else:
            arrays.append(np.array(given, np.int64))
    return make("dyn.strided_slice", data, *arrays, axes=chosen, slice_mode=slice_mode)


def _layout(
    attrs: StridedSliceAttrs, old: StridedSliceAttrs, operands: Operands
) -> LayoutPlan | None:
    laid = operands[0].laid
    if laid is None or not laid.is_permutation:
        return None
    ndim = len(laid.before)
    axes = range(len(attrs.begin)) if attrs.axes is None else attrs.axes
    moved = attrs.replace(axes=tuple(laid.axis(axis % ndim) for axis in axes))
    return LayoutPlan((laid,), (laid,), moved)


register(OpRecord(
    "strided_slice",
    inputs=("data",),
    attrs=StridedSliceAttrs,
    infer=infer_slice,
    compute=_compute,
    reference=lambda attrs, data: _cut(data, slices_of(attrs, data.ndim)),
    builder=_strided_slice,
    rewrites=[_everything],
    integer=carried("strided_slice"),
    pattern=INJECTIVE,
    layout=_layout,
    cases=[
        Case(((4, 5, 3),), {"begin": (1, -4), "end": (3, 5)}),
        Case(((4, 7),), {"begin": (0, 6), "end": (99, -8), "strides": (3, -2)}),
        Case(((4, 7),), {"begin": (5,), "end": (1,), "strides": (-2,), "axes": (-1,)}),
        Case((((4, 7), "int8"),), {"begin": (1, -3), "end": (2, -1), "slice_mode": "size"}),
        Case(((4,),), {"begin": (3,), "end": (1,)}),
        Case(((5,),), {"begin": (-99,), "end": (99,), "strides": (2,)}),
    ],
    doc=_strided_slice.__doc__ or "",
))


# ---- with numbers that are computed ----


def _dyn_axes(attrs: DynStridedSliceAttrs, count: int, ndim: int) -> list[int]:
    axes = range(count) if attrs.axes is None else attrs.axes
    if len(axes) != count:
        raise ValueError(f"axes has {len(axes)} numbers, begin has {count}")
    return [axis_of(axis, ndim, "axes") for axis in axes]


def _infer_dyn(
    attrs: DynStridedSliceAttrs, data: Type, begin: Type, end: Type, strides: Type
) -> TensorType:
    kind = tensor(data, "data")
    count = length_of(begin, "begin")
    for name, given in (("end", end), ("strides", strides)):
        expect_dim(length_of(given, name), count, f"the length of {name}")
    axes = _dyn_axes(attrs, count, kind.ndim)
    shape = [AnyDim() if axis in axes else dim for axis, dim in enumerate(kind.shape)]
    return TensorType(tuple(shape), kind.dtype)


def _compute_dyn(
    attrs: DynStridedSliceAttrs, out: TensorType, data: Tensor, begin: Tensor, end: Tensor,
    strides: Tensor,
) -> Tensor:
    (count,) = dims_of(begin)
    assert type(count) is int
    axes = _dyn_axes(attrs, count, data.ndim)

    def where(i: Index) -> Index:
        found = list(i)
        for number, axis in enumerate(axes):
            stride = as_index(strides(number))
            if attrs.slice_mode == "size":
                stride = build.const(1, stride.dtype)
            first = first_index(as_index(begin(number)), stride, data.shape[axis])
            found[axis] = i[axis] * stride + first
        return found

    return taken_from(data, out.shape, where, "T_strided_slice")


def _dyn_reference(
    attrs: DynStridedSliceAttrs, data: Array, begin: Array, end: Array, strides: Array
) -> Array:
    steps = _all_strides(strides.tolist(), len(begin), attrs.slice_mode)
    return _cut(data, _slices(
        begin.tolist(), end.tolist(), steps, attrs.axes, attrs.slice_mode, data.ndim))


def _gathered(attrs: DynStridedSliceAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    """The rows from the first one on, as many as there are by the numbers that are computed."""
    data: RelayExpr = args[0]
    if all(is_of_shapes(arg) for arg in args[1:]):
        return None
    begin, end, strides = (call("cast", arg, dtype="int64") for arg in args[1:])
    axes = _dyn_axes(attrs, length_of(args[1].checked_type, "begin"), tensor_type(data).ndim)
    zero, one = const(0, "int64"), const(1, "int64")
    extent = call("take", call("shape_of", data, dtype="int64"), const(np.array(axes)), axis=0)
    if attrs.slice_mode == "size":
        begin = call("where", call("less", begin, zero), call("add", begin, extent), begin)
        end = call("where", call("less", end, zero), extent, call("add", begin, end))
        strides = call("ones_like", strides)
    back = call("less", strides, zero)
    lowest = call("where", back, const(-1, "int64"), zero)
    highest = call("where", back, call("subtract", extent, one), extent)

    def place(number: RelayExpr) -> RelayExpr:
        number = call("where", call("less", number, zero), call("add", number, extent), number)
        return call("minimum", call("maximum", number, lowest), highest)

    firsts = place(begin)
    span = call("subtract", firsts, place(end))
    rows = call("negative", call("floor_divide", span, strides))
    counts = told_by_shape(call("maximum", rows, zero))
    if counts is None:
        return None

    def of_axis(numbers: RelayExpr, number: int) -> RelayExpr:
        return call("squeeze", call(
            "strided_slice", numbers, begin=(number,), end=(number + 1,)), axis=(0,))

    for number, axis in enumerate(axes):
        first, stride, count = (of_axis(each, number) for each in (firsts, strides, counts))
        counted = call("dyn.arange", zero, count, one, dtype="int64")
        where = call("add", first, call("multiply", counted, stride))
        data = call("take", data, where, axis=axis, mode="clip")
    return data


def _to_static(attrs: DynStridedSliceAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    read = open_dims if attrs.slice_mode == "end" else known_dims
    begin, end, strides = read(args[1]), read(args[2]), known_dims(args[3])
    if begin is None or end is None or strides is None:
        return None
    given = dict(attrs.items())
    return call("strided_slice", args[0], begin=begin, end=end, strides=strides, **given)


register(OpRecord(
    "dyn.strided_slice",
    inputs=("data", "begin", "end", "strides"),
    attrs=DynStridedSliceAttrs,
    infer=_infer_dyn,
    compute=_compute_dyn,
    reference=_dyn_reference,
    to_static=_to_static,
    measured=_gathered,
    pattern=INJECTIVE,
    cases=[
        Case(((4, 7), np.array([1, 6]), np.array([9, -8]), np.array([2, -3]))),
        Case(((4, 7), np.array([-5], "int32"), np.array([3], "int32"), np.array([1], "int32")),
             {"axes": (1,), "slice_mode": "size"}),
    ],
    doc="strided_slice from, to and by numbers that are computed.",
))
