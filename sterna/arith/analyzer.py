"""Integer set analysis: what is known about variables, and what follows from it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from math import inf
from typing import Protocol, runtime_checkable

from sterna.arith.bounds import EVERYTHING, IntBound, Modulus, is_index, type_bound
from sterna.arith.emit import same
from sterna.arith.linear import Sum, const_of, minus, plus, plus_const
from sterna.arith.prove import nonnegative
from sterna.arith.rules import apply_rules
from sterna.arith.vectors import Vectors
from sterna.ir import build
from sterna.ir.expr import (
    And,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    Expr,
    ExprLike,
    FloatImm,
    IntImm,
    Let,
    Not,
    Or,
    Ramp,
    Select,
    Var,
)
from sterna.support.dtype import DataType

# Chains of operators shorter than this may recurse.
SHORT = 16

_FOLDED_FLOATS = ("float16", "float32", "float64", "bfloat16")


@runtime_checkable
class RangeLike(Protocol):
    """Consecutive numbers, as those of an axis."""

    @property
    def min(self) -> Expr:
        """The first."""

    @property
    def extent(self) -> Expr:
        """How many there are."""


class Analyzer(Vectors):
    """Facts about variables, and questions about expressions of them.

    Expressions of type int32 and int64 are taken as index arithmetic, which does not overflow;
    those of other integer types as numbers modulo 2**N. Results are remembered while what is known
    stays the same.
    """

    # ---- knowledge ----

    def bind(
        self, var: Var, min: "ExprLike | RangeLike", extent: ExprLike | None = None
    ) -> None:
        """var is in [min, min + extent), in a range, or, of one expression alone, stands for it."""
        if not isinstance(min, Expr | int) and isinstance(min, RangeLike):
            self.bind(var, min.min, min.extent)
            return
        if extent is None:
            self.bind_value(var, min)
            return
        seen = id(var) in self._sums or var in self.state.by_key
        if seen:
            self.unbind(var)
        first = self.sum_of(self._index(min, var))
        last = plus_const(plus(first, self.sum_of(self._index(extent, var))), -1)
        self.bind_range(var, first, last)

    def bind_range(self, var: Var, first: Sum | None, last: Sum | None) -> None:
        """var is in [first, last]; None where nothing is known."""
        index = self.state.var_atom(var).index
        known = self.state.known
        low: int | float = -inf
        high: int | float = inf
        symbolic = False
        if first is not None:
            low = self.state.bound(first).low
            if const_of(first) is None:
                symbolic = True
                known.add_fact(minus({(index,): 1}, first), var)
        if last is not None:
            high = self.state.bound(last).high
            if const_of(last) is None:
                symbolic = True
                known.add_fact(minus(last, {(index,): 1}), var)
        if low <= high:
            known.ranges[index] = IntBound(low, high)
        if symbolic:
            self.forget()

    def bind_value(self, var: Var, value: ExprLike) -> None:
        """var stands for value: simplify puts it in its place."""
        self.unbind(var)
        total = self.sum_of(self._index(value, var))
        self.state.known.values[self.state.var_atom(var).index] = total

    def unbind(self, var: Var) -> None:
        """Nothing is known about var any more."""
        known = self.state.known
        index = self.state.var_atom(var).index
        known.ranges.pop(index, None)
        known.values.pop(index, None)
        known.moduli.pop(index, None)
        if any(owner is var for owner, _ in known.facts):
            known.drop_facts(var)
        self.forget()

    @contextmanager
    def assuming(self, condition: ExprLike) -> Iterator[None]:
        """Inside the block the condition holds. What is bound inside is forgotten after it."""
        simple = self.simplify(build.as_expr(condition))
        before = self.state.known, self._sums, self._keys, self._results
        derived = self.state.derived()
        self.state.known = self.state.known.copy()
        self.forget()
        self.assume(simple)
        self.forget()
        try:
            yield
        finally:
            self.state.known, self._sums, self._keys, self._results = before
            self.state.restore(derived)

    def _index(self, value: ExprLike, like: Expr | None = None) -> Expr:
        return value if isinstance(value, Expr) else build.as_expr(value, like)

    # ---- questions ----

    def simplify(self, expr: Expr) -> Expr:
        """An equal expression, simpler; the same object when it is as simple as it gets."""
        found = self._results.get(id(expr))
        if found is not None:
            return found[1]
        kind = type(expr)
        dtype = expr.dtype
        if kind is IntImm or (kind is Var and not dtype.is_bool and not self.state.known.values):
            return expr
        if isinstance(expr, BinaryExpr) and (dtype.lanes > 1 or not dtype.is_integer):
            self._simplify_spine(expr)
        if dtype.lanes > 1:
            result = self.vector(expr)
        elif dtype.is_integer:
            result = self._integer(expr)
        elif dtype.is_bool:
            result = self.condition(expr)
        else:
            result = self.other(expr)
        if result is not expr and same(result, expr):
            result = expr
        self._results[id(expr)] = expr, result
        if result is not expr:
            self._results[id(result)] = result, result
        return result

    def _simplify_spine(self, expr: BinaryExpr) -> None:
        """Simplify first operands from the innermost on, so that long chains do not recurse."""
        spine: list[Expr] = []
        first = expr.a
        while isinstance(first, BinaryExpr) and type(first) is type(expr):
            if id(first) in self._results or isinstance(first, (And, Or)):
                break
            spine.append(first)
            first = first.a
        if expr.dtype.is_integer and len(spine) < SHORT:
            return  # it is read as a whole, and its parts would be simplified for nothing
        for node in reversed(spine):
            self.simplify(node)

    def _integer(self, expr: Expr) -> Expr:
        dtype = expr.dtype
        total = self.sum_of(expr)
        if isinstance(expr, Cast) and len(total) > 1 and is_index(dtype):
            source = expr.value.dtype
            if is_index(source) and source.bits < dtype.bits:
                # The sum would be written with a cast of each term.
                inner = self.simplify(expr.value)
                return expr if inner is expr.value else Cast(dtype, inner)
        return self.emit(total, dtype)

    def other(self, expr: Expr) -> Expr:
        """A float, a handle, a select or call of bools: its parts simplified, then the rules."""
        if isinstance(expr, Let):
            return self.simplify_let(expr)
        if isinstance(expr, Call) and expr.op == "if_then_else":
            return self._if_then_else(expr)
        made = self.rebuild(expr)
        folded = self._fold(made)
        if folded is not None:
            return folded
        ruled = apply_rules(made, self.equal)
        return made if ruled is None else self.simplify(ruled)

    def _fold(self, expr: Expr) -> Expr | None:
        if isinstance(expr, BinaryExpr) and expr.a.dtype in _FOLDED_FLOATS:
            return build.fold_binary(type(expr), expr.a, expr.b)
        if isinstance(expr, Cast):
            return self._fold_cast(expr.dtype, expr.value)
        if isinstance(expr, Select) and isinstance(expr.condition, IntImm):
            return expr.then if expr.condition.value else expr.otherwise
        return None

    def _fold_cast(self, target: DataType, value: Expr) -> Expr | None:
        if target is value.dtype:
            return value
        known = not target.is_float or target in _FOLDED_FLOATS
        if isinstance(value, IntImm) or value.dtype in _FOLDED_FLOATS:
            folded = build.cast(target, value) if known else value
            if isinstance(folded, (IntImm, FloatImm)) and folded.dtype is target:
                return folded
        if isinstance(value, Cast) and _is_widening(value.value.dtype, value.dtype):
            original = value.value
            if original.dtype is target:
                return original
            if _is_widening(original.dtype, target) and target.is_float:
                return Cast(target, original)
        return None

    def _if_then_else(self, expr: Call) -> Expr:
        condition, then, otherwise = expr.args
        simple = self.simplify(condition)
        if isinstance(simple, IntImm):
            return self.simplify(then if simple.value else otherwise)
        if simple.dtype.lanes > 1:
            return self.rebuild(expr)
        with self.assuming(simple):
            first = self.simplify(then)
        with self.assuming(Not(simple)):
            second = self.simplify(otherwise)
        if self.equal(first, second):
            return first
        if simple is condition and first is then and second is otherwise:
            return expr
        return Call(expr.dtype, "if_then_else", (simple, first, second))

    def bound(self, expr: ExprLike) -> IntBound:
        """Constants that an integer stays between."""
        value = self._index(expr)
        if isinstance(value, Broadcast):
            value = value.value
        if isinstance(value, Ramp) and value.base.dtype.lanes == 1:
            first = self.sum_of(value.base)
            last = plus(first, self.sum_of(value.stride * (value.lanes - 1)))
            ends = [self.state.bound(total) for total in (first, last)]
            return IntBound(min(e.low for e in ends), max(e.high for e in ends))
        if value.dtype.lanes > 1:
            return EVERYTHING if is_index(value.dtype) else type_bound(value.dtype.element)
        if value.dtype.is_bool:
            simple = self.simplify(value)
            return IntBound(int(simple), int(simple)) if isinstance(simple, IntImm) else (
                type_bound(value.dtype)
            )
        if not value.dtype.is_integer:
            return EVERYTHING
        return self.state.typed_bound(self.sum_of(value), value.dtype)

    def can_prove(self, condition: ExprLike) -> bool:
        """Whether a condition holds in all cases."""
        return build.is_const(self.simplify(build.as_expr(condition)), 1)

    def can_prove_less(self, a: ExprLike, b: int) -> bool:
        """Whether a < b in all cases."""
        value = self._index(a)
        if not is_index(value.dtype) or value.dtype.lanes > 1:
            return self.bound(value).high < b
        total = minus({(): b - 1} if b != 1 else {}, self.sum_of(value))
        return nonnegative(self.state, total)

    def can_prove_equal(self, a: ExprLike, b: ExprLike) -> bool:
        """Whether a == b in all cases."""
        left, right = build.match_types(a, b)
        if is_index(left.dtype) and left.dtype.lanes == 1:
            return self.is_zero(minus(self.sum_of(left), self.sum_of(right))) is True
        return self.can_prove(build.equal(left, right))

    def modular(self, expr: ExprLike) -> tuple[int, int]:
        """(coefficient, base) such that expr ≡ base (mod coefficient); (0, c) for a constant c."""
        value = self._index(expr)
        if not is_index(value.dtype) or value.dtype.lanes > 1:
            number = build.int_value(value)
            return (1, 0) if number is None else (0, number)
        return self.state.modulus(self.sum_of(value))

    # ---- the same by the names that classic programs know ----

    def const_int_bound(self, expr: ExprLike) -> IntBound:
        """Its bound, whose min_value and max_value are POS_INF and NEG_INF where it has no end."""
        return self.bound(expr)

    def modular_set(self, expr: ExprLike) -> Modulus:
        """Its coeff and its base."""
        return Modulus(*self.modular(expr))

    def canonical_simplify(self, expr: Expr) -> Expr:
        """The expression simplified."""
        return self.simplify(expr)

    def rewrite_simplify(self, expr: Expr) -> Expr:
        """The expression simplified."""
        return self.simplify(expr)

    def constraint_scope(self, condition: ExprLike) -> AbstractContextManager[None]:
        """Assume a condition inside a with."""
        return self.assuming(condition)


def _is_widening(source: DataType, target: DataType) -> bool:
    """Whether the target holds every value of the source."""
    if source.is_float and target.is_float:
        if source == "bfloat16":
            return target in ("bfloat16", "float32", "float64")
        names = ("float16", "float32", "float64")
        return source in names and target in names and source.bits <= target.bits
    if source.is_integer and target.is_integer:
        low, high = type_bound(source.element)
        least, most = type_bound(target.element)
        return least <= low and high <= most
    if source.is_integer and target in ("float32", "float64", "float16"):
        digits = {"float16": 11, "float32": 24, "float64": 53}[str(target)]
        return source.bits <= digits
    return False
