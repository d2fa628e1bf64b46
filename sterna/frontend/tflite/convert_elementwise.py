"""Functions of single elements: of floats, and of bytes by tables."""

import math
from collections.abc import Callable

import numpy as np

from sterna.frontend.calls import call, cast, constant, like
from sterna.frontend.tflite.arithmetic import bounded, held_between
from sterna.frontend.tflite.fixed_point import multiplied, quantized_multiplier
from sterna.frontend.tflite.int16_functions import (
    abs_of_shorts,
    by_lines,
    gelu_of_floats,
    is_of_shorts,
    leaky_relu_of_shorts,
    log_of_shorts,
    rsqrt_of_shorts,
    sqrt_of_shorts,
)
from sterna.frontend.tflite.narrow_floats import in_float32
from sterna.frontend.tflite.node import TFLM, Node, converter, single
from sterna.frontend.tflite.rectifiers import hard_swish_of_bytes, prelu_of_bytes
from sterna.frontend.tflite.requantize import (
    LEAST_RATIO,
    MOST_RATIO,
    all_bytes,
    by_table,
    cut_off,
    like_result,
    of_bytes,
    quantized,
    rounded_away,
    saturated,
)
from sterna.frontend.tflite.sigmoids import (
    is_of_fixed_point,
    sigmoid_of_bytes,
    sigmoid_of_shorts,
)
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented


def _wide(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function of float32 computed in float64, so that it is rounded once."""

    def compute(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(x.astype(np.float64)).astype(np.float32))

    return compute


def _erf(x: Array) -> Array:
    return np.array([math.erf(float(one)) for one in x])


# By operator: the operator of Relay, and the function of arrays for tables.
_PLAIN: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "ABS": ("abs", np.abs), "CEIL": ("ceil", np.ceil), "COS": ("cos", np.cos),
    "EXP": ("exp", np.exp), "FLOOR": ("floor", np.floor), "LOG": ("log", np.log),
    "NEG": ("negative", np.negative), "ROUND": ("round_even", np.rint),
    "RSQRT": ("rsqrt", lambda x: 1 / np.sqrt(x)), "SIN": ("sin", np.sin),
    "SQRT": ("sqrt", np.sqrt), "TANH": ("tanh", np.tanh), "SIGN": ("sign", np.sign),
    "LOGISTIC": ("sigmoid", lambda x: 1 / (1 + np.exp(-x))), "SQUARE": ("square", np.square),
}


# Of numbers of 16 bits.
_SHORTS: dict[str, Callable[[Node], RelayExpr]] = {
    "ABS": abs_of_shorts, "EXP": lambda node: by_lines(node, np.exp), "LOG": log_of_shorts,
    "LOGISTIC": sigmoid_of_shorts, "RSQRT": rsqrt_of_shorts, "SQRT": sqrt_of_shorts,
    "TANH": sigmoid_of_shorts,
}


def _is_bytes(node: Node) -> bool:
    return node.is_quantized() and node.dtype() in ("int8", "uint8")


def _expect_float(node: Node) -> None:
    node.expect_scale()
    if node.is_quantized() and node.dtype() not in ("int32", "int64"):
        raise OpNotImplemented(f"{node.dtype()}")


@converter(*_PLAIN)
def unary(node: Node) -> RelayExpr:
    name, function = _PLAIN[node.kind]
    if node.kind == "NEG" and (_is_bytes(node) or is_of_shorts(node)):
        return call("negative", node[0])  # whatever the zero points are
    if _is_bytes(node) and node.kind == "ABS":
        return by_table(node[0], _rescaled_bytes(node, np.abs))
    if is_of_fixed_point(node):
        scale, zero = single(node.quantization(0), "its data")
        return by_table(node[0], sigmoid_of_bytes(node.kind, float(scale), zero))
    if is_of_shorts(node) and node.kind in _SHORTS:
        return _SHORTS[node.kind](node)
    if _is_bytes(node):
        return of_bytes(node, _wide(function), cut_off if node.kind == "SQRT" else quantized)
    _expect_float(node)
    if node.kind == "SQUARE":
        return call("multiply", node[0], node[0])
    return call(name, node[0])


def _rescaled_bytes(node: Node, function: Callable[[Array], Array] = np.asarray) -> Array:
    """What distances of all bytes from their zero point become under the scale of the result.

    The ratio of both scales is of float32, for microcontrollers of float64, and its product is
    rounded twice, whoever computes it.
    """
    scale, zero = single(node.quantization(0), "its data")
    out_scale, out_zero = single(node.result_quantization(), "the result")
    ratio = float(np.float32(scale) / np.float32(out_scale))
    if node.rounding == TFLM:
        ratio = float(scale) / float(out_scale)
    distance = function(all_bytes(node.dtype()) - zero)
    made = multiplied(distance, *quantized_multiplier(ratio)) + out_zero
    return saturated(made, node.result_dtype())


@converter("LOGICAL_NOT")
def logical_not(node: Node) -> RelayExpr:
    return call("logical_not", node[0])


@converter("GELU")
@in_float32
def gelu(node: Node) -> RelayExpr:
    approximate = bool(node.attr("approximate"))

    def function(x: Array) -> Array:
        if approximate:
            inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
            return np.asarray(0.5 * x * (1 + np.tanh(inner)))
        return np.asarray(0.5 * x * (1 + _erf(x * math.sqrt(0.5))))

    if _is_bytes(node):
        return of_bytes(node, _wide(function))
    if is_of_shorts(node):
        return by_lines(node, gelu_of_floats(approximate))
    _expect_float(node)
    return call("nn.gelu", node[0], approximate="tanh" if approximate else "none")


@converter("ELU")
def elu(node: Node) -> RelayExpr:
    if _is_bytes(node) and node.rounding == TFLM:
        return of_bytes(node, _elu_of_floats, rounded_away)
    if _is_bytes(node):
        return of_bytes(node, _wide(lambda x: np.where(x < 0, np.expm1(x), x)))
    _expect_float(node)
    below = call("subtract", call("exp", call("minimum", node[0], like(0, node[0]))),
                 like(1, node[0]))
    return call("where", call("less", node[0], like(0, node[0])), below, node[0])


def _elu_of_floats(x: Array) -> Array:
    """As TFLite Micro computes it: an exponential of float32, and then its difference from 1."""
    return np.where(x < 0, _wide(np.exp)(x) - np.float32(1), x)


@converter("HARD_SWISH")
def hard_swish(node: Node) -> RelayExpr:
    if _is_bytes(node):
        return by_table(node[0], hard_swish_of_bytes(node))
    _expect_float(node)
    ramp = call("clip", call("add", node[0], like(3, node[0])), 0.0, 6.0)
    return call("multiply", call("multiply", node[0], ramp), like(1 / 6, node[0]))


# ---- rectifiers ----

_BOUNDS = {
    "RELU": (0.0, math.inf), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}


@converter(*_BOUNDS)
def relu(node: Node) -> RelayExpr:
    low, high = _BOUNDS[node.kind]
    node.expect_scale()
    if not node.is_quantized():
        return bounded(node[0], low, high)
    want, dtype = node.result_quantization(), node.result_dtype()
    whole = by_table(node[0], _rescaled_bytes(node)) if _is_scaled(node) else like_result(node, 0)
    return held_between(whole, want, dtype, low, high)


def _is_scaled(node: Node) -> bool:
    """Whether bytes come under another scale."""
    if not _is_bytes(node):
        return False
    have, want = node.quantization(0), node.result_quantization()
    return bool(single(have, "its data")[0] != single(want, "the result")[0])


@converter("LEAKY_RELU")
def leaky_relu(node: Node) -> RelayExpr:
    """Of bytes: by a factor for either sign, which has 8 bits of fraction on processors.

    These have no such kernel for very small or large factors.
    """
    alpha = np.float32(node.attr("alpha"))
    node.expect_scale()
    if not node.is_quantized():
        return call("nn.leaky_relu", node[0], alpha=float(alpha))
    if is_of_shorts(node):
        return leaky_relu_of_shorts(node, float(alpha))
    if not _is_bytes(node):
        raise OpNotImplemented(f"{node.dtype()}")
    scale, zero = single(node.quantization(0), "its data")
    out_scale, out_zero = single(node.result_quantization(), "the result")
    distance = all_bytes(node.dtype()) - zero
    short = scale / out_scale
    is_quick = all(LEAST_RATIO <= abs(one) <= MOST_RATIO for one in (short, alpha * short))
    if node.rounding == TFLM or not is_quick:
        ratio = float(scale) / float(out_scale)
        factors = (ratio, float(alpha) * ratio)
        same, less = (multiplied(distance, *_signed(one)) for one in factors)
    else:
        same, less = (
            (distance * int(np.rint(np.float32(256) * one)) + 128) >> 8
            for one in (short, alpha * short)
        )
    made = np.where(distance >= 0, same, less) + out_zero
    return by_table(node[0], saturated(made, node.result_dtype()))


def _signed(real: float) -> tuple[int, int]:
    multiplier, power = quantized_multiplier(abs(real))
    return (-multiplier if real < 0 else multiplier), power


@converter("PRELU")
def prelu(node: Node) -> RelayExpr:
    node.expect_scale()
    if node.is_quantized():
        return prelu_of_bytes(node)
    below = call("multiply", node[0], node[1])
    return call("where", call("less", node[0], like(0, node[0])), below, node[0])


# ---- the rest ----


@converter("BITCAST")
def bitcast(node: Node) -> RelayExpr:
    return call("reinterpret", node[0], node.result_dtype())


@converter("BUCKETIZE")
def bucketize(node: Node) -> RelayExpr:
    """The number of boundaries that an element is not below."""
    ends = np.asarray(node.attr("boundaries"), np.float32)
    return call("searchsorted", constant(ends), cast(node[0], "float32"), right=True,
                dtype="int32")


@converter("WHERE")
def where(node: Node) -> RelayExpr:
    known = node.known(0)
    if known is None:
        raise OpNotImplemented("the places of what an input decides")
    return constant(np.argwhere(known).astype(np.int64))


@converter("SELECT", "SELECT_V2")
def select(node: Node) -> RelayExpr:
    """A condition of one dimension less chooses rows."""
    condition = node[0]
    shape, wanted = node.shape(), node.shape(1)
    if node.kind == "SELECT" and len(shape) == 1 and len(wanted) > 1:
        condition = call("reshape", condition, (shape[0], *[1] * (len(wanted) - 1)))
    return call("where", condition, node[1], node[2])  # whatever the scales are
