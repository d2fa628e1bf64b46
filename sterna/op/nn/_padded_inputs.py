"""Convolutions whose input channels fill no vectors, with further ones that meet weights of zero.

    nn.conv2d(%x of 126 channels, const)  ->  nn.conv2d(nn.pad(%x to 128 channels), const)

Winograd's transforms take vectors of input channels, and register tiles load the numbers of several
steps of the sum at once. Without either a convolution takes up to four times as long.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from sterna.ir.types import TensorType
from sterna.op.nn._conv_shape import contraction_of
from sterna.op.nn._padded_channels import widened, with_whole_vectors
from sterna.relay.arrays import from_numpy
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.infer import infer
from sterna.relay.layout import layout_of
from sterna.relay.op import call
from sterna.schedule.caches import with_caches
from sterna.schedule.choose import choose, deciding
from sterna.schedule.contraction import Contraction
from sterna.schedule.conv_stages import UNROLLED_CHANNELS
from sterna.schedule.cost import KERNEL, MOVED, STREAMED
from sterna.schedule.implementation import least_cycles
from sterna.schedule.implementations.im2col import im2col_cycles, offers_im2col
from sterna.schedule.kernel import Processor
from sterna.schedule.products import FLOAT32
from sterna.target import processor_of

# Channels of the narrowest vectors that transforms take.
NARROWEST = 4


def with_whole_inputs(
    attrs: Any, args: tuple[RelayExpr, ...], target: Any
) -> RelayExpr | None:
    """A convolution of images with known weights of float32 in one group, where that pays."""
    if target is None or not target.kind.picks_instructions or attrs.groups > 1:
        return None
    processor = processor_of(target)
    layouts = [layout_of(name) for name in (attrs.data_layout, attrs.kernel_layout)]
    made = _described(attrs, args)
    if made is None or not processor.whole_vectors or any(each.is_blocked for each in layouts):
        return None
    more = _more_inputs(made, with_caches(processor))
    if not more:
        return None
    data, kernel = layouts
    place = data.index_of("C")
    zero = Constant(from_numpy(np.zeros((), "float32")))
    width = tuple((0, more if axis == place else 0) for axis in range(len(data)))
    operands = (
        call("nn.pad", args[0], zero, pad_width=width),
        widened(args[1], kernel.index_of("I"), more),
    )
    for operand in operands:
        infer(operand)
    made_call = call("nn.conv2d", *operands, **dict(attrs.items()))
    assert isinstance(made_call, Call)
    return with_whole_vectors(made_call.attrs, operands, target) or made_call


def _described(attrs: Any, args: tuple[RelayExpr, ...]) -> Contraction | None:
    """A convolution of float32 with a window, of more channels than are computed one by one."""
    kinds = [infer(arg) for arg in args]
    found = [kind for kind in kinds if isinstance(kind, TensorType) and kind.is_static]
    if len(found) != 2 or not isinstance(args[1], Constant) or attrs.implementation:
        return None
    if attrs.out_dtype or any(kind.dtype != "float32" for kind in found):
        return None
    made = contraction_of(attrs, *found)
    if made is None or made.macs == 0 or made.rank != 2 or made.taps == 1:
        return None
    return made if made.inputs > UNROLLED_CHANNELS else None


def _more_inputs(made: Contraction, processor: Processor) -> int:
    """How many channels of zeros the data gets."""
    lanes = processor.lanes(FLOAT32)
    widths = [NARROWEST << n for n in range(lanes.bit_length()) if NARROWEST << n <= lanes]
    offered = sorted({made.inputs, *(made.inputs + -made.inputs % width for width in widths)})
    if len(offered) == 1:
        return 0
    own, result = (
        made.batch * channels * math.prod(image)
        for channels, image in ((made.inputs, made.image), (made.outputs, made.result))
    )
    first = made.data_layout == made.out_layout == "NCHW"
    moved = MOVED * (own + result) / processor.threads if first else 0.0

    def cycles(inputs: int) -> float:
        """With channels last, whole vectors of results among others; or as they lie."""
        last = replace(made, inputs=inputs, data_layout="NHWC", out_layout="NHWC")
        cut = 2 * result * made.out.bytes / STREAMED + KERNEL
        whole = made.outputs + -made.outputs % lanes
        found = [moved + _least(last, processor)]
        if whole > made.outputs:
            found.append(moved + _least(replace(last, outputs=whole), processor) + cut)
        if inputs > made.inputs:
            return min(found) + 2 * own * made.data.bytes / STREAMED + KERNEL
        lies = im2col_cycles(made, processor) if offers_im2col(made, processor) else math.inf
        return min(*found, lies)

    with deciding(str(made)):
        return choose("padded inputs", offered, cycles) - made.inputs


def _least(made: Contraction, processor: Processor) -> float:
    weights = np.broadcast_to(np.float32(1), (made.outputs, *made.window, made.depth))
    return least_cycles(made, weights, processor)
