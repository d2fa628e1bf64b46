"""An intrinsic: the cube root, in one row.

In the tree the row stands in tir/intrinsics.py, and a line of tir/op.py gives users the function.
"""

import math

import numpy as np

import sterna
from sterna import te, tir
from sterna.ir.expr import Call, Expr
from sterna.tir import interpreter
from sterna.tir.intrinsics import Intrinsic, register_intrinsic
from sterna.tir.op import copysign, exp2, log2


def _by_powers_of_2(x: Expr) -> Expr:
    return copysign(exp2(log2(tir.abs(x)) / 3.0), x)


register_intrinsic(Intrinsic(
    "cbrt",
    arity=1,
    compute=lambda x: math.copysign(abs(x) ** (1 / 3), x),  # on Python's numbers
    spelled={"c": "cbrt"},  # <math.h> has it; its twin for floats is cbrtf
    by=_by_powers_of_2,  # for code generators that have nothing better
))


def cbrt(x: Expr) -> Expr:
    """The cube root."""
    return Call(x.dtype, "cbrt", (x,))


A = te.placeholder((6,), name="A")
B = te.compute((6,), lambda i: cbrt(A[i]), name="B")
schedule = te.create_schedule(B.op)

x = np.array([-8, -0.0, 0, 1, 27, np.inf], "float32")
made = {"interpreter": np.empty_like(x)}
interpreter.run(sterna.lower(schedule, [A, B])["main"], x, made["interpreter"])
for target in ("llvm", "c"):
    made[target] = np.empty_like(x)
    sterna.build(schedule, [A, B], target)(x, made[target])
for name, result in made.items():
    print(f"{name:12}", result.round(4))
print("cbrtf(" in sterna.build(schedule, [A, B], "c").get_source())
