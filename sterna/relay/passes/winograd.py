"""Convolutions by Winograd's way, where that costs a processor less.

    nn.conv2d(%x, const, kernel_size=3)  ->  nn.conv2d_winograd(%x, transformed, tile_size=4)

The operator's record says what it becomes. Transformed weights are larger; the setting
relay.Winograd.max_growth limits how much, and 0 leaves everything as it is.
"""

from typing import Any

from sterna.ir.module import IRModule
from sterna.ir.pass_context import PassContext
from sterna.ir.transform import Pass, function_pass
from sterna.relay.expr import Call, Function, RelayExpr
from sterna.relay.op import OpRecord
from sterna.relay.passes.rewrite_calls import rewrite_calls


def Winograd(processor: Any = None) -> Pass:
    """Replace convolutions of known weights; without a processor nothing changes."""

    def change(func: Function, mod: IRModule, context: PassContext) -> Function:
        growth = context.get_config("relay.Winograd.max_growth")
        return func if processor is None or not growth else winograd(func, processor, growth)

    made: Pass = function_pass(change, opt_level=3, name="Winograd", kind=Function)
    return made


def winograd(func: Function, processor: Any, growth: int) -> Function:
    """The function with what costs less in the place of convolutions."""

    def answer(record: OpRecord, call: Call) -> RelayExpr | None:
        if record.winograd is None:
            return None
        return record.winograd(call, processor, growth)

    return rewrite_calls(func, answer)
