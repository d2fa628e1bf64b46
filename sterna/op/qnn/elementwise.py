"""Quantised tensors element by element: qnn.add, qnn.subtract, qnn.mul, qnn.concatenate.

Sums are made of both operands requantised to the scale of the result, in 32 bits; products are
made of what the operands are from their zero points, and requantised then.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sterna.ir.types import TensorType, Type
from sterna.op.checks import (
    broadcast_shapes,
    expect_dim,
    of_kind,
    same_dtype,
    tensor,
    tensors,
)
from sterna.op.dynamic import tensor_type
from sterna.op.qnn.products import INT32, as_column
from sterna.op.qnn.requantize import RequantizeAttrs
from sterna.op.quantization import expect_scale, expect_zero_point, is_single, saturated
from sterna.op.tensor.join import JoinAttrs
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Constant, RelayExpr, Tuple, TupleGetItem, const
from sterna.relay.op import OPAQUE, CallRule, Case, OpRecord, Rewrite, call, find, register
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType

INPUTS = ("lhs", "rhs", "lhs_scale", "lhs_zero_point", "rhs_scale", "rhs_zero_point",
          "output_scale", "output_zero_point")


@attributes
class QnnBinaryAttrs(Attrs):
    """Of qnn.add, qnn.subtract and qnn.mul."""

    lhs_axis: int = -1
    rhs_axis: int = -1


def _infer(attrs: QnnBinaryAttrs, lhs: Type, rhs: Type, *parameters: Type) -> TensorType:
    a = of_kind(tensor(lhs, "lhs"), "lhs", "int", "uint")
    b = tensor(rhs, "rhs")
    same_dtype([a, b], ["lhs", "rhs"])
    if a.dtype.bits > 16:
        raise ValueError(f"lhs has integers of up to 16 bits, not {a.dtype}")
    out = TensorType(broadcast_shapes(a.shape, b.shape), a.dtype)
    owners = ((a, attrs.lhs_axis), (b, attrs.rhs_axis), (out, -1))
    for place, (kind, axis) in enumerate(owners):
        scale, zero = parameters[2 * place : 2 * place + 2]
        expect_scale(scale, INPUTS[2 + 2 * place], kind, axis)
        expect_zero_point(zero, INPUTS[3 + 2 * place], kind, axis)
    for name, parameter in zip(INPUTS[6:], parameters[4:], strict=True):
        if not is_single(tensor(parameter, name).shape):
            raise ValueError(f"{name} is a single number, not {parameter!r}")
    return out


def _infer_product(attrs: QnnBinaryAttrs, lhs: Type, rhs: Type, *parameters: Type) -> TensorType:
    out = _infer(attrs, lhs, rhs, *parameters)
    scales = [tensor(parameters[place], INPUTS[2 + place]).shape for place in (0, 2)]
    if not any(is_single(shape) for shape in scales):
        axes = (_from_the_end(attrs.lhs_axis, tensor(lhs, "lhs").ndim),
                _from_the_end(attrs.rhs_axis, tensor(rhs, "rhs").ndim))
        if axes[0] != axes[1]:
            raise ValueError("lhs_scale and rhs_scale lie along one axis, or one is a number")
    return out


def _from_the_end(axis: int, ndim: int) -> int:
    """An axis of an operand as one of the result, which may have more dimensions."""
    return axis % ndim - ndim if ndim else -1


def _held(whole: RelayExpr, dtype: DataType) -> RelayExpr:
    low, high = int_range(dtype)
    return call("cast", call("clip", whole, a_min=low, a_max=high), dtype=dtype)


def _sum(name: str, undo: str) -> Callable[..., RelayExpr]:
    def simplify(attrs: QnnBinaryAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr:
        lhs, rhs, lhs_scale, lhs_zero, rhs_scale, rhs_zero, scale, zero = args
        a = call("qnn.requantize", lhs, lhs_scale, lhs_zero, scale, zero,
                 axis=attrs.lhs_axis, out_dtype=INT32)
        b = call("qnn.requantize", rhs, rhs_scale, rhs_zero, scale, zero,
                 axis=attrs.rhs_axis, out_dtype=INT32)
        total = call(undo, call(name, a, b), as_column(zero, 0, INT32))
        return _held(total, tensor_type(lhs).dtype)

    return simplify


def _reference_sum(sign: int) -> Callable[..., Array]:
    def reference(
        attrs: QnnBinaryAttrs, lhs: Array, rhs: Array, lhs_scale: Array, lhs_zero: Array,
        rhs_scale: Array, rhs_zero: Array, scale: Array, zero: Array,
    ) -> Array:
        a = _requantized(lhs, lhs_scale, lhs_zero, scale, zero, attrs.lhs_axis, "int32")
        b = _requantized(rhs, rhs_scale, rhs_zero, scale, zero, attrs.rhs_axis, "int32")
        # in 32 bits that wrap
        total = a + np.int32(sign) * b - np.int32(sign) * zero.astype(np.int32).reshape(())
        return np.asarray(saturated(total, DataType(str(lhs.dtype)))).astype(lhs.dtype)

    return reference


def _requantized(
    data: Array, have: Array, from_zero: Array, want: Array, to_zero: Array, axis: int, dtype: str
) -> Array:
    record = find("qnn.requantize")
    assert record.reference is not None
    attrs = RequantizeAttrs(axis=axis, out_dtype=DataType(dtype))
    made: Array = record.reference(attrs, data, have, from_zero, want, to_zero)
    return made


def _product_scale(lhs_scale: RelayExpr, rhs_scale: RelayExpr) -> RelayExpr:
    """The scale of products; a constant if it can be, so that whole numbers stand for it."""
    if isinstance(lhs_scale, Constant) and isinstance(rhs_scale, Constant):
        return const(np.asarray(to_numpy(lhs_scale.data) * to_numpy(rhs_scale.data)))
    return call("multiply", lhs_scale, rhs_scale)


def _product(attrs: QnnBinaryAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr:
    lhs, rhs, lhs_scale, lhs_zero, rhs_scale, rhs_zero, scale, zero = args
    parts = []
    for data, near, axis in ((lhs, lhs_zero, attrs.lhs_axis), (rhs, rhs_zero, attrs.rhs_axis)):
        ndim = tensor_type(data).ndim
        column = as_column(near, ndim - 1 - axis % max(ndim, 1), INT32)
        parts.append(call("subtract", call("cast", data, dtype=INT32), column))
    by_lhs = not is_single(tensor_type(lhs_scale).shape)
    axis, owner = (attrs.lhs_axis, lhs) if by_lhs else (attrs.rhs_axis, rhs)
    return call("qnn.requantize", call("multiply", *parts), _product_scale(lhs_scale, rhs_scale),
                const(0), scale, zero, axis=_from_the_end(axis, tensor_type(owner).ndim),
                out_dtype=tensor_type(lhs).dtype)


def _reference_product(
    attrs: QnnBinaryAttrs, lhs: Array, rhs: Array, lhs_scale: Array, lhs_zero: Array,
    rhs_scale: Array, rhs_zero: Array, scale: Array, zero: Array,
) -> Array:
    def distance(data: Array, near: Array, axis: int) -> Array:
        shape = [1] * data.ndim
        if near.size > 1:
            shape[axis] = -1
        whole = near.astype(np.int32)
        return np.asarray(data.astype(np.int32) - whole.reshape(shape))

    made = distance(lhs, lhs_zero, attrs.lhs_axis) * distance(rhs, rhs_zero, attrs.rhs_axis)
    axis, owner = (attrs.lhs_axis, lhs) if lhs_scale.size > 1 else (attrs.rhs_axis, rhs)
    axis = _from_the_end(axis, owner.ndim)
    return _requantized(np.asarray(made), np.asarray(lhs_scale * rhs_scale), np.array(0), scale,
                        zero, axis, str(lhs.dtype))


def _numbers(*values: npt.ArrayLike) -> tuple[Array, ...]:
    """Scales and zero points in turns."""
    return tuple(
        np.array(value, "int32" if place % 2 else "float32") for place, value in enumerate(values)
    )


_A = np.array([[-128, -100, -1], [0, 64, 127]], "int8")
_CASES = [
    Case((_A, _A[:, ::-1].copy(), *_numbers(0.1, 3, 0.1, 3, 0.1, 3))),
    Case((_A, _A[:1], *_numbers(0.1, -5, 0.03, 7, 0.2, 10))),
    Case((((2, 3), "uint8"), ((2, 1), "uint8"), *_numbers([0.1, 1, 2], [1, 2, 3], 0.5, 128, 2, 9))),
]


def _register(
    name: str, infer: CallRule[QnnBinaryAttrs, Type], simplify: Rewrite[QnnBinaryAttrs],
    reference: CallRule[QnnBinaryAttrs, Array], doc: str,
) -> None:
    register(OpRecord(
        f"qnn.{name}",
        inputs=INPUTS,
        attrs=QnnBinaryAttrs,
        infer=infer,
        simplify=simplify,
        reference=reference,
        pattern=OPAQUE,
        mixed_precision="never",
        cases=_CASES,
        doc=doc,
    ))


_register("add", _infer, _sum("add", "subtract"), _reference_sum(1),
          "lhs + rhs of quantised tensors under the scale and the zero point of the result.")
_register("subtract", _infer, _sum("subtract", "add"), _reference_sum(-1),
          "lhs - rhs of quantised tensors under the scale and the zero point of the result.")
_register("mul", _infer_product, _product, _reference_product,
          "lhs * rhs of quantised tensors under the scale and the zero point of the result.")


# ---- concatenate ----


@attributes
class QnnConcatenateAttrs(Attrs):
    """Of qnn.concatenate."""

    axis: int


def _infer_concatenate(
    attrs: QnnConcatenateAttrs, data: Type, scales: Type, zeros: Type, scale: Type, zero: Type
) -> Type:
    kinds = tensors(data, "data")
    for kind in kinds:
        of_kind(kind, "data", "int", "uint")
    for name, given, expect in (
        ("input_scales", scales, expect_scale), ("input_zero_points", zeros, expect_zero_point)
    ):
        parts = tensors(given, name)
        expect_dim(len(parts), len(kinds), f"the number of {name}")
        for place, (part, kind) in enumerate(zip(parts, kinds, strict=True)):
            expect(part, f"{name}[{place}]", kind, attrs.axis)
    expect_scale(scale, "output_scale", kinds[0], attrs.axis)
    expect_zero_point(zero, "output_zero_point", kinds[0], attrs.axis)
    return find("concatenate").infer(JoinAttrs(axis=attrs.axis), data)


def _parts(expr: RelayExpr, count: int) -> list[RelayExpr]:
    return [
        expr.fields[i] if isinstance(expr, Tuple) else TupleGetItem(expr, i) for i in range(count)
    ]


def _concatenate(attrs: QnnConcatenateAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr:
    data, scales, zeros, scale, zero = args
    count = len(tensors(data.checked_type, "data"))
    made = [
        call("qnn.requantize", part, have, near, scale, zero, axis=attrs.axis,
             out_dtype=tensor_type(part).dtype)
        for part, have, near in zip(
            _parts(data, count), _parts(scales, count), _parts(zeros, count), strict=True
        )
    ]
    return call("concatenate", Tuple(tuple(made)), axis=attrs.axis)


def _reference_concatenate(
    attrs: QnnConcatenateAttrs, data: list[Array], scales: list[Array], zeros: list[Array],
    scale: Array, zero: Array,
) -> Array:
    return np.concatenate([
        _requantized(part, have, near, scale, zero, attrs.axis, str(part.dtype))
        for part, have, near in zip(data, scales, zeros, strict=True)
    ], attrs.axis)


_SCALES, _ZEROS = list(_numbers(0.1, 1, 0.04, 1))[::2], [np.array(2), np.array(-3)]

register(OpRecord(
    "qnn.concatenate",
    inputs=("*data", "*input_scales", "*input_zero_points", "output_scale", "output_zero_point"),
    attrs=QnnConcatenateAttrs,
    infer=_infer_concatenate,
    simplify=_concatenate,
    reference=_reference_concatenate,
    pattern=OPAQUE,
    cases=[Case(([_A, _A[:, 1:].copy()], _SCALES, _ZEROS, *_numbers(0.1, 5)), {"axis": 1})],
    doc="Quantised tensors side by side along an axis, under one scale and zero point.",
))
