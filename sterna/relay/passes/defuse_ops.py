"""Undoing operator fusion: kernels as the operators that they are made of.

    %1 = fn (%p0, Primitive=1) { nn.relu(exp(%p0)) }; %1(%x)   ->   nn.relu(exp(%x))
"""

from sterna.ir.transform import Pass, function_pass
from sterna.relay.expr import Call, Function, RelayExpr
from sterna.relay.traverse import inlined, not_primitive, rewrite


def DefuseOps() -> Pass:
    """Put the bodies of primitive functions in the place of their calls."""
    made: Pass = function_pass(
        lambda func, mod, context: defuse_ops(func),
        opt_level=3, name="DefuseOps", kind=Function,
    )
    return made


def defuse_ops(func: Function) -> Function:
    """The function without calls of primitive functions."""

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        if isinstance(new, Call) and isinstance(new.op, Function) and new.op.is_primitive:
            return inlined(new.op, new.args)
        return new

    made = rewrite(func, change, not_primitive)
    assert isinstance(made, Function)
    return made
