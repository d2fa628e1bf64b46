"""Writing a sum as an expression."""

from collections import Counter
from typing import Any

from sterna.arith.linear import Mono, Sum, without
from sterna.arith.state import State
from sterna.ir.build import wrap_int
from sterna.ir.expr import Add, Cast, Expr, FloatImm, IntImm, Mul, Sub
from sterna.ir.node import Node
from sterna.support.dtype import DataType

# Sums longer than this are not searched for common factors.
MAX_FACTORED = 64

_SMALL: dict[tuple[DataType, int], IntImm] = {}


def number(value: int, dtype: DataType) -> IntImm:
    """An integer constant, wrapped into its type."""
    if -64 <= value <= 1024:
        found = _SMALL.get((dtype, value))
        if found is None:
            found = _SMALL[dtype, value] = IntImm(dtype, wrap_int(value, dtype))
        return found
    return IntImm(dtype, wrap_int(value, dtype))


def emit(state: State, total: Sum, dtype: DataType) -> Expr:
    """The sum as an expression: products in the order they were met, then the constant."""
    if len(total) == 1:
        ((mono, value),) = total.items()
        if not mono:
            return number(value, dtype)
        if value == 1 and len(mono) == 1:
            expr = state.atoms[mono[0]].expr
            return expr if expr.dtype is dtype else Cast(dtype, expr)
    if not total:
        return number(0, dtype)
    if not dtype.is_int:
        total = _signed(total, dtype)
    # Positive terms come first: b - a rather than a*-1 + b.
    parts: list[tuple[Expr, bool]] = []
    last = total.get((), 0)
    for factor, value, inner in _grouped(total):
        negative = value < 0
        expr = _product(state, factor, dtype) if inner is None else emit(state, inner, dtype)
        if inner is not None and factor:
            expr = Mul(expr, _product(state, factor, dtype))
        if abs(value) != 1:
            expr = Mul(expr, number(abs(value), dtype))
        parts.append((expr, negative))
    first = next((i for i, (_, negative) in enumerate(parts) if not negative), None)
    if first is not None:
        result = parts.pop(first)[0]
    elif last > 0:
        result, last = number(last, dtype), 0
    else:
        expr = parts.pop(0)[0]
        if isinstance(expr, Mul) and isinstance(expr.b, IntImm):
            result = Mul(expr.a, number(-expr.b.value, dtype))
        else:
            result = Mul(expr, number(-1, dtype))
    for expr, negative in parts:
        result = Sub(result, expr) if negative else Add(result, expr)
    if last:
        below = last < 0 and wrap_int(-last, dtype) == -last
        result = Sub(result, number(-last, dtype)) if below else Add(result, number(last, dtype))
    return result


def _product(state: State, mono: Mono, dtype: DataType) -> Expr:
    result: Expr | None = None
    for index in state.order.get(mono, mono):
        factor = state.atoms[index].expr
        if factor.dtype is not dtype:
            factor = Cast(dtype, factor)
        result = factor if result is None else Mul(result, factor)
    assert result is not None
    return result


def _signed(total: Sum, dtype: DataType) -> Sum:
    """Unsigned coefficients just below 2**bits read as small negative ones."""
    size = 1 << dtype.bits
    small = size - (1 << dtype.bits // 2)
    if sum(1 for value in total.values() if value <= small) == 0:
        return total
    return {mono: value - size if value > small else value for mono, value in total.items()}


# A factor, its coefficient, and the sum that it multiplies (None: 1).
_Group = tuple[Mono, int, Sum | None]


def _grouped(total: Sum) -> list[_Group]:
    """The terms, with what several have in common taken out: i*n + j*n → (i + j)*n."""
    terms = {mono: value for mono, value in total.items() if mono}
    if len(terms) == 1 or len(terms) > MAX_FACTORED:
        return [(mono, value, None) for mono, value in terms.items()]
    groups: dict[Mono, _Group] = {}  # by the first term of each
    while any(len(mono) > 1 for mono in terms):
        counts = Counter(index for mono in terms for index in set(mono))
        atom, count = max(counts.items(), key=lambda item: item[1])
        if count < 2:
            break
        members = {mono: value for mono, value in terms.items() if atom in mono}
        inner = {without(mono, (atom,)) or (): value for mono, value in members.items()}
        for mono in members:
            del terms[mono]
        first = next(iter(members))
        if members[first] < 0:
            groups[first] = (atom,), -1, {mono: -value for mono, value in inner.items()}
        else:
            groups[first] = (atom,), 1, inner
    sizes: dict[int, int] = {}
    for value in terms.values():
        sizes[abs(value)] = sizes.get(abs(value), 0) + 1
    for size, count in sizes.items():
        if size > 1 and count > 1:
            members = {mono: value for mono, value in terms.items() if abs(value) == size}
            for mono in members:
                del terms[mono]
            first = next(iter(members))
            sign = 1 if members[first] > 0 else -1
            groups[first] = (), sign * size, {m: v * sign // size for m, v in members.items()}
    if not groups:
        return [(mono, value, None) for mono, value in terms.items()]
    result: list[_Group] = []
    for mono in total:
        if mono in groups:
            result.append(groups[mono])
        elif mono in terms:
            result.append((mono, terms[mono], None))
    return result


def same(a: Any, b: Any) -> bool:
    """Whether two expressions are written alike."""
    while a is not b:
        if type(a) is not type(b):
            return False
        if not isinstance(a, Expr):
            return _same_values(a, b)
        if a.dtype is not b.dtype:
            return False
        if not a.IS_PAIR:
            return _same_fields(a, b)
        # long chains grow from their first operands, which are not recursed into
        (a, right), (b, other) = a.child_values(a), b.child_values(b)
        if right is not other and not same(right, other):
            return False
    return True


def _same_fields(a: Expr, b: Expr) -> bool:
    if isinstance(a, FloatImm):
        return a.value.hex() == b.value.hex()  # type: ignore[attr-defined, no-any-return]
    if not a.FIELDS or a.FIELDS[0] == "name":
        return False
    for name in a.FIELDS:
        x, y = getattr(a, name), getattr(b, name)
        if x is not y and not same(x, y):
            return False
    return True


def _same_values(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return not isinstance(a, Node) and bool(a == b)
