"""Rectifiers of bytes as fixed-point kernels compute them."""

import numpy as np

from sterna.frontend.calls import call, cast, constant
from sterna.frontend.tflite.fixed_point import divided_by_power, quantized_multiplier
from sterna.frontend.tflite.node import TFLM, Node, single
from sterna.frontend.tflite.requantize import all_bytes, saturated
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr

_LARGEST = (1 << 15) - 1
# Distances have 7 bits of fraction; what is left of 3 has 15.
_FINE_BITS = 7
_RAMP_STEP = 3.0 / 32768.0


def _short(real: float) -> tuple[int, int]:
    """A factor as a fraction of 15 bits and a power of 2."""
    multiplier, power = quantized_multiplier(real)
    return min((multiplier + (1 << 15)) >> 16, _LARGEST), power


def _high(a: Array, b: Array | int) -> Array:
    """The product of fractions of 15 bits, rounded."""
    product: Array = a * b + (1 << 14)
    return np.asarray(np.minimum(product >> 15, _LARGEST))


def _left(x: Array, power: int) -> Array:
    return np.asarray(np.clip(x << power, -_LARGEST - 1, _LARGEST))


def _right(node: Node, x: Array, power: int) -> Array:
    """x / 2**power, rounded: halves go away from zero on microcontrollers, upward on processors."""
    if node.rounding == TFLM:
        return divided_by_power(x, power)
    return np.asarray((x + (1 << (power - 1))) >> power)


def hard_swish_of_bytes(node: Node) -> Array:
    """x * clip(x + 3, 0, 6) / 6 in 16 bits, for every byte."""
    scale, zero = single(node.quantization(0), "its data")
    out_scale, out_zero = single(node.result_quantization(), "the result")
    fine_scale = float(np.float32(1 / (1 << _FINE_BITS)) * scale)
    multiplier, power = _short(fine_scale / float(out_scale))
    ramp_multiplier, ramp_power = _short(fine_scale / _RAMP_STEP)
    fine = (all_bytes(node.dtype()) - zero) << _FINE_BITS
    ramp = _left(fine, ramp_power - 1) if ramp_power > 0 else fine
    ramp = _high(ramp, ramp_multiplier)
    if ramp_power > 0:
        ramp = _left(ramp, 1)
    elif ramp_power < 0:
        ramp = _right(node, ramp, -ramp_power)
    ramp = (ramp + (1 << 15)) >> 1
    product = ramp * _high(fine, multiplier)
    towards_zero = np.sign(product) * (np.abs(product) >> 15)
    product = towards_zero if node.rounding == TFLM else product >> 15
    made = _right(node, product, -power) if power < 0 else _left(product, power)
    return saturated(made + out_zero, node.result_dtype())


def prelu_of_bytes(node: Node) -> RelayExpr:
    """By one factor from zero on, and below by one for each slope."""
    scale, zero = single(node.quantization(0), "its data")
    slope_scale, slope_zero = single(node.quantization(1), "its slopes")
    out_scale, out_zero = single(node.result_quantization(), "the result")
    if node.dtype(1) == "int16":
        raise ValueError("its slopes are of int16, which kernels read as if they were bytes")
    distance = call("subtract", cast(node[0], "int32"), constant(zero, "int32"))
    slope = call("subtract", cast(node[1], "int32"), constant(slope_zero, "int32"))
    if node.rounding == TFLM:
        ratio = float(scale) / float(out_scale)
        ratio_below = ratio * float(slope_scale)
    else:  # of float32
        ratio, ratio_below = float(scale / out_scale), float(scale * slope_scale / out_scale)
    made = [
        call("qnn.requantize", part, constant(factor, "float64"), constant(0, "int32"),
             constant(1, "float64"), constant(out_zero, "int32"), rounding="TWICE",
             out_dtype=node.result_dtype())
        for part, factor in (
            (distance, ratio),
            (call("multiply", distance, slope), ratio_below),
        )
    ]
    return call("where", call("less", distance, constant(0, "int32")), made[1], made[0])
