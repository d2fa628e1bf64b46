"""Transposed convolutions, and convolutions of volumes."""

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sterna.frontend.calls import call, cast, dtype_of, reshape, type_of
from sterna.frontend.tflite.arithmetic import activated, held, in_vectors, product_ratio, rescaled
from sterna.frontend.tflite.convert_products import (
    SAME,
    VALID,
    padding,
    steps,
    with_bias,
    zeros_and_scales,
)
from sterna.frontend.tflite.dynamic_range import distances, ranged_for, scaled_sums
from sterna.frontend.tflite.narrow_floats import in_float32
from sterna.frontend.tflite.node import CUSTOM, Node, converter
from sterna.frontend.tflite.schema import TYPES
from sterna.relay.expr import RelayExpr, Tuple


@converter("TRANSPOSE_CONV")
@in_float32
def transpose_conv(node: Node) -> RelayExpr:
    """The shape of the result, weights as out, height, width, in; then data and a bias."""
    wanted = node.ints(0, "the shape of the result")
    places = (2, 1, 3)
    turned = replace(
        node, inputs=[node.get(i) for i in places],
        operands_as=[node.operands_as[i] if i < len(node.operands_as) else None for i in places],
    )
    return _transposed(turned, wanted[1:3])


@converter("Convolution2DTransposeBias", domain=CUSTOM)
def transpose_conv_bias(node: Node) -> RelayExpr:
    """Data, weights and a bias; the options are the padding and the steps to the side and down."""
    if len(node.custom_options) < 12:
        raise ValueError(f"its options have {len(node.custom_options)} bytes, not 12")
    mode, across, down = struct.unpack("<3i", node.custom_options[:12])
    attrs = {"padding": {1: SAME, 2: VALID}.get(mode), "stride_w": across, "stride_h": down}
    made = replace(node, attrs=attrs)
    strides = steps(made, "stride", "hw")
    _, *kernel, _ = node.shape(1)
    wanted = [
        extent * stride if mode == 1 else (extent - 1) * stride + size
        for extent, stride, size in zip(node.shape()[1:3], strides, kernel, strict=True)
    ]
    return _transposed(made, wanted)


@converter("CONV_3D_TRANSPOSE")
def conv_3d_transpose(node: Node) -> RelayExpr:
    """The shape of the result, weights as depth, height, width, out, in; data and a bias."""
    wanted = node.ints(0, "the shape of the result")[1:4]
    *kernel, channels, _ = node.shape(1)
    strides, apart = steps(node, "stride", "dhw"), steps(node, "dilation", "dhw")
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, apart, strict=True)]
    pads, more = _cut(node, node.shape(2)[1:4], strides, reach, wanted)
    made = call(
        "nn.conv3d_transpose", node[2], node[1], strides=strides, dilation=apart,
        padding=(*(before for before, _ in pads), *(after for _, after in pads)),
        output_padding=more, channels=channels, kernel_size=tuple(kernel), data_layout="NDHWC",
        kernel_layout="DHWOI")
    biased = call("add", made, node[3]) if node.has(3) else made
    return activated(node, biased)


def _cut(
    node: Node, extents: Sequence[int], strides: Sequence[int], reach: Sequence[int],
    wanted: Sequence[int],
) -> tuple[list[tuple[int, int]], tuple[int, ...]]:
    """What is cut off before and behind what windows make, and what a result has behind it."""
    pads, more = [], []
    for extent, stride, size, target in zip(extents, strides, reach, wanted, strict=True):
        whole = (extent - 1) * stride + size
        cut = max(0, whole - target)
        if node.attr("padding") == VALID and cut:
            raise ValueError(f"a result of {list(wanted)} is smaller than what its windows make")
        pads.append((cut // 2, cut - cut // 2))
        more.append(max(0, target - whole))
    return pads, tuple(more)


def _transposed(node: Node, wanted: list[int]) -> RelayExpr:
    channels, *kernel, _ = node.shape(1)
    strides = steps(node, "stride", "hw")
    pads, more = _cut(node, node.shape()[1:3], strides, kernel, wanted)
    attrs = {
        "strides": strides, "kernel_size": tuple(kernel), "channels": channels,
        "padding": (*(before for before, _ in pads), *(after for _, after in pads)),
        "output_padding": more, "data_layout": "NHWC", "kernel_layout": "HWOI",
    }
    weight = call("transpose", node[1], (1, 2, 0, 3))
    if dtype_of(node[0]) == "float32":
        if node.is_quantized(1):
            ranged = ranged_for(node, node[0])
            sums = call("nn.conv2d_transpose", distances(ranged), cast(weight, "int16"),
                        out_dtype="int32", **attrs)
            made = scaled_sums(sums, ranged.scale, node.quantization(1))
        else:
            made = call("nn.conv2d_transpose", node[0], weight, **attrs)
        return activated(node, with_bias(node, made))
    wide = "int64" if node.dtype() == "int16" and not _has_short_bias(node) else "int32"
    passes_windows = any(size < step for size, step in zip(kernel, strides, strict=True))
    if node.dtype() != "int16" and not passes_windows:
        before = [first for first, _ in pads]
        return _by_phases(node, strides, before, wanted)
    sums = call("qnn.conv2d_transpose", node[0], weight, *zeros_and_scales(node), out_dtype=wide,
                **attrs)
    out, dtype = node.result_quantization(), node.result_dtype()
    biased = with_bias(node, sums)
    # XNNPACK's kernels leave windows that steps pass over, unless nothing is filled up behind them,
    # and data of 16 bits, to others
    is_filled = passes_windows and node.attr("padding") != VALID
    own = wide == "int32" and (dtype == "int16" or is_filled)
    ratio = product_ratio(node, node.quantization(0), node.quantization(1), out, own)
    if not own:
        made = rescaled(node, biased, ratio, out, dtype, 3)
    elif dtype == "uint8":  # whose vectors go on over pixels
        flat = in_vectors(node, reshape(biased, (-1,)), ratio, out, dtype, lanes=16)
        made = reshape(flat, type_of(biased).shape)
    else:
        made = in_vectors(node, biased, ratio, out, dtype)
    return held(node, made, out, dtype)


@dataclass(frozen=True, slots=True)
class _Phase:
    """Every step-th element of a result along an axis, from one on: those that read the same taps.

    Element number of it reads the data at number + met less 0, 1 and so on up to the taps.
    """

    first: int
    """The first tap; the others are each a step further."""
    taps: int
    met: int
    count: int
    """Elements of the longest phase."""
    extent: int
    """Of the data."""

    @property
    def padding(self) -> tuple[int, int]:
        """Before and after the data; below 0 where some of it is not read."""
        return self.taps - 1 - self.met, self.count + self.met - self.extent


def _phases_of(extent: int, size: int, step: int, before: int, result: int) -> list[_Phase]:
    """The phases along an axis, in the order of their first elements."""
    found = []
    for place in range(step):
        first = (place + before) % step
        taps = -(-(size - first) // step)
        found.append(_Phase(first, taps, (place + before) // step, -(-result // step), extent))
    return found


def _by_phases(
    node: Node, strides: Sequence[int], before: Sequence[int], wanted: Sequence[int]
) -> RelayExpr:
    """Plain convolutions of bytes, one for each phase, whose results take turns (sub-pixel)."""
    channels, *kernel, inputs = node.shape(1)
    axes = [_phases_of(*each) for each in zip(
        node.shape()[1:3], kernel, strides, before, wanted, strict=True)]
    zeros, (out, dtype) = zeros_and_scales(node), (node.result_quantization(), node.result_dtype())
    ratio = product_ratio(node, node.quantization(0), node.quantization(1), out, False)
    made = []
    for phases in itertools.product(*axes):
        weight = call(
            "strided_slice", node[1], begin=(0, *(phase.first for phase in phases), 0),
            end=(channels, *kernel, inputs), strides=(1, *strides, 1))
        for axis in (1, 2):
            weight = call("reverse", weight, axis=axis)
        pads = [phase.padding for phase in phases]
        data = node[0]
        if min(min(each) for each in pads) < 0:
            data = call(
                "strided_slice", data, begin=[max(0, -first) for first, _ in pads],
                end=[phase.extent - max(0, -phase.padding[1]) for phase in phases],
                axes=(1, 2))
        sums = call(
            "qnn.conv2d", data, call("transpose", weight, (1, 2, 3, 0)), *zeros, out_dtype="int32",
            kernel_size=tuple(phase.taps for phase in phases), channels=channels,
            padding=(*(max(0, first) for first, _ in pads), *(max(0, last) for _, last in pads)),
            data_layout="NHWC", kernel_layout="HWIO")
        narrow = rescaled(node, with_bias(node, sums), ratio, out, dtype, 3)
        made.append(held(node, narrow, out, dtype))
    if len(made) == 1:
        return made[0]
    batch, (rows, columns) = node.shape()[0], (axis[0].count for axis in axes)
    whole = reshape(call("concatenate", Tuple(tuple(made)), axis=3),
                    (batch, rows, columns, *strides, channels))
    whole = reshape(call("transpose", whole, (0, 1, 3, 2, 4, 5)),
                    (batch, rows * strides[0], columns * strides[1], channels))
    if (rows * strides[0], columns * strides[1]) == tuple(wanted):
        return whole
    return call("strided_slice", whole, begin=(0, 0), end=tuple(wanted), axes=(1, 2))


def _has_short_bias(node: Node) -> bool:
    """Whether a bias is of 32 bits, or would be if there were one."""
    if node.has(2):
        return dtype_of(node[2]) == "int32"
    return bool(node.attr("bias_type", 0) == TYPES.index("int32"))


@converter("CONV_3D")
def conv_3d(node: Node) -> RelayExpr:
    """Weights are depth, height, width, in, out."""
    *kernel, inputs, channels = node.shape(1)
    have = node.shape()[4]
    if not inputs or have % inputs:
        raise ValueError(f"its weights are for {inputs} channels, its data has {have}")
    made = call(
        "nn.conv3d", node[0], node[1], strides=steps(node, "stride", "dhw"),
        dilation=steps(node, "dilation", "dhw"),
        padding=padding(node, node.shape()[1:4], kernel, "dhw"), groups=have // inputs,
        channels=channels, kernel_size=tuple(kernel), data_layout="NDHWC",
        kernel_layout="DHWIO",
    )
    return activated(node, with_bias(node, made))
