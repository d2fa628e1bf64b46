"""nn.fifo_buffer: the last elements of a stream, after new ones came."""

from typing import Any

import numpy as np

from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import axis_of, expect_dim, same_dtype, tensor
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import INJECTIVE, Case, OpRecord, register
from sterna.te import Tensor, compute, if_then_else


@attributes
class FIFOBufferAttrs(Attrs):
    """Of nn.fifo_buffer."""

    axis: int


def _infer(attrs: FIFOBufferAttrs, data: Type, buffer: Type) -> TensorType:
    new = tensor(data, "data")
    held = tensor(buffer, "buffer", new.ndim)
    same_dtype([new, held], ["data", "buffer"])
    axis = axis_of(attrs.axis, new.ndim)
    for i, (have, want) in enumerate(zip(held.shape, new.shape, strict=True)):
        if i != axis:
            expect_dim(have, want, f"extent {i} of buffer, as data has it,")
        elif isinstance(have, int) and isinstance(want, int) and want > have:
            raise ValueError(f"data has {want} elements along axis {axis}, buffer only {have}")
    return held


def _compute(attrs: FIFOBufferAttrs, out: TensorType, data: Tensor, buffer: Tensor) -> Tensor:
    axis = axis_of(attrs.axis, out.ndim)
    kept = buffer.shape[axis] - data.shape[axis]

    def element(*i: Expr) -> Any:
        def at(place: Expr) -> list[Expr]:
            return [*i[:axis], place, *i[axis + 1 :]]

        place = i[axis]
        return if_then_else(
            place < kept, buffer(*at(place + data.shape[axis])), data(*at(place - kept))
        )

    made: Tensor = compute(out.shape, element, name="T_fifo_buffer")
    return made


def _reference(attrs: FIFOBufferAttrs, data: Array, buffer: Array) -> Array:
    both = np.concatenate([buffer, data], attrs.axis)
    last = np.arange(data.shape[attrs.axis], both.shape[attrs.axis])
    return np.take(both, last, attrs.axis)


register(OpRecord(
    "nn.fifo_buffer",
    inputs=("data", "buffer"),
    attrs=FIFOBufferAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    pattern=INJECTIVE,
    cases=[
        Case(((2, 3), (2, 7)), {"axis": 1}),
        Case((((4, 2), "int8"), ((4, 2), "int8")), {"axis": -2}),
    ],
    doc="buffer without its oldest elements along an axis and with those of data at its end.",
))
