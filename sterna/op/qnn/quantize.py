"""Floats as whole numbers of a few bits and back: qnn.quantize, qnn.dequantize."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import axis_of, of_kind, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.elementwise import quiet
from sterna.op.integer_rules import dequantized, quantized
from sterna.op.quantization import (
    INT32,
    along_channels,
    expect_parameter,
    expect_scale,
    read_parameter,
    round_half_away,
    spread,
)
from sterna.op.tensor.convert import convert, converted
from sterna.relay.arrays import Array, float_info, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import BROADCAST, Case, OpRecord, is_call_of, register
from sterna.schedule.products import wide, widened
from sterna.support.dtype import DataType
from sterna.target import Target
from sterna.te import Tensor, compute, nearbyint, round

FLOAT32 = DataType("float32")

# How numbers between two whole ones are rounded.
ROUNDINGS: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "AWAY_FROM_ZERO": (round, round_half_away),
    "TO_EVEN": (nearbyint, np.rint),
}


@attributes
class QuantizeAttrs(Attrs):
    """Of qnn.quantize."""

    axis: int = -1
    out_dtype: DataType = DataType("int8")
    rounding: str = "AWAY_FROM_ZERO"
    saturate: bool = True
    block_size: int = 0

    def normalize(self) -> None:
        if self.rounding not in ROUNDINGS:
            raise ValueError(f"rounding is one of {', '.join(ROUNDINGS)}, not {self.rounding!r}")
        _expect_block(self.block_size)


@attributes
class DequantizeAttrs(Attrs):
    """Of qnn.dequantize."""

    axis: int = -1
    out_dtype: DataType = FLOAT32
    block_size: int = 0

    def normalize(self) -> None:
        _expect_block(self.block_size)


def _expect_block(block_size: int) -> None:
    if block_size < 0:
        raise ValueError(f"block_size is the length of blocks, or 0 for none, not {block_size}")


def _expect_parameters(
    attrs: QuantizeAttrs | DequantizeAttrs, data: TensorType, scale: Type, zero_point: Type,
    side: str,
) -> None:
    if data.ndim:
        axis_of(attrs.axis, data.ndim)
    expect_scale(scale, f"{side}_scale", data, attrs.axis, attrs.block_size)
    name = f"{side}_zero_point"
    zero = expect_parameter(zero_point, name, data, attrs.axis, attrs.block_size)
    of_kind(zero, name, "int", "uint", "float")


# ---- quantize ----


def _infer_quantize(
    attrs: QuantizeAttrs, data: Type, scale: Type, zero_point: Type
) -> TensorType:
    kind = of_kind(tensor(data, "data"), "data", "float", "int")
    _expect_parameters(attrs, kind, scale, zero_point, "output")
    out = attrs.out_dtype
    if out.bits > 32 or not (out.is_integer or (out.is_float and out.bits <= 8)):
        raise ValueError(f"out_dtype is integers of up to 32 bits or floats of 8, not {out}")
    return TensorType(kind.shape, attrs.out_dtype)


def _working(data: str) -> DataType:
    kind = DataType(data)
    return wide(kind) if kind.is_float else FLOAT32


def _sum_type(out: DataType, kind: DataType) -> DataType:
    """Floats in which sums with a zero point are exact as far as the result's range goes."""
    return kind if out.bits <= 16 else DataType("float64")


def _largest(dtype: DataType) -> float:
    return float(float_info(dtype).max)


def _compute_quantize(
    attrs: QuantizeAttrs, out: TensorType, data: Tensor, scale: Tensor, zero_point: Tensor
) -> Tensor:
    kind = _working(data.dtype)

    def element(*i: Expr) -> Any:
        factor = read_parameter(scale, i, attrs.axis, attrs.block_size).astype(kind)
        zero = read_parameter(zero_point, i, attrs.axis, attrs.block_size)
        scaled = data(*i).astype(kind) / factor
        if out.dtype.is_float:
            moved = scaled + zero.astype(kind)
            if attrs.saturate:
                most = build.const(_largest(out.dtype), kind)
                # Min and Max give their second operand if it is NaN, so that NaN stays NaN.
                moved = build.minimum(most, build.maximum(-most, moved))
            return moved.astype(out.dtype)
        whole = ROUNDINGS[attrs.rounding][0](scaled)
        sum_type = _sum_type(out.dtype, kind)
        return convert(whole.astype(sum_type) + zero.astype(sum_type), out.dtype)

    made: Tensor = compute(out.shape, element, name="T_quantize")
    return made


@quiet
def _reference_quantize(
    attrs: QuantizeAttrs, data: Array, scale: Array, zero_point: Array
) -> Array:
    out, kind = attrs.out_dtype, numpy_dtype(_working(str(data.dtype)))
    factor = spread(scale, data, attrs.axis, attrs.block_size).astype(kind)
    zero = spread(zero_point, data, attrs.axis, attrs.block_size)
    scaled = np.asarray(data.astype(kind) / factor)
    if out.is_float:
        moved = np.asarray(scaled + zero.astype(kind))
        if attrs.saturate:
            moved = np.clip(moved, -_largest(out), _largest(out))
        return moved.astype(numpy_dtype(out))
    whole = ROUNDINGS[attrs.rounding][1](scaled).astype(np.float64)
    return converted(np.asarray(whole + zero.astype(np.float64)), out)


def _requantize(
    attrs: QuantizeAttrs, args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """Sums that were integers before, without a division of floats."""
    data, *parameters = args
    if not is_call_of(data, "qnn.dequantize"):
        return None
    assert isinstance(data, Call)
    if tensor_type(data.args[0]).dtype != "int32":
        return None
    held = dequantized(data.attrs, data.args)  # type: ignore[arg-type]
    made = None if held is None else quantized(attrs, [held, *parameters])
    return made if isinstance(made, RelayExpr) else None


_REALS = np.array(
    [[-np.inf, -300.0, -0.75, -0.25, 0.0, 0.25], [0.75, 1.25, 3.3, 127.3, 1e10, np.nan]], "float32"
)
_HALF = np.array(0.5, "float32")
_SCALES = np.array([0.5, 0.1, 2.0], "float32")
_ZEROS = np.array([-3, 0, 100], "int32")

register(OpRecord(
    "qnn.quantize",
    inputs=("data", "output_scale", "output_zero_point"),
    attrs=QuantizeAttrs,
    infer=_infer_quantize,
    compute=_compute_quantize,
    integer=quantized,
    legalize=_requantize,
    reference=_reference_quantize,
    pattern=BROADCAST,
    layout=along_channels,
    mixed_precision="never",
    cases=[
        Case((_REALS, _HALF, np.array(-7, "int32"))),
        Case((_REALS, _HALF, np.array(128, "uint8")),
             {"out_dtype": "uint8", "rounding": "TO_EVEN"}),
        Case(((2, 3, 4), _SCALES, _ZEROS), {"axis": 1}),
        Case((_REALS, np.array([1e-4], "float32"), np.array([5], "int32")),
             {"out_dtype": "int32"}),
        Case(((4, 5), np.full((4, 3), 0.25, "float32"), np.zeros((4, 3), "int8")),
             {"block_size": 2, "out_dtype": "uint16", "rounding": "TO_EVEN"}),
        Case((((2, 3), "float16"), _SCALES.astype("float16"), _ZEROS), {"out_dtype": "int16"}),
    ],
    doc="data / output_scale to the nearest whole number, plus output_zero_point, held within the "
        "range of out_dtype; NaN becomes 0. Narrow floats are rounded to their own numbers.",
))


# ---- dequantize ----


def _infer_dequantize(
    attrs: DequantizeAttrs, data: Type, scale: Type, zero_point: Type
) -> TensorType:
    kind = of_kind(tensor(data, "data"), "data", "int", "uint", "float")
    _expect_parameters(attrs, kind, scale, zero_point, "input")
    if kind.dtype.bits > 32 or (kind.dtype.is_float and kind.dtype.bits > 8):
        raise ValueError(
            f"data has elements of up to 32 bits, or floats of 8, not {kind.dtype}; cast it"
        )
    if not attrs.out_dtype.is_float:
        raise ValueError(f"out_dtype is a type of floats, not {attrs.out_dtype}")
    return TensorType(kind.shape, attrs.out_dtype)


def _difference_type(data: str, out: DataType) -> DataType:
    """A type that holds the distance of an element from its zero point."""
    kind = DataType(data)
    if kind.is_float:
        return wide(out)
    return DataType("int64") if kind.bits > 16 else INT32


def _compute_dequantize(
    attrs: DequantizeAttrs, out: TensorType, data: Tensor, scale: Tensor, zero_point: Tensor
) -> Tensor:
    difference, kind = _difference_type(data.dtype, out.dtype), wide(out.dtype)

    def element(*i: Expr) -> Any:
        factor = read_parameter(scale, i, attrs.axis, attrs.block_size).astype(kind)
        zero = read_parameter(zero_point, i, attrs.axis, attrs.block_size).astype(difference)
        return ((data(*i).astype(difference) - zero).astype(kind) * factor).astype(out.dtype)

    made: Tensor = compute(out.shape, element, name="T_dequantize")
    return made


@quiet
def _reference_dequantize(
    attrs: DequantizeAttrs, data: Array, scale: Array, zero_point: Array
) -> Array:
    difference = numpy_dtype(_difference_type(str(data.dtype), attrs.out_dtype))
    factor = widened(spread(scale, data, attrs.axis, attrs.block_size), attrs.out_dtype)
    zero = spread(zero_point, data, attrs.axis, attrs.block_size).astype(difference)
    distance = widened(np.asarray(data.astype(difference) - zero), attrs.out_dtype)
    return np.asarray(distance * factor).astype(numpy_dtype(attrs.out_dtype))


register(OpRecord(
    "qnn.dequantize",
    inputs=("data", "input_scale", "input_zero_point"),
    attrs=DequantizeAttrs,
    infer=_infer_dequantize,
    compute=_compute_dequantize,
    integer=dequantized,
    reference=_reference_dequantize,
    pattern=BROADCAST,
    layout=along_channels,
    mixed_precision="never",
    cases=[
        Case((np.array([-128, -1, 0, 127], "int8"), _HALF, np.array(-7, "int8"))),
        Case((((2, 3, 4), "uint8"), _SCALES, _ZEROS), {"axis": -2}),
        Case((np.array([-(2**31), 5, 2**31 - 1], "int32"), _HALF, np.array(9, "int32"))),
        Case((((4, 5), "int8"), np.full((2, 5), 0.25, "float32"), np.ones((2, 5), "int8")),
             {"axis": 0, "block_size": 3}),
        Case((((2, 3), "int16"), _SCALES.astype("float16"), _ZEROS), {"out_dtype": "float16"}),
    ],
    doc="(data - input_zero_point) * input_scale.",
))
