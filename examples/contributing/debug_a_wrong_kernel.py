"""Which pass made a kernel wrong? The interpreter judges the loops after each of them."""

import numpy as np

import sterna
from sterna import te
from sterna.ir import build
from sterna.ir.visitor import Rewriter
from sterna.tir import interpreter
from sterna.tir.stmt import For
from sterna.tir.transform import prim_func_pass
from sterna.tir.verify import verify


class _ShorterLoops(Rewriter):
    def visit_For(self, loop):
        made = self.rewrite_children(loop)
        return For(made.var, made.min, build.as_expr(made.extent) - 1, made.kind, made.body)


@prim_func_pass(opt_level=0, name="tir.ForgetTheLast")
def ForgetTheLast(func, mod, context):
    """The mistake that is looked for: loops lose their last iteration."""
    return func.with_body(_ShorterLoops().rewrite(func.body))


class Judge(sterna.instrument.PassInstrument):
    """Runs a function after every pass, and says which pass was the first to make it wrong."""

    def __init__(self, name, inputs, wanted):
        self.name, self.inputs, self.wanted = name, inputs, wanted
        self.culprit = None

    def run_after_pass(self, mod, info):
        function = mod[self.name]
        verify(function, "full")  # what breaks a rule of the IR is found here, not as a number
        result = np.full_like(self.wanted, np.nan)
        interpreter.run(function, *self.inputs, result)
        if self.culprit is None and not np.allclose(result, self.wanted, rtol=1e-5):
            self.culprit = info.name
            print(f"wrong after {info.name}:\n{function}")


A = te.placeholder((6,), name="A")
B = te.compute((6,), lambda i: A[i] + 1.0, name="B")
schedule = te.create_schedule(B.op)

x = np.arange(6, dtype="float32")
judge = Judge("main", [x], x + 1)
settings = {"tir.add_lower_pass": [(1, ForgetTheLast)]}
with sterna.transform.PassContext(config=settings, instruments=[judge]):
    sterna.lower(schedule, [A, B])
print(judge.culprit)

# Leaving the suspect out is the counter-check.
judge.culprit = None
named = {"disabled_pass": ["tir.ForgetTheLast"]}
with sterna.transform.PassContext(config=settings, instruments=[judge], **named):
    sterna.lower(schedule, [A, B])
print(judge.culprit)
