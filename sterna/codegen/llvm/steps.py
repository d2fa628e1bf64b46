"""Straight-line code (SSA) of an expression: a sequence of named steps."""

from sterna.ir import build
from sterna.ir.build import bind
from sterna.ir.expr import Broadcast, Call, Expr, Let, StringImm, Var
from sterna.support.dtype import DataType


class Steps:
    """Values that are computed once and used often, in order."""

    def __init__(self) -> None:
        self._bound: list[tuple[Var, Expr]] = []

    def __call__(self, value: Expr) -> Expr:
        """A value, under a name."""
        if isinstance(value, Var):
            return value
        var = Var(f"t{len(self._bound)}", value.dtype)
        self._bound.append((var, value))
        return var

    def done(self, result: Expr) -> Expr:
        """The result, with all steps before it."""
        for var, value in reversed(self._bound):
            result = Let(var, value, result)
        return result


def like(dtype: str, value: Expr) -> DataType:
    """A type with as many lanes as a value has."""
    return DataType(dtype).with_lanes(value.dtype.lanes)


def constant(number: float | int, value: Expr) -> Expr:
    """A constant of the type and lanes of a value."""
    scalar = build.const(number, value.dtype.element)
    lanes = value.dtype.lanes
    return scalar if lanes == 1 else Broadcast(scalar, lanes)


def call(op: str, *args: Expr) -> Expr:
    """A call with the type of its first argument."""
    return build.call_intrinsic(op, *args)


def bits_of(value: Expr) -> Expr:
    """A float's bits as a signed integer."""
    return Call(like(f"int{value.dtype.bits}", value), "reinterpret", (value,))


def float_of(bits: Expr) -> Expr:
    """The float with these bits."""
    return Call(like(f"float{bits.dtype.bits}", bits), "reinterpret", (bits,))


def absolute(value: Expr) -> Expr:
    """|value|"""
    return call("abs", value)


def with_sign(value: Expr, sign: Expr) -> Expr:
    """value with the sign of another."""
    return call("copysign", value, sign)


def any_lane(test: Expr) -> Expr:
    """Whether a condition holds in some lane; only code generators know this one."""
    return Call(DataType("bool"), "any_lane", (test,))


def inverse_estimate(value: Expr) -> Expr:
    """The first bits of 1/value; only code generators know this one."""
    return Call(value.dtype, "inverse_estimate", (value,))


def one_of(numbers: tuple[float, ...], place: int, like_this: Expr) -> Expr:
    """A constant of some that lie in the lanes of one register; only code generators know it."""
    listed = (build.const(number, like_this.dtype.element) for number in numbers)
    return Call(like_this.dtype, "one_of", (*listed, build.const(place)))


def table(name: str, index: Expr) -> Expr:
    """A 64-bit word of a constant table; only code generators know this one."""
    return Call(like("uint64", index), "table", (StringImm(name), index))


def polynomial(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """Horner's rule, lowest power first."""
    result = constant(coefficients[-1], x)
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + constant(coefficient, x)
    return result


def polynomial_by_pairs(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """Estrin's scheme: pairs, then pairs of these, so that few steps wait for others.

    It rounds more than Horner's rule, and is for what is small beside the result.
    """
    return _joined(x, [constant(coefficient, x) for coefficient in coefficients])


def _joined(power: Expr, parts: list[Expr]) -> Expr:
    """parts[0] + parts[1] * power + parts[2] * power**2 + ..."""
    pairs = [low + high * power for low, high in zip(parts[::2], parts[1::2], strict=False)]
    pairs += parts[len(parts) - len(parts) % 2 :]
    if len(pairs) == 1:
        return pairs[0]
    return bind(power * power, lambda square: _joined(square, pairs))


def polynomial_by_fours(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """Paterson and Stockmeyer's scheme: sums of four terms, joined by Horner's rule in x**4.

    A fused multiply-add that overwrites its addend costs Horner's rule a move for each coefficient;
    here it is one of four that is added to, and few steps wait for others. The four lie in one
    register where multiply-adds take a lane: all numbers of a long polynomial stay in registers.
    """
    steps = Steps()
    square = steps(x * x)
    powers = (x, square, steps(square * x))
    fourth = steps(square * square)
    result: Expr | None = None
    for first in reversed(range(0, len(coefficients), 4)):
        four = coefficients[first : first + 4]
        lowest, *others = (one_of(four, place, x) for place in range(len(four)))
        total = lowest
        for number, power in zip(others, powers, strict=False):
            total = total + number * power
        result = steps(total if result is None else total + result * fourth)
    assert result is not None
    return steps.done(result)
