"""Fast math: functions that are less exact and faster.

    exp(%x)  ->  fast_exp(%x)
"""

from sterna.ir.transform import Pass
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import AnyOp
from sterna.relay.passes.rewrite_calls import call_pass


def FastMath() -> Pass:
    """Replace functions by faster ones; only at level 4 or when it is required by name."""
    return call_pass("FastMath", 4, fast_math)


def fast_math(record: AnyOp, call: Call) -> RelayExpr | None:
    """A call of the faster operator, if there is one."""
    return None if record.fast is None else record.fast(call.attrs, call.args)
