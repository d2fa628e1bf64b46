"""The sum of two tensors of bytes by whole factors and one shift: qnn.shifted_sum."""

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Call, Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import tensor
from sterna.op.elementwise import elementwise
from sterna.op.qnn.residual_pixels import implement_sum
from sterna.op.qnn.scaled_sum import sum_of_bytes
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.layout_rules import broadcast
from sterna.relay.op import BROADCAST, Case, ContractionRules, OpRecord, register
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType

INT32 = DataType("int32")
LARGEST = 1 << 31
MOST_SHIFT = 31


@attributes
class ShiftedSumAttrs(Attrs):
    """Of qnn.shifted_sum."""

    lhs_factor: int = 1
    rhs_factor: int = 1
    start: int = 0
    shift: int = 0
    out_dtype: DataType = DataType("int8")

    def normalize(self) -> None:
        if not 0 <= self.shift <= MOST_SHIFT:
            raise ValueError(f"shift is from 0 to {MOST_SHIFT}, not {self.shift}")


def _infer(attrs: ShiftedSumAttrs, lhs: Type, rhs: Type) -> TensorType:
    made = sum_of_bytes(lhs, rhs, attrs.out_dtype)
    products = [
        [factor * end for end in int_range(tensor(each, "an operand").dtype)]
        for factor, each in ((attrs.lhs_factor, lhs), (attrs.rhs_factor, rhs))
    ]
    ends = [sum(map(pick, products)) + more for pick in (min, max) for more in (0, attrs.start)]
    if max(map(abs, ends)) >= LARGEST:
        raise ValueError("the factors and start are too large for sums of 32 bits")
    return made


def _scalar(attrs: ShiftedSumAttrs, a: Expr, b: Expr) -> Expr:
    first, second = (
        each.astype(INT32) * build.const(factor, INT32)
        for each, factor in ((a, attrs.lhs_factor), (b, attrs.rhs_factor))
    )
    total = first + build.const(attrs.start, INT32) + second
    return Call(attrs.out_dtype, "saturate", (total >> build.const(attrs.shift, INT32),))


def _reference(attrs: ShiftedSumAttrs, lhs: Array, rhs: Array) -> Array:
    total = lhs.astype(np.int64) * attrs.lhs_factor + rhs.astype(np.int64) * attrs.rhs_factor
    held = np.clip((total + attrs.start) >> attrs.shift, *int_range(attrs.out_dtype))
    return np.asarray(held).astype(numpy_dtype(attrs.out_dtype))


register(OpRecord(
    "qnn.shifted_sum",
    inputs=("lhs", "rhs"),
    attrs=ShiftedSumAttrs,
    infer=_infer,
    compute=elementwise("shifted_sum", _scalar),
    reference=_reference,
    pattern=BROADCAST,
    layout=broadcast,
    contraction=ContractionRules(implement=implement_sum),
    mixed_precision="never",
    cases=[
        Case((((2, 3, 5), "uint8"), ((5,), "uint8")),
             {"lhs_factor": 700, "rhs_factor": 300, "start": -12500, "shift": 10,
              "out_dtype": "uint8"}),
        Case((((16, 16), "int8"), ((16, 16), "uint8")),
             {"lhs_factor": 3 << 20, "rhs_factor": -(1 << 19), "shift": 21}),
    ],
    doc="lhs * lhs_factor + rhs * rhs_factor + start, shifted to the right, held within the range "
        "of out_dtype. Sums fit into 32 bits for all bytes.",
))
