"""Factors of a convolution's channels that only the run knows, as in squeeze-and-excite blocks."""

import math
from typing import Any

from sterna.ir.types import TensorType
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.layout import layout_of
from sterna.relay.op import call, is_call_of


def factors_into_weights(conv: Call) -> RelayExpr | None:
    """conv(x * s, w) is conv(x, w * s): fewer products where output channels are fewer than pixels.

    Not before weights are packed, for which they must be constants; and windows of one pixel only,
    as others may run by Winograd's way.
    """
    attrs: Any = conv.attrs
    data, weight = conv.args
    kernel = layout_of(attrs.kernel_layout)
    if not is_call_of(data, "multiply") or not kernel.is_blocked or attrs.data_layout != "NHWC":
        return None
    assert isinstance(data, Call)
    kinds = [part.checked_type for part in (*data.args, weight, conv)]
    if not all(isinstance(kind, TensorType) and kind.is_static for kind in kinds):
        return None
    extents: Any = kernel.dims(weight.checked_type.shape)  # type: ignore[attr-defined]
    inputs, outputs = extents["I"], extents["O"]
    pixels = math.prod(conv.checked_type.concrete_shape) // outputs  # type: ignore[attr-defined]
    if attrs.groups > 1 or extents["H"] * extents["W"] > 1 or outputs >= pixels:
        return None
    for image, factors in (data.args, data.args[::-1]):
        whole = image.checked_type == data.checked_type
        if whole and factors.checked_type.shape == (1, 1, 1, inputs):  # type: ignore[attr-defined]
            shape = tuple(inputs if part.axis == "I" else 1 for part in kernel.parts)
            scaled = call("multiply", weight, call("reshape", factors, newshape=shape))
            return Call(conv.op, (image, scaled), attrs)
    return None


def factors_apart(conv: Call) -> tuple[RelayExpr, RelayExpr]:
    """Data and weights of a convolution before factors_into_weights, if it was there."""
    data, weight = conv.args
    if not is_call_of(weight, "multiply"):
        return data, weight
    assert isinstance(weight, Call)
    known, factors = weight.args
    if not isinstance(known, Constant) or not is_call_of(factors, "reshape"):
        return data, weight
    assert isinstance(factors, Call)
    given, image = factors.args[0].checked_type, data.checked_type
    assert isinstance(given, TensorType) and isinstance(image, TensorType)
    if given.shape != (1, 1, 1, image.shape[-1]):
        return data, weight
    return call("multiply", data, factors.args[0]), known
