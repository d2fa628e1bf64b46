"""Sums of products of bytes by operators that know how a processor adds several at once.

    nn.conv2d(%x, const, groups=32)  ->  nn.conv2d_depthwise_dots(%x, packed)

The operator's record says what it becomes.
"""

from typing import Any

from sterna.ir.transform import Pass, function_pass
from sterna.relay.expr import Call, Function, RelayExpr
from sterna.relay.op import OpRecord
from sterna.relay.passes.rewrite_calls import rewrite_calls


def ByteDots(processor: Any = None) -> Pass:
    """Replace sums of products of bytes with known weights; without a processor nothing changes."""
    made: Pass = function_pass(
        lambda func, mod, context: func if processor is None else byte_dots(func, processor),
        opt_level=3, name="ByteDots", kind=Function,
    )
    return made


def byte_dots(func: Function, processor: Any) -> Function:
    """The function with what costs less in the place of sums of products of bytes."""

    def answer(record: OpRecord, call: Call) -> RelayExpr | None:
        return None if record.byte_dots is None else record.byte_dots(call, processor)

    return rewrite_calls(func, answer)
