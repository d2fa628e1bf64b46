"""Layout selection: operators in the layouts in which the target runs them best.

    nn.conv2d(%x, const)  ->  nn.conv2d(%1, packed, data_layout="NHWC", kernel_layout="OHWI32o")

From level 2 on a layout passes through the operators around. At level 1 it ends with the operator's
epilogue, at level 0 with the operator, between transforms: the rest stays as the user wrote it.
"""

from typing import Any

from sterna.ir.module import IRModule
from sterna.ir.pass_context import PassContext
from sterna.ir.transform import Pass, function_pass
from sterna.relay.attributes import Attrs
from sterna.relay.expr import Call, Function
from sterna.relay.op import AnyOp
from sterna.relay.passes.rewrite_layouts import Reach, rewrite_layouts

NAME = "AlterOpLayout"


def AlterOpLayout(processor: Any = None) -> Pass:
    """Let operators choose their layouts, each alone below level 2; without a processor none."""

    def change(func: Function, mod: IRModule, context: PassContext) -> Function:
        required = NAME in context.required_pass
        reach = Reach.GRAPH if required else Reach(max(0, min(context.opt_level, Reach.GRAPH)))
        return alter_op_layout(func, processor, reach)

    made: Pass = function_pass(change, opt_level=0, name=NAME, kind=Function)
    return made


def alter_op_layout(func: Function, processor: Any, reach: Reach = Reach.GRAPH) -> Function:
    """The function with every operator in the layout that it asks for."""

    def alter(record: AnyOp, call: Call) -> Attrs | None:
        rule = record.contraction.alter_layout
        if rule is None or processor is None:
            return None
        return rule(call.attrs, call.args, processor)

    return rewrite_layouts(func, alter, reach)
