"""Operators of training as what they are in inference.

    %1 = nn.batch_norm(%x, %gamma, %beta, %mean, %var); %1.0
        -> add(multiply(%x, %scale), %shift)
    nn.dropout(%x)  ->  %x
"""

from sterna.ir.transform import Pass, function_pass
from sterna.relay.expr import Call, Function, RelayExpr, Tuple, TupleGetItem
from sterna.relay.op import record_of
from sterna.relay.traverse import not_primitive, rewrite


def SimplifyInference() -> Pass:
    """Rewrite operators that are simpler when nothing is trained."""
    made: Pass = function_pass(
        lambda func, mod, context: simplify_inference(func),
        opt_level=0, name="SimplifyInference", kind=Function,
    )  # fmt: skip
    return made


def simplify_inference(func: Function) -> Function:
    """The function with every operator's own simplification applied."""
    made = rewrite(func, _change, not_primitive)
    assert isinstance(made, Function)
    return made


def _change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
    if isinstance(new, TupleGetItem) and isinstance(new.tuple_value, Tuple):
        return new.tuple_value.fields[new.index]
    record = record_of(new)
    if record is None or record.simplify is None:
        return new
    assert isinstance(new, Call)
    simpler = record.simplify(new.attrs, new.args)
    if simpler is None:
        return new
    done = {id(arg) for arg in new.args}
    return rewrite(simpler, _change, lambda expr: id(expr) not in done)
