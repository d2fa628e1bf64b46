"""Factors of a convolution's channels that only the run knows, as in squeeze-and-excite blocks."""

from sterna.ir.types import TensorType
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.layout import Layout
from sterna.relay.op import call, is_call_of
from sterna.schedule.contraction import Contraction


def factors_into_weights(
    made: Contraction, layout: Layout, data: RelayExpr, weight: RelayExpr
) -> tuple[RelayExpr, RelayExpr]:
    """conv(x * s, w) is conv(x, w * s): fewer products where output channels are fewer than pixels.

    The operands of a pointwise convolution of packed weights, with such factors where they belong.
    """
    one_tap = made.groups == made.taps == 1 and made.data_layout == "NHWC"
    if not is_call_of(data, "multiply") or not one_tap or made.outputs >= made.pixels:
        return data, weight
    assert isinstance(data, Call)
    for image, factors in (data.args, data.args[::-1]):
        given = factors.checked_type
        whole = layout.is_blocked and image.checked_type == data.checked_type
        if whole and isinstance(given, TensorType) and given.shape == (1, 1, 1, made.inputs):
            shape = tuple(made.inputs if part.axis == "I" else 1 for part in layout.parts)
            scaled = call("multiply", weight, call("reshape", factors, newshape=shape))
            return image, scaled
    return data, weight
