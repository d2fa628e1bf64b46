"""nn.dilate: elements set apart, with a value between them."""

from typing import Any

import numpy as np

from sterna.ir.build import const, maximum
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import map_dims, tensor
from sterna.op.windows import positive
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import INJECTIVE, Case, OpRecord, register
from sterna.te import Tensor, compute, if_then_else
from sterna.te import all as all_of


@attributes
class DilateAttrs(Attrs):
    """Of nn.dilate."""

    strides: tuple[int, ...]
    dilation_value: float = 0.0


def _infer(attrs: DilateAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    positive(attrs.strides, "strides")
    if len(attrs.strides) != kind.ndim:
        raise ValueError(f"strides has a number for each of the {kind.ndim} dimensions of data, "
                         f"not {attrs.strides}")
    shape = map(_dilated_extent, kind.shape, attrs.strides)
    return TensorType(tuple(shape), kind.dtype)


def _dilated_extent(extent: Dim, stride: int) -> Dim:
    """How far elements reach that are set apart; nothing stays nothing."""
    return extent if stride == 1 else map_dims(lambda n: maximum((n - 1) * stride + 1, 0), extent)


def _compute(attrs: DilateAttrs, out: TensorType, data: Tensor) -> Tensor:
    value = const(attrs.dilation_value, out.dtype)

    def element(*i: Expr) -> Any:
        on = [index % s == 0 for index, s in zip(i, attrs.strides, strict=True) if s > 1]
        read = data(*[index // s for index, s in zip(i, attrs.strides, strict=True)])
        return if_then_else(all_of(*on), read, value) if on else read

    made: Tensor = compute(out.shape, element, name="T_dilate")
    return made


def _reference(attrs: DilateAttrs, data: Array) -> Array:
    shape = [max(0, (n - 1) * s + 1) for n, s in zip(data.shape, attrs.strides, strict=True)]
    made = np.full(shape, attrs.dilation_value).astype(data.dtype)
    made[tuple(slice(None, None, s) for s in attrs.strides)] = data
    return made


register(OpRecord(
    "nn.dilate",
    inputs=("data",),
    attrs=DilateAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    pattern=INJECTIVE,
    cases=[
        Case(((2, 3, 4),), {"strides": (1, 2, 3), "dilation_value": -1.5}),
        Case((((3,), "int8"),), {"strides": (2,)}),
        Case(((0, 2),), {"strides": (2, 1)}),
    ],
    doc="Elements set strides apart along each axis, with dilation_value between them.",
))
