"""Dimensions in another order, and elements in the opposite one."""

from collections.abc import Sequence

import numpy as np

from sterna.ir import build
from sterna.ir.types import TensorType, Type
from sterna.op.checks import axis_of, expect_dim, of_kind, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.indexing import Index, as_index, taken_from
from sterna.op.integer_rules import transposed
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.axis_order import in_order_of
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.layout_rules import along_axis
from sterna.relay.op import INJECTIVE, Case, OpRecord, call, is_call_of, register
from sterna.te import Tensor


@attributes
class TransposeAttrs(Attrs):
    """Of transpose."""

    axes: tuple[int, ...] | None = None


def _order(axes: Sequence[int] | None, ndim: int) -> list[int]:
    if axes is None:
        return list(reversed(range(ndim)))
    order = [axis_of(axis, ndim, "axes") for axis in axes]
    if sorted(order) != list(range(ndim)):
        raise ValueError(f"axes names every one of the {ndim} dimensions once, not {axes}")
    return order


def _infer(attrs: TransposeAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    return TensorType(tuple(kind.shape[i] for i in _order(attrs.axes, kind.ndim)), kind.dtype)


def _compute(attrs: TransposeAttrs, out: TensorType, data: Tensor) -> Tensor:
    order = _order(attrs.axes, data.ndim)
    return taken_from(
        data, out.shape, lambda i: [i[order.index(axis)] for axis in range(data.ndim)],
        "T_transpose",
    )


def _axes_of(transposed: Call) -> list[int]:
    assert isinstance(transposed.attrs, TransposeAttrs)
    return _order(transposed.attrs.axes, tensor_type(transposed).ndim)


def _in_order(transposed: Call) -> RelayExpr | None:
    """transpose(x) that changes nothing -> x"""
    order = _axes_of(transposed)
    return transposed.args[0] if order == sorted(order) else None


def _twice(transposed: Call) -> RelayExpr | None:
    """transpose(transpose(x)) -> transpose(x)"""
    (data,) = transposed.args
    if not (isinstance(data, Call) and is_call_of(data, "transpose")):
        return None
    before = _axes_of(data)
    axes = tuple(before[i] for i in _axes_of(transposed))
    return call("transpose", data.args[0], axes=axes)


def moved_nothing(moved: Call) -> RelayExpr | None:
    """transpose(reshape(transpose(x))) whose elements lie as those of x -> reshape(x)"""
    source = in_order_of(moved)
    if source is None:
        return None
    return call("reshape", source, newshape=tensor_type(moved).shape, allowzero=True)


register(OpRecord(
    "transpose",
    inputs=("data",),
    attrs=TransposeAttrs,
    infer=_infer,
    compute=_compute,
    reference=lambda attrs, data: data.transpose(_order(attrs.axes, data.ndim)),
    rewrites=[_in_order, _twice, moved_nothing],
    integer=transposed,
    pattern=INJECTIVE,
    order=_axes_of,
    cases=[
        Case(((2, 3, 4),)),
        Case(((2, 3, 4),), {"axes": (0, -1, 1)}),
        Case((((2, 3), "bool"),)),
        Case(((),)),
    ],
    doc="The dimensions in another order, reversed if axes are not given.",
))


# ---- elements in the opposite order ----


@attributes
class ReverseAttrs(Attrs):
    """Of reverse."""

    axis: int


@attributes
class FlipAttrs(Attrs):
    """Of flip."""

    axis: tuple[int, ...] | None = None


def _flipped_axes(attrs: ReverseAttrs | FlipAttrs, ndim: int) -> list[int]:
    given = (attrs.axis,) if isinstance(attrs.axis, int) else attrs.axis
    return [axis_of(axis, ndim) for axis in (range(ndim) if given is None else given)]


def _infer_flip(attrs: ReverseAttrs | FlipAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    _flipped_axes(attrs, kind.ndim)
    return kind


def _compute_flip(attrs: ReverseAttrs | FlipAttrs, out: TensorType, data: Tensor) -> Tensor:
    axes = _flipped_axes(attrs, data.ndim)
    return taken_from(
        data, out.shape,
        lambda i: [
            dim - 1 - index if axis in axes else index
            for axis, (index, dim) in enumerate(zip(i, data.shape, strict=True))
        ],
        "T_reverse",
    )


for _name, _attrs, _cases, _doc in (
    ("reverse", ReverseAttrs,
     [Case(((2, 3),), {"axis": 0}), Case(((2, 3, 4),), {"axis": -1})],
     "The elements along one axis in the opposite order."),
    ("flip", FlipAttrs,
     [Case(((2, 3),)), Case((((2, 3, 4), "int8"),), {"axis": (0, -1)})],
     "The elements along some axes, or all, in the opposite order."),
):
    register(OpRecord(
        _name,
        inputs=("data",),
        attrs=_attrs,
        infer=_infer_flip,
        compute=_compute_flip,
        reference=lambda attrs, data: np.flip(
            data, tuple(_flipped_axes(attrs, data.ndim))),
        pattern=INJECTIVE,
        layout=along_axis if _name == "reverse" else None,
        cases=_cases,
        doc=_doc,
    ))


@attributes
class ReverseSequenceAttrs(Attrs):
    """Of reverse_sequence."""

    seq_axis: int = 1
    batch_axis: int = 0


def _axes(attrs: ReverseSequenceAttrs, ndim: int) -> tuple[int, int]:
    along = axis_of(attrs.seq_axis, ndim, "seq_axis")
    batch = axis_of(attrs.batch_axis, ndim, "batch_axis")
    if along == batch:
        raise ValueError(f"seq_axis and batch_axis are both {along}")
    return along, batch


def _infer_sequence(attrs: ReverseSequenceAttrs, data: Type, seq_lengths: Type) -> TensorType:
    kind = tensor(data, "data")
    lengths = of_kind(tensor(seq_lengths, "seq_lengths", 1), "seq_lengths", "int", "uint")
    _, batch = _axes(attrs, kind.ndim)
    expect_dim(lengths.shape[0], kind.shape[batch], "the number of seq_lengths")
    return kind


def _compute_sequence(
    attrs: ReverseSequenceAttrs, out: TensorType, data: Tensor, seq_lengths: Tensor
) -> Tensor:
    along, batch = _axes(attrs, data.ndim)

    def where(i: Index) -> Index:
        length = build.minimum(data.shape[along], as_index(seq_lengths(i[batch])))
        mirrored = build.select(i[along] < length, length - 1 - i[along], i[along])
        return [mirrored if axis == along else index for axis, index in enumerate(i)]

    return taken_from(data, out.shape, where, "T_reverse_sequence")


def _sequence_reference(
    attrs: ReverseSequenceAttrs, data: Array, seq_lengths: Array
) -> Array:
    along, batch = _axes(attrs, data.ndim)
    moved = np.moveaxis(data, (batch, along), (0, 1))
    result = moved.copy()
    for row, length in enumerate(seq_lengths.astype(int)):
        held = max(0, min(length, moved.shape[1]))
        result[row, :held] = moved[row, :held][::-1]
    return np.moveaxis(result, (0, 1), (batch, along))


register(OpRecord(
    "reverse_sequence",
    inputs=("data", "seq_lengths"),
    attrs=ReverseSequenceAttrs,
    infer=_infer_sequence,
    compute=_compute_sequence,
    reference=_sequence_reference,
    pattern=INJECTIVE,
    cases=[
        Case(((3, 4, 2), np.array([1, 4, 9]))),
        Case(((4, 3), np.array([0, 3, -2], "int32")), {"seq_axis": 0, "batch_axis": -1}),
    ],
    doc="In every row of a batch the first elements, so many as seq_lengths says, in the opposite "
        "order.",
))
