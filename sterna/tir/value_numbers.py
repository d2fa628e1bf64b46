"""Global value numbering: equal expressions are one value, wherever they stand."""

from typing import Any

from sterna.ir.expr import (
    Add,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
    Div,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)
from sterna.tir.intrinsics import INTRINSICS
from sterna.tir.stmt import Buffer, BufferLoad

_NOTHING: frozenset[Buffer] = frozenset()
_CHEAP = (Add, Sub, Mul, Min, Max)
_DIVISIONS = (FloorDiv, FloorMod, TruncDiv, TruncMod)
_DIVISION_WEIGHT, _CALL_WEIGHT = 3, 8
# Calls that are no computations, or none that may stand somewhere else.
_IN_PLACE = frozenset({"likely", "address_of", "view_of", "exact"})
# How much must be computed for a name to pay: an operation or two is as cheap as a register, and
# a name for a vector costs more than one for a number.
_LEAST_INT, _LEAST_FLOAT, _LEAST_VECTOR = 2, 3, 8


class Value:
    """What an expression computes."""

    __slots__ = (
        "acts", "children", "exact", "expr", "is_candidate", "is_fixed", "is_interesting",
        "is_safe", "number", "reads", "weight",
    )

    def __init__(
        self, number: int, expr: Expr, exact: bool, children: tuple["Value", ...], weight: int,
        is_safe: bool, is_fixed: bool, acts: bool, reads: frozenset[Buffer],
    ) -> None:
        self.number = number
        """Larger than those of its operands."""
        self.expr = expr
        """One of the expressions that compute it."""
        self.exact = exact
        """Whether its integers do not wrap, because they index or bound something."""
        self.children = children
        self.weight = weight
        self.is_safe = is_safe
        """Whether it has a meaning, and costs little, even where no guard lets it be needed."""
        self.is_fixed = is_fixed
        """Whether it cannot stand elsewhere: it acts, or uses a name that an expression binds."""
        self.acts = acts
        """Whether computing it has an effect."""
        self.reads = reads
        """The buffers that it depends on."""
        self.is_candidate = not is_fixed and _is_worth_a_name(expr, exact, weight)
        self.is_interesting: bool = self.is_candidate or any(c.is_interesting for c in children)


def _is_worth_a_name(expr: Expr, exact: bool, weight: int) -> bool:
    if weight < _LEAST_INT or isinstance(expr, (BufferLoad, Ramp, Broadcast, CompareExpr, Not)):
        return False
    dtype = expr.dtype
    if isinstance(expr, Call) and expr.op in _IN_PLACE:
        return False
    if dtype.lanes > 1:
        # indices that are vectors must show how they run through memory
        return weight >= _LEAST_VECTOR and not exact
    return weight >= (_LEAST_FLOAT if dtype.is_float else _LEAST_INT) and (
        dtype.is_float or dtype.is_integer
    )


class ValueNumbers:
    """The values of expressions."""

    def __init__(self) -> None:
        self.all: list[Value] = []
        self._known: dict[Any, Value] = {}
        self._seen: dict[tuple[int, bool], Value] = {}
        self._names: set[Var] = set()

    def of(self, expr: Expr, exact: bool = False) -> Value:
        """The value of an expression; exact: it indexes a buffer or bounds a loop."""
        place = (id(expr), exact)
        value = self._seen.get(place)
        if value is None:
            value = self._seen[place] = self._find(expr, exact)
        return value

    def _make(
        self, key: Any, expr: Expr, exact: bool, children: tuple[Value, ...], weight: int,
        is_safe: bool = True, is_fixed: bool = False, acts: bool = False,
        reads: frozenset[Buffer] = _NOTHING,
    ) -> Value:
        for child in children:
            weight += child.weight
            is_safe = is_safe and child.is_safe
            is_fixed = is_fixed or child.is_fixed
            acts = acts or child.acts
            if child.reads:
                reads = reads | child.reads
        value = Value(
            len(self.all), expr, exact, children, weight, is_safe, is_fixed, acts, reads
        )
        self.all.append(value)
        self._known[key] = value
        return value

    def _find(self, expr: Expr, exact: bool) -> Value:
        kind = type(expr)
        if isinstance(expr, BinaryExpr):
            inner = exact and not isinstance(expr, CompareExpr)
            a, b = self.of(expr.a, inner), self.of(expr.b, inner)
            key: Any = (kind, exact, a, b)
            return self._known.get(key) or self._binary(key, expr, exact, a, b)
        if isinstance(expr, (Var, IntImm, FloatImm, StringImm)):
            return self._leaf(expr)
        if isinstance(expr, BufferLoad):
            indices = tuple([self.of(index, True) for index in expr.indices])
            key = (expr.buffer, indices)
            return self._known.get(key) or self._make(
                key, expr, False, indices, 1, False, reads=frozenset((expr.buffer,))
            )
        if isinstance(expr, Call):
            return self._call(expr, exact)
        if isinstance(expr, Let):
            return self._let(expr, exact)
        return self._other(expr, exact)

    def _leaf(self, expr: Expr) -> Value:
        if isinstance(expr, Var):
            key: Any = (Var, id(expr))
        elif isinstance(expr, IntImm):
            key = (expr.dtype, expr.value)
        elif isinstance(expr, FloatImm):
            key = (expr.dtype, repr(expr.value))  # -0.0 is not 0.0, and NaN is itself
        else:
            assert isinstance(expr, StringImm)
            key = (StringImm, expr.value)
        is_name = isinstance(expr, Var) and expr in self._names
        return self._known.get(key) or self._make(key, expr, False, (), 0, is_fixed=is_name)

    def _binary(self, key: Any, expr: BinaryExpr, exact: bool, a: Value, b: Value) -> Value:
        weight, is_safe = 1, True
        if isinstance(expr, _DIVISIONS):
            divisor = expr.b.value if isinstance(expr.b, Broadcast) else expr.b
            weight = _DIVISION_WEIGHT
            is_safe = isinstance(divisor, IntImm) and divisor.value > 0
        elif isinstance(expr, Div):
            weight = _DIVISION_WEIGHT
        return self._make(key, expr, exact, (a, b), weight, is_safe)

    def _call(self, expr: Call, exact: bool) -> Value:
        op = expr.op
        is_choice = op == "if_then_else"
        args = tuple([
            self.of(arg, op == "exact" or (exact and is_choice and i > 0))
            for i, arg in enumerate(expr.args)
        ])
        key = (op, expr.dtype, exact and is_choice, args)
        known = self._known.get(key)
        if known is not None:
            return known
        row = INTRINSICS.get(op)
        acts = row is None or row.has_effect
        weight = 1 if is_choice or op in _IN_PLACE else _CALL_WEIGHT
        return self._make(key, expr, exact and is_choice, args, weight, False, acts, acts)

    def _let(self, expr: Let, exact: bool) -> Value:
        value = self.of(expr.value)
        self._names.add(expr.var)
        body = self.of(expr.body, exact)
        return self._make((Let, id(expr), exact), expr, exact, (value, body), 0, is_fixed=True)

    def _other(self, expr: Expr, exact: bool) -> Value:
        """Casts, selections and vectors."""
        weight, is_safe = 1, True
        extra: Any = None
        children: tuple[Value, ...]
        if isinstance(expr, Cast):
            source, target = expr.value.dtype, expr.dtype
            keeps = source.is_integer and target.is_integer and target.bits >= source.bits
            children = (self.of(expr.value, exact and keeps),)
            is_safe = not source.is_float or target.is_float
            extra = target
        elif isinstance(expr, Select):
            children = (
                self.of(expr.condition), self.of(expr.then, exact), self.of(expr.otherwise, exact)
            )
        elif isinstance(expr, Ramp):
            children = (self.of(expr.base, exact), self.of(expr.stride, exact))
            extra = expr.lanes
        elif isinstance(expr, Broadcast):
            children, extra, weight = (self.of(expr.value, exact),), expr.lanes, 0
        elif isinstance(expr, Shuffle):
            children = tuple([self.of(vector) for vector in expr.vectors])
            extra = expr.indices
        else:
            assert isinstance(expr, Not), f"no values of {type(expr).__name__}"
            children = (self.of(expr.a),)
        key = (type(expr), exact, extra, children)
        return self._known.get(key) or self._make(key, expr, exact, children, weight, is_safe)
