"""Value range analysis: how large integers can get, as far as C needs to know.

Where an operation cannot overflow, plain C arithmetic says it; where a dividend cannot be negative,
C's own division rounds down.
"""

from collections.abc import Callable
from typing import Any

from sterna.codegen.c.types import int_range
from sterna.ir import expr as E
from sterna.ir.expr import Expr, Var

Range = tuple[int, int]


class Ranges:
    """The ranges of integer expressions, given those of variables."""

    def __init__(self) -> None:
        self._vars: dict[int, Range] = {}
        self._memo: dict[int, tuple[Expr, Range | None]] = {}

    def set(self, var: Var, found: Range | None) -> None:
        """What is known about a variable that begins here."""
        if found is not None:
            self._vars[id(var)] = found

    def exact(self, expr: Expr) -> Range | None:
        """The range before the result wraps to its type; None: anything may come."""
        known = self._memo.get(id(expr))
        if known is None:
            rule = _RULES.get(type(expr))
            known = (expr, rule(self, expr) if rule is not None else None)
            self._memo[id(expr)] = known
        return known[1]

    def of(self, expr: Expr) -> Range | None:
        """The range of an integer expression; None for any other."""
        if not (expr.dtype.is_integer or expr.dtype.is_bool):
            return None
        low, high = int_range(expr.dtype)
        found = self.exact(expr)
        if found is None or found[0] < low or found[1] > high:
            return low, high
        return found

    def fits(self, expr: Expr) -> bool:
        """Whether the operation cannot overflow."""
        found = self.exact(expr)
        low, high = int_range(expr.dtype)
        return found is not None and low <= found[0] and found[1] <= high

    def constant(self, expr: Expr) -> int | None:
        """The one number that an integer expression can be, if there is one."""
        if isinstance(expr, E.Call):
            return None  # it may be there for its effect
        found = self.of(expr)
        return found[0] if found is not None and found[0] == found[1] else None

    def _var(self, expr: Var) -> Range | None:
        if id(expr) in self._vars:
            return self._vars[id(expr)]
        return (0, int_range(expr.dtype)[1]) if expr.is_size and expr.dtype.is_integer else None

    def _pair(self, expr: Any) -> tuple[int, int, int, int] | None:
        a, b = self.of(expr.a), self.of(expr.b)
        return None if a is None or b is None else (*a, *b)

    def _mul(self, expr: E.Mul) -> Range | None:
        pair = self._pair(expr)
        if pair is None:
            return None
        a, b, c, d = pair
        products = (a * c, a * d, b * c, b * d)
        return min(products), max(products)

    def _div(self, expr: E.FloorDiv | E.TruncDiv) -> Range | None:
        pair = self._pair(expr)
        if pair is None:
            return None
        low, high, least, most = pair
        if least <= 0 or (low < 0 and isinstance(expr, E.TruncDiv)):
            return None
        return min(low // least, low // most), max(high // least, high // most)

    def _mod(self, expr: E.FloorMod | E.TruncMod) -> Range | None:
        pair = self._pair(expr)
        if pair is None:
            return None
        low, high, least, most = pair
        if least <= 0 or (low < 0 and isinstance(expr, E.TruncMod)):
            return None
        return (low, high) if low >= 0 and high < least else (0, most - 1)

    def _union(self, a: Expr, b: Expr) -> Range | None:
        x, y = self.of(a), self.of(b)
        return None if x is None or y is None else (min(x[0], y[0]), max(x[1], y[1]))

    def _call(self, expr: E.Call) -> Range | None:
        if expr.op == "if_then_else":
            return self._union(expr.args[1], expr.args[2])
        if expr.op in ("likely", "exact"):
            return self.of(expr.args[0])
        if expr.op == "bitwise_and" and expr.dtype.is_integer:
            tops = [found[1] for arg in expr.args if (found := self.of(arg)) and found[0] >= 0]
            return (0, min(tops)) if tops else None
        return None

    def _ramp(self, expr: E.Ramp) -> Range | None:
        base, stride = self.of(expr.base), self.of(expr.stride)
        if base is None or stride is None:
            return None
        reach = expr.lanes - 1
        return base[0] + min(0, reach * stride[0]), base[1] + max(0, reach * stride[1])

    def _let(self, expr: E.Let) -> Range | None:
        self.set(expr.var, self.of(expr.value))
        return self.of(expr.body)


def _join(combine: Callable[[int, int, int, int], Range]) -> Callable[[Ranges, Any], Range | None]:
    def rule(ranges: Ranges, expr: Any) -> Range | None:
        pair = ranges._pair(expr)
        return None if pair is None else combine(*pair)

    return rule


_RULES: dict[type[Expr], Callable[[Ranges, Any], Range | None]] = {
    Var: Ranges._var,
    E.IntImm: lambda self, e: (e.value, e.value),
    E.Add: _join(lambda a, b, c, d: (a + c, b + d)),
    E.Sub: _join(lambda a, b, c, d: (a - d, b - c)),
    E.Mul: Ranges._mul,
    E.Min: _join(lambda a, b, c, d: (min(a, c), min(b, d))),
    E.Max: _join(lambda a, b, c, d: (max(a, c), max(b, d))),
    E.FloorDiv: Ranges._div,
    E.TruncDiv: Ranges._div,
    E.FloorMod: Ranges._mod,
    E.TruncMod: Ranges._mod,
    E.Select: lambda self, e: self._union(e.then, e.otherwise),
    E.Cast: lambda self, e: self.of(e.value) if not e.dtype.is_bool else None,
    E.Call: Ranges._call,
    E.Let: Ranges._let,
    E.Ramp: Ranges._ramp,
    E.Broadcast: lambda self, e: self.of(e.value),
}
