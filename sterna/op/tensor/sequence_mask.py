"""Sequences of a batch, each cut to its own length."""


import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import at_least, expect_dim, of_kind, tensor
from sterna.op.indexing import as_index
from sterna.op.tensor.convert import convert, converted
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import INJECTIVE, Case, OpRecord, register
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute


@attributes
class SequenceMaskAttrs(Attrs):
    """Of sequence_mask."""

    mask_value: float = 0.0
    axis: int = 0

    def normalize(self) -> None:
        if self.axis not in (0, 1):
            raise ValueError(f"axis is 0 or 1, not {self.axis}")


def _infer(attrs: SequenceMaskAttrs, data: Type, valid_length: Type) -> TensorType:
    kind = at_least(data, "data", 2)
    lengths = of_kind(tensor(valid_length, "valid_length", 1), "valid_length", "int", "uint")
    expect_dim(lengths.shape[0], kind.shape[1 - attrs.axis], "the number of lengths")
    return kind


def _compute(
    attrs: SequenceMaskAttrs, out: TensorType, data: Tensor, valid_length: Tensor
) -> Tensor:
    masked = convert(build.const(attrs.mask_value, "float64"), out.dtype)

    def element(*i: Expr) -> Expr:
        length = as_index(valid_length(i[1 - attrs.axis]))
        return build.select(i[attrs.axis] < length, data(*i), masked)

    made: Tensor = compute(out.shape, element, name="T_sequence_mask")
    return made


def _reference(attrs: SequenceMaskAttrs, data: Array, valid_length: Array) -> Array:
    steps = np.arange(data.shape[attrs.axis])
    lengths = valid_length.astype(np.int64)
    kept = steps[:, None] < lengths if attrs.axis == 0 else steps < lengths[:, None]
    mask = converted(np.array(attrs.mask_value), DataType(str(data.dtype)))
    return np.where(kept.reshape(*kept.shape, *(1,) * (data.ndim - 2)), data, mask)


register(OpRecord(
    "sequence_mask",
    inputs=("data", "valid_length"),
    attrs=SequenceMaskAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    pattern=INJECTIVE,
    cases=[
        Case(((4, 3, 2), np.array([1, 0, 9], "int32")), {"mask_value": -1.5}),
        Case((((2, 4), "int8"), np.array([3, 1])), {"axis": 1}),
    ],
    doc="mask_value where the index along an axis of 0 or 1 is not below the length that its row "
        "of the other one has.",
))
