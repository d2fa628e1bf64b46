"""Convolutions without the products of elements of windows that lie in the border: zeros.

    nn.conv2d(%x, const, dilation=24, padding=24)
    ->  concatenate of convolutions of parts of %x with parts of the window, without padding

Windows that are spread as far as an image is wide see little but the border.
"""

from typing import Any

from sterna.ir.transform import Pass
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import AnyOp
from sterna.relay.passes.rewrite_calls import call_pass


def SkipBorderTaps(processor: Any = None) -> Pass:
    """Let contractions fall into parts that see no border; without a processor nothing changes."""
    return call_pass(
        "SkipBorderTaps", 3, lambda record, call: skip_border_taps(record, call, processor)
    )


def skip_border_taps(record: AnyOp, call: Call, processor: Any) -> RelayExpr | None:
    """What the operator's record says."""
    rule = record.contraction.without_border
    return None if rule is None or processor is None else rule(call, processor)
