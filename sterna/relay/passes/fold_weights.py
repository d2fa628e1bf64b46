"""Weight folding: the weights of contractions, computed now where they are known.

    nn.dense(%x, transpose(const))  ->  nn.dense(%x, const)

Implementations pack weights that are constants, at every level; FoldConstant, which computes all
that is known, runs at higher ones.
"""

from sterna.ir.transform import Pass, function_pass
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, TupleGetItem
from sterna.relay.op import record_of
from sterna.relay.passes.fold_constant import fold_one
from sterna.relay.traverse import not_primitive, post_order, rewrite


def FoldWeights() -> Pass:
    """Compute the weights of contractions that are known."""
    made: Pass = function_pass(
        lambda func, mod, context: fold_weights(func),
        opt_level=0, name="FoldWeights", kind=Function,
    )
    return made


def fold_weights(func: Function) -> Function:
    """The function with constants for the weights of its contractions."""
    made_of = _known_weights(func)
    if not made_of:
        return func
    made = rewrite(
        func, lambda new, old: fold_one(new) if id(old) in made_of else new, not_primitive
    )
    assert isinstance(made, Function)
    return made


def _known_weights(func: Function) -> set[int]:
    """The calls that make weights out of constants alone."""
    known: set[int] = set()
    weights: list[RelayExpr] = []
    for expr in post_order(func, not_primitive):
        if isinstance(expr, Constant) or (
            isinstance(expr, Call | Tuple | TupleGetItem)
            and all(id(part) in known for part in _parts(expr))
        ):
            known.add(id(expr))
        record = record_of(expr)
        if record is not None and record.contraction.implement is not None:
            assert isinstance(expr, Call)
            weights.extend(expr.args[1:])
    made_of: set[int] = set()
    while weights:
        expr = weights.pop()
        if id(expr) in known and id(expr) not in made_of and not isinstance(expr, Constant):
            made_of.add(id(expr))
            weights.extend(_parts(expr))
    return made_of


def _parts(expr: RelayExpr) -> tuple[RelayExpr, ...]:
    """What an expression is computed from."""
    if isinstance(expr, Call):
        return expr.args
    parts: tuple[RelayExpr, ...] = expr.operands()  # type: ignore[attr-defined]
    return parts
