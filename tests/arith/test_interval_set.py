"""Sets of integers and linear equations, by their classic names."""

from typing import Any

import pytest

from sterna import arith
from sterna.ir.expr import Var
from sterna.support.dtype import DataType

X, Y = (Var(name, DataType("int32")) for name in "xy")


def analyzer() -> Any:
    return arith.Analyzer()


def test_bounds_of_variables() -> None:
    known = analyzer()
    known.update(X, arith.ConstIntBound(0, 10))
    bound = known.const_int_bound(X + 1)
    assert (bound.min_value, bound.max_value) == (1, 11)
    bounds: Any = arith.ConstIntBound
    known.update(X, bounds(5, bounds.POS_INF))
    assert known.const_int_bound(X) == (5, 10)
    assert known.can_prove(X > 4) and not known.can_prove(X > 5)
    with pytest.raises(ValueError, match=r"x is in .*, never in .*; override=True forgets it"):
        known.update(X, arith.ConstIntBound(20, 30))
    known.update(X, arith.ConstIntBound(20, 30), override=True)
    assert known.const_int_bound(X) == (20, 30)
    with pytest.raises(TypeError, match="what is known of x is a ConstIntBound, not 3"):
        known.update(X, 3)


def test_sets_of_sums() -> None:
    known = analyzer()
    domains = {X: arith.IntervalSet(0, 10), Y: arith.IntervalSet(1, 11)}
    found = known.int_set(X + Y, domains)
    assert (str(found.min_value), str(found.max_value)) == ("1", "21")
    moved = known.int_set(X - Y * 2, {Y: arith.IntervalSet(0, 3)})
    assert str(moved) == "IntervalSet[x - 6, x]"
    assert known.const_int_bound(X) == analyzer().const_int_bound(X), "nothing is kept"
    with pytest.raises(ValueError, match="has no end: leave it out"):
        known.int_set(X, {X: arith.IntervalSet(0, None)})
    with pytest.raises(TypeError, match="the domain of x is an IntervalSet, not 3"):
        known.int_set(X, {X: 3})


def test_linear_equations() -> None:
    found = arith.detect_linear_equation(X * 2 + Y + 3, [X])
    assert [str(each) for each in found] == ["2", "y + 3"]
    assert arith.detect_linear_equation(X * X, [X]) == []
    assert arith.Analyzer().modular_set(X * 4 + 3) == arith.ModularSet(4, 3)
