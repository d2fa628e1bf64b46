"""Elements put where tensors of indices say: scatter_elements, scatter_nd, sparse_to_dense.

Updates are applied one after the other, so that of several at one place the last one counts.
Indices below 0 count from the end; an update outside of the data is left out.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.axis_rows import AxisRows, index_type
from sterna.op.checks import at_least, axis_of, expect_dim, of_kind, same_dtype, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.elementwise import quiet
from sterna.op.indexing import as_index, dims_of, from_either_end, unravel
from sterna.op.statements import filled, loops, variable
from sterna.op.tensor.binary import keep_nan
from sterna.op.thread_scatter import SortedUpdates, numbered
from sterna.op.thread_sort import each
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import OPAQUE, Case, OpRecord, call, register
from sterna.target import Target, is_gpu
from sterna.te import Tensor
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.stmt import AssertStmt

COMBINE: dict[str, Callable[[Any, Any], Expr]] = {
    "update": lambda old, new: new,
    "add": build.add,
    "mul": build.mul,
    "min": keep_nan(build.minimum),
    "max": keep_nan(build.maximum),
}
_UFUNCS: dict[str, Any] = {
    "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
}


def _mode(given: str, name: str) -> str:
    """How an update meets what is there; ONNX says none for update."""
    mode = "update" if given == "none" else given
    if mode not in COMBINE:
        raise ValueError(f"{name} is one of {', '.join(COMBINE)}, not {given!r}")
    return mode


def _numbers(kind: TensorType, mode: str) -> TensorType:
    """Only numbers can be combined."""
    return kind if mode == "update" else of_kind(kind, "data", "float", "int", "uint")


def _copy(builder: IRBuilder, result: BufferVar, data: BufferVar) -> None:
    with loops(builder, result.shape) as i:
        result[i] = data[i]


def _put(
    builder: IRBuilder, result: BufferVar, index: Sequence[Expr], value: Expr, mode: str,
    checked: Sequence[int],
) -> None:
    """result[index] combined with a value, unless one of the checked indices is outside."""
    inside = []
    for axis in checked:
        inside += [index[axis] >= 0, index[axis] < result.shape[axis]]
    with builder.if_scope(t.all(*inside)):
        result[list(index)] = COMBINE[mode](result[list(index)], value)


def _put_array(result: Array, index: tuple[Array, ...], values: Array, mode: str) -> None:
    """The same on arrays; the indices count from either end."""
    shape = values.shape
    places = [np.broadcast_to(part, shape).astype(np.int64) for part in index]
    places = [np.where(p < 0, p + dim, p) for p, dim in zip(places, result.shape, strict=True)]
    inside = np.ones(shape, bool)
    for place, dim in zip(places, result.shape, strict=True):
        inside &= (place >= 0) & (place < dim)
    chosen = tuple(place[inside] for place in places)
    if mode == "update":
        result[chosen] = values[inside]
    else:
        _UFUNCS[mode].at(result, chosen, values[inside])


# ---- scatter_elements ----


@attributes
class ScatterElementsAttrs(Attrs):
    """Of scatter_elements."""

    axis: int = 0
    reduction: str = "update"
    strict: bool = False

    def normalize(self) -> None:
        self.reduction = _mode(self.reduction, "reduction")


def _infer_elements(
    attrs: ScatterElementsAttrs, data: Type, indices: Type, updates: Type
) -> TensorType:
    kind = _numbers(tensor(data, "data"), attrs.reduction)
    places = of_kind(tensor(indices, "indices", kind.ndim), "indices", "int", "uint")
    values = tensor(updates, "updates", kind.ndim)
    same_dtype([kind, values], ["data", "updates"])
    axis = axis_of(attrs.axis, kind.ndim)
    for place, (have, want) in enumerate(zip(values.shape, places.shape, strict=True)):
        expect_dim(have, want, f"dimension {place} of updates")
        most = kind.shape[place]
        if place != axis and type(want) is int and type(most) is int and want > most:
            raise ValueError(f"dimension {place} of indices is at most {most}, not {want}")
    return kind


def _compute_elements(
    attrs: ScatterElementsAttrs, out: TensorType, data: Tensor, indices: Tensor, updates: Tensor
) -> Tensor:
    axis = attrs.axis % data.ndim
    dim = dims_of(data)[axis]

    def fill(builder: IRBuilder, result: BufferVar, inputs: list[BufferVar]) -> None:
        old, places, values = inputs
        _copy(builder, result, old)
        fault = []
        if attrs.strict:
            fault = [variable(builder, "int64", name, 0) for name in ("faults", "fault")]
        with loops(builder, indices.shape, "j") as i:
            given = as_index(places[i]) if attrs.strict else from_either_end(places[i], dim)
            place = builder.let("place", given)
            index = [*i[:axis], place, *i[axis + 1 :]]
            _put(builder, result, index, values[i], attrs.reduction, [axis])
            if attrs.strict:
                with builder.else_scope():
                    fault[0].set(1)
                    fault[1].set(place)
        if attrs.strict:
            text = f"index {{}} is out of bounds for dimension {axis} with size {{}}"
            told = fault[1].get(), build.as_expr(dim)
            builder.emit(AssertStmt(fault[0].get().equal(0), "RuntimeError", text, told))

    return filled(out, [data, indices, updates], fill, "T_scatter_elements")


def _compute_by_threads(
    attrs: ScatterElementsAttrs, out: TensorType, data: Tensor, indices: Tensor, updates: Tensor
) -> Tensor | None:
    """A kernel of a device ends without errors: what is outside is left out there."""
    made = _sorted_elements(attrs, out, data, indices, updates)
    if made is not None or not attrs.strict:
        return made
    loose = ScatterElementsAttrs(attrs.axis, attrs.reduction)
    return _compute_elements(loose, out, data, indices, updates)


def _sorted_elements(
    attrs: ScatterElementsAttrs, out: TensorType, data: Tensor, indices: Tensor, updates: Tensor
) -> Tensor | None:
    """Updates of each line sorted by their places."""
    rows, given = (AxisRows(dims_of(each), attrs.axis % data.ndim) for each in (data, indices))
    if not rows.is_static or not given.is_static:
        return None
    length, count = rows.length, given.length
    assert isinstance(length, int) and isinstance(count, int)
    others = [dim for dim in given.others if isinstance(dim, int)]
    found = SortedUpdates(given.count, count, length)
    if not found.pays:
        return None

    def fill(ib: IRBuilder, result: BufferVar, inputs: list[BufferVar]) -> None:
        old, places, values = inputs

        def place(line: Expr, update: Expr) -> Expr:
            own = places[given.at(line, update)]
            at = as_index(own) if attrs.strict else from_either_end(own, length)
            return numbered([ib.let("index", at)], [length])

        found.sort(ib, place)
        with rows.each_part(ib, length) as (line, part, at):
            to, start = ib.let("to", part), old[at(part)]
            is_whole = given.others == rows.others
            # Lines that have updates are counted by the extents of indices.
            own = line if is_whole else ib.let(
                "own", numbered(unravel(line, rows.others), others))
            with nullcontext() if is_whole else ib.if_scope(own < found.lines):
                result[at(to)] = found.combined(
                    ib, own, to, start, lambda update: values[given.at(own, update)],
                    COMBINE[attrs.reduction])
            if not is_whole:
                with ib.else_scope():
                    result[at(to)] = start

    return filled(out, [data, indices, updates], fill, "T_scatter_elements")


def _whole_rows(
    attrs: ScatterElementsAttrs, args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """scatter_elements of one index for all elements of a row -> scatter_nd of rows, on GPUs"""
    data, indices, updates = args
    kind, given = tensor_type(data), tensor_type(indices)
    spread = isinstance(indices, Call) and str(indices.op) == "broadcast_to"
    if target is None or not is_gpu(target) or not spread or attrs.axis % kind.ndim:
        return None
    assert isinstance(indices, Call)
    (narrow,) = indices.args
    shape = tensor_type(narrow).shape
    whole = kind.is_static and given.is_static and given.shape[1:] == kind.shape[1:]
    if not whole or shape != (given.shape[0], *[1] * (kind.ndim - 1)):
        return None
    rows = call("reshape", narrow, newshape=(1, given.shape[0]))
    return call("scatter_nd", data, rows, updates, mode=attrs.reduction)


def _elements(attrs: ScatterElementsAttrs, data: Array, indices: Array, updates: Array) -> Array:
    result = data.copy()
    dim = data.shape[attrs.axis % data.ndim]
    outside = (indices < 0) | (indices >= dim)
    if attrs.strict and outside.any():
        told = f"{indices[outside][-1]} is out of bounds for dimension {attrs.axis % data.ndim}"
        raise RuntimeError(f"index {told} with size {dim}")
    index: list[Array] = list(np.indices(indices.shape, sparse=True))
    index[attrs.axis % data.ndim] = indices
    _put_array(result, tuple(index), updates, attrs.reduction)
    return result


_AT = np.array([[0, 2, 2], [-1, 0, 7]])
_CASES = [
    Case(((4, 3), _AT, (2, 3)), {"reduction": mode}) for mode in ("update", "add", "mul")
]

register(OpRecord(
    "scatter_elements",
    inputs=("data", "indices", "updates"),
    attrs=ScatterElementsAttrs,
    infer=_infer_elements,
    compute=_compute_elements,
    compute_by_threads=_compute_by_threads,
    legalize=_whole_rows,
    reference=quiet(_elements),
    pattern=OPAQUE,
    cases=[
        *_CASES,
        Case((((3, 4), "int8"), np.array([[1, 1, -1]], "int32"), ((1, 3), "int8")),
             {"axis": 1, "reduction": "max"}),
        Case(((3,), np.array([0, 0, 1]), np.array([np.nan, 1.0, -9.0], "float32")),
             {"reduction": "min"}),
        Case((((2, 2), "bool"), np.array([[0, 1]]), ((1, 2), "bool"))),
        Case(((3,), np.zeros(0, "int64"), (0,))),
        Case(((4, 3), np.array([[0, 2, 3], [1, 0, 0]]), (2, 3)), {"strict": True}),
    ],
    doc="data with updates[i] put at i, except along one axis, where indices[i] says the place: "
        "instead of what is there (update, none) or combined with it (add, mul, min, max). A place "
        "that is not from 0 to below the axis's extent is an error, if strict; devices make none.",
))


def _classic(name: str, reduction: str, doc: str) -> None:
    def builder_attrs(attrs: ScatterAttrs) -> ScatterElementsAttrs:
        return ScatterElementsAttrs(attrs.axis, reduction)

    def simplify(attrs: ScatterAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr:
        return call("scatter_elements", *args, axis=attrs.axis, reduction=reduction)

    register(OpRecord(
        name,
        inputs=("data", "indices", "updates"),
        attrs=ScatterAttrs,
        infer=lambda attrs, *kinds: _infer_elements(builder_attrs(attrs), *kinds),
        reference=lambda attrs, *arrays: _elements(builder_attrs(attrs), *arrays),
        simplify=simplify,
        pattern=OPAQUE,
        cases=[Case(((4, 3), _AT, (2, 3)), {"axis": 0})],
        doc=doc,
    ))


@attributes
class ScatterAttrs(Attrs):
    """Of scatter and scatter_add."""

    axis: int


_classic("scatter", "update", "scatter_elements under its older name.")
_classic("scatter_add", "add", "scatter_elements with the reduction add, under its older name.")


# ---- scatter_nd ----


@attributes
class ScatterNDAttrs(Attrs):
    """Of scatter_nd."""

    mode: str = "update"

    def normalize(self) -> None:
        self.mode = _mode(self.mode, "mode")


def _infer_nd(attrs: ScatterNDAttrs, data: Type, indices: Type, updates: Type) -> TensorType:
    kind = _numbers(tensor(data, "data"), attrs.mode)
    places = of_kind(at_least(indices, "indices", 1), "indices", "int", "uint")
    rank = places.shape[0]
    if type(rank) is not int or rank > kind.ndim:
        raise ValueError(
            f"the first dimension of indices says how many of data's {kind.ndim} axes they name; "
            f"it is {rank}"
        )
    wanted = (*places.shape[1:], *kind.shape[rank:])
    values = tensor(updates, "updates", len(wanted))
    same_dtype([kind, values], ["data", "updates"])
    for axis, (have, want) in enumerate(zip(values.shape, wanted, strict=True)):
        expect_dim(have, want, f"dimension {axis} of updates")
    return kind


def _compute_nd(
    attrs: ScatterNDAttrs, out: TensorType, data: Tensor, indices: Tensor, updates: Tensor
) -> Tensor:
    dims = dims_of(data)
    rank = dims_of(indices)[0]
    assert type(rank) is int

    def fill(builder: IRBuilder, result: BufferVar, inputs: list[BufferVar]) -> None:
        old, places, values = inputs
        _copy(builder, result, old)
        with loops(builder, indices.shape[1:], "j") as i:
            index = [
                builder.let(f"place{axis}", from_either_end(places[[axis, *i]], dims[axis]))
                for axis in range(rank)
            ]
            with loops(builder, data.shape[rank:], "k") as rest:
                put = [*index, *rest]
                _put(builder, result, put, values[[*i, *rest]], attrs.mode, range(rank))

    return filled(out, [data, indices, updates], fill, "T_scatter_nd")


def _nd_by_threads(
    attrs: ScatterNDAttrs, out: TensorType, data: Tensor, indices: Tensor, updates: Tensor
) -> Tensor | None:
    """Updates sorted by the rows that they go to."""
    shape, given = dims_of(data), dims_of(indices)
    known = [dim for dim in (*shape, *given) if isinstance(dim, int) and dim > 0]
    rank = given[0]
    if len(known) < len(shape) + len(given) or not isinstance(rank, int):
        return None
    extents, rest, several = known[:rank], known[rank:len(shape)], known[len(shape) + 1:]
    found = SortedUpdates(1, math.prod(several), math.prod(extents))
    if not found.pays:
        return None
    width = math.prod(rest)

    def fill(ib: IRBuilder, result: BufferVar, inputs: list[BufferVar]) -> None:
        old, places, values = inputs

        def place(line: Expr, update: Expr) -> Expr:
            at = unravel(update, several)
            return numbered([
                ib.let(f"index{axis}", from_either_end(places[[axis, *at]], extents[axis]))
                for axis in range(rank)
            ], extents)

        found.sort(ib, place)
        count = found.places * width
        with each(ib, count, index_type(count)) as number:
            row = ib.let("row", number // width)
            within = unravel(ib.let("within", number % width), rest)
            to = [*unravel(row, extents), *within]
            result[to] = found.combined(
                ib, build.const(0, found.kind), build.cast(found.kind, row), old[to],
                lambda update: values[[*unravel(update, several), *within]], COMBINE[attrs.mode])

    return filled(out, [data, indices, updates], fill, "T_scatter_nd")


def _nd(attrs: ScatterNDAttrs, data: Array, indices: Array, updates: Array) -> Array:
    result = data.copy()
    rank = indices.shape[0]
    rest = np.indices(data.shape[rank:], sparse=True)
    shape = (*indices.shape[1:], *(1,) * (data.ndim - rank))
    wide = [np.asarray(part).reshape(shape) for part in indices]
    _put_array(result, (*wide, *rest), updates, attrs.mode)
    return result


register(OpRecord(
    "scatter_nd",
    inputs=("data", "indices", "updates"),
    attrs=ScatterNDAttrs,
    infer=_infer_nd,
    compute=_compute_nd,
    compute_by_threads=_nd_by_threads,
    reference=quiet(_nd),
    pattern=OPAQUE,
    cases=[
        Case(((3, 4, 2), np.array([[0, 2, 0], [1, -1, 1]]), (3, 2))),
        Case(((3, 4), np.array([[0, 2, 0, 5]]), (4, 4)), {"mode": "add"}),
        Case((((3, 4), "int32"), np.array([[[0], [0]], [[1], [1]]], "int32"), ((2, 1), "int32")),
             {"mode": "mul"}),
        Case(((3,), np.array([[1, 1]]), (2,)), {"mode": "max"}),
        Case(((3, 2), np.zeros((1, 0), "int64"), (0, 2))),
        Case(((3, 2), np.array([1, -1]), ())),
    ],
    doc="data with parts put at indices of several axes: updates[i] at indices[:, i], instead of "
        "what is there (update, none) or combined with it (add, mul, min, max).",
))
