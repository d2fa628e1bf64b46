"""Inference forms of training operators: batch norm as factor and shift, no dropout.

    %1 = nn.batch_norm(%x, %gamma, %beta, %mean, %var); %1.0
        -> add(multiply(%x, %scale), %shift)
    nn.dropout(%x)  ->  %x
"""

from sterna.ir.transform import Pass
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import AnyOp
from sterna.relay.passes.rewrite_calls import call_pass


def SimplifyInference() -> Pass:
    """Rewrite operators that are simpler when nothing is trained."""
    return call_pass("SimplifyInference", 0, simplify_inference)


def simplify_inference(record: AnyOp, call: Call) -> RelayExpr | None:
    """What a call is when nothing is trained."""
    return None if record.simplify is None else record.simplify(call.attrs, call.args)
