"""Convolutions of a single channel of bytes as depthwise ones of that channel again and again.

    qnn.conv2d(%x, const of 8 channels)  ->  qnn.conv2d(broadcast_to(%x), const, groups=8)

Dot products take four bytes of a pixel at once, of which a single channel has one; of four rows
that lie side by side, as depthwise kernels read them, they take all.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from sterna.ir.types import TensorType
from sterna.op.dynamic import tensor_type
from sterna.op.nn._conv_shape import contraction_of
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr
from sterna.relay.op import call, find
from sterna.schedule.choose import choose, deciding
from sterna.schedule.contraction import Contraction
from sterna.schedule.cost import STREAMED
from sterna.schedule.dot4 import GROUP, INT32
from sterna.schedule.implementation import cheapest_cycles
from sterna.schedule.kernel import Processor
from sterna.support.dtype import DataType
from sterna.target import Target, processor_of


def repeated_channel(
    attrs: Any, data: RelayExpr, weights: Array, target: Target
) -> tuple[RelayExpr, Any] | None:
    """The data and the attributes of the depthwise convolution, if it costs less."""
    if attrs.data_layout != "NCHW" or attrs.kernel_layout != "OIHW" or attrs.groups != 1:
        return None
    plain, kind = find("nn.conv2d").attrs, tensor_type(data)
    assert plain is not None
    if weights.shape[1] != 1 or not kind.is_static:
        return None
    given = {name: value for name, value in attrs.items() if name in plain.FIELDS}
    made = contraction_of(plain(**{**given, "out_dtype": INT32}), kind,
                          TensorType(weights.shape, DataType("int8")))
    if made is None or made.macs == 0 or made.outputs == 1:
        return None
    if not _pays(made, processor_of(target)):
        return None
    shape = (made.batch, made.outputs, *made.image)
    return (call("broadcast_to", data, shape=shape),
            attrs.replace(groups=made.outputs, channels=made.outputs))


def _pays(made: Contraction, processor: Processor) -> bool:
    if not processor.has_dot4:
        return False
    pixels = replace(made, data_layout="NHWC", out_layout="NHWC")
    copied = made.batch * float(np.prod(made.image)) * made.outputs / STREAMED

    def cycles(repeats: bool) -> float:
        inputs, groups = (made.outputs, made.outputs) if repeats else (GROUP, 1)
        seen = replace(pixels, inputs=inputs, groups=groups)
        weights: Array = np.ones((seen.outputs, *seen.window, seen.depth), "int8")
        moved = copied / processor.threads if repeats else 0.0
        return cheapest_cycles(seen, weights, processor) + moved

    with deciding(str(made)):
        return choose("one channel", [False, True], cycles)
