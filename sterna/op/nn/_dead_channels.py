"""Which channels of convolutions of whole numbers matter, and convolutions without the others."""

from typing import Any

import numpy as np

from sterna.op.nn._conv_implementation import described_conv, with_known_weights
from sterna.relay.arrays import Array, shared_numpy
from sterna.relay.expr import Call, Constant, RelayExpr, const
from sterna.relay.layout import layout_of
from sterna.relay.op import ChannelRule
from sterna.schedule.contraction import Contraction


def _suits(call: Call) -> bool:
    """Bytes, channels last, all in one group or each in its own."""
    made, weight = described_conv(call), call.args[1]
    if made is None or not isinstance(weight, Constant) or made.transposed or made.macs == 0:
        return False
    attrs: Any = call.attrs
    plain = not layout_of(attrs.kernel_layout).is_blocked and not attrs.implementation
    last = made.data_layout == made.out_layout == f"N{made.spatial}C"
    return plain and last and made.is_of_bytes and (made.groups == 1 or made.is_depthwise)


def _known(call: Call) -> tuple[Contraction, Array]:
    """Its description, and its weights as (output channel, tap, input channel)."""
    found = with_known_weights(call)
    assert found is not None, "it was asked whether the rule suits"
    made, weights = found
    return made, weights.reshape(made.outputs, made.taps, made.depth).astype(np.int64)


def _bounds(call: Call, low: Array, high: Array) -> tuple[Array, Array]:
    made, weights = _known(call)
    if made.is_padded:
        low, high = np.minimum(low, made.border), np.maximum(high, made.border)
    if made.is_depthwise:
        low, high = low[:, None, None], high[:, None, None]
    ends = weights * low, weights * high
    least, most = np.minimum(*ends), np.maximum(*ends)
    return least.sum(axis=(1, 2)), most.sum(axis=(1, 2))


def _unneeded(call: Call, dead: Array, constant: Array, value: Array) -> Array:
    made, weights = _known(call)
    if made.is_depthwise:
        return dead.copy()
    known = constant & (value == made.border) if made.is_padded else constant
    unread = (weights[~dead] == 0).all(axis=(0, 1))
    found: Array = known | unread
    return found


def _constant_part(call: Call, gone: Array, value: Array) -> Array:
    made, weights = _known(call)
    if made.is_depthwise:
        return np.zeros(made.outputs, np.int64)
    part: Array = (weights.sum(axis=1) * np.where(gone, value, 0)).sum(axis=1)
    return part


def _keep(call: Call, data: RelayExpr, inputs: Array, outputs: Array) -> RelayExpr:
    attrs: Any = call.attrs
    weight, kernel = call.args[1], layout_of(attrs.kernel_layout)
    assert isinstance(weight, Constant)
    values = np.compress(outputs, shared_numpy(weight.data), axis=kernel.index_of("O"))
    groups = attrs.groups
    if groups > 1:
        groups = int(outputs.sum())
    else:
        values = np.compress(inputs, values, axis=kernel.index_of("I"))
    made = attrs.replace(channels=int(outputs.sum()), groups=groups)
    return Call(call.op, (data, const(np.ascontiguousarray(values))), made)


def _is_depthwise(call: Call) -> bool:
    attrs: Any = call.attrs
    return bool(attrs.groups > 1)


CONV_CHANNELS = ChannelRule(_suits, _is_depthwise, _bounds, _unneeded, _constant_part, _keep)
