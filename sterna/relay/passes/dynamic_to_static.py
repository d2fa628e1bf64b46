"""Shape specialisation: operators whose shapes are computed, once what computes them is known.

    dyn.reshape(%x, meta[relay.Constant][0])  ->  reshape(%x, newshape=[2, 3])
"""

from sterna.ir.transform import Pass, function_pass
from sterna.relay.expr import Call, Function, RelayExpr
from sterna.relay.op import AnyOp
from sterna.relay.passes.fold_constant import fold_constant
from sterna.relay.passes.rewrite_calls import rewrite_calls

# Each round may make a shape known on which the next one depends.
ROUNDS = 20


def DynamicToStatic() -> Pass:
    """Make shapes static where constants say them."""
    made: Pass = function_pass(
        lambda func, mod, context: dynamic_to_static(func),
        opt_level=2, name="DynamicToStatic", kind=Function,
    )
    return made


def dynamic_to_static(func: Function) -> Function:
    """The function with static operators wherever constants allow it."""
    for _ in range(ROUNDS):
        made = fold_constant(rewrite_calls(func, _answer))
        if made is func:
            break
        func = made
    return func


def _answer(record: AnyOp, call: Call) -> RelayExpr | None:
    return None if record.to_static is None else record.to_static(call.attrs, call.args)
