"""Whether a convolution runs by Winograd's way, and the calls that do it."""

import math
from typing import Any

from sterna.ir.types import TensorType
from sterna.op.nn._pixel_blocks import PixelBlocks
from sterna.relay.arrays import from_numpy, to_numpy
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.layout import layout_of, to_plain
from sterna.relay.op import call as call_of
from sterna.schedule.kernel import Processor
from sterna.schedule.register_tile import tile_of_rows
from sterna.schedule.winograd_plan import WINDOWS, Sum, transform_weights, winograd_plan


def conv2d_by_winograd(call: Call, processor: Processor, growth: int) -> RelayExpr | None:
    """Small windows that move by 1 with known weights; steps over few channels are made such."""
    attrs: Any = call.attrs
    data, weight = call.args[0].checked_type, call.args[1]
    out = call.checked_type
    if not isinstance(weight, Constant) or attrs.groups != 1 or {*attrs.dilation} != {1}:
        return None
    assert isinstance(data, TensorType) and isinstance(out, TensorType)
    if (attrs.out_layout or attrs.data_layout) != "NHWC" or not data.is_static or attrs.border:
        return None
    if not data.dtype == weight.data.dtype == out.dtype == "float32":
        return None
    plain = to_plain(to_numpy(weight.data), layout_of(attrs.kernel_layout), "OIHW")
    *image, outputs = out.concrete_shape
    lanes = processor.lanes(data.dtype)
    blocks = None
    if {*attrs.strides} != {1}:
        blocks = PixelBlocks.of(attrs, data.concrete_shape, plain.shape, out.concrete_shape, lanes)
        if blocks is None:
            return None
    elif attrs.data_layout != "NHWC":
        return None
    weights = plain if blocks is None else blocks.weight(plain)
    _, inputs, window, across = weights.shape
    block = tile_of_rows(processor, image[2], outputs, data.dtype, inputs).columns
    if window != across or window not in WINDOWS or outputs % block:
        return None
    moved = 0 if blocks is None else math.prod(blocks.shape)
    products = math.prod(plain.shape[1:])
    wanted = Sum((image[0], image[1], image[2]), inputs, outputs, window, products, moved)
    plan = winograd_plan(wanted, block, processor, lanes, growth)
    if plan is None:
        return None
    together = processor.steps_together(data.dtype, inputs)
    packed = Constant(from_numpy(transform_weights(weights, plan.m, block), weight.data.dtype))
    return call_of(
        "nn.conv2d_winograd", blocks.data(call.args[0]) if blocks else call.args[0], packed,
        tile_size=plan.m, window=window, plain=products,
        padding=(0, 0, 0, 0) if blocks else attrs.padding,
        block_tiles=plan.tiles, lanes=plan.lanes, split=plan.split,
        registers=processor.registers_for(together), together=together,
        why=plan.why,
    )
