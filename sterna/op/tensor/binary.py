"""Two tensors element by element, with broadcasting."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from sterna.ir import build
from sterna.ir.build import bind
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import broadcast_shapes, of_kind, same_dtype, tensor
from sterna.op.elementwise import elementwise, quiet
from sterna.op.integer_rules import pair
from sterna.op.nn._norm_pattern import of_product, of_sum
from sterna.op.tensor._arithmetic import (
    constants_joined,
    difference_joined,
    factor_first,
    lone_number,
    with_neutral,
)
from sterna.relay.arrays import Array
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import BROADCAST, Case, OpRecord, register
from sterna.support.dtype import DataType
from sterna.tir import op as t

NUMBERS = ("float", "int", "uint")
INTEGERS = ("int", "uint")
ANY_KIND = ("float", "int", "uint", "bool")

A_REALS = np.array([[-np.inf, -2.5, -0.0, 0.0, 3.0, np.inf, np.nan]], "float32")
B_REALS = np.array([[-np.inf], [-1.5], [0.0], [2.0], [np.inf], [np.nan]], "float32")
A_WHOLE = np.array([[-128, -7, -1, 0, 1, 6, 127]], "int8")
B_WHOLE = np.array([[-128], [-3], [-1], [0], [2], [127]], "int8")
REALS = Case((A_REALS, B_REALS))
WHOLE = Case((A_WHOLE, B_WHOLE))
UNSIGNED = Case((((2, 3), "uint8"), ((3,), "uint8")))
LOGICAL = [Case((((2, 3), "bool"), ((2, 3), "bool"))), Case((((), "bool"), ((4, 1), "bool")))]


def infer_binary(kinds: Sequence[str], result: str = "") -> Callable[..., TensorType]:
    """The relation of operators whose operands have one element type of these kinds."""

    def infer(attrs: None, lhs: Type, rhs: Type) -> TensorType:
        a, b = tensor(lhs, "lhs"), tensor(rhs, "rhs")
        same_dtype([a, b], ["lhs", "rhs"])
        of_kind(a, "lhs", *kinds)
        shape = broadcast_shapes(a.shape, b.shape)
        return TensorType(shape, DataType(result) if result else a.dtype)

    return infer


def binary(
    name: str,
    scalar: Callable[[Expr, Expr], Expr],
    reference: Callable[[Array, Array], Array],
    doc: str,
    *,
    kinds: Sequence[str] = NUMBERS,
    result: str = "",
    cases: Sequence[Case],
    mixed_precision: Literal["always", "follow", "never"] = "follow",
    rewrites: Sequence[Callable[[Call], RelayExpr | None]] = (),
    legalize: Callable[..., RelayExpr | None] | None = None,
    integer: Callable[..., Any] | None = None,
    is_monotone: bool = False,
) -> None:
    """Registers an operator on two tensors; its result has their element type or `result`."""

    def of_type(attrs: None, a: Array, b: Array) -> Array:
        return np.asarray(reference(a, b)).astype(result or a.dtype)

    register(OpRecord(
        name,
        inputs=("lhs", "rhs"),
        infer=infer_binary(kinds, result),
        compute=elementwise(name, lambda attrs, a, b: scalar(a, b)),
        reference=quiet(of_type),
        pattern=BROADCAST,
        is_monotone=is_monotone,
        mixed_precision=mixed_precision,
        rewrites=[*rewrites, lone_number],
        legalize=legalize,
        integer=integer,
        cases=cases,
        doc=doc,
    ))


# ---- arithmetic ----

_SHAPES = [Case(((2, 3), (2, 3))), Case(((2, 1, 4), (3, 1))), Case(((), (5,))), WHOLE]
binary("add", lambda a, b: a + b, np.add, "lhs + rhs.", cases=[*_SHAPES, UNSIGNED],
       rewrites=[with_neutral(0), constants_joined, difference_joined], legalize=of_sum,
       integer=pair("add"), is_monotone=True)
binary("subtract", lambda a, b: a - b, np.subtract, "lhs - rhs.", cases=[*_SHAPES, UNSIGNED],
       rewrites=[with_neutral(0, on_the_right=True)], is_monotone=True)
binary("multiply", lambda a, b: a * b, np.multiply, "lhs * rhs.", cases=[*_SHAPES, UNSIGNED],
       rewrites=[with_neutral(1), constants_joined, factor_first],
       legalize=of_product, integer=pair("multiply"))


def keep_nan(pick: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    """Min and Max give their second operand if it is NaN; here the first one counts as well."""

    def scalar(a: Expr, b: Expr) -> Expr:
        if not a.dtype.is_float:
            return pick(a, b)
        return bind(a, lambda x: build.select(t.isnan(x), x, pick(x, b)))

    return scalar


_ENDS = [REALS, WHOLE, UNSIGNED, Case((((2, 3), "bfloat16"), ((3,), "bfloat16")))]
binary("maximum", keep_nan(build.maximum), np.maximum,
       "The larger of lhs and rhs; NaN if one of them is.", cases=_ENDS)
binary("minimum", keep_nan(build.minimum), np.minimum,
       "The smaller of lhs and rhs; NaN if one of them is.", cases=_ENDS)


# ---- bits ----


def _in_range(distance: Expr, bits: int) -> Expr:
    return t.all(distance >= 0, distance < bits) if distance.dtype.is_int else distance < bits


def _left_shift(a: Expr, b: Expr) -> Expr:
    inside = _in_range(b, a.dtype.bits)
    shifted = a << build.select(inside, b, build.const(0, b.dtype))
    return build.select(inside, shifted, build.const(0, a.dtype))


def _right_shift(a: Expr, b: Expr) -> Expr:
    inside = _in_range(b, a.dtype.bits)
    most = build.const(a.dtype.bits - 1, b.dtype)  # leaves nothing but the sign
    if a.dtype.is_int:
        return a >> build.select(inside, b, most)
    shifted = a >> build.select(inside, b, build.const(0, b.dtype))
    return build.select(inside, shifted, build.const(0, a.dtype))


_SHIFTED = [WHOLE, Case((np.array([[1, 200, 255]], "uint8"), np.array([[0], [3], [8]], "uint8")))]
binary("left_shift", _left_shift, np.left_shift,
       "lhs with its bits moved up by rhs; 0 if rhs is not between 0 and the type's bits.",
       kinds=INTEGERS, cases=_SHIFTED)
binary("right_shift", _right_shift, np.right_shift,
       "lhs with its bits moved down by rhs, filled with the sign; nothing but the sign if rhs is "
       "not between 0 and the type's bits.", kinds=INTEGERS, cases=_SHIFTED)


def _bitwise(name: str, reference: Callable[[Array, Array], Array]) -> None:
    binary(f"bitwise_{name}", lambda a, b: build.bitwise(f"bitwise_{name}", a, b), reference,
           f"The bits of lhs and rhs combined by {name}.", kinds=("int", "uint", "bool"),
           cases=[WHOLE, UNSIGNED, LOGICAL[0]])


_bitwise("and", np.bitwise_and)
_bitwise("or", np.bitwise_or)
_bitwise("xor", np.bitwise_xor)


# ---- logic and comparison ----

binary("logical_and", build.logical_and, np.logical_and, "Whether lhs and rhs hold.",
       kinds=("bool",), cases=LOGICAL)
binary("logical_or", build.logical_or, np.logical_or, "Whether lhs or rhs holds.",
       kinds=("bool",), cases=LOGICAL)
binary("logical_xor", build.not_equal, np.logical_xor, "Whether just one of lhs and rhs holds.",
       kinds=("bool",), cases=LOGICAL)


def _comparison(name: str, symbol: str, scalar: Callable[[Expr, Expr], Expr]) -> None:
    binary(name, scalar, getattr(np, name), f"Whether lhs {symbol} rhs.", kinds=ANY_KIND,
           result="bool", cases=[REALS, WHOLE, UNSIGNED, LOGICAL[0]])


_comparison("equal", "==", build.equal)
_comparison("not_equal", "!=", build.not_equal)
_comparison("less", "<", build.less)
_comparison("less_equal", "<=", build.less_equal)
_comparison("greater", ">", build.greater)
_comparison("greater_equal", ">=", build.greater_equal)
