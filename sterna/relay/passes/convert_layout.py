"""Layout conversion: operators in the layouts that the user wants.

    ConvertLayout({"nn.conv2d": ["NHWC", "default"]}):
    nn.conv2d(%x, %w)  ->  nn.conv2d(%1, %2, data_layout="NHWC", kernel_layout="HWIO")
"""

from collections.abc import Mapping, Sequence

from sterna.ir.transform import Pass, function_pass
from sterna.relay.attributes import Attrs
from sterna.relay.expr import Call, Function
from sterna.relay.op import AnyOp, find
from sterna.relay.passes.rewrite_layouts import rewrite_layouts


def ConvertLayout(desired_layouts: Mapping[str, Sequence[str]]) -> Pass:
    """Per operator the layouts of its operands; "default" for the one that goes with the first."""
    for name in desired_layouts:
        if find(name).contraction.convert_layout is None:
            raise ValueError(f"ConvertLayout: {name} has no layouts to convert")
    made: Pass = function_pass(
        lambda func, mod, context: convert_layout(func, desired_layouts),
        opt_level=3, name="ConvertLayout", kind=Function,
    )
    return made


def convert_layout(func: Function, desired: Mapping[str, Sequence[str]]) -> Function:
    """The function with the named operators in the desired layouts."""

    def alter(record: AnyOp, call: Call) -> Attrs | None:
        rule = record.contraction.convert_layout
        if record.name not in desired or rule is None:
            return None
        return rule(call.attrs, call.args, tuple(desired[record.name]))

    return rewrite_layouts(func, alter)
