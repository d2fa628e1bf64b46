"""A pass over graphs: (x * c) * c written as x * (c * c), for one constant c.

In the tree the function is relay/passes/square_factors.py, its name stands in relay/transform.py
and one line of relay/pipeline.py gives it its place.
"""

import numpy as np

import sterna
from sterna import relay
from sterna.ir.transform import Pass
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.op import AnyOp, call, is_call_of
from sterna.relay.passes.rewrite_calls import call_pass


def SquareFactors() -> Pass:
    """Multiply by the square of a constant instead of twice by the constant."""
    return call_pass("SquareFactors", 2, square_factors)


def square_factors(record: AnyOp, product: Call) -> RelayExpr | None:
    """multiply(multiply(%x, c), c)  ->  multiply(%x, multiply(c, c))"""
    if record.name != "multiply" or not is_call_of(product.args[0], "multiply"):
        return None
    inner, outer = product.args[0].args, product.args[1]
    if not isinstance(outer, Constant) or inner[1] is not outer:
        return None
    return call("multiply", inner[0], call("multiply", outer, outer))


x, c = relay.var("x", shape=(4,)), relay.const(np.float32(3))
module = sterna.IRModule.from_expr(relay.Function([x], x * c * c))
both = sterna.transform.Sequential([SquareFactors(), relay.transform.FoldConstant()])
with sterna.transform.PassContext(opt_level=3):
    print(both(relay.transform.InferType()(module)))
