"""Whether a convolution runs by Winograd's way, and the call that does it."""

from typing import Any

from sterna.ir.types import TensorType
from sterna.op.kernel import Processor
from sterna.op.nn._winograd import WINDOW, transform_weights, winograd_plan
from sterna.op.register_tile import tile_of_rows
from sterna.relay.arrays import from_numpy, to_numpy
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.layout import layout_of, to_plain
from sterna.relay.op import call as call_of


def conv2d_by_winograd(call: Call, processor: Processor, growth: int) -> RelayExpr | None:
    """Windows of 3 x 3 that move by 1 over channels that lie last, with known weights."""
    attrs: Any = call.attrs
    data, weight = call.args[0].checked_type, call.args[1]
    out = call.checked_type
    if not isinstance(weight, Constant) or attrs.data_layout != "NHWC" or attrs.groups != 1:
        return None
    assert isinstance(data, TensorType) and isinstance(out, TensorType)
    steps = {*attrs.strides, *attrs.dilation}
    if steps != {1} or attrs.out_layout not in ("", "NHWC") or not data.is_static or attrs.border:
        return None
    if not data.dtype == weight.data.dtype == out.dtype == "float32":
        return None
    plain = to_plain(to_numpy(weight.data), layout_of(attrs.kernel_layout), "OIHW")
    batch, height, width, outputs = out.concrete_shape
    if plain.shape[2:] != (WINDOW, WINDOW):
        return None
    lanes = processor.lanes(data.dtype)
    inputs = plain.shape[1]
    block = tile_of_rows(processor, width, outputs, data.dtype, inputs).columns
    if outputs % block:
        return None
    image, channels = (batch, height, width), (inputs, outputs)
    plan = winograd_plan(image, channels, block, processor, lanes, growth)
    if plan is None:
        return None
    together = processor.steps_together(data.dtype, inputs)
    packed = Constant(from_numpy(transform_weights(plain, plan.m, block), weight.data.dtype))
    return call_of(
        "nn.conv2d_winograd", call.args[0], packed, tile_size=plan.m, padding=attrs.padding,
        block_tiles=plan.tiles, lanes=plan.lanes, split=plan.split,
        registers=processor.registers_for(together), together=together,
        why=plan.why,
    )  # fmt: skip
