"""Quantisation and its reverse around operators, as PT2E writes them: graphs become integers."""

import numpy as np

from sterna.frontend.calls import call, call_unfolded, cast, constant, dtype_of
from sterna.frontend.torch.promotion import Operand, as_type
from sterna.frontend.torch.table import aten
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.op import record_of
from sterna.support.dtype import DataType

_SPACE = "quantized_decomposed"


@aten(f"{_SPACE}::quantize_per_tensor")
def quantize_per_tensor(
    input: RelayExpr, scale: Operand, zero_point: Operand, quant_min: int, quant_max: int,
    dtype: str,
) -> RelayExpr:
    return _quantized(input, scale, zero_point, quant_min, quant_max, dtype, -1)


@aten(f"{_SPACE}::quantize_per_channel")
def quantize_per_channel(
    input: RelayExpr, scales: RelayExpr, zero_points: RelayExpr, axis: int, quant_min: int,
    quant_max: int, dtype: str,
) -> RelayExpr:
    return _quantized(input, scales, zero_points, quant_min, quant_max, dtype, axis)


def _quantized(
    data: RelayExpr, scale: Operand, zero: Operand, low: int, high: int, dtype: str, axis: int
) -> RelayExpr:
    """Rounded to even, and kept in the range that is given."""
    made = call(
        "qnn.quantize", cast(data, "float32"), as_type(scale, "float32"), as_type(zero, "int32"),
        axis=axis, out_dtype=dtype, rounding="TO_EVEN",
    )
    return made if (low, high) == _range(dtype) else call("clip", made, low, high)


def _range(dtype: str) -> tuple[int, int]:
    bits = DataType(dtype).bits
    return (0, (1 << bits) - 1) if dtype.startswith("uint") else (
        -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    )


@aten(f"{_SPACE}::dequantize_per_tensor")
def dequantize_per_tensor(
    input: RelayExpr, scale: Operand, zero_point: Operand, quant_min: int = 0,
    quant_max: int = 0, dtype: str = "", out_dtype: str | None = None,
) -> RelayExpr:
    return _dequantized(input, scale, zero_point, -1, out_dtype)


@aten(f"{_SPACE}::dequantize_per_channel")
def dequantize_per_channel(
    input: RelayExpr, scales: RelayExpr, zero_points: RelayExpr | None, axis: int,
    quant_min: int = 0, quant_max: int = 0, dtype: str = "", out_dtype: str | None = None,
) -> RelayExpr:
    zeros: Operand = constant(0, "int32") if zero_points is None else zero_points
    return _dequantized(input, scales, zeros, axis, out_dtype)


def _dequantized(
    data: RelayExpr, scale: Operand, zero: Operand, axis: int, out_dtype: str | None
) -> RelayExpr:
    # Even of constants: the integers of weights are what becomes of the graph.
    made = call_unfolded(
        "qnn.dequantize", data, as_type(scale, "float32"), as_type(zero, "int32"), axis=axis
    )
    return made if out_dtype in (None, dtype_of(made)) else cast(made, str(out_dtype))


# ---- biases ----

# Beyond this an integer of 32 bits might not hold the sum.
LARGEST_BIAS = 1 << 30


def quantized_bias(data: RelayExpr, weight: RelayExpr, bias: RelayExpr) -> RelayExpr:
    """A bias beside quantised operands in the units of their products, as kernels of integers
    hold it; any other as it is."""
    scales = _scale_behind(data), _scale_behind(weight)
    if scales[0] is None or scales[1] is None or not isinstance(bias, Constant):
        return bias
    if scales[0].size != 1 or dtype_of(bias) != "float32":
        return bias
    scale = (scales[0].reshape(()) * scales[1]).astype(np.float32)
    whole = np.rint(to_numpy(bias.data) / scale)
    if not np.all(np.abs(whole) < LARGEST_BIAS):
        return bias
    axis = 0 if scale.size > 1 else -1
    return call_unfolded(
        "qnn.dequantize", constant(whole, "int32"), constant(scale, "float32"),
        constant(0, "int32"), axis=axis,
    )


def _scale_behind(expr: RelayExpr) -> Array | None:
    """The scale of a quantised value, seen through views of it."""
    while isinstance(expr, Call) and (record := record_of(expr)) is not None:
        if record.name == "qnn.dequantize":
            scale = expr.args[1]
            return to_numpy(scale.data) if isinstance(scale, Constant) else None
        if not record.is_view:
            return None
        expr = expr.args[0]
    return None
