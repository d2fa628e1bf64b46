"""Sets of integers and linear equations, by their classic names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from sterna.arith.analyzer import Analyzer
from sterna.arith.bounds import NEG_INF, POS_INF, IntBound
from sterna.arith.interval import detect_linear, interval
from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike, Var


@dataclass(frozen=True, eq=False)
class IntervalSet:
    """The integers from one to another, both included; None for an end that is not known."""

    min_value: Expr | None
    max_value: Expr | None

    def __init__(self, min_value: ExprLike | None, max_value: ExprLike | None) -> None:
        for name, value in (("min_value", min_value), ("max_value", max_value)):
            known = None if value is None else build.as_expr(value)
            object.__setattr__(self, name, known)

    def __repr__(self) -> str:
        return f"IntervalSet[{self.min_value}, {self.max_value}]"


def int_set(analyzer: Analyzer, expr: ExprLike, dom_map: Mapping[Var, Any]) -> IntervalSet:
    """What an expression may be while variables are in sets; an end may mention others."""
    domains: dict[Var, tuple[Expr, Expr]] = {}
    for var, known in dom_map.items():
        if not isinstance(known, IntervalSet):
            raise TypeError(f"int_set: the domain of {var} is an IntervalSet, not {known!r}")
        if known.min_value is None or known.max_value is None:
            raise ValueError(f"int_set: the domain of {var}, {known}, has no end: leave it out")
        domains[var] = known.min_value, known.max_value
    found = interval(build.as_expr(expr), domains, analyzer)
    return IntervalSet(found.min, found.max)


def update(analyzer: Analyzer, var: Var, info: Any, override: bool = False) -> None:
    """Know that a variable is within constants, ConstIntBound(least, largest).

    What was known of it stays true, unless override forgets it.
    """
    if not isinstance(info, IntBound):
        raise TypeError(f"update: what is known of {var} is a ConstIntBound, not {info!r}")
    low = -inf if info.low <= NEG_INF else info.low
    high = inf if info.high >= POS_INF else info.high
    before = analyzer.bound(var)
    if not override:
        low, high = max(low, before.low), min(high, before.high)
    if low > high:
        raise ValueError(f"update: {var} is in {before}, never in {info}; override=True forgets it")
    analyzer.unbind(var)
    ends = [None if abs(end) == inf else analyzer.sum_of(build.const(int(end), var.dtype))
            for end in (low, high)]
    analyzer.bind_range(var, *ends)


def detect_linear_equation(expr: ExprLike, var_list: Sequence[Var]) -> list[Expr]:
    """The factors of variables in a sum, and what is added at last; empty if it is no such sum."""
    found = detect_linear(build.as_expr(expr), var_list)
    return found or []


IntBound.POS_INF, IntBound.NEG_INF = POS_INF, NEG_INF  # type: ignore[attr-defined]
Analyzer.update = update  # type: ignore[attr-defined]
Analyzer.int_set = int_set  # type: ignore[attr-defined]
