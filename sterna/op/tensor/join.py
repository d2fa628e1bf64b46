"""Several tensors side by side: concatenate, stack, meshgrid."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType, TupleType, Type
from sterna.op.checks import axis_of, expect_dim, map_dims, same_dtype, tensor, tensors
from sterna.op.indexing import taken_from
from sterna.op.integer_rules import joined as joined_integers
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import Call, RelayExpr, RelayExprLike, Tuple, TupleGetItem, TupleWrapper
from sterna.relay.layout_rules import joined
from sterna.relay.op import INJECTIVE, Case, OpRecord, record_of, register
from sterna.te import Tensor, compute

# Joined tensors of more parts are copied together first, where others are joined with them: a layer
# that joins its result with all before it (DenseNet) would write code for every pair of layers, and
# reads of many places at once are no faster than one more copy.
MOST_PARTS = 8


@attributes
class JoinAttrs(Attrs):
    """Of concatenate and stack."""

    axis: int


def _names(kinds: Sequence[TensorType]) -> list[str]:
    return [f"data[{place}]" for place in range(len(kinds))]


def _common(dims: Sequence[Dim]) -> Dim:
    """A dimension that several tensors share: the one of them that is known best."""
    for dim in dims:
        if not isinstance(dim, AnyDim):
            return dim
    return dims[0]


def _infer_concatenate(attrs: JoinAttrs, data: Type) -> TensorType:
    kinds = tensors(data, "data")
    same_dtype(kinds, _names(kinds))
    first = kinds[0]
    axis = axis_of(attrs.axis, first.ndim)
    for kind, name in zip(kinds, _names(kinds), strict=True):
        tensor(kind, name, first.ndim)
        for place, (have, want) in enumerate(zip(kind.shape, first.shape, strict=True)):
            if place != axis:
                expect_dim(have, want, f"dimension {place} of {name}")
    columns = list(zip(*[kind.shape for kind in kinds], strict=True))
    total = map_dims(lambda *dims: sum(dims), *columns[axis])
    shape = [total if i == axis else _common(dims) for i, dims in enumerate(columns)]
    return TensorType(tuple(shape), first.dtype)


def _compute_concatenate(attrs: JoinAttrs, out: TensorType, data: list[Tensor]) -> Tensor:
    axis = attrs.axis % out.ndim

    def element(*indices: Expr) -> Expr:
        place = indices[axis]
        ends = []
        total: Any = 0
        for part in data:
            total = part.shape[axis] + total
            ends.append(total)
        begin = ends[-2] if len(ends) > 1 else 0
        value = data[-1](*indices[:axis], place - begin, *indices[axis + 1 :])
        for number in reversed(range(len(data) - 1)):
            begin = ends[number - 1] if number else 0
            read = data[number](*indices[:axis], place - begin, *indices[axis + 1 :])
            value = build.if_then_else(place < ends[number], read, value)
        return value

    made: Tensor = compute(out.shape, element, name="T_concat")
    return made


def _one_part(joined: Call) -> RelayExpr | None:
    """concatenate((x,)) -> x"""
    (parts,) = joined.args
    kind = parts.checked_type
    if not isinstance(kind, TupleType) or len(kind.fields) != 1:
        return None
    return parts.fields[0] if isinstance(parts, Tuple) else TupleGetItem(parts, 0)


def _of_joined(joined: Call) -> RelayExpr | None:
    """concatenate((concatenate((x, y)), z)) -> concatenate((x, y, z))

    The same elements are copied, once, and what else reads the inner one can be fused with it.
    """
    (parts,) = joined.args
    attrs: Any = joined.attrs
    kind = joined.checked_type
    if not isinstance(parts, Tuple) or not isinstance(kind, TensorType):
        return None
    flat: list[RelayExpr] = []
    for part in parts.fields:
        inner = _parts_along(part, axis_of(attrs.axis, kind.ndim), kind.ndim)
        flat += [part] if inner is None else inner
    if len(flat) == len(parts.fields) or len(flat) > MOST_PARTS:
        return None
    made: RelayExpr = make("concatenate", Tuple(tuple(flat)), axis=attrs.axis)
    return made


def _parts_along(part: RelayExpr, axis: int, rank: int) -> Sequence[RelayExpr] | None:
    """What a concatenation along an axis joins; None for anything else."""
    record = record_of(part)
    if record is None or record.name != "concatenate":
        return None
    assert isinstance(part, Call)
    (parts,) = part.args
    attrs: Any = part.attrs
    same = axis_of(attrs.axis, rank) == axis
    return parts.fields if same and isinstance(parts, Tuple) else None


register(OpRecord(
    "concatenate",
    inputs=("*data",),
    attrs=JoinAttrs,
    infer=_infer_concatenate,
    compute=_compute_concatenate,
    reference=lambda attrs, data: np.concatenate(data, attrs.axis),
    rewrites=[_one_part, _of_joined],
    pattern=INJECTIVE,
    layout=joined,
    integer=joined_integers,
    cases=[
        Case(([(2, 3), (1, 3), (4, 3)],), {"axis": 0}),
        Case(([((2, 1), "int8"), ((2, 0), "int8"), ((2, 2), "int8")],), {"axis": -1}),
        Case(([(3,)],), {"axis": 0}),
        Case(([((2, 2), "bool"), ((2, 1), "bool")],), {"axis": 1}),
    ],
    doc="Tensors one after another along an axis.",
))


def _infer_stack(attrs: JoinAttrs, data: Type) -> TensorType:
    kinds = tensors(data, "data")
    same_dtype(kinds, _names(kinds))
    first = kinds[0]
    axis = axis_of(attrs.axis, first.ndim + 1)
    for kind, name in zip(kinds, _names(kinds), strict=True):
        tensor(kind, name, first.ndim)
        for place, (have, want) in enumerate(zip(kind.shape, first.shape, strict=True)):
            expect_dim(have, want, f"dimension {place} of {name}")
    shape = [_common(dims) for dims in zip(*[kind.shape for kind in kinds], strict=True)]
    shape.insert(axis, len(kinds))
    return TensorType(tuple(shape), first.dtype)


def _compute_stack(attrs: JoinAttrs, out: TensorType, data: list[Tensor]) -> Tensor:
    axis = attrs.axis % out.ndim

    def element(*indices: Expr) -> Expr:
        own = indices[:axis] + indices[axis + 1 :]
        value = data[-1](*own)
        for number in reversed(range(len(data) - 1)):
            value = build.if_then_else(indices[axis] == number, data[number](*own), value)
        return value

    made: Tensor = compute(out.shape, element, name="T_stack")
    return made


register(OpRecord(
    "stack",
    inputs=("*data",),
    attrs=JoinAttrs,
    infer=_infer_stack,
    compute=_compute_stack,
    reference=lambda attrs, data: np.stack(data, attrs.axis),
    pattern=INJECTIVE,
    cases=[
        Case(([(2, 3), (2, 3), (2, 3)],), {"axis": 1}),
        Case(([((), "int8"), ((), "int8")],), {"axis": 0}),
        Case(([(2, 3)],), {"axis": -1}),
    ],
    doc="Tensors of one shape along a new axis.",
))


# ---- meshgrid ----


@attributes
class MeshgridAttrs(Attrs):
    """Of meshgrid."""

    indexing: str = "ij"

    def normalize(self) -> None:
        if self.indexing not in ("ij", "xy"):
            raise ValueError(f"indexing is 'ij' or 'xy', not {self.indexing!r}")


def _order(attrs: MeshgridAttrs, count: int) -> list[int]:
    """For every dimension of the result the tensor that runs along it."""
    order = list(range(count))
    if attrs.indexing == "xy" and count > 1:
        order[:2] = [1, 0]
    return order


def _infer_meshgrid(attrs: MeshgridAttrs, data: Type) -> TupleType:
    kinds = tensors(data, "data")
    same_dtype(kinds, _names(kinds))
    for kind, name in zip(kinds, _names(kinds), strict=True):
        if kind.ndim > 1:
            tensor(kind, name, 1)
    extents = [kind.shape[0] if kind.ndim else 1 for kind in kinds]
    shape = tuple(extents[number] for number in _order(attrs, len(kinds)))
    return TupleType(tuple(TensorType(shape, kind.dtype) for kind in kinds))


def _compute_meshgrid(attrs: MeshgridAttrs, out: TupleType, data: list[Tensor]) -> list[Tensor]:
    order = _order(attrs, len(data))
    return [
        _along(part, order.index(number), tensor(kind, "a grid").shape, f"T_meshgrid_{number}")
        for number, (part, kind) in enumerate(zip(data, out.fields, strict=True))
    ]


def _along(vector: Tensor, axis: int, shape: Sequence[Dim], name: str) -> Tensor:
    return taken_from(vector, shape, lambda i: [i[axis]] if vector.ndim else [], name)


def _grids(attrs: MeshgridAttrs, data: list[Array]) -> list[Array]:
    return list(np.meshgrid(*data, indexing="xy" if attrs.indexing == "xy" else "ij"))


def _meshgrid(data: RelayExprLike, indexing: str = "ij") -> TupleWrapper:
    """For each of several vectors a grid in which its elements run along one axis."""
    grids = make("meshgrid", data, indexing=indexing).tuple_value
    kind = grids.checked_type
    assert isinstance(kind, TupleType)
    return TupleWrapper(grids, len(kind.fields))


register(OpRecord(
    "meshgrid",
    inputs=("*data",),
    attrs=MeshgridAttrs,
    infer=_infer_meshgrid,
    compute=_compute_meshgrid,
    reference=_grids,
    builder=_meshgrid,
    num_outputs=2,  # at least; the builder counts the grids
    pattern=INJECTIVE,
    cases=[
        Case(([(2,), (3,), (4,)],)),
        Case(([(2,), (3,)],), {"indexing": "xy"}),
        Case(([((2,), "int8"), ((), "int8")],)),
    ],
    doc="For each of several vectors a grid in which its elements run along one axis.",
))
