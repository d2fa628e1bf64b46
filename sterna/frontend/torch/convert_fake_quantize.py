"""Numbers rounded to those that integers stand for, as networks are trained for quantisation."""

from sterna.frontend.calls import call, cast, constant, dtype_of, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.convert_shape import axis_of, shape_of
from sterna.frontend.torch.promotion import Operand, as_type, is_float
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented


@aten("fake_quantize_per_tensor_affine")
def per_tensor(
    x: RelayExpr, scale: Operand, zero_point: Operand, quant_min: int, quant_max: int
) -> RelayExpr:
    return with_mask(x, scale, zero_point, quant_min, quant_max)[0]


@aten("fake_quantize_per_tensor_affine_cachemask")
def with_mask(
    x: RelayExpr, scale: Operand, zero_point: Operand, quant_min: int, quant_max: int
) -> list[RelayExpr]:
    """The rounded numbers, and which of them are in the range: gradients pass there."""
    kind = "float64" if dtype_of(x) == "float64" else "float32"
    step, zero = (as_type(as_type(each, "float32"), kind) for each in (scale, zero_point))
    places = call("multiply", cast(x, kind), call("divide", constant(1, kind), step))
    places = call("add", call("round_even", places), zero)
    low, high = constant(quant_min, kind), constant(quant_max, kind)
    mask = call(
        "logical_and", call("greater_equal", places, low), call("less_equal", places, high))
    held = call("minimum", call("maximum", places, low), high)
    made = call("multiply", call("subtract", held, zero), step)
    return [cast(made, dtype_of(x)), mask]


@aten("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def unless_off(
    x: RelayExpr, scale: Operand, zero_point: Operand, fake_quant_enabled: RelayExpr,
    quant_min: int, quant_max: int,
) -> list[RelayExpr]:
    made, mask = with_mask(x, scale, zero_point, quant_min, quant_max)
    is_on = cast(reshaped(fake_quant_enabled, ()), "bool")
    return [call("where", is_on, made, x), call("logical_or", mask, call("logical_not", is_on))]


@aten("fake_quantize_per_channel_affine")
def per_channel(
    x: RelayExpr, scale: RelayExpr, zero_point: RelayExpr, axis: int, quant_min: int,
    quant_max: int,
) -> RelayExpr:
    return per_channel_with_mask(x, scale, zero_point, axis, quant_min, quant_max)[0]


@aten("fake_quantize_per_channel_affine_cachemask")
def per_channel_with_mask(
    x: RelayExpr, scale: RelayExpr, zero_point: RelayExpr, axis: int, quant_min: int,
    quant_max: int,
) -> list[RelayExpr]:
    if is_float(zero_point):
        raise OpNotImplemented("zero points between integers")
    rank = rank_of(x)
    shape = [1] * rank
    shape[axis_of(axis, rank)] = shape_of(scale)[0]
    step, zero = (reshaped(each, shape) for each in (scale, zero_point))
    return with_mask(x, step, zero, quant_min, quant_max)


# ---- products of bytes ----


@aten("_int_mm")
def int_mm(x: RelayExpr, mat2: RelayExpr) -> RelayExpr:
    return call("nn.matmul", x, mat2, out_dtype="int32")


@aten("_weight_int8pack_mm")
def weight_int8pack_mm(x: RelayExpr, mat2: RelayExpr, scales: RelayExpr) -> RelayExpr:
    rows, weight = cast(x, "float32"), cast(mat2, "float32")
    made = call("nn.dense", rows, weight, units=shape_of(mat2)[0])
    return cast(call("multiply", made, cast(scales, "float32")), dtype_of(x))
