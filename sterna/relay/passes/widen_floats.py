"""Narrow floats widened: operators by those of float32, on processors that would widen each number.

    nn.conv2d(%x, %w)  ->  cast(nn.conv2d(cast(%x, float32), cast(%w, float32)), float16)

After factors have been folded into weights, from which the cast behind it would keep them.
"""

from typing import Any

from sterna.ir.transform import Pass
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import AnyOp
from sterna.relay.passes.rewrite_calls import call_pass


def WidenFloats(processor: Any = None) -> Pass:
    """Compute in float32 what a processor would widen number by number."""
    return call_pass("WidenFloats", 0, lambda record, call: widen_floats(record, call, processor))


def widen_floats(record: AnyOp, call: Call, processor: Any) -> RelayExpr | None:
    """What the operator's record says for the processor."""
    rule = record.contraction.widen if record.contraction is not None else None
    return None if rule is None else rule(call.attrs, call.args, processor)
