"""The cheapest implementation for every contraction: direct, Winograd, AMX, byte pairs, ...

    nn.conv2d(%x, const, kernel_size=3)
    ->  nn.conv2d(%x, packed, kernel_size=3, implementation="winograd(m=4, ...)")

The operator's record says what it becomes. Packed weights may be larger; the setting
relay.Winograd.max_growth limits how much, and 0 leaves Winograd's transform out, as below level 2.
"""

from typing import Any

from sterna.ir.module import IRModule
from sterna.ir.pass_context import PassContext
from sterna.ir.transform import Pass, function_pass
from sterna.relay.expr import Call, Function, RelayExpr
from sterna.relay.op import AnyOp
from sterna.relay.passes.rewrite_calls import rewrite_calls

MAX_GROWTH = "relay.Winograd.max_growth"
# What holds below level 3 unless the setting is given: products as the model has them, then tiles
# of up to four results a side.
GROWTH_OF_LEVEL = (0, 0, 4)


def ChooseImplementations(processor: Any = None) -> Pass:
    """Pack known weights for the cheapest way; without a processor nothing changes."""

    def change(func: Function, mod: IRModule, context: PassContext) -> Function:
        growth = max_growth(context)
        return func if processor is None else choose_implementations(func, processor, growth)

    made: Pass = function_pass(change, opt_level=0, name="ChooseImplementations", kind=Function)
    return made


def max_growth(context: PassContext) -> int:
    """How many times larger weights may become: as the user says, else as the level does."""
    level, of_level = context.opt_level, GROWTH_OF_LEVEL
    if MAX_GROWTH not in context.config and 0 <= level < len(of_level):
        return of_level[level]
    growth: int = context.get_config(MAX_GROWTH)
    return growth


def choose_implementations(func: Function, processor: Any, growth: int) -> Function:
    """The function with what costs less in the place of contractions."""

    def answer(record: AnyOp, call: Call) -> RelayExpr | None:
        rule = record.contraction.implement
        return None if rule is None else rule(call, processor, growth)

    return rewrite_calls(func, answer)
