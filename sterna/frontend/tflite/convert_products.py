"""Convolutions and fully connected layers: of floats, and of whole numbers."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sterna.frontend.calls import call, constant, dtype_of, rank_of, reshape
from sterna.frontend.tflite.arithmetic import (
    activated,
    held,
    in_vectors,
    product_ratio,
    rescaled,
)
from sterna.frontend.tflite.dynamic_range import (
    dense_of_blocks,
    dense_of_bytes,
    distances,
    ranged_for,
    scaled_sums,
    signed,
)
from sterna.frontend.tflite.narrow_floats import in_float32
from sterna.frontend.tflite.node import Node, converter
from sterna.frontend.tflite.schema import TYPES, Quantization
from sterna.relay.expr import RelayExpr

SAME, VALID = 0, 1


def padding(
    node: Node, extents: Sequence[int], kernel: Sequence[int], axes: str
) -> tuple[int, ...]:
    """The padding before every axis, then after every one."""
    code = node.attr("padding")
    if code == VALID:
        return (0,) * (2 * len(axes))
    if code != SAME:
        raise ValueError(f"its padding is {code}, neither SAME nor VALID")
    strides, dilations = steps(node, "stride", axes), steps(node, "dilation", axes)
    total = [
        max(0, (-(-extent // stride) - 1) * stride + (size - 1) * dilation + 1 - extent)
        for extent, size, stride, dilation in zip(extents, kernel, strides, dilations, strict=True)
    ]
    return (*(t // 2 for t in total), *(t - t // 2 for t in total))


def steps(node: Node, name: str, axes: str) -> tuple[int, ...]:
    """The strides or the dilations along axes such as hw, which are 1 where there are none."""
    found = tuple(int(node.attr(f"{name}_{axis}", 1)) for axis in axes)
    if any(not 0 < number < 1 << 31 for number in found):
        raise ValueError(f"its {name} is {list(found)}; its numbers are from 1 on")
    return found


@converter("CONV_2D")
@in_float32
def conv_2d(node: Node) -> RelayExpr:
    """Weights are out, height, width, in; fewer inputs than the data has are groups."""
    channels, height, width, inputs = node.shape(1)
    have = node.shape()[3]
    if not inputs or have % inputs:
        raise ValueError(f"its weights are for {inputs} channels, its data has {have}")
    weight = call("transpose", node[1], (1, 2, 3, 0))
    return _convolution(node, weight, "HWIO", (height, width), channels, have // inputs)


@converter("DEPTHWISE_CONV_2D")
@in_float32
def depthwise_conv_2d(node: Node) -> RelayExpr:
    """Weights are 1, height, width, out."""
    _, height, width, channels = node.shape(1)
    inputs = node.shape()[3]
    if not inputs or channels % inputs:
        raise ValueError(f"{channels} results are no multiple of its {inputs} channels")
    per_input = channels // inputs
    if inputs == 1:
        weight, layout = reshape(node[1], (height, width, 1, channels)), "HWIO"
    else:
        weight, layout = reshape(node[1], (height, width, inputs, per_input)), "HWOI"
    return _convolution(node, weight, layout, (height, width), channels, inputs)


def _convolution(
    node: Node, weight: RelayExpr, layout: str, kernel: tuple[int, int], channels: int, groups: int
) -> RelayExpr:
    attrs = {
        "strides": steps(node, "stride", "hw"), "dilation": steps(node, "dilation", "hw"),
        "padding": padding(node, node.shape()[1:3], kernel, "hw"), "groups": groups,
        "channels": channels, "kernel_size": kernel, "data_layout": "NHWC",
        "kernel_layout": layout,
    }
    if dtype_of(node[0]) == "float32":
        made = _of_floats(node, weight, attrs)
        return activated(node, with_bias(node, made))
    sums = call("qnn.conv2d", node[0], weight, *zeros_and_scales(node), out_dtype=sum_type(node),
                **attrs)
    if node.kind == "DEPTHWISE_CONV_2D" and not _is_quick_depthwise(node):
        return _from_depthwise_sums(node, sums)
    return from_sums(node, sums)


def _is_quick_depthwise(node: Node) -> bool:
    """Whether XNNPACK has a kernel: not for 4 bits, nor for bytes whose one scale has an axis."""
    if node.dtype(1) == "int4":
        return False
    return node.dtype(1) != "uint8" or node.quantization(1).axis == 0


def _from_depthwise_sums(node: Node, sums: RelayExpr) -> RelayExpr:
    """What LiteRT's own kernel makes of sums, where there is none of XNNPACK: it rounds twice.

    Weights of 4 bits go in vectors of eight channels.
    """
    if node.dtype(1) == "uint8" or node.dtype() == "int16":
        return from_sums(node, sums, twice=True)
    out, dtype = node.result_quantization(), node.result_dtype()
    ratio = product_ratio(node, node.quantization(0), node.quantization(1), out, twice=True)
    return held(node, in_vectors(node, with_bias(node, sums), ratio, out, dtype), out, dtype)


def _of_floats(node: Node, weight: RelayExpr, attrs: dict[str, Any]) -> RelayExpr:
    """The convolution of floats, by the range of each image where weights are whole numbers.

    LiteRT takes products of pixels for rows of a fully connected layer, each with its own range,
    and one scale for weights of uint8.
    """
    if not node.is_quantized(1):
        return call("nn.conv2d", node[0], weight, **attrs)
    if node.dtype(1) == "int8" and _is_of_pixels(attrs):
        units, depth = attrs["channels"], node.shape()[3]
        rows = _dense_of_floats(node, reshape(node[0], (-1, depth)),
                                reshape(node[1], (units, depth)), units)
        return reshape(rows, (*node.shape()[:3], units))
    ranged, scheme, weight = ranged_for(node, node[0]), node.quantization(1), signed(weight)
    if node.dtype(1) == "uint8":
        scheme = replace(scheme, scale=scheme.scale[:1], zero=scheme.zero[:1])
    if node.shape()[0] == 1:
        one = constant(1, "float32")
        zero = reshape(ranged.zero, ())
        sums = call("qnn.conv2d", ranged.data, weight, zero, constant(0, "int32"), one, one,
                    **attrs)
    else:
        sums = call("nn.conv2d", distances(ranged), weight, out_dtype="int32", **attrs)
    return scaled_sums(sums, ranged.scale, scheme)


def _is_of_pixels(attrs: dict[str, Any]) -> bool:
    ones = (1, 1)
    return bool(attrs["kernel_size"] == attrs["strides"] == ones and attrs["groups"] == 1)


def zeros_and_scales(node: Node) -> tuple[RelayExpr, ...]:
    """The zero points of both operands; the scales of products are in what is made of sums."""
    one = constant(1, "float32")
    data, weight = node.quantization(0), node.quantization(1)
    return (_zero(data), _zero(weight), one, one)


def _zero(quantization: Quantization) -> RelayExpr:
    points = quantization.zero.astype(np.int32)
    return constant(points[0] if np.all(points == points[0]) else points)


def sum_type(node: Node) -> str:
    """The type of sums: data of 16 bits with a bias of 64 needs as many, or where one might be."""
    if node.has(2):
        return "int64" if dtype_of(node[2]) == "int64" else "int32"
    is_said = node.attr("bias_type", 0) == TYPES.index("int64")
    return "int64" if is_said and node.dtype() == "int16" else "int32"


def with_bias(node: Node, made: RelayExpr) -> RelayExpr:
    """Sums and what is added to each channel, which lies last."""
    if not node.has(2):
        return made
    return call("nn.bias_add", made, node[2], axis=rank_of(made) - 1)


def from_sums(node: Node, sums: RelayExpr, twice: bool = False) -> RelayExpr:
    """The result of a product from its sums: the bias, the scale of the result, its bounds."""
    out, dtype = node.result_quantization(), node.result_dtype()
    ratio = product_ratio(node, node.quantization(0), node.quantization(1), out, twice)
    axis = rank_of(sums) - 1
    made = rescaled(node, with_bias(node, sums), ratio, out, dtype, axis, twice)
    return held(node, made, out, dtype)


def _dense_of_floats(
    node: Node, rows: RelayExpr, weight: RelayExpr, units: int
) -> RelayExpr:
    """Rows of floats by weights, each by its range where these are whole numbers."""
    if not node.is_quantized(1):
        return call("nn.dense", rows, weight, units=units)
    blocks = node.block_scales(1)
    if blocks is not None:
        return dense_of_blocks(rows, weight, *blocks)
    return dense_of_bytes(ranged_for(node, rows), weight, node.quantization(1))


@converter("FULLY_CONNECTED")
@in_float32
def fully_connected(node: Node) -> RelayExpr:
    """Data as rows of what the weights read; weights are out, in."""
    units, depth = node.shape(1)
    extents = node.shape()
    if depth == 0 or math.prod(extents) % depth:
        raise ValueError(f"{math.prod(extents)} elements are no rows of {depth}")
    rows = reshape(node[0], (-1, depth))
    if dtype_of(node[0]) == "float32":
        made = activated(node, with_bias(node, _dense_of_floats(node, rows, node[1], units)))
    else:
        sums = call("qnn.dense", rows, node[1], *zeros_and_scales(node), units=units,
                    out_dtype=sum_type(node))
        made = from_sums(node, sums)
    return reshape(made, (*extents[:-1], units)) if node.attr("keep_num_dims") else made
