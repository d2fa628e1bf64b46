"""Calls of contractions: how their sums are written, and how they are described."""

from sterna.relay.attributes import Attrs
from sterna.relay.expr import Call
from sterna.relay.op import record_of
from sterna.schedule.contraction import Contraction
from sterna.schedule.expression import Expression
from sterna.schedule.implementation import PackedImplementation, implementation_of, plan_of


def expression_of(attrs: Attrs | None) -> Expression | None:
    """How a call's sum is written as a tensor expression; None if it runs by statements."""
    plan = plan_of(attrs)
    if plan is None:
        return Expression()
    is_own = isinstance(implementation_of(plan), PackedImplementation)
    return None if is_own else Expression.of(plan)


def contraction_of_call(call: Call) -> Contraction | None:
    """The contraction that a call is, of known extents; None if it is none."""
    record = record_of(call)
    if record is None or record.contraction.describe is None:
        return None
    types = [arg.checked_type for arg in call.args]
    made: Contraction | None = record.contraction.describe(call.attrs, *types)
    return made
