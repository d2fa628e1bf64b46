"""Value range analysis of the generator: bounds, divisors, and indices that are ramps."""

import math
import operator
from collections.abc import Callable

from sterna.codegen.llvm.convert import int_range
from sterna.ir import build
from sterna.ir.expr import (
    Add,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Ramp,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)

Interval = tuple[float, float]
UNKNOWN: Interval = (-math.inf, math.inf)


def _product(a: Interval, b: Interval) -> Interval:
    corners = [0.0 if 0 in (x, y) else x * y for x in a for y in b]
    return min(corners), max(corners)


class Ranges:
    """Intervals of the variables in scope, by identity."""

    def __init__(self) -> None:
        self._vars: dict[int, Interval] = {}
        self._divisors: dict[int, int] = {}
        self._loop: Var | None = None
        self._steps: dict[int, int] = {}
        self.exact = False
        """Whether expressions are indices or bounds, which do not wrap."""

    def copy(self) -> "Ranges":
        """The same facts, for a function inside this one."""
        made = Ranges()
        made._vars, made._divisors = dict(self._vars), dict(self._divisors)
        return made

    def bind_loop(self, var: Var, start: Expr, extent: Expr) -> None:
        """A loop's variable."""
        self._loop, self._steps = var, {}
        low, high = self.of(start)
        self._vars[id(var)] = (low, high + self.of(extent)[1] - 1)

    def bind(self, var: Var, value: Expr) -> None:
        """A variable that stands for a value."""
        if value.dtype.is_integer and value.dtype.lanes == 1:
            self._vars[id(var)] = self.of(value)
            self._steps[id(var)] = self.step(value)
            if isinstance(value, Call) and value.op == "exact":
                self._divisors[id(var)] = self.divisor(value.args[0])

    def non_negative(self, expr: Expr) -> bool:
        """Whether every lane is certainly at least 0."""
        return expr.dtype.is_uint or self.of(expr)[0] >= 0

    def of(self, expr: Expr) -> Interval:
        """Bounds of an integer expression; those of its type when nothing better is known."""
        low, high = self._raw(expr)
        if not expr.dtype.is_integer:
            return low, high
        type_low, type_high = int_range(expr.dtype.element)
        if low >= type_low and high <= type_high:
            return low, high
        # An index does not overflow; narrower numbers that it is made of wrap there as elsewhere.
        if (self.exact and expr.dtype.bits >= 32) or isinstance(expr, Var):
            return max(low, type_low), min(high, type_high)
        return type_low, type_high  # it may have wrapped

    def _raw(self, expr: Expr) -> Interval:
        kind = type(expr)
        if isinstance(expr, IntImm):
            return expr.value, expr.value
        if isinstance(expr, Var):
            known = self._vars.get(id(expr))
            return known or ((0, math.inf) if expr.is_size else UNKNOWN)
        if isinstance(expr, Broadcast):
            return self.of(expr.value)
        if isinstance(expr, Ramp):
            first = self.of(expr.base)
            last = _product(self.of(expr.stride), (expr.lanes - 1, expr.lanes - 1))
            return first[0] + min(0, last[0]), first[1] + max(0, last[1])
        if isinstance(expr, Cast) and expr.value.dtype.is_integer:
            return self.of(expr.value)
        if isinstance(expr, Select):
            return self._either(expr.then, expr.otherwise)
        if isinstance(expr, Call) and expr.op == "if_then_else":
            return self._either(expr.args[1], expr.args[2])
        if isinstance(expr, Call) and expr.op == "exact":
            return self._exact(expr.args[0])
        if isinstance(expr, BinaryExpr) and kind in _RULES:
            return self._binary(expr)
        return UNKNOWN

    def step(self, expr: Expr) -> int:
        """How much further an index is in the next iteration of the inner loop; 0: unknown."""
        if isinstance(expr, Var):
            return 1 if expr is self._loop else self._steps.get(id(expr), 0)
        if isinstance(expr, Call) and expr.op == "exact":
            return self.step(expr.args[0])
        if isinstance(expr, Add):
            return self.step(expr.a) + self.step(expr.b)
        if isinstance(expr, Mul) and isinstance(expr.b, IntImm):
            return self.step(expr.a) * expr.b.value
        return 0

    def divisor(self, expr: Expr) -> int:
        """A number that certainly divides an index; 0 for the constant 0."""
        if isinstance(expr, IntImm):
            return abs(expr.value)
        if isinstance(expr, Var):
            return self._divisors.get(id(expr), 1)
        if isinstance(expr, (Add, Sub)):
            return math.gcd(self.divisor(expr.a), self.divisor(expr.b))
        if isinstance(expr, Mul):
            return self.divisor(expr.a) * self.divisor(expr.b)
        if isinstance(expr, Cast) and expr.value.dtype.is_integer:
            return math.gcd(self.divisor(expr.value), 1 << expr.dtype.bits)
        return 1

    def _exact(self, expr: Expr) -> Interval:
        before, self.exact = self.exact, True
        found = self.of(expr)
        self.exact = before
        return found

    def _either(self, a: Expr, b: Expr) -> Interval:
        x, y = self.of(a), self.of(b)
        return min(x[0], y[0]), max(x[1], y[1])

    def _binary(self, expr: BinaryExpr) -> Interval:
        (a, b), (c, d) = self.of(expr.a), self.of(expr.b)
        kind = type(expr)
        if kind is Add:
            return a + c, b + d
        if kind is Sub:
            return a - d, b - c
        if kind is Mul:
            return _product((a, b), (c, d))
        if kind is Min:
            return min(a, c), min(b, d)
        if kind is Max:
            return max(a, c), max(b, d)
        if kind in (FloorMod, TruncMod):
            if c > 0 and (kind is FloorMod or a >= 0):
                return 0, min(d - 1, b) if a >= 0 else d - 1
            return UNKNOWN
        if a >= 0 and c > 0:
            return (a // d if d < math.inf else 0), (b // c if b < math.inf else b)
        if c > 0 and kind is FloorDiv and a > -math.inf:
            return a // c, (b // c if 0 <= b < math.inf else max(b, 0))
        return UNKNOWN


_RULES = {Add, Sub, Mul, Min, Max, FloorMod, TruncMod, FloorDiv, TruncDiv}


def as_ramp(index: Expr) -> tuple[Expr, Expr] | None:
    """Base and stride of a vector index that is a ramp, whichever way it is written."""
    if isinstance(index, Ramp) and index.base.dtype.lanes == 1:
        return index.base, index.stride
    if isinstance(index, Broadcast) and index.value.dtype.lanes == 1:
        return index.value, build.const(0, index.value.dtype)
    if isinstance(index, Cast) and index.dtype.is_int and index.value.dtype.is_integer:
        inner = as_ramp(index.value) if index.dtype.bits >= index.value.dtype.bits else None
        if inner is None:
            return None
        element = index.dtype.element
        return build.cast(element, inner[0]), build.cast(element, inner[1])
    if isinstance(index, (Add, Sub)):
        left, right = as_ramp(index.a), as_ramp(index.b)
        if left is None or right is None:
            return None
        join = build.add if isinstance(index, Add) else build.sub
        return join(left[0], right[0]), join(left[1], right[1])
    if isinstance(index, Mul):
        left, right = as_ramp(index.a), as_ramp(index.b)
        if left is None or right is None:
            return None
        if build.is_const(left[1], 0):
            left, right = right, left
        if build.is_const(right[1], 0):
            return build.mul(left[0], right[0]), build.mul(left[1], right[0])
    return None


_EXACT: dict[type, Callable[[int, int], int]] = {
    Add: operator.add, Sub: operator.sub, Mul: operator.mul, FloorDiv: operator.floordiv,
    FloorMod: operator.mod,
}


def lanes_from_base(index: Expr) -> tuple[Expr, list[int]] | None:
    """A number that all lanes of a vector index share, and by how much each is above it."""
    lanes = known_lanes(index)
    if lanes is not None:
        return build.const(0, index.dtype.element), lanes
    return _sum_from_base(index) if isinstance(index, Add | Mul) else None


def _sum_from_base(index: Expr) -> tuple[Expr, list[int]] | None:
    """The same of a part of an index."""
    if isinstance(index, Broadcast):
        return index.value, [0] * index.lanes
    if isinstance(index, Ramp) and (step := build.int_value(index.stride)) is not None:
        return index.base, [lane * step for lane in range(index.lanes)]
    if isinstance(index, Add):
        left, right = _sum_from_base(index.a), _sum_from_base(index.b)
        if left is None or right is None:
            return None
        return build.add(left[0], right[0]), [x + y for x, y in zip(left[1], right[1], strict=True)]
    if isinstance(index, Mul):
        for factor, rest in ((index.a, index.b), (index.b, index.a)):
            number = build.int_value(factor.value) if isinstance(factor, Broadcast) else None
            found = None if number is None else _sum_from_base(rest)
            if found is not None and number is not None:
                return build.mul(found[0], number), [lane * number for lane in found[1]]
        return None
    lanes = known_lanes(index)
    return None if lanes is None else (build.const(0, index.dtype.element), lanes)


def known_lanes(index: Expr) -> list[int] | None:
    """The lanes of a vector index that are known numbers, whichever way it is written."""
    number = build.int_value(index)
    if number is not None:
        return [number]
    if isinstance(index, Ramp):
        first, step = build.int_value(index.base), build.int_value(index.stride)
        if first is None or step is None:
            return None
        return [first + lane * step for lane in range(index.lanes)]
    if isinstance(index, Broadcast):
        number = build.int_value(index.value)
        return None if number is None else [number] * index.lanes
    if isinstance(index, Cast) and index.dtype.is_int and index.value.dtype.is_integer:
        return known_lanes(index.value) if index.dtype.bits >= index.value.dtype.bits else None
    join = _EXACT.get(type(index))
    if join is None:
        return None
    assert isinstance(index, BinaryExpr)
    left, right = known_lanes(index.a), known_lanes(index.b)
    if left is None or right is None or (join in (operator.floordiv, operator.mod) and 0 in right):
        return None
    return [join(x, y) for x, y in zip(left, right, strict=True)]
