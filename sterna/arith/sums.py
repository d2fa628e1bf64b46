"""Canonical forms of integer expressions: reading them as sums."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager
from typing import Any, cast

from sterna.arith.bounds import fits, is_index
from sterna.arith.divmod import OPERATIONS, recombine
from sterna.arith.emit import emit
from sterna.arith.linear import (
    MAX_PRODUCT,
    Sum,
    add_into,
    const_of,
    constant,
    content,
    key_of,
    minus,
    plus,
    scale,
    times,
)
from sterna.arith.prove import nonnegative
from sterna.arith.rules import apply_rules
from sterna.arith.state import Kind, State
from sterna.ir import build
from sterna.ir.expr import (
    Add,
    BinaryExpr,
    Call,
    Cast,
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
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)
from sterna.ir.node import Node, post_order
from sterna.support.dtype import DataType

# Calls that give the same value for the same arguments; of others each occurrence is its own value.
PURE_CALLS = frozenset((
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right",
    "if_then_else", "likely", "saturate", "floor", "ceil", "round", "trunc", "nearbyint", "abs",
    "fabs", "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "pow", "sin",
    "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "atan2", "erf", "sigmoid",
    "fmod", "fma", "copysign", "isnan", "isinf", "isfinite", "popcount", "clz", "reinterpret",
))

_BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right")
# A region of additions longer than this is walked node by node, so that shared parts count once.
_LONG = 48
_MAX_DEGREE = 6


def walk(expr: Node) -> list[Node]:
    """All nodes of an expression, children first, each once."""
    found: list[Node] = []
    post_order(expr, found.append)
    return found


def is_stable(expr: Expr) -> bool:
    """Whether the value depends on variables alone, not on memory or effects."""
    home = Expr.__module__
    return all(
        type(node).__module__ == home and (not isinstance(node, Call) or node.op in PURE_CALLS)
        for node in walk(expr)
    )


class Sums:
    """Turns integer expressions into sums, with a memory of those it has seen."""

    def __init__(self) -> None:
        self.state = State()
        self._sums: dict[int, tuple[Expr, Sum]] = {}
        self._keys: dict[int, tuple[Expr, Hashable]] = {}
        self._results: dict[int, tuple[Expr, Expr]] = {}
        self._pinned: list[Expr] = []

    def simplify(self, expr: Expr) -> Expr:
        """An equal expression, simpler."""
        raise NotImplementedError

    def assuming(self, condition: Any) -> AbstractContextManager[None]:
        """Inside the block the condition holds."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop results that rest on knowledge that has changed."""
        self._sums, self._keys, self._results = {}, {}, {}
        self.state.forget()

    # ---- keys ----

    def key(self, expr: Expr) -> Hashable:
        """Equal for expressions that have equal values for a reason that is easily seen."""
        found = self._keys.get(id(expr))
        if found is not None:
            return found[1]
        made: Hashable
        if expr.dtype.is_integer and expr.dtype.lanes == 1:
            made = expr.dtype, key_of(self.sum_of(expr))
        elif isinstance(expr, FloatImm):
            made = expr.dtype, expr.value.hex()
        elif isinstance(expr, Var) or (isinstance(expr, Call) and expr.op not in PURE_CALLS):
            self._pinned.append(expr)
            made = id(expr)
        else:
            parts = [self._key_of_field(getattr(expr, name)) for name in expr.FIELDS]
            made = expr.dtype, cast(Hashable, type(expr)), *parts
        self._keys[id(expr)] = expr, made
        return made

    def _key_of_field(self, value: Any) -> Hashable:
        if isinstance(value, Expr):
            return self.key(value)
        if isinstance(value, tuple):
            return tuple([self._key_of_field(item) for item in value])
        if isinstance(value, (Node, dict)):
            return id(value)
        hashable: Hashable = value
        return hashable

    def equal(self, a: Expr, b: Expr) -> bool:
        """Whether two expressions are easily seen to be equal."""
        if a is b:
            return True
        if a.dtype is not b.dtype:
            return False
        if a.dtype.is_integer and a.dtype.lanes == 1:
            return self.key(a) == self.key(b)
        return type(a) is type(b) and self._equal_fields(a, b)

    def _equal_fields(self, a: Expr, b: Expr) -> bool:
        """The same for two expressions of one class, which are no sums: field by field."""
        if isinstance(a, (FloatImm, Var)) or (isinstance(a, Call) and a.op not in PURE_CALLS):
            return self.key(a) == self.key(b)
        return all(
            self._key_of_field(getattr(a, name)) == self._key_of_field(getattr(b, name))
            for name in a.FIELDS
        )

    # ---- sums ----

    def sum_of(self, expr: Expr) -> Sum:
        """The sum that a scalar integer expression is."""
        found = self._sums.get(id(expr))
        if found is not None:
            return found[1]
        kind = type(expr)
        reader = _READERS.get(kind)
        total = self._opaque(expr) if reader is None else reader(self, expr)
        self._sums[id(expr)] = expr, total
        return total

    def emit(self, total: Sum, dtype: DataType) -> Expr:
        """The sum as an expression."""
        return emit(self.state, total, dtype)

    def _read_int(self, expr: IntImm) -> Sum:
        return {(): expr.value} if expr.value else {}

    def _read_var(self, expr: Var) -> Sum:
        index = self.state.var_atom(expr).index
        known = self.state.known.values.get(index)
        return {(index,): 1} if known is None else known

    def _read_linear(self, expr: Expr) -> Sum:
        total: Sum = {}
        for node, factor in self._leaves(expr):
            if factor:
                add_into(total, self._leaf(node), factor)
        if not is_index(expr.dtype):
            return _wrapped(total, expr.dtype)
        atoms = self.state.atoms
        for mono in total:
            if len(mono) == 1 and atoms[mono[0]].kind in (FloorMod, FloorDiv):
                return recombine(self.state, total, expr.dtype)
        return total

    def _leaf(self, node: Expr) -> Sum:
        if type(node) is IntImm:
            return {(): node.value} if node.value else {}
        return self._product(node) if type(node) is Mul else self.sum_of(node)

    def _leaves(self, root: Expr) -> list[tuple[Expr, int]]:
        """The terms of nested additions and their factors, in the order they are written."""
        leaves: list[tuple[Expr, int]] = []
        stack: list[tuple[Expr, int]] = [(root, 1)]
        steps = 0
        while stack:
            node, factor = stack.pop()
            kind = type(node)
            if kind is Add or kind is Sub:
                steps += 1
                if steps > _LONG:
                    return self._shared_leaves(root)
                stack.append((node.b, factor if kind is Add else -factor))  # type: ignore[attr-defined]
                stack.append((node.a, factor))  # type: ignore[attr-defined]
            elif kind is Mul and type(node.b) is IntImm:  # type: ignore[attr-defined]
                stack.append((node.a, factor * node.b.value))  # type: ignore[attr-defined]
            elif kind is Mul and type(node.a) is IntImm:  # type: ignore[attr-defined]
                stack.append((node.b, factor * node.a.value))  # type: ignore[attr-defined]
            else:
                leaves.append((node, factor))
        return leaves

    def _shared_leaves(self, root: Expr) -> list[tuple[Expr, int]]:
        """The same, visiting a part that several additions share only once."""
        ordered: list[Expr] = []
        stack: list[tuple[Expr, Iterator[tuple[Expr, int]]]] = [(root, iter(_terms(root)))]
        seen = {id(root)}
        while stack:
            node, rest = stack[-1]
            for child, _ in rest:
                if id(child) not in seen:
                    seen.add(id(child))
                    stack.append((child, iter(_terms(child))))
                    break
            else:
                ordered.append(node)
                stack.pop()
        factors: dict[int, int] = {id(root): 1}
        for node in reversed(ordered):
            for child, factor in _terms(node):
                factors[id(child)] = factors.get(id(child), 0) + factor * factors[id(node)]
        return [(node, factors[id(node)]) for node in ordered if not _terms(node)]

    def _product(self, expr: Expr) -> Sum:
        assert isinstance(expr, Mul)
        a, b = self.sum_of(expr.a), self.sum_of(expr.b)
        degree = max(map(len, a), default=0) + max(map(len, b), default=0)
        if len(a) * len(b) > MAX_PRODUCT or degree > _MAX_DEGREE:
            a, b = self._whole(a, expr.dtype), self._whole(b, expr.dtype)
        order = self.state.order
        for left in a:
            for right in b:
                if left and right:
                    written = order.get(left, left) + order.get(right, right)
                    order.setdefault(tuple(sorted(written)), written)
        return times(a, b)

    def _whole(self, total: Sum, dtype: DataType) -> Sum:
        """A sum as one atom."""
        if const_of(total) is not None or (len(total) == 1 and len(next(iter(total))) == 1):
            return total
        key = "sum", dtype, key_of(total)
        return self.state.atom(key, "sum", lambda: self.emit(total, dtype), (total,), dtype)

    def _read_division(self, expr: BinaryExpr) -> Sum:
        dtype = expr.dtype
        a, b = self.sum_of(expr.a), self.sum_of(expr.b)
        if is_index(dtype):
            return OPERATIONS[type(expr)](self.state, a, b, dtype)
        low, high = self.state.typed_bound(a, dtype)
        divisor = const_of(b)
        if divisor is not None and low >= 0 and high < divisor:
            return a if type(expr) in (FloorMod, TruncMod) else {}
        return self._typed(expr)

    def _typed(self, expr: Expr) -> Sum:
        """An operator of a type that wraps: the rules, else an atom."""
        made = self.rebuild(expr)
        if isinstance(made, BinaryExpr):
            made = build.fold_binary(type(made), made.a, made.b) or made
        ruled = apply_rules(made, self.equal)
        if ruled is not None:
            return self.sum_of(ruled)
        if isinstance(made, IntImm):
            return constant(made.value)
        children = made.args if isinstance(made, Call) else tuple(made.children())
        integers = [c for c in children if isinstance(c, Expr) and c.dtype.is_integer]
        operands = tuple([self.sum_of(child) for child in integers])
        kind: Kind = made.op if isinstance(made, Call) else type(made)
        key = kind, made.dtype, *[self._key_of_field(child) for child in children]
        return self.state.atom(
            key, kind, lambda: made, operands, integers[0].dtype, self.free(made)
        )

    def _read_extreme(self, expr: BinaryExpr) -> Sum:
        if not is_index(expr.dtype):
            return self._typed(expr)
        kind = type(expr)
        operands: list[Sum] = []
        for side in (expr.a, expr.b):
            total = self.sum_of(side)
            index = _single_atom(total)
            atom = None if index is None else self.state.atoms[index]
            if atom is not None and atom.kind is kind:
                operands.extend(atom.operands)
            else:
                operands.append(total)
        return self.extreme(kind, operands, expr.dtype)

    def extreme(self, kind: type[BinaryExpr], operands: list[Sum], dtype: DataType) -> Sum:
        """The smallest or largest of some sums."""
        kept: list[Sum] = []
        for operand in operands:
            if any(self._beats(kind, other, operand) for other in kept):
                continue
            kept = [other for other in kept if not self._beats(kind, operand, other)]
            kept.append(operand)
        if len(kept) == 1:
            return kept[0]
        first = kept[0]
        common = {m: v for m, v in first.items() if all(o.get(m) == v for o in kept)}
        if common:
            rest = self.extreme(kind, [minus(operand, common) for operand in kept], dtype)
            return plus(common, rest)
        shared = content(value for operand in kept for value in operand.values())
        multiples = [v for o in kept for m, v in o.items() if m and abs(v) == shared]
        if shared > 1 and len(multiples) > 1:  # otherwise it would not be shorter
            smaller = [{m: v // shared for m, v in operand.items()} for operand in kept]
            return scale(self.extreme(kind, smaller, dtype), shared)

        def make() -> Expr:
            result = self.emit(kept[0], dtype)
            for operand in kept[1:]:
                result = kind(result, self.emit(operand, dtype))
            return result

        key = kind, dtype, frozenset([key_of(operand) for operand in kept])
        return self.state.atom(key, kind, make, tuple(kept), dtype)

    def _beats(self, kind: type[BinaryExpr], a: Sum, b: Sum) -> bool:
        """Whether the smaller (larger) of a and b is a."""
        return nonnegative(self.state, minus(b, a) if kind is Min else minus(a, b))

    def _read_select(self, expr: Select) -> Sum:
        condition = self.simplify(expr.condition)
        if isinstance(condition, IntImm):
            return self.sum_of(expr.then if condition.value else expr.otherwise)
        then, otherwise = self.sum_of(expr.then), self.sum_of(expr.otherwise)
        if isinstance(condition, Not):
            condition, then, otherwise = condition.a, otherwise, then
        if then == otherwise:
            return then
        dtype = expr.dtype
        return self.state.atom(
            (Select, dtype, self.key(condition), key_of(then), key_of(otherwise)),
            Select,
            lambda: Select(condition, self.emit(then, dtype), self.emit(otherwise, dtype)),
            (then, otherwise),
            dtype,
            self.free(condition),
        )

    def _read_cast(self, expr: Cast) -> Sum:
        target, source = expr.dtype, expr.value.dtype
        if not source.is_integer:
            return self._opaque(expr)
        total = self.sum_of(expr.value)
        if is_index(target) and is_index(source):
            if source.bits <= target.bits:
                return total
            inside = {index for mono in total for index in mono}
            if all(self.state.atoms[index].expr.dtype.bits <= target.bits for index in inside):
                return _wrapped(total, target)
        value = const_of(total)
        if value is not None:
            return constant(build.wrap_int(value, target))
        if target is source:
            return total
        inner = self.emit(total, source)
        if isinstance(inner, Cast) and inner.value.dtype.is_integer:
            # What a wider type holds unchanged need not pass through it.
            original = inner.value
            bound = self.state.typed_bound(self.sum_of(original), original.dtype)
            if fits(bound, source) or source.bits >= target.bits:
                return self.sum_of(Cast(target, original))
        key = Cast, target, source, key_of(total)
        return self.state.atom(key, Cast, lambda: Cast(target, inner), (total,), source)

    def _read_call(self, expr: Call) -> Sum:
        if expr.op == "likely":
            return self.sum_of(expr.args[0])
        if expr.op in _BITWISE:
            a, b = [self.simplify(arg) for arg in expr.args]
            if not isinstance(a, IntImm) or not isinstance(b, IntImm):
                return self._typed(expr)
            if expr.op.startswith("shift") and not 0 <= b.value < a.dtype.bits:
                return self._typed(expr)
            return self.sum_of(build.bitwise(expr.op, a, b))
        if expr.op == "if_then_else":
            return self._read_if_then_else(expr)
        if expr.op == "bitwise_not":
            return self._typed(expr)
        return self._opaque(expr)

    def _read_if_then_else(self, expr: Call) -> Sum:
        condition = self.simplify(expr.args[0])
        if isinstance(condition, IntImm):
            return self.sum_of(expr.args[1] if condition.value else expr.args[2])
        with self.assuming(condition):
            then = self.sum_of(expr.args[1])
        with self.assuming(Not(condition)):
            otherwise = self.sum_of(expr.args[2])
        dtype = expr.dtype
        args = condition, self.emit(then, dtype), self.emit(otherwise, dtype)
        return self.state.atom(
            ("if_then_else", dtype, self.key(condition), key_of(then), key_of(otherwise)),
            "if_then_else",
            lambda: Call(dtype, "if_then_else", args),
            (then, otherwise),
            dtype,
            self.free(condition),
        )

    def _read_let(self, expr: Let) -> Sum:
        made = self.simplify_let(expr)
        return self._opaque_atom(made) if isinstance(made, Let) else self.sum_of(made)

    def simplify_let(self, expr: Let) -> Expr:
        """A let with its parts simplified; the body alone when the value need not have a name."""
        value = self.simplify(expr.value)
        known = self.state.known
        index = self.state.var_atom(expr.var).index
        if value.dtype.is_integer and isinstance(value, (IntImm, Var)):
            known.values[index] = self.sum_of(value)
            return self.simplify(expr.body)
        if value.dtype.is_integer and value.dtype.lanes == 1:
            known.ranges[index] = self.state.typed_bound(self.sum_of(value), value.dtype)
            self.state.forget()
        body = self.simplify(expr.body)
        if value is expr.value and body is expr.body:
            return expr
        return Let(expr.var, value, body)

    def _opaque(self, expr: Expr) -> Sum:
        return self._opaque_atom(self.rebuild(expr))

    def _opaque_atom(self, made: Expr) -> Sum:
        if isinstance(made, Cast):
            folded = build.cast(made.dtype, made.value)
            if isinstance(folded, IntImm):
                return constant(folded.value)
        if isinstance(made, Call) and made.op not in PURE_CALLS:
            self._pinned.append(made)
            key: Hashable = "opaque", id(made)
        else:
            parts = [self._key_of_field(getattr(made, name)) for name in made.FIELDS]
            key = cast(Hashable, type(made)), made.dtype, *parts
        kind = Cast if isinstance(made, Cast) else None
        return self.state.atom(key, kind, lambda: made, (), made.dtype, self.free(made))

    # ---- expressions ----

    def free(self, expr: Expr) -> frozenset[Var]:
        """The variables in an expression."""
        return frozenset([node for node in walk(expr) if isinstance(node, Var)])

    def rebuild(self, expr: Expr) -> Expr:
        """The expression with the expressions in its fields simplified."""
        return expr.map_children(self._simplify_part)  # type: ignore[no-any-return]

    def _simplify_part(self, part: Node) -> Node:
        return self.simplify(part) if isinstance(part, Expr) else part


def _terms(node: Expr) -> list[tuple[Expr, int]]:
    """What an addition adds up, or a multiple multiplies; nothing for other nodes."""
    if isinstance(node, Add):
        return [(node.a, 1), (node.b, 1)]
    if isinstance(node, Sub):
        return [(node.a, 1), (node.b, -1)]
    if isinstance(node, Mul) and isinstance(node.b, IntImm):
        return [(node.a, node.b.value)]
    if isinstance(node, Mul) and isinstance(node.a, IntImm):
        return [(node.b, node.a.value)]
    return []


def _single_atom(total: Sum) -> int | None:
    if len(total) != 1:
        return None
    ((mono, value),) = total.items()
    return mono[0] if len(mono) == 1 and value == 1 else None


def _wrapped(total: Sum, dtype: DataType) -> Sum:
    """Coefficients modulo 2**bits."""
    wrapped = {mono: build.wrap_int(value, dtype) for mono, value in total.items()}
    return {mono: value for mono, value in wrapped.items() if value}


_READERS: dict[type[Expr], Callable[[Sums, Any], Sum]] = {
    IntImm: Sums._read_int,
    Var: Sums._read_var,
    Add: Sums._read_linear,
    Sub: Sums._read_linear,
    Mul: Sums._read_linear,
    FloorDiv: Sums._read_division,
    FloorMod: Sums._read_division,
    TruncDiv: Sums._read_division,
    TruncMod: Sums._read_division,
    Min: Sums._read_extreme,
    Max: Sums._read_extreme,
    Select: Sums._read_select,
    Cast: Sums._read_cast,
    Call: Sums._read_call,
    Let: Sums._read_let,
}
