"""LOGISTIC and TANH of whole numbers: of 8 bits as TFLite Micro has them, of 16 as all kernels do.

Results have one scale each: 1/256 from -128 on and 1/128 for bytes, 1/32768 for numbers of 16 bits.
"""

import math

import numpy as np

from sterna.frontend.calls import call, cast, constant
from sterna.frontend.tflite.fixed_point import (
    FRACTION,
    SHORT,
    WIDE,
    divided_by_power,
    multiplied,
    quantized_multiplier,
)
from sterna.frontend.tflite.node import TFLM, Node, single
from sterna.frontend.tflite.requantize import all_bytes, saturated
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr

# Arguments of bytes have 4 bits of whole part, those of 16 bits have 3 where series are taken.
WHOLE_BITS, SHORT_BITS = 4, 3
# By operator: the bits of fraction of a byte, and its zero point.
_BYTES = {"LOGISTIC": (8, -128), "TANH": (7, 0)}
# Arguments of 16 bits become so many steps for 1, and the curve is known at every 512th.
STEPS, KNOWN = 3 << 12, 512
# By operator: the bits of a step between two places of the curve, which tanh meets twice as fast,
# and the powers of 2 of its scale, beside 2**-12, for which factors are exact.
_SHORTS = {"LOGISTIC": (9, (0,)), "TANH": (8, (0, 1))}


def is_of_fixed_point(node: Node) -> bool:
    """Whether TFLite Micro's rule for bytes is asked for, and its result is what it is there."""
    if node.rounding != TFLM or node.dtype() != "int8" or node.kind not in _BYTES:
        return False
    bits, wanted = _BYTES[node.kind]
    scale, zero = single(node.result_quantization(), "the result")
    return float(scale) == 2.0**-bits and zero == wanted


def sigmoid_of_bytes(kind: str, scale: float, zero: int) -> Array:
    """What every byte becomes, in the order of its bits."""
    bits, start = _BYTES[kind]
    multiplier, power = quantized_multiplier(scale * (1 << (FRACTION - WHOLE_BITS)))
    largest = ((1 << WHOLE_BITS) - 1) * float(1 << (FRACTION - WHOLE_BITS))
    radius = math.floor(largest / 2.0**power)
    distances = all_bytes("int8") - zero
    inside = np.abs(distances) < radius
    arguments = multiplied(np.where(inside, distances, 0), multiplier, power)
    curve = WIDE.logistic if kind == "LOGISTIC" else WIDE.tanh
    made = divided_by_power(curve(arguments, WHOLE_BITS), FRACTION - bits) + start
    return saturated(np.where(inside, made, np.where(distances <= -radius, -128, 127)), "int8")


def sigmoid_of_shorts(node: Node) -> RelayExpr:
    """By lines between known places of the logistic function; tanh(x) is 2 logistic(2x) - 1."""
    scale, zero = single(node.quantization(0), "its data")
    out_scale, out_zero = single(node.result_quantization(), "the result")
    if zero != 0 or out_zero != 0 or _power_of(out_scale) != -15:
        raise ValueError("numbers of 16 bits have zero points of 0, and the result 1/32768 for its "
                         f"scale, not {zero}, {out_zero} and {out_scale}")
    _, powers = _SHORTS[node.kind]
    power = _power_of(scale)
    if node.rounding != TFLM and power is not None and power + 12 in powers:
        return _by_series(node, power + 12)
    return on_lines_of_shorts(node.kind, node[0], *_short_factor(scale, powers))


def on_lines_of_shorts(kind: str, data: RelayExpr, factor: int, shift: int) -> RelayExpr:
    """A function of numbers of 16 bits, which times a factor, over a power of 2, are steps."""
    bits, _ = _SHORTS[kind]
    steps = call("multiply", cast(data, "int32"), constant(factor, "int32"))
    if shift:
        steps = call("right_shift", call("add", steps, constant(1 << (shift - 1), "int32")),
                     constant(shift, "int32"))
    height = _on_the_curve(call("abs", steps), bits)
    below = call("less", steps, constant(0, "int32"))
    if kind == "LOGISTIC":
        made = call("where", below, call("subtract", constant(1 << 25, "int32"), height), height)
        half, right = 1 << 9, 10
    else:
        height = call("subtract", height, constant(1 << 23, "int32"))
        made = call("where", below, call("negative", height), height)
        half, right = 1 << 7, 8
    # halves upward, downward from what is negative
    rounded = call("subtract", call("add", made, constant(half, "int32")), cast(below, "int32"))
    return cast(call("right_shift", rounded, constant(right, "int32")), "int16")


def _by_series(node: Node, left: int) -> RelayExpr:
    """As processors' kernels do for scales of 2**-12 and twice that: exp by its series."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.int16).astype(np.int64)
    curve = SHORT.logistic if node.kind == "LOGISTIC" else SHORT.tanh
    table = curve(SHORT.times_power(every, left), SHORT_BITS).astype(np.int16)
    index = cast(call("reinterpret", node[0], "uint16"), "int32")
    return call("take", constant(table), index, axis=0)


def _short_factor(scale: np.float32, powers: tuple[int, ...]) -> tuple[int, int]:
    """What numbers are multiplied by, and the power of 2 that is shifted away, to be steps."""
    power = _power_of(scale)
    if power is not None and power + 12 in powers:
        return 3 << (power + 12), 0
    factor, shift = float(scale) * STEPS, 0
    while factor <= 32767 / 2 and shift <= 30:
        factor, shift = factor * 2, shift + 1
    if factor > 32767:
        raise ValueError(f"the scale of its data is at most {32767 / STEPS:.4g}, not {scale}")
    return int(factor), shift


def _power_of(scale: np.float32) -> int | None:
    """The power of 2 that a scale is, but for a thousandth of one; None if it is none."""
    power = np.log(scale) * (np.float32(1) / np.log(np.float32(2)))
    near = int(math.copysign(math.floor(abs(float(power)) + 0.5), float(power)))
    return near if abs(float(power) - near) < 1e-3 else None


def _on_the_curve(steps: RelayExpr, bits: int) -> RelayExpr:
    """The logistic function of steps from 0 on, with 16 bits of fraction and so many more."""
    step = KNOWN / STEPS
    exact = 1 / (1 + np.exp(-step * np.arange(256)))
    # a line between two places lies below the curve; known places are higher by half of that
    bend = exact * (1 - exact) * (2 * exact - 1) * step * step / 16
    curve = np.rint(65536 * (exact + bend)).astype(np.int32)
    curve[-1] = 65535
    rises = np.append(np.diff(curve), 0).astype(np.int32)
    curve[-1] = 65534 if bits == 9 else 65535  # and all that lies beyond
    place = call("minimum", call("right_shift", steps, constant(bits, "int32")),
                 constant(255, "int32"))
    between = call("bitwise_and", steps, constant((1 << bits) - 1, "int32"))
    known, rise = (call("take", constant(table), place, axis=0) for table in (curve, rises))
    return call("add", call("left_shift", known, constant(bits, "int32")),
                call("multiply", between, rise))
