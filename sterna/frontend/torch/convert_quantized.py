"""Quantisation and its reverse around operators, as PT2E writes them: graphs become integers."""

from sterna.frontend.calls import call, cast, constant, dtype_of
from sterna.frontend.torch.promotion import Operand, as_type
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr
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
    made = call(
        "qnn.dequantize", data, as_type(scale, "float32"), as_type(zero, "int32"), axis=axis
    )
    return made if out_dtype in (None, dtype_of(made)) else cast(made, str(out_dtype))
