"""Conditions: comparisons, boolean algebra, and the facts that conditions state."""

from collections.abc import Hashable
from math import inf

from sterna.arith.bounds import IntBound, is_index, meet
from sterna.arith.divmod import block_of, split
from sterna.arith.emit import number
from sterna.arith.linear import (
    Sum,
    const_of,
    constant,
    content,
    minus,
    plus,
    plus_const,
    scale,
)
from sterna.arith.prove import nonnegative
from sterna.arith.rules import apply_rules
from sterna.arith.sums import Sums, is_stable
from sterna.ir import build
from sterna.ir.expr import (
    BOOL,
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    And,
    Call,
    CompareExpr,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Not,
    Or,
)
from sterna.support.dtype import DataType

TRUE = number(1, BOOL)
FALSE = number(0, BOOL)

_ORDER = (LT, LE, GT, GE)
# Literals of one conjunction that are compared with each other.
_MAX_LITERALS = 8


class Conditions(Sums):
    """Simplifies conditions and takes in what they state."""

    def condition(self, expr: Expr) -> Expr:
        """A scalar condition, simplified."""
        kind = type(expr)
        if kind is And or kind is Or:
            return self._junction(expr)
        if isinstance(expr, CompareExpr):
            result = self._comparison(expr)
        elif isinstance(expr, Not):
            result = self._negation(self.simplify(expr.a), expr)
        elif isinstance(expr, Call) and expr.op == "likely":
            inner = self.simplify(expr.args[0])
            same = inner is expr.args[0]
            return inner if isinstance(inner, IntImm) else (
                expr if same else Call(expr.dtype, "likely", (inner,))
            )
        else:
            result = self.other(expr)
        if not isinstance(result, IntImm) and self.state.known.truths:
            known = self.state.known.truths.get(self.key(result))
            if known is not None:
                return TRUE if known else FALSE
        return result

    def other(self, expr: Expr) -> Expr:
        """An expression that is neither an integer nor a comparison."""
        raise NotImplementedError

    # ---- comparisons ----

    def _comparison(self, expr: CompareExpr) -> Expr:
        dtype = expr.a.dtype
        if dtype.is_integer:
            a, b = self.sum_of(expr.a), self.sum_of(expr.b)
            if is_index(dtype):
                if type(expr) in _ORDER:
                    return self._at_least_zero(difference(type(expr), a, b), dtype)
                return self._equality(minus(a, b), dtype, type(expr) is EQ)
            truth = self._typed_comparison(type(expr), a, b, dtype)
            if truth is not None:
                return TRUE if truth else FALSE
        made = self.rebuild(expr)
        assert isinstance(made, CompareExpr)
        folded = build.fold_binary(type(made), made.a, made.b)
        if folded is not None:
            return folded
        ruled = apply_rules(made, self.equal)
        return made if ruled is None else self.simplify(ruled)

    def _typed_comparison(
        self, kind: type[Expr], a: Sum, b: Sum, dtype: DataType
    ) -> bool | None:
        """The truth of a comparison of numbers that wrap, by their ranges."""
        if kind in (EQ, NE):
            distance = const_of(minus(a, b))
            if distance is not None:
                return (distance % (1 << dtype.bits) == 0) == (kind is EQ)
        low_a, high_a = self.state.typed_bound(a, dtype)
        low_b, high_b = self.state.typed_bound(b, dtype)
        if kind in (EQ, NE):
            return kind is NE if high_a < low_b or high_b < low_a else None
        if kind in (GT, GE):
            low_a, high_a, low_b, high_b = low_b, high_b, low_a, high_a
        if kind in (LT, GT):
            return True if high_a < low_b else False if low_a >= high_b else None
        return True if high_a <= low_b else False if low_a > high_b else None

    def _at_least_zero(self, total: Sum, dtype: DataType) -> Expr:
        """total >= 0, as a comparison."""
        if nonnegative(self.state, total):
            return TRUE
        if nonnegative(self.state, plus_const(scale(total, -1), -1)):
            return FALSE
        return self._write_order(self._coarser(self._without_quotient(total)), dtype)

    def _without_quotient(self, total: Sum) -> Sum:
        """What is at least 0 just when total is: x//4 - 2 → x - 8."""
        for mono, value in total.items():
            if len(mono) == 1 and self.state.atoms[mono[0]].kind is FloorDiv:
                dividend, by = self.state.atoms[mono[0]].operands
                divisor = const_of(by)
                if divisor is not None and divisor > 0 and abs(value) == 1:
                    rest = scale(minus(total, {mono: value}), divisor)
                    if value > 0:
                        return plus(rest, dividend)
                    return plus_const(minus(rest, dividend), divisor - 1)
        return total

    def _coarser(self, total: Sum) -> Sum:
        """What is at least 0 just when total is: i*4 + j - 8 → i - 2 for 0 <= j < 4."""
        sizes = {abs(value) for mono, value in total.items() if mono and abs(value) > 1}
        if not sizes:
            return total
        sizes.add(content(value for mono, value in total.items() if mono))
        for size in sorted(sizes, reverse=True):
            if size > 1:
                big, small = split(total, size)
                if any(big):
                    block = block_of(self.state, small, size)
                    if block is not None:
                        return plus_const(big, block)
        return total

    def _write_order(self, total: Sum, dtype: DataType) -> Expr:
        """total >= 0 with positive terms on one side and negative ones on the other."""
        offset = total.get((), 0)
        more = {mono: value for mono, value in total.items() if mono and value > 0}
        less = {mono: -value for mono, value in total.items() if mono and value < 0}
        if not less:
            return GE(self.emit(more, dtype), number(-offset, dtype))
        if not more:
            return LT(self.emit(less, dtype), number(offset + 1, dtype))
        if offset == 0:
            return LE(self.emit(less, dtype), self.emit(more, dtype))
        if offset > 0:
            return LT(self.emit(less, dtype), self.emit(plus_const(more, offset + 1), dtype))
        return LT(self.emit(plus_const(less, -offset - 1), dtype), self.emit(more, dtype))

    def _equality(self, total: Sum, dtype: DataType, wanted: bool) -> Expr:
        """total == 0, or != 0."""
        truth = self.is_zero(total)
        if truth is not None:
            return TRUE if truth == wanted else FALSE
        shared = content(total.values())
        if shared > 1:
            total = {mono: value // shared for mono, value in total.items()}
        first = next(value for mono, value in total.items() if mono)
        if first < 0:
            total = scale(total, -1)
        offset = total.get((), 0)
        left = {mono: value for mono, value in total.items() if mono and value > 0}
        right = {mono: -value for mono, value in total.items() if mono and value < 0}
        if right and offset > 0:
            left = plus_const(left, offset)
        else:
            right = plus_const(right, -offset)
        kind = EQ if wanted else NE
        return kind(self.emit(left, dtype), self.emit(right, dtype))

    def is_zero(self, total: Sum) -> bool | None:
        """Whether a sum is 0 always or never; None when neither is known."""
        value = const_of(total)
        if value is not None:
            return value == 0
        low, high = self.state.bound(total)
        if low > 0 or high < 0:
            return False
        step, base = self.state.modulus(total)
        if step > 1 and base % step:
            return False
        content_of = content(v for mono, v in total.items() if mono)
        if content_of > 1 and total.get((), 0) % content_of:
            return False
        if not self.state.known.facts:
            return None
        up = nonnegative(self.state, total)
        if up and nonnegative(self.state, plus_const(total, -1)):
            return False
        opposite = scale(total, -1)
        down = nonnegative(self.state, opposite)
        if down and nonnegative(self.state, plus_const(opposite, -1)):
            return False
        return True if up and down else None

    # ---- boolean algebra ----

    def _negation(self, inner: Expr, expr: Not) -> Expr:
        if isinstance(inner, IntImm):
            return FALSE if inner.value else TRUE
        made = expr if inner is expr.a else Not(inner)
        ruled = apply_rules(made, self.equal)
        if ruled is not None:
            return self.simplify(ruled)
        if isinstance(inner, (And, Or)):
            a, b = self.simplify(Not(inner.a)), self.simplify(Not(inner.b))
            if not isinstance(a, Not) and not isinstance(b, Not):
                return self.simplify(Or(a, b) if isinstance(inner, And) else And(a, b))
        return made

    def _junction(self, expr: Expr) -> Expr:
        kind = type(expr)
        neutral, final = (TRUE, FALSE) if kind is And else (FALSE, TRUE)
        literals: list[Expr] = []
        seen: set[Hashable] = set()
        for part in _flatten(kind, expr):
            literal = self.simplify(part)
            for leaf in _flatten(kind, literal):
                if isinstance(leaf, IntImm):
                    if leaf.value == final.value:
                        return final
                    continue
                key = self.key(leaf)
                if key in seen:
                    continue
                seen.add(key)
                literals.append(leaf)
        for literal in literals:
            if isinstance(literal, Not) and self.key(literal.a) in seen:
                return final
        kept = self._independent(literals, kind is And)
        if kept is None:
            return final
        if not kept:
            return neutral
        result = kept[0]
        for literal in kept[1:]:
            result = And(result, literal) if kind is And else Or(result, literal)
            if len(kept) <= _MAX_LITERALS:
                ruled = apply_rules(result, self.equal)
                result = result if ruled is None else ruled
        return result

    def _independent(self, literals: list[Expr], conjunction: bool) -> list[Expr] | None:
        """Those that the others do not imply; None when they exclude each other.

        In a disjunction the same is done with the opposites.
        """
        if not 2 <= len(literals) <= _MAX_LITERALS:
            return literals
        sums = [self._stated(literal, conjunction) for literal in literals]
        if sum(total is not None for total in sums) < 2:
            return literals
        kept = list(range(len(literals)))
        for i in reversed(range(len(literals))):
            total = sums[i]
            if total is None:
                continue
            mine = {index for mono in total for index in mono}
            extra = [
                other
                for j, other in enumerate(sums)
                if j in kept and j != i and other is not None
                and any(index in mine for mono in other for index in mono)
            ]
            if not extra:
                continue
            if nonnegative(self.state, plus_const(scale(total, -1), -1), extra):
                return None
            if nonnegative(self.state, total, extra):
                kept.remove(i)
        return [literals[i] for i in kept]

    def _stated(self, literal: Expr, truth: bool) -> Sum | None:
        """The sum that is at least 0 when an ordering of index type is true (or false)."""
        if isinstance(literal, Call) and literal.op == "likely":
            literal = literal.args[0]
        if type(literal) not in _ORDER or not is_index(literal.a.dtype):  # type: ignore[attr-defined]
            return None
        assert isinstance(literal, CompareExpr)
        total = difference(type(literal), self.sum_of(literal.a), self.sum_of(literal.b))
        return total if truth else plus_const(scale(total, -1), -1)

    # ---- assumptions ----

    def assume(self, condition: Expr, truth: bool = True) -> None:
        """Take in that a simplified condition is true, or false."""
        if isinstance(condition, Call) and condition.op == "likely":
            self.assume(condition.args[0], truth)
        elif isinstance(condition, Not):
            self.assume(condition.a, not truth)
        elif type(condition) is (And if truth else Or):
            self.assume(condition.a, truth)
            self.assume(condition.b, truth)
        elif not isinstance(condition, IntImm) and is_stable(condition):
            self._assume_literal(condition, truth)

    def _assume_literal(self, condition: Expr, truth: bool) -> None:
        known = self.state.known
        known.truths[self.key(condition)] = truth
        stated = self._stated(condition, truth)
        if stated is not None:
            self._assume_at_least_zero(stated)
        elif isinstance(condition, (EQ, NE)) and is_index(condition.a.dtype):
            total = minus(self.sum_of(condition.a), self.sum_of(condition.b))
            if isinstance(condition, EQ) == truth:
                self._assume_at_least_zero(total)
                self._assume_at_least_zero(scale(total, -1))
                self._assume_value(total)
            else:
                self._assume_not_zero(total)

    def _assume_at_least_zero(self, total: Sum) -> None:
        self.state.known.add_fact(total)
        terms = [(mono, value) for mono, value in total.items() if mono]
        if len(terms) != 1 or len(terms[0][0]) != 1:
            return
        ((index,), value) = terms[0]
        offset = total.get((), 0)
        if value > 0:
            self._tighten(index, IntBound(-(offset // value), inf))
        else:
            self._tighten(index, IntBound(-inf, offset // -value))

    def _tighten(self, index: int, bound: IntBound) -> None:
        ranges = self.state.known.ranges
        ranges[index] = meet(ranges.get(index, bound), bound)
        self.state.forget()

    def _assume_value(self, total: Sum) -> None:
        """atom == constant: the atom is that constant; x % c == r: x is r modulo c."""
        terms = [(mono, value) for mono, value in total.items() if mono]
        if len(terms) != 1 or len(terms[0][0]) != 1 or abs(terms[0][1]) != 1:
            return
        ((index,), value) = terms[0]
        result = -total.get((), 0) * value
        known = self.state.known
        known.values[index] = constant(result)
        atom = self.state.atoms[index]
        if atom.kind is FloorMod:
            divisor = const_of(atom.operands[1])
            dividend = atom.operands[0]
            if divisor and divisor > 0 and len(dividend) == 1:
                ((mono, factor),) = dividend.items()
                if factor == 1 and len(mono) == 1:
                    known.moduli[mono[0]] = divisor, result % divisor
        self.state.forget()

    def _assume_not_zero(self, total: Sum) -> None:
        """x != the end of its range: the range is one shorter."""
        low, high = self.state.bound(total)
        if low == 0:
            self._assume_at_least_zero(plus_const(total, -1))
        elif high == 0:
            self._assume_at_least_zero(plus_const(scale(total, -1), -1))


def difference(kind: type[Expr], a: Sum, b: Sum) -> Sum:
    """The sum that is at least 0 just when the comparison holds."""
    if kind is LT:
        return plus_const(minus(b, a), -1)
    if kind is LE:
        return minus(b, a)
    if kind is GT:
        return plus_const(minus(a, b), -1)
    return minus(a, b)


def _flatten(kind: type[Expr], expr: Expr) -> list[Expr]:
    """The operands of nested Ands (Ors), in order."""
    if type(expr) is not kind:
        return [expr]
    found: list[Expr] = []
    stack = [expr]
    while stack:
        node = stack.pop()
        if type(node) is kind:
            stack.extend((node.b, node.a))  # type: ignore[attr-defined]
        else:
            found.append(node)
    return found

