"""relay.loops: loops as functions that call themselves."""

from collections.abc import Callable, Sequence

from sterna.ir.types import TupleType
from sterna.relay.expr import Call, Function, If, Let, RelayExpr, Tuple, Var


def while_loop(
    cond: Callable[..., RelayExpr], loop_vars: Sequence[Var],
    loop_bodies: Callable[..., Sequence[RelayExpr]],
) -> RelayExpr:
    """A loop over variables, as a function of their first values that gives their last ones.

    cond and loop_bodies take the variables and give whether it goes on, and their next values.
    """
    own = [Var(var.name_hint, var.checked_type) for var in loop_vars]
    loop = Var("while_loop")
    following = loop_bodies(*own)
    again = Call(loop, tuple(following))
    kinds = TupleType(tuple(var.checked_type for var in own))
    function = Function(tuple(own), If(cond(*own), again, Tuple(tuple(own))), kinds)
    return Let(loop, function, loop)
