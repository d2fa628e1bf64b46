"""Legalisation: operators by those that the target runs better.

    What an operator's record says for the target; a call that has no computation of its own becomes
    what it consists of.
"""

from typing import Any

from sterna.ir.transform import Pass
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import AnyOp
from sterna.relay.passes.rewrite_calls import call_pass


def Legalize(target: Any = None) -> Pass:
    """Write operators by those that a target runs better."""
    return call_pass("Legalize", 0, lambda record, call: legalize(record, call, target))


def legalize(record: AnyOp, call: Call, target: Any) -> RelayExpr | None:
    """What the operator's record says for the target."""
    if record.legalize is None:
        return None
    return record.legalize(call.attrs, call.args, target)
