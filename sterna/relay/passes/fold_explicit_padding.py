"""Folding of explicit padding: borders, taken into the padding of what reads them.

    nn.conv2d(nn.pad(%x, 0f, pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]]), %w)
        -> nn.conv2d(%x, %w, padding=[1, 1, 1, 1])
"""

from sterna.ir.transform import Pass
from sterna.relay.arrays import to_numpy
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.op import AnyOp, is_call_of
from sterna.relay.passes.rewrite_calls import call_pass


def FoldExplicitPadding() -> Pass:
    """Take borders into the padding of convolutions and pools."""
    return call_pass("FoldExplicitPadding", 0, fold_explicit_padding)


def fold_explicit_padding(record: AnyOp, call: Call) -> RelayExpr | None:
    """A call of the data without its border, if the operator's padding can be that border."""
    if record.take_border is None or not is_call_of(call.args[0], "nn.pad"):
        return None
    border = call.args[0]
    assert isinstance(border, Call) and border.attrs is not None
    data, value = border.args
    if border.attrs["pad_mode"] != "constant" or not isinstance(value, Constant):
        return None
    width = border.attrs["pad_width"]
    if not all(isinstance(number, int) for pair in width for number in pair):
        return None
    attrs = record.take_border(call.attrs, width, float(to_numpy(value.data)))
    return None if attrs is None else Call(call.op, (data, *call.args[1:]), attrs)
