"""Between floats and whole numbers."""

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of
from sterna.frontend.tflite.node import TFLM, Node, converter, single
from sterna.frontend.tflite.requantize import moved_to
from sterna.frontend.tflite.schema import Quantization
from sterna.relay.expr import RelayExpr


@converter("DEQUANTIZE")
def dequantize(node: Node) -> RelayExpr:
    """Also of narrow floats, which hold weights."""
    if dtype_of(node[0]) in ("float16", "bfloat16", "float32"):
        return cast(node[0], "float32")
    return real(node[0], node.quantization(0))


def real(data: RelayExpr, quantization: Quantization) -> RelayExpr:
    """The numbers that whole ones stand for."""
    scale, zero = quantization.scale, quantization.zero.astype(np.int32)
    if quantization.is_single:
        scale, zero = scale.reshape(()), zero.reshape(())
    return call("qnn.dequantize", data, constant(scale), constant(zero),
                axis=-1 if quantization.is_single else quantization.axis)


@converter("QUANTIZE")
def quantize(node: Node) -> RelayExpr:
    """Halves to even numbers on processors, away from zero on microcontrollers."""
    want, dtype = node.result_quantization(), node.result_dtype()
    if dtype_of(node[0]) != "float32":
        return moved_to(node, node[0], node.quantization(0), want, dtype)
    if node.rounding != TFLM:
        return whole(node[0], want, dtype)
    scale, zero = single(want, "the result")
    return call("qnn.quantize", node[0], constant(scale), constant(zero, "int32"),
                out_dtype=dtype, rounding="AWAY_FROM_ZERO")


def whole(data: RelayExpr, quantization: Quantization, dtype: str) -> RelayExpr:
    """Floats as whole numbers of a scale: by its reciprocal, halves to even ones."""
    scale, zero = single(quantization, "the result")
    steps = call("multiply", data, constant(np.float32(1) / scale))
    return call("qnn.quantize", steps, constant(1, "float32"), constant(zero, "int32"),
                out_dtype=dtype, rounding="TO_EVEN")


@converter("FAKE_QUANT")
def fake_quant(node: Node) -> RelayExpr:
    """Floats by way of the whole numbers that a range and a number of bits leave them."""
    low, high = float(node.attr("min")), float(node.attr("max"))
    least = 1 if node.attr("narrow_range") else 0
    most = (1 << int(node.attr("num_bits"))) - 1
    if not low < high or most <= least:
        raise ValueError(f"its range is from {low} to {high} in {most} steps")
    scale = np.float32((high - low) / (most - least))
    zero = int(np.clip(np.floor(least - low / scale + 0.5), least, most))
    held = call("clip", node[0], float((least - zero) * scale), float((most - zero) * scale))
    first = call("multiply", call("subtract", held, constant((least - zero) * scale, "float32")),
                 constant(np.float32(1) / scale, "float32"))
    steps = call("floor", call("add", first, constant(0.5, "float32")))
    return call("add", call("multiply", steps, constant(scale)),
                constant((least - zero) * scale, "float32"))


@converter("CAST")
def cast_to(node: Node) -> RelayExpr:
    kind = node.result_dtype()
    if dtype_of(node[0]) == "bool" or kind != "bool":
        return cast(node[0], kind)
    return call("not_equal", node[0], constant(0, dtype_of(node[0])))


@converter("DENSIFY")
def densify(node: Node) -> RelayExpr:
    """Weights have their zeros already."""
    return node[0]
