"""Functions of quantised tensors, and tensors quantised by their own range.

qnn.tanh and the like take the numbers that quantised ones stand for; qnn.dynamic_quantize finds the
scale and the zero point in the data.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.ir.types import TensorType, TupleType, Type
from sterna.op.checks import of_kind, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.quantization import expect_scale, expect_zero_point
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import RelayExpr, Tuple, const
from sterna.relay.op import OPAQUE, Case, OpRecord, call, find, register
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType

INPUTS = ("x", "scale", "zero_point", "output_scale", "output_zero_point")


@attributes
class QnnLeakyReluAttrs(Attrs):
    """Of qnn.leaky_relu."""

    alpha: float


@attributes
class QnnSoftmaxAttrs(Attrs):
    """Of qnn.softmax."""

    axis: int = -1


def _infer(
    attrs: object, x: Type, scale: Type, zero: Type, out_scale: Type, out_zero: Type
) -> Type:
    kind = of_kind(tensor(x, "x"), "x", "int", "uint")
    if kind.dtype.bits > 32:
        raise ValueError(f"x has integers of up to 32 bits, not {kind.dtype}")
    for name, given in (("scale", scale), ("output_scale", out_scale)):
        expect_scale(given, name, kind)
    for name, given in (("zero_point", zero), ("output_zero_point", out_zero)):
        expect_zero_point(given, name, kind)
    return kind


# Both take what is made of dequantised numbers, as calls or as arrays.
Apply = Callable[..., Any]


def _simplify(function: Apply) -> Callable[..., RelayExpr]:
    def simplify(attrs: Any, args: tuple[RelayExpr, ...]) -> RelayExpr:
        x, scale, zero, out_scale, out_zero = args
        made = function(call, attrs, call("qnn.dequantize", x, scale, zero))
        return call("qnn.quantize", made, out_scale, out_zero, out_dtype=tensor_type(x).dtype)

    return simplify


def _value(name: str, *arrays: Array, **attrs: Any) -> Any:
    record = find(name)
    assert record.reference is not None
    return record.reference(record.attrs(**attrs) if record.attrs is not None else None, *arrays)


def _reference(function: Apply) -> Callable[..., Array]:
    def reference(
        attrs: Any, x: Array, scale: Array, zero: Array, out_scale: Array, out_zero: Array
    ) -> Array:
        made = function(_value, attrs, _value("qnn.dequantize", x, scale, zero))
        quantized: Array = _value("qnn.quantize", made, out_scale, out_zero, out_dtype=str(x.dtype))
        return quantized

    return reference


_X = np.array([[-128, -90, -3, 0], [1, 5, 64, 127]], "int8")


def _numbers(scale: float, zero: int, out_scale: float, out_zero: int) -> tuple[Any, ...]:
    return (np.array(scale, "float32"), np.array(zero, "int32"),
            np.array(out_scale, "float32"), np.array(out_zero, "int32"))


def _register(name: str, function: Apply, doc: str, attrs: Any = None, **given: Any) -> None:
    register(OpRecord(
        f"qnn.{name}",
        inputs=INPUTS,
        attrs=attrs,
        infer=_infer,
        simplify=_simplify(function),
        reference=_reference(function),
        pattern=OPAQUE,
        mixed_precision="never",
        cases=[Case((_X, *_numbers(0.031, -128, 0.013, -100)), given)],
        doc=f"{doc} of quantised numbers, quantised.",
    ))


def _plain(name: str) -> Apply:
    return lambda apply, attrs, x: apply(name, x)


def _hardswish(apply: Any, attrs: Any, x: Any) -> Any:
    three = const(3.0) if isinstance(x, RelayExpr) else np.array(3, "float32")
    sixth = const(1 / 6) if isinstance(x, RelayExpr) else np.array(1 / 6, "float32")
    ramp = apply("clip", apply("add", x, three), a_min=0.0, a_max=6.0)
    return apply("multiply", apply("multiply", x, ramp), sixth)


for _name in ("tanh", "exp", "sqrt", "rsqrt", "erf", "sigmoid", "log", "abs"):
    _register(_name, _plain(_name), f"The function {_name}")
_register("hardswish", _hardswish, "x * clip(x + 3, 0, 6) / 6")
_register("leaky_relu", lambda apply, attrs, x: apply("nn.leaky_relu", x, alpha=attrs.alpha),
          "nn.leaky_relu", QnnLeakyReluAttrs, alpha=0.1)
_register("softmax", lambda apply, attrs, x: apply("nn.softmax", x, axis=attrs.axis),
          "nn.softmax", QnnSoftmaxAttrs, axis=0)


# ---- by the range of the data ----


@attributes
class DynamicQuantizeAttrs(Attrs):
    """Of qnn.dynamic_quantize."""

    out_dtype: DataType = DataType("uint8")


def _infer_dynamic(attrs: DynamicQuantizeAttrs, data: Type) -> TupleType:
    kind = tensor(data, "data")
    if kind.dtype != "float32":
        raise ValueError(f"data has elements of type float32, not {kind.dtype}; cast it")
    if attrs.out_dtype not in ("int8", "uint8"):
        raise ValueError(f"out_dtype is int8 or uint8, not {attrs.out_dtype}")
    quantized, zero = (TensorType(shape, attrs.out_dtype) for shape in (kind.shape, ()))
    return TupleType((quantized, TensorType((), kind.dtype), zero))


def _dynamic(attrs: DynamicQuantizeAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr:
    (data,) = args
    low, high = int_range(attrs.out_dtype)
    nothing = const(0.0)
    least = call("minimum", call("min", data), nothing)
    most = call("maximum", call("max", data), nothing)
    span = call("subtract", most, least)
    steps = call("divide", span, const(float(high - low)))
    scale = call("where", call("equal", steps, nothing), const(1.0), steps)
    start = call("subtract", const(float(low)), call("divide", least, scale))
    zero = call("cast", call("clip", call("round_even", start), a_min=low, a_max=high),
                dtype=attrs.out_dtype)
    made = call("qnn.quantize", data, scale, zero, out_dtype=attrs.out_dtype, rounding="TO_EVEN")
    return Tuple((made, scale, zero))


def _reference_dynamic(attrs: DynamicQuantizeAttrs, data: Array) -> tuple[Array, Array, Array]:
    low, high = int_range(attrs.out_dtype)
    nothing = np.float32(0)
    least, most = data.min(initial=nothing), data.max(initial=nothing)
    scale = np.asarray((most - least) / np.float32(high - low))
    scale = np.asarray(np.float32(1) if scale == 0 else scale)
    start = np.rint(np.float32(low) - least / scale)
    zero = np.asarray(np.clip(start, low, high)).astype(numpy_dtype(attrs.out_dtype))
    whole = np.rint(data / scale) + zero.astype(np.float32)
    return np.clip(whole, low, high).astype(zero.dtype), scale, zero


register(OpRecord(
    "qnn.dynamic_quantize",
    inputs=("data",),
    attrs=DynamicQuantizeAttrs,
    infer=_infer_dynamic,
    simplify=_dynamic,
    reference=_reference_dynamic,
    num_outputs=3,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case((np.array([0, 2, -3, -2.5, 1.34, 0.5], "float32"),)),
        Case((np.array([[1.0, 2.1], [1.3, 2.5]], "float32"),), {"out_dtype": "int8"}),
        Case((np.zeros((2, 2), "float32"),)),
    ],
    doc="data quantised so that all of it and 0 lie in the range of out_dtype, its scale and its "
        "zero point; halves are rounded to the even number. Zeros alone have the scale 1.",
))
