"""Calls whose weights are packed for an implementation: what operators ask of it."""

from collections.abc import Sequence

from sterna.ir.types import TensorType, Type
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs
from sterna.relay.expr import Call
from sterna.relay.op import record_of
from sterna.schedule.contraction import Contraction
from sterna.schedule.epilogue import Epilogue
from sterna.schedule.expression import Expression
from sterna.schedule.implementation import PackedImplementation, Plan, implementation_of
from sterna.te import Tensor


def plan_of(attrs: Attrs | None) -> Plan | None:
    """The plan that a call's attributes hold; None if its weights are not packed."""
    text = getattr(attrs, "implementation", "")
    return Plan.parse(text) if text else None


def expect_packed(attrs: Attrs, made: Contraction | None, weights: Sequence[Type]) -> None:
    """Raise ValueError unless weights are packed as the call's plan wants them."""
    plan = plan_of(attrs)
    assert plan is not None
    known = [kind for kind in weights if isinstance(kind, TensorType) and kind.is_static]
    if made is None or len(known) < len(weights):
        raise ValueError(f"the implementation '{plan}' needs known extents")
    try:
        implementation_of(plan).expect(made, plan, known)
    except ValueError as error:
        raise ValueError(f"the implementation '{plan}' does not fit: {error}") from None


def compute_packed(
    attrs: Attrs, made: Contraction | None, out: TensorType, epilogue: Epilogue | None,
    data: Tensor, weights: Sequence[Tensor],
) -> Tensor | None:
    """The statements of a call's implementation; None if it has none of its own."""
    plan = plan_of(attrs)
    found = None if plan is None else implementation_of(plan)
    if plan is None or not isinstance(found, PackedImplementation):
        return None
    assert made is not None, "its type was inferred"
    return found.compute(made, plan, out, epilogue, data, weights)


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
    if record is None or record.contraction is None:
        return None
    made: Contraction | None = record.contraction(
        call.attrs, *[arg.checked_type for arg in call.args]
    )
    return made


def unpacked(attrs: Attrs, made: Contraction | None, weights: Sequence[Array]) -> Array:
    """The weights of a call before they were packed."""
    plan = plan_of(attrs)
    assert plan is not None and made is not None, "its type was inferred"
    return implementation_of(plan).unpack(made, plan, weights)


def products_of(attrs: Attrs, made: Contraction) -> int:
    """Products of one element of the result in the model, without those that only fill up."""
    plan = plan_of(attrs)
    own = None if plan is None else dict(plan.choices).get("products")
    return own if isinstance(own, int) else made.products
