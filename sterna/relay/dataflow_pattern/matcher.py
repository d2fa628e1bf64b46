"""Whether an expression is what a pattern says, and which parts of it stand for which patterns."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sterna.ir.structural import structural_equal
from sterna.ir.types import TensorType
from sterna.relay.dataflow_pattern.pattern import (
    AltPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataTypePattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FunctionPattern,
    IfPattern,
    LetPattern,
    ShapePattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
    VarPattern,
    WildcardPattern,
)
from sterna.relay.expr import (
    Call,
    Constant,
    Function,
    If,
    Let,
    RelayExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from sterna.relay.op import Op, find

# Operators whose two arguments may change places.
_COMMUTATIVE = ("add", "multiply")


def match(pattern: DFPattern, expr: RelayExpr) -> bool:
    """Whether an expression is what a pattern says."""
    return Matcher().match(pattern, expr)


class Matcher:
    """One match: what the patterns in it stand for."""

    def __init__(self) -> None:
        self.found: dict[DFPattern, list[RelayExpr]] = {}
        self._order: list[DFPattern] = []
        self._repeats = False
        """Whether a pattern may stand for several expressions: on the path of a dominator."""

    def match(self, pattern: DFPattern, expr: RelayExpr) -> bool:
        """Whether a pattern stands for an expression, beside what was matched before."""
        if not self._repeats and pattern in self.found:
            return self.found[pattern][0] is expr
        before = len(self._order)
        if not _RULES[type(pattern)](self, pattern, expr):
            self._forget(before)
            return False
        self.found.setdefault(pattern, []).append(expr)
        self._order.append(pattern)
        return True

    def _forget(self, count: int) -> None:
        while len(self._order) > count:
            pattern = self._order.pop()
            self.found[pattern].pop()
            if not self.found[pattern]:
                del self.found[pattern]

    def _all(self, patterns: Any, exprs: Any) -> bool:
        """Whether patterns stand for expressions one by one."""
        if patterns is None:
            return True
        before = len(self._order)
        if len(patterns) == len(exprs) and all(
            self.match(one, expr) for one, expr in zip(patterns, exprs, strict=True)
        ):
            return True
        self._forget(before)
        return False

    # ---- one method for each kind of pattern ----

    def _wildcard(self, pattern: WildcardPattern, expr: RelayExpr) -> bool:
        return pattern.pattern is None or self.match(pattern.pattern, expr)

    def _expr(self, pattern: ExprPattern, expr: RelayExpr) -> bool:
        return pattern.expr is expr or structural_equal(pattern.expr, expr)

    def _var(self, pattern: VarPattern, expr: RelayExpr) -> bool:
        return isinstance(expr, Var) and pattern.name in ("", expr.name_hint)

    def _constant(self, pattern: ConstantPattern, expr: RelayExpr) -> bool:
        return isinstance(expr, Constant)

    def _call(self, pattern: CallPattern, expr: RelayExpr) -> bool:
        if not isinstance(expr, Call):
            return False
        return any(
            self.match(pattern.op, op) and self._all(pattern.args, args)
            for op, args in _readings(expr)
        )

    def _function(self, pattern: FunctionPattern, expr: RelayExpr) -> bool:
        return (
            isinstance(expr, Function)
            and self._all(pattern.params, expr.params)
            and self.match(pattern.body, expr.body)
        )

    def _if(self, pattern: IfPattern, expr: RelayExpr) -> bool:
        parts = (pattern.cond, pattern.true_branch, pattern.false_branch)
        return isinstance(expr, If) and self._all(parts, expr.operands())

    def _let(self, pattern: LetPattern, expr: RelayExpr) -> bool:
        parts = (pattern.var, pattern.value, pattern.body)
        return isinstance(expr, Let) and self._all(parts, expr.operands())

    def _tuple(self, pattern: TuplePattern, expr: RelayExpr) -> bool:
        return isinstance(expr, Tuple) and self._all(pattern.fields, expr.fields)

    def _item(self, pattern: TupleGetItemPattern, expr: RelayExpr) -> bool:
        return (
            isinstance(expr, TupleGetItem)
            and pattern.index in (None, -1, expr.index)
            and self.match(pattern.tuple_value, expr.tuple_value)
        )

    def _alternative(self, pattern: AltPattern, expr: RelayExpr) -> bool:
        return self.match(pattern.left, expr) or self.match(pattern.right, expr)

    def _type(self, pattern: TypePattern, expr: RelayExpr) -> bool:
        if isinstance(expr, Op):
            return False
        return self.match(pattern.pattern, expr) and expr.checked_type == pattern.type

    def _dtype(self, pattern: DataTypePattern, expr: RelayExpr) -> bool:
        kind = _tensor_type(expr)
        return (
            kind is not None
            and str(kind.dtype) == pattern.dtype
            and self.match(pattern.pattern, expr)
        )

    def _shape(self, pattern: ShapePattern, expr: RelayExpr) -> bool:
        kind = _tensor_type(expr)
        return (
            kind is not None
            and tuple(kind.shape) == pattern.shape
            and self.match(pattern.pattern, expr)
        )

    def _attrs(self, pattern: AttrPattern, expr: RelayExpr) -> bool:
        return self.match(pattern.pattern, expr) and all(
            _has(expr, name, value) for name, value in pattern.attrs.items()
        )

    def _dominator(self, pattern: DominatorPattern, expr: RelayExpr) -> bool:
        if not self.match(pattern.child, expr):
            return False
        repeats, self._repeats = self._repeats, True
        leads_back = self._leads_back(pattern, expr)
        self._repeats = repeats
        return leads_back

    def _leads_back(self, pattern: DominatorPattern, start: RelayExpr) -> bool:
        """Whether all that an expression is made of ends in one parent, by the path."""
        parent: RelayExpr | None = None
        seen: set[int] = set()
        waiting = [start]
        while waiting:
            operands = waiting.pop().operands()  # type: ignore[attr-defined]
            if not operands:
                return False
            for each in operands:
                if id(each) in seen:
                    continue
                seen.add(id(each))
                if parent is None and self.match(pattern.parent, each):
                    parent = each
                elif each is not parent:
                    if not self.match(pattern.path, each):
                        return False
                    waiting.append(each)
        return parent is not None


def _tensor_type(expr: RelayExpr) -> TensorType | None:
    kind = None if isinstance(expr, Op) else expr.checked_type
    return kind if isinstance(kind, TensorType) else None


def _readings(call: Call) -> Iterator[tuple[RelayExpr, tuple[RelayExpr, ...]]]:
    """A call as it stands, then in other orders that mean the same.

    Besides a + b and a * b these are a / b * c as (a * c) / b, and (a * b) / c as a / c * b or
    b / c * a: networks write one and mean the other.
    """
    op, args = call.op, call.args
    yield op, args
    if not isinstance(op, Op):
        return
    if op.name in _COMMUTATIVE:
        yield op, args[::-1]
    if op.name == "multiply":
        for first, second in (args, args[::-1]):
            parts = _arguments(first, "divide")
            if parts:
                yield Op("divide"), (Call(op, (parts[0], second)), parts[1])
    if op.name == "divide":
        parts = _arguments(args[0], "multiply")
        for first, second in (parts, parts[::-1]) if parts else ():
            yield Op("multiply"), (Call(op, (first, args[1])), second)


def _arguments(expr: RelayExpr, name: str) -> tuple[RelayExpr, ...]:
    """The arguments of a call of this operator; none of anything else."""
    is_call = isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == name
    return expr.args if is_call and isinstance(expr, Call) else ()


def _has(expr: RelayExpr, name: str, value: Any) -> bool:
    """Whether an operator, a call or a function has an attribute of this value."""
    if isinstance(expr, Op):
        return name == "TOpPattern" and find(expr.name).pattern == value
    if isinstance(expr, Call) and isinstance(expr.op, Op) and name == "TOpPattern":
        return bool(find(expr.op.name).pattern == value)
    attrs: Any = getattr(expr, "attrs", None)
    if attrs is None:
        return False
    if isinstance(attrs, Mapping):
        return name in attrs and _is_equal(attrs[name], value)
    return name in attrs.keys() and _is_equal(attrs[name], value)  # noqa: SIM118


def _is_equal(own: Any, wanted: Any) -> bool:
    if isinstance(own, tuple | list) and isinstance(wanted, tuple | list):
        pairs = zip(own, wanted, strict=False)
        return len(own) == len(wanted) and all(_is_equal(a, b) for a, b in pairs)
    if isinstance(own, str) or isinstance(wanted, str):
        return str(own) == str(wanted)
    return bool(own == wanted)


_RULES: dict[type, Callable[[Matcher, Any, RelayExpr], bool]] = {
    WildcardPattern: Matcher._wildcard,
    ExprPattern: Matcher._expr,
    VarPattern: Matcher._var,
    ConstantPattern: Matcher._constant,
    CallPattern: Matcher._call,
    FunctionPattern: Matcher._function,
    IfPattern: Matcher._if,
    LetPattern: Matcher._let,
    TuplePattern: Matcher._tuple,
    TupleGetItemPattern: Matcher._item,
    AltPattern: Matcher._alternative,
    TypePattern: Matcher._type,
    DataTypePattern: Matcher._dtype,
    ShapePattern: Matcher._shape,
    AttrPattern: Matcher._attrs,
    DominatorPattern: Matcher._dominator,
}

DFPattern.matches = staticmethod(match)
