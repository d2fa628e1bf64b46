"""Layout selection: operators in the layouts in which the target runs them best.

    nn.conv2d(%x, const)  ->  nn.conv2d(%1, packed, data_layout="NHWC", kernel_layout="OHWI32o")
"""

from typing import Any

from sterna.ir.transform import Pass, function_pass
from sterna.relay.attributes import Attrs
from sterna.relay.expr import Call, Function
from sterna.relay.op import AnyOp
from sterna.relay.passes.rewrite_layouts import rewrite_layouts


def AlterOpLayout(processor: Any = None) -> Pass:
    """Let operators choose their layouts for a processor; without one nothing changes."""
    made: Pass = function_pass(
        lambda func, mod, context: alter_op_layout(func, processor),
        opt_level=3, name="AlterOpLayout", kind=Function,
    )
    return made


def alter_op_layout(func: Function, processor: Any) -> Function:
    """The function with every operator in the layout that it asks for."""

    def alter(record: AnyOp, call: Call) -> Attrs | None:
        rule = record.contraction.alter_layout
        if rule is None or processor is None:
            return None
        return rule(call.attrs, call.args, processor)

    return rewrite_layouts(func, alter)
