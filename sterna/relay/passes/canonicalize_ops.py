"""Canonicalisation: operators by simpler ones, which more passes know.

    nn.bias_add(%x, %b, axis=1)  ->  add(%x, expand_dims(%b, axis=1, num_newaxis=2))
"""

from sterna.ir.transform import Pass
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import AnyOp, record_of
from sterna.relay.passes.fold_constant import fold_one
from sterna.relay.passes.rewrite_calls import call_pass


def CanonicalizeOps() -> Pass:
    """Write operators by simpler ones."""
    return call_pass("CanonicalizeOps", 0, canonicalize_ops)


def canonicalize_ops(record: AnyOp, call: Call) -> RelayExpr | None:
    """A call by simpler operators."""
    return None if record.canonicalize is None else record.canonicalize(call.attrs, call.args)


def canonical_call(call: Call) -> Call:
    """A call by one simpler operator, if that is all it takes beside constants; else itself."""
    record = record_of(call)
    simpler = None if record is None else canonicalize_ops(record, call)
    if not isinstance(simpler, Call) or record_of(simpler) is None:
        return call
    if call.args[0] not in simpler.args:  # that takes more than one operator
        return call
    args = tuple([arg if arg in call.args else fold_one(arg) for arg in simpler.args])
    return Call(simpler.op, args, simpler.attrs)
