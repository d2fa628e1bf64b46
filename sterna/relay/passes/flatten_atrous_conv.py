"""Atrous (dilated) convolution recovered from space-to-batch, convolution, batch-to-space.

    nn.batch_to_space_nd(nn.conv2d(nn.space_to_batch_nd(%x, block_shape=[2, 2], ...), %w), ...)
        -> nn.conv2d(%x, %w, dilation=[2, 2], padding=...)
"""

from typing import Any

from sterna.ir.transform import Pass
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.layout import layout_of
from sterna.relay.op import AnyOp, is_call_of, is_packed
from sterna.relay.passes.rewrite_calls import call_pass


def FlattenAtrousConv() -> Pass:
    """Write convolutions between blocks of space as dilated ones."""
    return call_pass("FlattenAtrousConv", 0, flatten_atrous_conv)


def flatten_atrous_conv(record: AnyOp, call: Call) -> RelayExpr | None:
    """The dilated convolution that a call gives, if it gives one."""
    if record.name != "nn.batch_to_space_nd" or not is_call_of(call.args[0], "nn.conv2d"):
        return None
    conv = call.args[0]
    assert isinstance(conv, Call)
    if is_packed(conv.attrs) or not is_call_of(conv.args[0], "nn.space_to_batch_nd"):
        return None
    space_to_batch = conv.args[0]
    assert isinstance(space_to_batch, Call)
    back: Any = call.attrs
    forth: Any = space_to_batch.attrs
    attrs = _dilated(conv.attrs, forth, back)
    if attrs is None:
        return None
    made = Call(conv.op, (space_to_batch.args[0], conv.args[1]), attrs)
    return made if made.checked_type == call.checked_type else None


def _dilated(conv: Any, forth: Any, back: Any) -> Any:
    layout = layout_of(conv.data_layout)
    spatial = "".join(part.axis for part in layout.parts[1:3])
    plain = layout.primal == layout.name and layout.name[0] == "N" and spatial == "HW"
    if not plain or conv.out_layout not in ("", conv.data_layout) or forth.pad_value:
        return None
    if tuple(conv.strides) != (1, 1) or tuple(conv.dilation) != (1, 1):
        return None
    blocks = tuple(forth.block_shape)
    if len(blocks) != 2 or blocks != tuple(back.block_shape):
        return None
    before = [
        pair[0] + own * block - crop[0]
        for pair, own, block, crop in zip(
            forth.paddings, conv.before, blocks, back.crops, strict=True
        )
    ]
    after = [
        pair[1] + own * block - crop[1]
        for pair, own, block, crop in zip(
            forth.paddings, conv.after, blocks, back.crops, strict=True
        )
    ]
    if min(before + after) < 0:
        return None
    return conv.replace(dilation=blocks, padding=(*before, *after))
