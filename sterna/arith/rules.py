"""The rewrite rules for what is not index arithmetic (that is linear.py and divmod.py).

Integer rules hold for numbers modulo 2**N. Float rules are exact for IEEE 754, for NaN, infinities
and both zeros included; which NaN comes out is not kept.
"""

import math
from collections.abc import Callable
from typing import Any

from sterna.arith.match import Bindings, Rule, parts_of, root_of
from sterna.ir.expr import Expr, FloatImm, IntImm


def _number(found: Bindings, name: str) -> float:
    value = found[name]
    assert isinstance(value, (IntImm, FloatImm))
    return value.value


def _power_of_two(found: Bindings) -> bool:
    """Whether c and 1/c are powers of two that float16, the narrowest type, holds exactly."""
    fraction, exponent = math.frexp(_number(found, "c"))
    return abs(fraction) == 0.5 and -13 <= exponent <= 14


def _shifts_fit(found: Bindings) -> bool:
    return _number(found, "c") + _number(found, "d") < found["x"].dtype.bits


def _product_fits(found: Bindings) -> bool:
    c, d = _number(found, "c"), _number(found, "d")
    return c > 0 and d > 0 and c * d < 2 ** (found["x"].dtype.bits - 1)


RULES = (
    Rule("float", "x * 1.0", "x", "one is neutral"),
    Rule("float", "1.0 * x", "x", "one is neutral"),
    Rule("float", "x / 1.0", "x", "one is neutral"),
    Rule("float", "x - 0.0", "x", "taking off +0 keeps -0"),
    Rule("float", "x + -0.0", "x", "adding -0 keeps both zeros, adding +0 does not"),
    Rule("float", "-0.0 + x", "x", "adding -0 keeps both zeros, adding +0 does not"),
    Rule("float", "(x * -1.0) * -1.0", "x", "two signs cancel"),
    Rule("float", "(x * -1.0) * (y * -1.0)", "x * y", "two signs cancel"),
    Rule("float", "x + y * -1.0", "x - y", "adding the opposite is subtracting"),
    Rule("float", "x - y * -1.0", "x + y", "subtracting the opposite is adding"),
    Rule("float", "x / c", "x * (1.0 / c)", "inverses of powers of two are exact", _power_of_two),
    Rule("float", "x < x", "0", "nothing is less than itself, nor is NaN"),
    Rule("float", "x > x", "0", "nothing is more than itself, nor is NaN"),
    Rule("float int", "min(x, x)", "x", "the smaller of one thing"),
    Rule("float int", "max(x, x)", "x", "the larger of one thing"),
    Rule("float int", "min(min(x, y), y)", "min(x, y)", "y was already considered"),
    Rule("float int", "max(max(x, y), y)", "max(x, y)", "y was already considered"),
    Rule("int", "min(min(x, y), x)", "min(x, y)", "x was already considered"),
    Rule("int", "max(max(x, y), x)", "max(x, y)", "x was already considered"),
    Rule("int", "min(max(x, y), x)", "x", "absorption"),
    Rule("int", "min(max(x, y), y)", "y", "absorption"),
    Rule("int", "max(min(x, y), x)", "x", "absorption"),
    Rule("int", "max(min(x, y), y)", "y", "absorption"),
    Rule("int", "x // 1", "x", "one divides all"),
    Rule("int", "x % 1", "0", "one divides all"),
    Rule("int", "truncdiv(x, 1)", "x", "one divides all"),
    Rule("int", "truncmod(x, 1)", "0", "one divides all"),
    Rule("int", "x // x", "1", "the divisor is not 0"),
    Rule("int", "x % x", "0", "the divisor is not 0"),
    Rule("int", "truncdiv(x, x)", "1", "the divisor is not 0"),
    Rule("int", "truncmod(x, x)", "0", "the divisor is not 0"),
    Rule("int", "0 // x", "0", "the divisor is not 0"),
    Rule("int", "0 % x", "0", "the divisor is not 0"),
    Rule("int", "truncdiv(0, x)", "0", "the divisor is not 0"),
    Rule("int", "truncmod(0, x)", "0", "the divisor is not 0"),
    Rule("int", "(x // c) // d", "x // (c * d)", "rounding down twice is once", _product_fits),
    Rule("int", "(x % y) % y", "x % y", "a remainder is its own remainder"),
    Rule("int", "x & 0", "0", "no bits"),
    Rule("int", "0 & x", "0", "no bits"),
    Rule("int", "x & x", "x", "the same bits"),
    Rule("int", "(x & c) & d", "x & (c & d)", "masks combine"),
    Rule("int", "x | 0", "x", "no bits"),
    Rule("int", "0 | x", "x", "no bits"),
    Rule("int", "x | x", "x", "the same bits"),
    Rule("int", "x ^ 0", "x", "no bits flip"),
    Rule("int", "0 ^ x", "x", "no bits flip"),
    Rule("int", "x ^ x", "0", "all bits cancel"),
    Rule("int", "~(~x)", "x", "flipping twice"),
    Rule("int", "x << 0", "x", "no distance"),
    Rule("int", "x >> 0", "x", "no distance"),
    Rule("int", "(x << c) << d", "x << (c + d)", "distances add up", _shifts_fit),
    Rule("int", "(x >> c) >> d", "x >> (c + d)", "distances add up", _shifts_fit),
    Rule("bool", "x == 1", "x", "a truth is itself"),
    Rule("bool", "x == 0", "not x", "equal to false"),
    Rule("bool", "x != 0", "x", "a truth is itself"),
    Rule("bool", "x != 1", "not x", "not equal to true"),
    Rule("bool int", "x == x", "1", "anything but NaN equals itself"),
    Rule("bool int", "x != x", "0", "anything but NaN equals itself"),
    Rule("int", "x < x", "0", "nothing is less than itself"),
    Rule("int", "x > x", "0", "nothing is more than itself"),
    Rule("int", "x <= x", "1", "anything is at most itself"),
    Rule("int", "x >= x", "1", "anything is at least itself"),
    Rule("bool", "x and (x or y)", "x", "absorption"),
    Rule("bool", "(x or y) and x", "x", "absorption"),
    Rule("bool", "x or (x and y)", "x", "absorption"),
    Rule("bool", "(x and y) or x", "x", "absorption"),
    Rule("bool", "not (not x)", "x", "two negations cancel"),
    Rule("bool int", "not (x == y)", "x != y", "the opposite of equality"),
    Rule("bool int", "not (x != y)", "x == y", "the opposite of inequality"),
    Rule("float", "not (x == y)", "x != y", "for NaN too: equality is false, inequality true"),
    Rule("float", "not (x != y)", "x == y", "for NaN too: equality is false, inequality true"),
    Rule("int", "not (x < y)", "x >= y", "integers are ordered; floats are not, for NaN"),
    Rule("int", "not (x <= y)", "x > y", "integers are ordered; floats are not, for NaN"),
    Rule("int", "not (x > y)", "x <= y", "integers are ordered; floats are not, for NaN"),
    Rule("int", "not (x >= y)", "x < y", "integers are ordered; floats are not, for NaN"),
    Rule("bool", "select(x, 1, 0)", "x", "a truth chosen by itself"),
    Rule("bool", "select(x, 0, 1)", "not x", "the opposite, chosen"),
    Rule("any", "select(x, y, y)", "y", "both are the same"),
    Rule("any", "select(not x, y, z)", "select(x, z, y)", "the negation swaps"),
    Rule("any", "select(x, select(x, y, w), z)", "select(x, y, z)", "already known to hold"),
    Rule("any", "select(x, y, select(x, w, z))", "select(x, y, z)", "already known not to hold"),
)

_BY_ROOT: dict[Any, list[Rule]] = {}
for _rule in RULES:
    _BY_ROOT.setdefault(_rule.left.kind, []).append(_rule)


def apply_rules(expr: Expr, equal: Callable[[Expr, Expr], bool]) -> Expr | None:
    """What the first rule that applies makes of an expression, or None."""
    rules = _BY_ROOT.get(root_of(expr))
    if rules is None:
        return None
    parts = parts_of(expr)
    for rule in rules:
        made = rule.apply_to_parts(expr, parts, equal)
        if made is not None:
            return made
    return None
