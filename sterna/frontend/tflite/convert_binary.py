"""Functions of two tensors: of floats, and of bytes by whole numbers."""

import math

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of
from sterna.frontend.tflite.arithmetic import activated, held, product_ratio
from sterna.frontend.tflite.byte_sums import ByteSum, find_byte_sum
from sterna.frontend.tflite.fixed_point import multiplied, quantized_multiplier
from sterna.frontend.tflite.node import TFLM, Node, converter, single
from sterna.frontend.tflite.quotients import quotient_of_whole_numbers
from sterna.relay.expr import RelayExpr
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType
from sterna.support.errors import OpNotImplemented

_PLAIN = {
    "ADD": "add", "SUB": "subtract", "MUL": "multiply", "DIV": "divide", "MAXIMUM": "maximum",
    "MINIMUM": "minimum", "POW": "power", "FLOOR_DIV": "floor_divide", "FLOOR_MOD": "floor_mod",
    "LOGICAL_OR": "logical_or", "LOGICAL_AND": "logical_and", "BITWISE_XOR": "bitwise_xor",
    "RIGHT_SHIFT": "right_shift",
}
_COMPARED = {
    "LESS": "less", "GREATER": "greater", "GREATER_EQUAL": "greater_equal",
    "LESS_EQUAL": "less_equal", "EQUAL": "equal", "NOT_EQUAL": "not_equal",
}


# From this ratio of an operand's scale to the result's on XNNPACK has no kernel for sums of bytes.
MOST_RATIO = 2.0**8


def _are_quantized(node: Node) -> bool:
    return node.is_quantized() and node.dtype() in ("int8", "uint8", "int16")


@converter(*_PLAIN)
def binary(node: Node) -> RelayExpr:
    if _are_quantized(node):
        return _of_whole_numbers(node)
    if node.kind == "DIV":
        node.expect_scale()
    name = _PLAIN[node.kind]
    if node.kind == "DIV" and dtype_of(node[0]).startswith(("int", "uint")):
        name = "trunc_divide"
    return activated(node, call(name, node[0], node[1]))


_STABLEHLO = {
    "STABLEHLO_ADD": "add", "STABLEHLO_MULTIPLY": "multiply", "STABLEHLO_MAXIMUM": "maximum",
    "STABLEHLO_MINIMUM": "minimum",
}


@converter(*_STABLEHLO)
def of_stablehlo(node: Node) -> RelayExpr:
    if node.is_quantized():
        raise OpNotImplemented("numbers with a scale")
    return call(_STABLEHLO[node.kind], node[0], node[1])


def _of_whole_numbers(node: Node) -> RelayExpr:
    out, dtype = node.result_quantization(), node.result_dtype()
    if node.kind in ("MAXIMUM", "MINIMUM", "FLOOR_MOD"):
        return call(_PLAIN[node.kind], node[0], node[1])  # whatever the scales are
    if node.kind == "MUL":
        return held(node, _scaled_product(node), out, dtype)
    if node.kind in ("ADD", "SUB"):
        if dtype == "int16":
            made = _sum_twice(node, 15)
        else:
            made = _sum_thrice(node) if node.rounding == TFLM else _sum(node)
        return held(node, made, out, dtype)
    if node.kind == "DIV":
        return held(node, quotient_of_whole_numbers(node), out, dtype)
    raise OpNotImplemented(f"{node.dtype()}")


def _distance(node: Node, place: int) -> RelayExpr:
    """How far whole numbers are from their zero point."""
    _, zero = single(node.quantization(place), "its data")
    data = cast(node[place], "int32")
    return data if zero == 0 else call("subtract", data, constant(zero, "int32"))


def _scaled_product(node: Node) -> RelayExpr:
    """Distances multiplied, under the scale of the result; rounded once on processors."""
    out = node.result_quantization()
    ratio = product_ratio(node, node.quantization(0), node.quantization(1), out)
    _, zero = single(out, "the result")
    twice = node.rounding == TFLM or node.dtype() == "int16"
    return call(
        "qnn.requantize", call("multiply", _distance(node, 0), _distance(node, 1)),
        constant(ratio.astype(np.float64).reshape(())), constant(0, "int32"),
        constant(1, "float64"), constant(zero, "int32"),
        rounding="TWICE" if twice else "UPWARD", out_dtype=node.result_dtype(),
    )


def _sum(node: Node) -> RelayExpr:
    """Both operands by factors of up to 21 bits, of which the same power of 2 is shifted away."""
    out_scale, out_zero = single(node.result_quantization(), "the result")
    parts = [single(node.quantization(place), "its data") for place in (0, 1)]
    ratios = [np.float32(scale / out_scale) for scale, _ in parts]
    if node.kind == "SUB":
        ratios[1] = -ratios[1]
    largest = max(abs(float(ratio)) for ratio in ratios)
    shift = 20 - (math.frexp(largest)[1] - 1)
    if largest >= MOST_RATIO or not 0 < shift < 31:
        return _sum_twice(node, 20)
    factors = [int(np.rint(float(ratio) * 2.0**shift)) for ratio in ratios]
    start = (1 << (shift - 1)) - sum(f * zero for f, (_, zero) in zip(factors, parts, strict=True))
    shifted = _shifted_sum(node, ByteSum(factors[0], factors[1], start, shift))
    return _saturated(node, call("add", shifted, constant(out_zero, "int32")))


def _shifted_sum(node: Node, made: ByteSum) -> RelayExpr:
    """Both operands times their factors, of whose sum a power of 2 is shifted away."""
    terms = [
        call("multiply", cast(node[place], "int32"), constant(factor, "int32"))
        for place, factor in enumerate((made.lhs_factor, made.rhs_factor))
    ]
    total = call("add", call("add", terms[0], constant(made.start, "int32")), terms[1])
    return call("right_shift", total, constant(made.shift, "int32"))


def _sum_thrice(node: Node) -> RelayExpr:
    """Bytes brought under one scale, added, and brought under another: by one sum if one is it."""
    out_scale, out_zero = single(node.result_quantization(), "the result")
    parts = [single(node.quantization(place), "its data") for place in (0, 1)]
    low, high = int_range(DataType(node.result_dtype()))
    twice = 2 * max(float(scale) for scale, _ in parts)
    sign = 1 if node.kind == "ADD" else -1
    ratio = twice / ((1 << 20) * float(out_scale))
    if node.dtype() != node.result_dtype() or not ratio < 1:
        return _sum_twice(node, 20)
    first, second = (
        multiplied((np.arange(low, high + 1) - zero) << 20,
                   *quantized_multiplier(float(scale) / twice))
        for scale, zero in parts
    )
    total = np.add.outer(first, sign * second)
    wanted = np.clip(multiplied(total, *quantized_multiplier(ratio)) + out_zero, low, high)
    ratios = [float(scale) / float(out_scale) for scale, _ in parts]
    made = find_byte_sum(wanted, ratios[0], sign * ratios[1], low)
    if made is None:
        return _sum_twice(node, 20)
    return call(
        "qnn.shifted_sum", node[0], node[1], lhs_factor=made.lhs_factor, rhs_factor=made.rhs_factor,
        start=made.start, shift=made.shift, out_dtype=node.result_dtype())


def _saturated(node: Node, total: RelayExpr) -> RelayExpr:
    low, high = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}[
        node.result_dtype()
    ]
    return cast(call("clip", total, low, high), node.result_dtype())


def _sum_twice(node: Node, bits: int) -> RelayExpr:
    """Both operands under twice the larger of their scales and some bits more, then their sum."""
    out_scale, out_zero = single(node.result_quantization(), "the result")
    scales = [float(single(node.quantization(place), "its data")[0]) for place in (0, 1)]
    twice = 2 * max(scales)
    terms = [
        _twice(call("multiply", _distance(node, place), constant(1 << bits, "int32")),
               scales[place] / twice)
        for place in (0, 1)
    ]
    total = call("add" if node.kind == "ADD" else "subtract", *terms)
    return _twice(total, twice / ((1 << bits) * float(out_scale)), out_zero, node.result_dtype())


def _twice(data: RelayExpr, ratio: float, zero: int = 0, dtype: str = "int32") -> RelayExpr:
    """Whole numbers by a ratio, rounded twice, from a zero point on."""
    return call("qnn.requantize", data, constant(ratio, "float64"), constant(0, "int32"),
                constant(1, "float64"), constant(zero, "int32"), rounding="TWICE", out_dtype=dtype)


@converter("SQUARED_DIFFERENCE")
def squared_difference(node: Node) -> RelayExpr:
    if not _are_quantized(node):
        difference = call("subtract", node[0], node[1])
        return call("multiply", difference, difference)
    if node.dtype() == "int16":
        raise OpNotImplemented("int16")
    twice = 2 * max(float(single(node.quantization(i), "its data")[0]) for i in (0, 1))
    terms = [
        _twice(call("multiply", _distance(node, place), constant(1 << 7, "int32")),
               float(single(node.quantization(place), "its data")[0]) / twice)
        for place in (0, 1)
    ]
    difference = call("subtract", *terms)
    out_scale, out_zero = single(node.result_quantization(), "the result")
    ratio = twice * twice / ((1 << 14) * float(out_scale))
    made = _twice(call("multiply", difference, difference), ratio)
    return _saturated(node, call("add", made, constant(out_zero, "int32")))


@converter("ATAN2")
def atan2(node: Node) -> RelayExpr:
    """By the arc tangent of the quotient and the half plane in which it lies."""
    y, x = node[0], node[1]
    zero, pi = constant(0, dtype_of(x)), constant(math.pi, dtype_of(x))
    near = call("atan", call("divide", y, x))
    left = call("where", call("less", y, zero), call("subtract", near, pi), call("add", near, pi))
    half = call("multiply", call("sign", y), constant(math.pi / 2, dtype_of(x)))
    made = call("where", call("less", x, zero), left, near)
    return call("where", call("equal", x, zero), half, made)


@converter("ADD_N")
def add_n(node: Node) -> RelayExpr:
    first, *more = node.operands()
    for one in more:
        first = call("add", first, one)
    return first


@converter(*_COMPARED)
def compare(node: Node) -> RelayExpr:
    """Whole numbers of one scale are compared as they are, others with 8 bits of fraction."""
    a, b = node[0], node[1]
    if _are_quantized(node):
        first, second = node.quantization(0), node.quantization(1)
        if first.scale != second.scale or first.zero != second.zero:
            a, b = (
                _twice(call("multiply", _distance(node, i), constant(1 << 8, "int32")),
                       float(node.quantization(i).scale[0]))
                for i in (0, 1)
            )
    return call(_COMPARED[node.kind], a, b)
