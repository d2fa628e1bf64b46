"""A pass over loops: x * 2.0 written as x + x.

In the tree the function is tir/passes/add_for_double.py, its name stands in tir/transform.py and
one line of tir/pipeline.py gives it its place. The setting tir.add_lower_pass runs it meanwhile.
"""

import numpy as np

import sterna
from sterna import te
from sterna.ir.expr import Add, Expr, FloatImm, Mul, Var
from sterna.ir.visitor import Rewriter
from sterna.tir.stmt import BufferLoad, PrimFunc
from sterna.tir.transform import prim_func_pass


def add_for_double(func: PrimFunc) -> PrimFunc:
    """B[i] = A[i] * 2.0   ->   B[i] = A[i] + A[i]"""
    body = _Doubles().rewrite(func.body)
    return func if body is func.body else func.with_body(body)


class _Doubles(Rewriter):
    """Changes products by 2.0 of what costs nothing to name twice."""

    def visit_Mul(self, product: Mul) -> Expr:
        made = self.rewrite_children(product)
        is_double = isinstance(made.b, FloatImm) and made.b.value == 2.0
        is_cheap = isinstance(made.a, Var | BufferLoad)
        return Add(made.a, made.a) if is_double and is_cheap else made


@prim_func_pass(opt_level=0, name="tir.AddForDouble")
def AddForDouble(func, mod, context):
    """Add a number to itself where it is doubled."""
    return add_for_double(func)


A = te.placeholder((4,), name="A")
B = te.compute((4,), lambda i: A[i] * 2.0, name="B")
schedule = te.create_schedule(B.op)
with sterna.transform.PassContext(config={"tir.add_lower_pass": [(0, AddForDouble)]}):
    print(sterna.lower(schedule, [A, B]))
    doubled = sterna.build(schedule, [A, B])

x, y = np.arange(4, dtype="float32"), np.empty(4, "float32")
doubled(x, y)
print(y)
