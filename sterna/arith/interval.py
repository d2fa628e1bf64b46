"""Symbolic intervals: the range of an expression as expressions, and affine coefficients."""

from collections.abc import Mapping, Sequence
from math import inf

from sterna.arith.analyzer import Analyzer
from sterna.arith.bounds import IntBound, Interval, fits, is_index
from sterna.arith.divmod import floordiv, truncdiv
from sterna.arith.linear import (
    Mono,
    Sum,
    add_into,
    constant,
    key_of,
    minus,
    plus_const,
    scale,
    times,
    without,
)
from sterna.arith.prove import nonnegative, positive
from sterna.arith.state import Atom
from sterna.ir.expr import Cast, Expr, FloorDiv, FloorMod, Max, Min, Select, TruncDiv, Var
from sterna.support.dtype import DataType

# The smallest and the largest value.
_Range = tuple[Sum | None, Sum | None]
_UNKNOWN: _Range = (None, None)


def interval(
    expr: Expr, domains: Mapping[Var, tuple[Expr, Expr]], analyzer: Analyzer | None = None
) -> Interval:
    """The smallest and largest value of expr when each listed variable is in its [min, max].

    interval(o*32 + i + 1, {i: (0, 31)}) → (o*32 + 1, o*32 + 32). Other variables stay symbols; what
    the analyzer knows about them is used. An end that is not known is None.
    """
    if not expr.dtype.is_integer or not is_index(expr.dtype) or expr.dtype.lanes > 1:
        return Interval(None, None)
    if analyzer is None:
        return _Ranges(Analyzer(), domains).interval(expr)
    with analyzer.assuming(True):  # what is bound inside is forgotten after it
        return _Ranges(analyzer, domains).interval(expr)


class _Ranges:
    """Ranges of sums while some variables have domains."""

    def __init__(self, analyzer: Analyzer, domains: Mapping[Var, tuple[Expr, Expr]]) -> None:
        self.analyzer = analyzer
        self.state = analyzer.state
        self.domains: dict[int, tuple[Sum, Sum]] = {}
        for var in domains:
            analyzer.unbind(var)
        for var, (low, high) in domains.items():
            first, last = analyzer.sum_of(low), analyzer.sum_of(high)
            self.domains[self.state.var_atom(var).index] = first, last
            analyzer.bind_range(var, first, last)
        self.variables = frozenset(domains)
        self.known: dict[int, _Range] = {}

    def interval(self, expr: Expr) -> Interval:
        low, high = self.of_sum(self.analyzer.sum_of(expr))
        for _ in self.domains:
            # The domain of one variable may mention another.
            if low is not None and self.state.variables(low) & self.variables:
                low = self.of_sum(low)[0]
            if high is not None and self.state.variables(high) & self.variables:
                high = self.of_sum(high)[1]
        dtype = expr.dtype
        return Interval(
            None if low is None else self.analyzer.emit(low, dtype),
            None if high is None else self.analyzer.emit(high, dtype),
        )

    def of_sum(self, total: Sum) -> _Range:
        """The sum of the ranges of the terms."""
        low: Sum | None = {}
        high: Sum | None = {}
        for mono, value in total.items():
            least, most = self.of_product(mono)
            if value < 0:
                least, most = most, least
            if low is not None:
                low = None if least is None else _accumulate(low, least, value)
            if high is not None:
                high = None if most is None else _accumulate(high, most, value)
        return low, high

    def of_product(self, mono: Mono) -> _Range:
        moving = [i for i in mono if self.state.atoms[i].variables & self.variables]
        if not moving:
            return {mono: 1}, {mono: 1}
        found = self._product(mono, moving)
        return self._or_constants(found, self.state.mono_bound(mono)) if None in found else found

    def _or_constants(self, found: _Range, bound: IntBound) -> _Range:
        """Constants for ends that are not known otherwise."""
        low, high = found
        if low is None and bound.low > -inf:
            low = constant(int(bound.low))
        if high is None and bound.high < inf:
            high = constant(int(bound.high))
        return low, high

    def _product(self, mono: Mono, moving: list[int]) -> _Range:
        fixed = without(mono, tuple(moving)) or ()
        low, high = self.of_atom(moving[0])
        for index in moving[1:]:
            low, high = self.multiply((low, high), self.of_atom(index))
        if not fixed:
            return low, high
        return self.multiply((low, high), ({fixed: 1}, {fixed: 1}))

    def multiply(self, a: _Range, b: _Range) -> _Range:
        """The range of products, where the signs are known."""
        if not self._is_natural(b[0]):
            a, b = b, a
        if not self._is_natural(b[0]) and b[0] is b[1] and b[0] is not None:
            negative = scale(b[0], -1)
            if nonnegative(self.state, negative):
                opposite = self.multiply(a, (negative, negative))
                return _negated(opposite[1]), _negated(opposite[0])
        least, most = b
        if not self._is_natural(least) or least is None:
            return _UNKNOWN
        low: Sum | None = None
        high: Sum | None = None
        if a[0] is not None:
            factor = least if self._is_natural(a[0]) else most if self._is_nonpositive(a[0]) else (
                least if least == most else None
            )
            low = None if factor is None else times(a[0], factor)
        if a[1] is not None:
            factor = most if self._is_natural(a[1]) else least if self._is_nonpositive(a[1]) else (
                least if least == most else None
            )
            high = None if factor is None else times(a[1], factor)
        return low, high

    def _is_natural(self, total: Sum | None) -> bool:
        return total is not None and nonnegative(self.state, total)

    def _is_nonpositive(self, total: Sum) -> bool:
        return nonnegative(self.state, scale(total, -1))

    def of_atom(self, index: int) -> _Range:
        found = self.known.get(index)
        if found is None:
            atom = self.state.atoms[index]
            found = self.domains.get(index) or self._by_kind(atom)
            found = self._or_constants(found, self.state.atom_bound(index))
            self.known[index] = found
        return found

    def _by_kind(self, atom: Atom) -> _Range:
        if not atom.operands or not is_index(atom.operand_type):
            return _UNKNOWN
        if atom.kind in (FloorDiv, TruncDiv):
            return self._quotient(atom)
        if atom.kind is FloorMod:
            return self._remainder(atom)
        ranges = [self.of_sum(operand) for operand in atom.operands]
        lows, highs = [low for low, _ in ranges], [high for _, high in ranges]
        dtype = atom.expr.dtype
        if atom.kind is Min:
            return self._smallest(lows, dtype), self._known(Min, highs, dtype)
        if atom.kind is Max:
            return self._known(Max, lows, dtype), self._largest(highs, dtype)
        if atom.kind in (Select, "if_then_else"):
            return self._smallest(lows, dtype), self._largest(highs, dtype)
        if atom.kind == "sum" or (
            atom.kind is Cast and fits(self.state.bound(atom.operands[0]), dtype)
        ):
            return ranges[0]
        return _UNKNOWN

    def _smallest(self, lows: list[Sum | None], dtype: DataType) -> Sum | None:
        return None if None in lows else self._known(Min, lows, dtype)

    def _largest(self, highs: list[Sum | None], dtype: DataType) -> Sum | None:
        return None if None in highs else self._known(Max, highs, dtype)

    def _known(self, kind: type[Min] | type[Max], ends: list[Sum | None], dtype: DataType) -> (
        Sum | None
    ):
        """The smallest (largest) of those ends that are known: one alone is a bound, too."""
        given = [end for end in ends if end is not None]
        return self.analyzer.extreme(kind, given, dtype) if given else None

    def _quotient(self, atom: Atom) -> _Range:
        dividend, divisor = atom.operands
        dtype = atom.expr.dtype
        if self.state.variables(divisor) & self.variables or not positive(self.state, divisor):
            return _UNKNOWN
        divide = floordiv if atom.kind is FloorDiv else truncdiv
        low, high = self.of_sum(dividend)
        return (
            None if low is None else divide(self.state, low, divisor, dtype),
            None if high is None else divide(self.state, high, divisor, dtype),
        )

    def _remainder(self, atom: Atom) -> _Range:
        dividend, divisor = atom.operands
        if self.state.variables(divisor) & self.variables:
            low, high = self.of_sum(divisor)
            if not self._is_natural(low) or high is None:
                return _UNKNOWN
            return {}, plus_const(high, -1)
        if not positive(self.state, divisor):
            return _UNKNOWN
        low, high = self.of_sum(dividend)
        if low is not None and high is not None:
            dtype = atom.expr.dtype
            first = floordiv(self.state, low, divisor, dtype)
            if key_of(first) == key_of(floordiv(self.state, high, divisor, dtype)):
                start = times(first, divisor)
                return minus(low, start), minus(high, start)
        most = plus_const(divisor, -1)
        if high is not None and self._is_natural(low) and nonnegative(
            self.state, minus(most, high)
        ):
            most = high
        return {}, most


def _accumulate(total: Sum, part: Sum, factor: int) -> Sum:
    result = dict(total)
    add_into(result, part, factor)
    return result


def _negated(total: Sum | None) -> Sum | None:
    return None if total is None else scale(total, -1)


def detect_linear(
    expr: Expr, variables: Sequence[Var], analyzer: Analyzer | None = None
) -> list[Expr] | None:
    """The coefficient of each variable, then the rest; None when expr is not linear in them.

    detect_linear(x*n + y*4 + m, [x, y]) → [n, 4, m]
    """
    if not is_index(expr.dtype) or expr.dtype.lanes > 1:
        return None
    known = Analyzer() if analyzer is None else analyzer
    state = known.state
    wanted = frozenset(variables)
    position = {state.var_atom(var).index: i for i, var in enumerate(variables)}
    parts: list[Sum] = [{} for _ in range(len(variables) + 1)]
    for mono, value in known.sum_of(expr).items():
        moving = [index for index in mono if state.atoms[index].variables & wanted]
        if len(moving) > 1 or (moving and moving[0] not in position):
            return None
        if moving:
            rest = without(mono, (moving[0],)) or ()
            parts[position[moving[0]]][rest] = value
        else:
            parts[-1][mono] = value
    return [known.emit(part, expr.dtype) for part in parts]


