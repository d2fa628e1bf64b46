"""Functions of one tensor, element by element."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from sterna.ir import build
from sterna.ir.build import bind
from sterna.ir.expr import BOOL, FLOAT32, Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import of_kind, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.elementwise import elementwise, in_float64, quiet
from sterna.op.tensor._arithmetic import Rule, product_for_quotient
from sterna.relay.arrays import Array
from sterna.relay.expr import Call, RelayExpr, const
from sterna.relay.op import ELEMWISE, Case, OpRecord, call, is_call_of, register
from sterna.schedule.exponential import exp_minus_one
from sterna.tir import op as t

REALS = np.array(
    [-np.inf, -89.0, -2.5, -1.0, -0.5, -1e-4, -0.0, 0.0, 0.3, 0.5, 1.0, 1.5, 2.5, 20.0, np.inf,
     np.nan],
    "float32",
)
WHOLE = np.array([-128, -7, -1, 0, 1, 5, 127], "int8")
HALVES = Case((REALS[2:13].astype("float16"),), tolerance=2e-3)


def _infer(*kinds: str) -> Callable[..., TensorType]:
    def infer(attrs: None, data: Type) -> TensorType:
        return of_kind(tensor(data, "data"), "data", *kinds)

    return infer


def _test_infer(attrs: None, data: Type) -> TensorType:
    kind = of_kind(tensor(data, "data"), "data", "float")
    return TensorType(kind.shape, BOOL)


def _fast(name: str) -> Callable[..., RelayExpr | None]:
    """The faster operator of that name, where there is one: for float32."""

    def fast(attrs: None, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
        kind = args[0].checked_type
        single = isinstance(kind, TensorType) and kind.dtype == "float32"
        return call(name, *args) if single else None

    return fast


def _register(
    name: str,
    scalar: Callable[[Expr], Expr],
    reference: Callable[..., Array],
    doc: str,
    *,
    infer: Callable[..., TensorType],
    cases: list[Case],
    fast: str = "",
    mixed_precision: Literal["always", "follow", "never"] = "follow",
    instructions: int = 0,
    rewrites: Sequence[Rule] = (),
    legalize: Callable[[None, tuple[RelayExpr, ...], Any], RelayExpr | None] | None = None,
) -> None:
    register(OpRecord(
        name,
        inputs=("data",),
        infer=infer,
        compute=elementwise(name, lambda attrs, x: scalar(x)),
        reference=reference,
        pattern=ELEMWISE,
        fast=_fast(fast) if fast else None,
        mixed_precision=mixed_precision,
        instructions=instructions,
        rewrites=rewrites,
        legalize=legalize,
        cases=cases,
        doc=doc,
    ))


def _of_floats(
    name: str, scalar: Callable[[Expr], Expr], reference: Callable[..., Array], doc: str,
    **more: Any,
) -> None:
    _register(
        name, scalar, in_float64(reference), doc, infer=_infer("float"),
        cases=[Case((REALS.reshape(4, 4),)), HALVES], **more,
    )


def _of_numbers(
    name: str, scalar: Callable[[Expr], Expr], reference: Callable[..., Array], doc: str,
    kinds: tuple[str, ...] = ("float", "int", "uint"), **more: Any,
) -> None:
    def same_type(attrs: None, data: Array) -> Array:
        return np.asarray(reference(data)).astype(data.dtype)

    cases = [Case((REALS,)), Case((WHOLE,)), Case((((2, 3), "uint8"),)), Case((((), "bfloat16"),))]
    _register(
        name, scalar, quiet(same_type), doc, infer=_infer(*kinds),
        cases=more.pop("cases", cases), **more,
    )


# ---- rounding and sign ----


def _in_wide(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A rounding of integers leaves them alone; of floats it is computed in float64."""

    def rounded(data: Array) -> Array:
        is_whole = data.dtype.kind in "iub" or data.dtype.name.startswith(("int", "uint"))
        return data if is_whole else function(data.astype(np.float64))

    return rounded


def _away(x: Array) -> Array:
    """Halves away from zero, without the error of adding 0.5 to the number before 0.5."""
    nearest = np.trunc(x)
    return np.where(np.abs(x - nearest) >= 0.5, nearest + np.sign(x), nearest)


def _sign_array(x: Array) -> Array:
    return np.where(x == 0, x, np.sign(x))


def _sign(x: Expr) -> Expr:
    if x.dtype.is_uint:
        return build.select(x > 0, build.const(1, x.dtype), x)
    one = build.const(1, x.dtype)
    return build.select(x > 0, one, build.select(x < 0, build.const(-1, x.dtype), x))


_TIES = np.array(
    [-np.inf, -2.5, -1.5, -0.5, -0.0, 0.49999997, 0.5, 1.5, 2.5, 8388609.0, np.nan, np.inf],
    "float32",
)
_ROUNDED = [Case((_TIES,)), Case((_TIES[:9].astype("float16"),)), Case((WHOLE,))]
_of_numbers("ceil", t.ceil, _in_wide(np.ceil), "The smallest whole number that is not below x.",
            cases=_ROUNDED)
_of_numbers("floor", t.floor, _in_wide(np.floor), "The largest whole number that is not above x.",
            cases=_ROUNDED)
_of_numbers("trunc", t.trunc, _in_wide(np.trunc), "x without its fraction.", cases=_ROUNDED)
_of_numbers("round", t.round, _in_wide(_away), "The nearest whole number; halves go away from "
            "zero, as in C. round_even is the one of ONNX and NumPy.", cases=_ROUNDED)
_of_numbers("round_even", t.nearbyint, _in_wide(np.rint),
            "The nearest whole number; halves go to the even one.", cases=_ROUNDED)
_of_numbers("abs", t.abs, np.abs, "x without its sign; the smallest integer stays itself.")
_of_numbers("sign", _sign, _sign_array,
            "-1, 0 or 1 by the sign of x; NaN for NaN.")
_of_numbers("negative", lambda x: build.const(0, x.dtype) - x if x.dtype.is_integer else -x,
            np.negative, "-x; integers wrap.")
_of_numbers("copy", lambda x: x, lambda x: x, "The same elements.",
            kinds=("float", "int", "uint", "bool"),
            cases=[Case(((2, 3),)), Case((((), "int64"),)), Case((((4,), "bool"),))])


# ---- powers and logarithms ----

# In float32: the nearest power of two (2), what is left of x (1), a polynomial of the fifth degree
# (5), the power's factor (1). An inverse is estimated (1) and improved once (2).
EXP_INSTRUCTIONS = 9
INVERSE_INSTRUCTIONS = 3


def _expm1(x: Expr) -> Expr:
    """exp(x) - 1 cancels near 0; there it is 2 tanh(x/2) / (1 - tanh(x/2)) but in float32."""
    if x.dtype == FLOAT32:
        return exp_minus_one(x)
    near = bind(t.tanh(x * 0.5), lambda h: (h + h) / (1.0 - h), "half")
    return build.select(t.abs(x) < 0.5, near, t.exp(x) - 1.0)


_of_floats("exp", t.exp, np.exp, "e to the power of x.", fast="fast_exp",
           instructions=EXP_INSTRUCTIONS,
           mixed_precision="never")
_of_floats("expm1", lambda x: bind(x, _expm1), np.expm1, "exp(x) - 1, exact near 0.",
           mixed_precision="never")
_of_floats("log", t.log, np.log, "The natural logarithm.")
_of_floats("log2", t.log2, np.log2, "The logarithm to base 2.")
_of_floats("log10", t.log10, np.log10, "The logarithm to base 10.")
_of_floats("log1p", t.log1p, np.log1p, "The natural logarithm of 1 + x, exact near 0.")
_of_floats("sqrt", t.sqrt, np.sqrt, "The square root.")
_of_floats("rsqrt", t.rsqrt, lambda x: 1 / np.sqrt(x), "One over the square root.")


# ---- angles ----


def tanh_of_softplus(x: RelayExpr) -> RelayExpr:
    """With n = exp(x): tanh(log(1 + n)) = ((1 + n)^2 - 1) / ((1 + n)^2 + 1).

    Where n would be too large for its square the quotient is 1, as it is from there on.
    """
    dtype = tensor_type(x).dtype
    n = call("exp", call("minimum", x, const(5.0 if dtype == "float16" else 20.0, dtype)))
    above = n * (n + 2.0)
    return above / (above + 2.0)


def _tanh_of_logarithm(x: RelayExpr) -> RelayExpr | None:
    """tanh(nn.softplus(x)): one exponential, and no logarithm to be undone."""
    if not isinstance(x, Call) or not is_call_of(x, "nn.softplus"):
        return None
    return tanh_of_softplus(x.args[0])


_of_floats("sin", t.sin, np.sin, "The sine.")
_of_floats("cos", t.cos, np.cos, "The cosine.")
_of_floats("tan", t.tan, np.tan, "The tangent.", mixed_precision="never")
_of_floats("asin", t.asin, np.arcsin, "The arc sine.")
_of_floats("acos", t.acos, np.arccos, "The arc cosine.")
_of_floats("atan", t.atan, np.arctan, "The arc tangent.")
_of_floats("sinh", t.sinh, np.sinh, "The hyperbolic sine.", mixed_precision="never")
_of_floats("cosh", t.cosh, np.cosh, "The hyperbolic cosine.", mixed_precision="never")
_of_floats("tanh", t.tanh, np.tanh, "The hyperbolic tangent.", fast="fast_tanh",
           instructions=EXP_INSTRUCTIONS + 1 + INVERSE_INSTRUCTIONS,
           rewrites=[product_for_quotient],
           legalize=lambda attrs, args, target: _tanh_of_logarithm(args[0]))
_of_floats("asinh", t.asinh, np.arcsinh, "The inverse hyperbolic sine.")
_of_floats("acosh", t.acosh, np.arccosh, "The inverse hyperbolic cosine.")
_of_floats("atanh", t.atanh, np.arctanh, "The inverse hyperbolic tangent.")


# ---- curves of statistics ----


def sigmoid_of(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, small) / (1 + small))


def erf_of(x: Array) -> Array:
    """The error function, which NumPy lacks."""
    return np.array([math.erf(value) for value in x.ravel().tolist()]).reshape(x.shape)


_of_floats("sigmoid", t.sigmoid, sigmoid_of, "1 / (1 + exp(-x)).",
           instructions=EXP_INSTRUCTIONS + 1 + INVERSE_INSTRUCTIONS)
_of_floats("erf", t.erf, erf_of, "The error function.", fast="fast_erf", mixed_precision="never",
           rewrites=[product_for_quotient])


# ---- tests and bits ----


def _test(name: str, scalar: Callable[[Expr], Expr], doc: str) -> None:
    function = getattr(np, name)

    def reference(attrs: None, data: Array) -> Array:
        return np.asarray(function(data.astype(np.float64)))

    _register(
        name, scalar, reference, doc, infer=_test_infer,
        cases=[Case((REALS,)), Case((REALS.astype("float16"),))],
    )


_test("isnan", t.isnan, "Whether x is no number.")
_test("isfinite", t.isfinite, "Whether x is a finite number.")
_test("isinf", t.isinf, "Whether x is infinite.")
_of_numbers("logical_not", t.logical_not, np.logical_not, "Whether x does not hold.",
            kinds=("bool",), cases=[Case((((2, 3), "bool"),)), Case((((), "bool"),))])
_of_numbers("bitwise_not", lambda x: ~x, np.invert, "x with every bit turned round.",
            kinds=("int", "uint", "bool"),
            cases=[Case((WHOLE,)), Case((((4,), "uint16"),)), Case((((4,), "bool"),))])
