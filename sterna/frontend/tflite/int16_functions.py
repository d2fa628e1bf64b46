"""Functions of quantised numbers of 16 bits: by lines, or by factors that are rounded twice.

Where they are not defined, at 0 and below, they are the end of the result's range.
"""

import math
from collections.abc import Callable

import numpy as np

from sterna.frontend.calls import call, cast, constant
from sterna.frontend.tflite.lines import HIGH, LOW, on_lines, places_on
from sterna.frontend.tflite.node import TFLM, Node, single
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr

INT16 = "int16"


def is_of_shorts(node: Node) -> bool:
    """Whether an operator reads quantised numbers of 16 bits."""
    return node.is_quantized() and node.dtype() == INT16


def scales_of(node: Node) -> tuple[np.float32, np.float32]:
    """The scales of the data and of the result, whose zero points are 0."""
    scale, zero = single(node.quantization(0), "its data")
    out_scale, out_zero = single(node.result_quantization(), "the result")
    if zero != 0 or out_zero != 0:
        raise ValueError(f"numbers of 16 bits have zero points of 0, not {zero} and {out_zero}")
    return scale, out_scale


def by_lines(
    node: Node, function: Callable[[Array], Array], undefined: int | None = None
) -> RelayExpr:
    """A function by lines; undefined: what it is at 0 and below, of the numbers of 16 bits."""
    scale, out_scale = scales_of(node)

    def defined(x: Array) -> Array:
        with np.errstate(all="ignore"):
            made = function(x)
        if undefined is None:
            return made
        return np.where(x <= 0, np.float64(np.float32(out_scale)) * undefined, made)

    places = places_on(
        defined, np.float32, float(scale), float(out_scale), fused=node.rounding != TFLM)
    return cast(on_lines(cast(node[0], "int32"), places), INT16)


def log_of_shorts(node: Node) -> RelayExpr:
    return by_lines(node, np.log, undefined=LOW)


def rsqrt_of_shorts(node: Node) -> RelayExpr:
    return by_lines(node, lambda x: np.asarray(1 / np.sqrt(x)), undefined=HIGH)


def gelu_of_floats(approximate: bool) -> Callable[[Array], Array]:
    """The function of which lines are made: each of its steps is rounded to float32."""
    float32 = np.float32

    def compute(x: Array) -> Array:
        x = x.astype(float32)
        if approximate:
            bent = (float32(0.044715) * x * x).astype(np.float64) * x + x
            inner = float32(math.sqrt(2 / math.pi)) * bent.astype(float32)
            curve = float32(1) + np.tanh(inner.astype(np.float64)).astype(float32)
        else:  # 1 + erf(x) as erfc(-x), which has all bits where x is far below 0
            inner = x * float32(-math.sqrt(0.5))
            curve = np.array([math.erfc(float(one)) for one in inner]).astype(float32)
        return np.asarray(float32(0.5) * x * curve)

    return compute


def abs_of_shorts(node: Node) -> RelayExpr:
    return _times(node, call("abs", cast(node[0], "int32")))


def leaky_relu_of_shorts(node: Node, alpha: float) -> RelayExpr:
    data = cast(node[0], "int32")
    below = call("less", data, constant(0, "int32"))
    return call("where", below, _times(node, data, alpha), _times(node, data))


def sqrt_of_shorts(node: Node) -> RelayExpr:
    """By floats, cut off."""
    scale, out_scale = scales_of(node)
    real = call("multiply", cast(node[0], "float32"), constant(scale, "float32"))
    steps = call("divide", call("sqrt", real), constant(out_scale, "float32"))
    return cast(call("clip", cast(steps, "int32"), LOW, HIGH), INT16)


def _times(node: Node, x: RelayExpr, factor: float = 1.0) -> RelayExpr:
    """Numbers times a factor, under the scale of the result."""
    scale, out_scale = scales_of(node)
    ratio = float(scale) / float(out_scale) * abs(factor)
    return call(
        "qnn.requantize", call("negative", x) if factor < 0 else x, constant(ratio, "float64"),
        constant(0, "int32"), constant(1, "float64"), constant(0, "int32"), rounding="TWICE",
        out_dtype=INT16)
