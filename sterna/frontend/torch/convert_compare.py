"""Comparisons, logic, bits, and choices by a condition."""

from sterna.frontend.calls import call, cast, constant, dtype_of, like
from sterna.frontend.torch.promotion import Operand, as_type, result_type, scalar, together
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr

_COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal", "not_equal": "not_equal", "less": "less", "less_equal": "less_equal",
    "greater": "greater", "greater_equal": "greater_equal",
}


def _comparison(name: str, operator: str) -> None:
    def convert(x: Operand, other: Operand) -> RelayExpr:
        a, b = together(x, other)
        if dtype_of(a) == "bool":
            a, b = cast(a, "int8"), cast(b, "int8")
        return call(operator, a, b)

    aten(name)(convert)


for _name, _operator in _COMPARISONS.items():
    _comparison(_name, _operator)


def truth(x: RelayExpr) -> RelayExpr:
    """Whether elements are not zero."""
    return x if dtype_of(x) == "bool" else call("not_equal", x, like(0, x))


for _name in ("and", "or", "xor"):

    def _logical(x: RelayExpr, other: RelayExpr, _operator: str = f"logical_{_name}") -> RelayExpr:
        return call(_operator, truth(x), truth(other))

    def _bitwise(x: Operand, other: Operand, _name: str = _name) -> RelayExpr:
        a, b = together(x, other)
        kind = "logical" if dtype_of(a) == "bool" else "bitwise"
        return call(f"{kind}_{_name}", a, b)

    aten(f"logical_{_name}")(_logical)
    aten(f"bitwise_{_name}", f"__{_name}__")(_bitwise)


@aten("logical_not")
def logical_not(x: RelayExpr) -> RelayExpr:
    return call("logical_not", truth(x))


@aten("bitwise_not")
def bitwise_not(x: RelayExpr) -> RelayExpr:
    return call("logical_not" if dtype_of(x) == "bool" else "bitwise_not", x)


@aten("bitwise_left_shift", "__lshift__")
def left_shift(x: Operand, other: Operand) -> RelayExpr:
    return call("left_shift", *together(x, other))


@aten("bitwise_right_shift", "__rshift__")
def right_shift(x: Operand, other: Operand) -> RelayExpr:
    return call("right_shift", *together(x, other))


@aten("where")
def where(condition: RelayExpr, x: Operand, other: Operand) -> RelayExpr:
    return call("where", truth(condition), *together(x, other))


@aten("masked_fill")
def masked_fill(x: RelayExpr, mask: RelayExpr, value: Operand) -> RelayExpr:
    return call("where", mask, scalar(value, x), x)


@aten("isclose")
def isclose(
    x: RelayExpr, other: RelayExpr, rtol: float = 1e-5, atol: float = 1e-8,
    equal_nan: bool = False,
) -> RelayExpr:
    a, b = together(x, other)
    kind = result_type(a, 1.0)
    near = call(
        "less_equal", call("abs", call("subtract", as_type(a, kind), as_type(b, kind))),
        call("add", constant(atol, kind), call(
            "multiply", constant(rtol, kind), call("abs", as_type(b, kind))
        )),
    )
    if kind == dtype_of(a):
        near = call("logical_and", near, call("isfinite", b))
    made = call("logical_or", call("equal", a, b), near)
    if equal_nan and kind == dtype_of(a):
        both = call("logical_and", call("isnan", a), call("isnan", b))
        made = call("logical_or", made, both)
    return made
