"""Layout conversion: operators in the layouts that the user wants.

    ConvertLayout({"nn.conv2d": ["NHWC", "default"]}):
    nn.conv2d(%x, %w)  ->  nn.conv2d(%1, %2, data_layout="NHWC", kernel_layout="HWIO")
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sterna.ir.transform import Pass, function_pass
from sterna.relay.attributes import Attrs
from sterna.relay.expr import Call, Function
from sterna.relay.op import AnyOp, Args, find
from sterna.relay.passes.rewrite_layouts import rewrite_layouts

_Convert = Callable[[Any, Args, tuple[str, ...]], Attrs | None]


def ConvertLayout(desired_layouts: Mapping[str, Sequence[str]]) -> Pass:
    """Per operator the layouts of its operands; "default" for the one that goes with the first."""
    for name in desired_layouts:
        if _rule(find(name)) is None:
            raise ValueError(f"ConvertLayout: {name} has no layouts to convert")
    made: Pass = function_pass(
        lambda func, mod, context: convert_layout(func, desired_layouts),
        opt_level=3, name="ConvertLayout", kind=Function,
    )
    return made


def convert_layout(func: Function, desired: Mapping[str, Sequence[str]]) -> Function:
    """The function with the named operators in the desired layouts."""

    def alter(record: AnyOp, call: Call) -> Attrs | None:
        rule = _rule(record)
        if record.name not in desired or rule is None:
            return None
        return rule(call.attrs, call.args, tuple(desired[record.name]))

    return rewrite_layouts(func, alter)


def _rule(record: AnyOp) -> _Convert | None:
    """How an operator gets the layouts that a user wants; None for one without a layout."""
    if record.contraction.convert_layout is not None:
        return record.contraction.convert_layout
    fields = () if record.attrs is None else record.attrs.__dataclass_fields__
    return _of_attribute if record.layout is not None and "layout" in fields else None


def _of_attribute(attrs: Any, args: Args, layouts: tuple[str, ...]) -> Attrs | None:
    """Of pools and resizing, which have one layout for what they read and what they give."""
    if not layouts or layouts[0] == "default" or layouts[0] == attrs.layout:
        return None
    if getattr(attrs, "out_layout", "") not in ("", attrs.layout):
        return None
    more = {"out_layout": ""} if hasattr(attrs, "out_layout") else {}
    made: Attrs = attrs.replace(layout=layouts[0], **more)
    return made
