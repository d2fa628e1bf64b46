"""Functions that give up the last digits for speed: fast_exp, fast_tanh, fast_erf.

Their errors stay below 1e-5: relative to the result for exp, to 1 for the others.
"""

from collections.abc import Callable

import numpy as np

from sterna.ir import build
from sterna.ir.build import bind
from sterna.ir.expr import FLOAT32, Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import of_kind, tensor
from sterna.op.elementwise import elementwise, in_float64
from sterna.op.tensor.unary import erf_of
from sterna.relay.arrays import Array
from sterna.relay.op import ELEMWISE, Case, OpRecord, register
from sterna.schedule.exponential import MOST, polynomial, quick_exp
from sterna.tir import op as t


def _fast_exp(x: Expr) -> Expr:
    return quick_exp(build.minimum(MOST, x))


def _fast_tanh(x: Expr) -> Expr:
    small = bind(_fast_exp(t.abs(x) * -2.0), lambda e: (1.0 - e) / (1.0 + e), "e")
    return t.copysign(small, x)


# Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26; its error is below 1.5e-7.
_ERF = (0.0, 0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def _fast_erf(x: Expr) -> Expr:
    inverse = 1.0 / (t.abs(x) * 0.3275911 + 1.0)
    rest = bind(inverse, lambda i: polynomial(i, _ERF), "i")
    return t.copysign(1.0 - rest * _fast_exp(x * x * -1.0), x)


def _infer(attrs: None, data: Type) -> TensorType:
    return of_kind(tensor(data, "data"), "data", "float")


def _fast(
    name: str, scalar: Callable[[Expr], Expr], reference: Callable[[Array], Array], doc: str
) -> None:
    def in_float32(attrs: None, x: Expr) -> Expr:
        return build.cast(x.dtype, bind(build.cast(FLOAT32, x), scalar))

    points = np.concatenate([np.linspace(-9, 9, 25), [-80.0, -0.0, 1e-3, 80.0]])
    register(OpRecord(
        name,
        inputs=("data",),
        infer=_infer,
        compute=elementwise(name, in_float32),
        reference=in_float64(reference),
        pattern=ELEMWISE,
        mixed_precision="never" if name != "fast_tanh" else "follow",
        cases=[
            Case((points.astype("float32"),)),
            Case((points[:25].astype("float16"),), tolerance=2e-3),
        ],
        doc=doc,
    ))


_fast("fast_exp", _fast_exp, np.exp, "exp with an error below 1e-5 of the result.")
_fast("fast_tanh", _fast_tanh, np.tanh, "tanh with an error below 1e-5.")
_fast("fast_erf", _fast_erf, erf_of, "The error function with an error below 1e-5.")
