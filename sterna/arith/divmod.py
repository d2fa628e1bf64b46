"""Quotients and remainders of sums of index type."""

from collections.abc import Callable
from math import gcd

from sterna.arith.emit import emit
from sterna.arith.linear import (
    Sum,
    add_into,
    const_of,
    constant,
    content,
    divide,
    key_of,
    minus,
    plus,
    plus_const,
    scale,
    times,
)
from sterna.arith.prove import nonnegative, positive
from sterna.arith.state import State
from sterna.ir.expr import BinaryExpr, FloorDiv, FloorMod, TruncDiv, TruncMod
from sterna.support.dtype import DataType

# Quotients and remainders that are put together in one sum.
MAX_MERGES = 16

Operation = Callable[[State, Sum, Sum, DataType], Sum]


def _atom(state: State, kind: type[BinaryExpr], a: Sum, b: Sum, dtype: DataType) -> Sum:
    return state.atom(
        (kind, dtype, key_of(a), key_of(b)),
        kind,
        lambda: kind(emit(state, a, dtype), emit(state, b, dtype)),
        (a, b),
        dtype,
    )


def split(total: Sum, divisor: int) -> tuple[Sum, Sum]:
    """(quotient, rest): the terms that the divisor divides, and the others."""
    quotient: Sum = {}
    rest: Sum = {}
    for mono, value in total.items():
        if not mono:
            whole, left = divmod(value, divisor)
            if whole:
                quotient[mono] = whole
            if left:
                rest[mono] = left
        elif value % divisor:
            rest[mono] = value
        else:
            quotient[mono] = value // divisor
    return quotient, rest


def block_of(state: State, total: Sum, divisor: int) -> int | None:
    """The quotient where all values of the sum have the same one."""
    low, high = state.bound(total)
    if high - low < divisor and isinstance(low, int) and low // divisor == high // divisor:
        return low // divisor
    if not state.known.facts:
        return None
    if nonnegative(state, total) and nonnegative(state, minus(constant(divisor - 1), total)):
        return 0
    return None


def _coarser(state: State, rest: Sum, divisor: int) -> tuple[int, Sum, Sum] | None:
    """(g, big, small): rest == g*big + small with 0 <= small < g and g a divisor of divisor.

    (x*8 + y) // 16 → x // 2 for 0 <= y < 8.
    """
    sizes = {gcd(value, divisor) for mono, value in rest.items() if mono}
    sizes.add(gcd(content(value for mono, value in rest.items() if mono), divisor))
    for size in sorted(sizes, reverse=True):
        if 1 < size < divisor:
            big, small = split(rest, size)
            block = block_of(state, small, size)
            if block is not None:
                return size, plus_const(big, block), plus_const(small, -block * size)
    return None


def _single(state: State, total: Sum, kind: type[BinaryExpr]) -> tuple[Sum, int, int] | None:
    """(dividend, divisor, k) when the sum is one quotient (remainder) by a number, plus k."""
    index = -1
    for mono, value in total.items():
        if mono:
            if index >= 0 or len(mono) != 1 or value != 1:
                return None
            index = mono[0]
    if index < 0 or state.atoms[index].kind is not kind:
        return None
    dividend, divisor = state.atoms[index].operands
    value_of_divisor = const_of(divisor)
    if value_of_divisor is None or value_of_divisor <= 0:
        return None
    return dividend, value_of_divisor, total.get((), 0)


def floordiv(state: State, a: Sum, b: Sum, dtype: DataType) -> Sum:
    """a // b"""
    divisor = const_of(b)
    if divisor is None:
        return _symbolic_div(state, a, b, dtype)
    if divisor == 0:
        return _atom(state, FloorDiv, a, b, dtype)
    if divisor < 0:
        return floordiv(state, scale(a, -1), constant(-divisor), dtype)
    quotient, rest = split(a, divisor)
    if not rest:
        return quotient
    block = block_of(state, rest, divisor)
    if block is not None:
        return plus_const(quotient, block)
    return plus(quotient, _reduced_div(state, rest, divisor, dtype))


def _reduced_div(state: State, rest: Sum, divisor: int, dtype: DataType) -> Sum:
    """rest // divisor where nothing can be taken out of rest."""
    coarser = _coarser(state, rest, divisor)
    if coarser is not None:
        size, big, _ = coarser
        return floordiv(state, big, constant(divisor // size), dtype)
    nested = _single(state, rest, FloorDiv)
    if nested is not None:  # (x//a + k) // b → (x + k*a) // (a*b)
        dividend, inner, offset = nested
        shifted = plus_const(dividend, offset * inner)
        return floordiv(state, shifted, constant(inner * divisor), dtype)
    nested = _single(state, rest, FloorMod)
    if nested is not None and not nested[2] and nested[1] % divisor == 0:
        dividend, inner, _ = nested  # (x % (a*b)) // b → (x//b) % a
        outer = floordiv(state, dividend, constant(divisor), dtype)
        return floormod(state, outer, constant(inner // divisor), dtype)
    return _atom(state, FloorDiv, rest, constant(divisor), dtype)


def _symbolic_div(state: State, a: Sum, b: Sum, dtype: DataType) -> Sum:
    quotient, rest = divide(a, b)
    block = _symbolic_block(state, rest, b)
    if block is None:
        return plus(quotient, _atom(state, FloorDiv, rest, b, dtype))
    return plus_const(quotient, block)


def _symbolic_block(state: State, rest: Sum, divisor: Sum) -> int | None:
    """0 where 0 <= rest < divisor, -1 where -divisor <= rest < 0."""
    if not rest:
        return 0
    # What divides is not 0, so a size that divides is at least 1.
    extra = [plus_const(divisor, -1)] if state.bound(divisor).low == 0 else None
    if nonnegative(state, rest, extra):
        below = plus_const(minus(divisor, rest), -1)
        return 0 if nonnegative(state, below, extra) else None
    if nonnegative(state, plus_const(scale(rest, -1), -1), extra):
        return -1 if nonnegative(state, plus(rest, divisor), extra) else None
    return None


def floormod(state: State, a: Sum, b: Sum, dtype: DataType) -> Sum:
    """a % b"""
    divisor = const_of(b)
    if divisor is None:
        rest = divide(a, b)[1]
        block = _symbolic_block(state, rest, b)
        if block is None:
            return _symbolic_mod(state, rest, b, dtype)
        return minus(rest, scale(b, block))
    if divisor == 0:
        return _atom(state, FloorMod, a, b, dtype)
    if divisor < 0:
        return scale(floormod(state, scale(a, -1), constant(-divisor), dtype), -1)
    step, base = state.modulus(a)
    if step % divisor == 0:
        return constant(base % divisor)
    rest = _reduce(state, a, divisor)
    block = block_of(state, rest, divisor)
    if block is not None:
        return plus_const(rest, -block * divisor)
    coarser = _coarser(state, rest, divisor)
    if coarser is not None:  # (x*8 + y) % 16 → (x % 2)*8 + y
        size, big, small = coarser
        inner = floormod(state, big, constant(divisor // size), dtype)
        return plus(scale(inner, size), small)
    return _atom(state, FloorMod, rest, constant(divisor), dtype)


def _symbolic_mod(state: State, rest: Sum, b: Sum, dtype: DataType) -> Sum:
    nested = [
        (mono, value)
        for mono, value in rest.items()
        if len(mono) == 1 and state.atoms[mono[0]].kind is FloorMod
    ]
    for mono, value in nested:  # (x % n + y) % n → (x + y) % n
        dividend, inner = state.atoms[mono[0]].operands
        if key_of(inner) == key_of(b):
            without = {m: v for m, v in rest.items() if m != mono}
            return floormod(state, plus(without, scale(dividend, value)), b, dtype)
    return _atom(state, FloorMod, rest, b, dtype)


def _reduce(state: State, total: Sum, divisor: int) -> Sum:
    """What has the same remainder: without multiples, and without remainders of multiples."""
    for mono, value in total.items():
        if len(mono) == 1 and value % divisor:
            atom = state.atoms[mono[0]]
            if atom.kind is FloorMod:
                inner = const_of(atom.operands[1])
                if inner and value * inner % divisor == 0:  # (x % (a*b)) % b → x % b
                    rest = {m: v for m, v in total.items() if m != mono}
                    return _reduce(state, plus(rest, scale(atom.operands[0], value)), divisor)
    rest = {}
    for mono, value in total.items():
        # The sign stays, so that x - y does not become x + y*3 for the divisor 4.
        left = value % divisor if value > 0 or not mono else -(-value % divisor)
        if left:
            rest[mono] = left
    return rest


def truncdiv(state: State, a: Sum, b: Sum, dtype: DataType) -> Sum:
    """a / b, rounded to zero."""
    divisor = const_of(b)
    if divisor:
        quotient, rest = split(a, abs(divisor))
        if not rest:
            return quotient if divisor > 0 else scale(quotient, -1)
    elif divisor is None:
        quotient, rest = divide(a, b)
        if not rest:
            return quotient
    if positive(state, b):
        if nonnegative(state, a):
            return floordiv(state, a, b, dtype)
        if nonnegative(state, scale(a, -1)):
            return scale(floordiv(state, scale(a, -1), b, dtype), -1)
    return _atom(state, TruncDiv, a, b, dtype)


def truncmod(state: State, a: Sum, b: Sum, dtype: DataType) -> Sum:
    """The remainder with the sign of a."""
    quotient = truncdiv(state, a, b, dtype)
    if not _has(state, quotient, TruncDiv):
        if positive(state, b) and nonnegative(state, a):
            return floormod(state, a, b, dtype)
        return minus(a, times(quotient, b))
    return _atom(state, TruncMod, a, b, dtype)


def _has(state: State, total: Sum, kind: type[BinaryExpr]) -> bool:
    return any(state.atoms[index].kind is kind for mono in total for index in mono)


def recombine(state: State, total: Sum, dtype: DataType) -> Sum:
    """(x//c)*c + x%c → x, ((x//c)%d)*c + x%c → x % (c*d), x - (x//c)*c → x % c.

    Also where the remainder is that of less: (x*5 + y)//4*4 + (x + y)%4 → x*5 + y.
    """
    for _ in range(MAX_MERGES):
        merged = _recombine_one(state, total, dtype)
        if merged is None or _cost(state, merged) > _cost(state, total):
            break
        total = merged
    return total


def _cost(state: State, total: Sum) -> tuple[int, int]:
    """How many terms are quotients and remainders, and how many terms there are."""
    kinds = [state.atoms[index].kind for mono in total for index in mono]
    return sum(kind in (FloorDiv, FloorMod) for kind in kinds), len(total)


def _recombine_one(state: State, total: Sum, dtype: DataType) -> Sum | None:
    for mono, value in total.items():
        if len(mono) != 1:
            continue
        atom = state.atoms[mono[0]]
        if atom.expr.dtype is not dtype:
            continue
        merged: Sum | None = None
        if atom.kind is FloorMod:
            merged = _with_quotient(state, total, atom.operands, value, dtype)
            if merged is None:
                merged = _with_remainder(state, total, atom.operands, value, dtype)
            if merged is None:
                merged = _with_lower_digit(state, total, atom.operands, value, dtype)
        elif atom.kind is FloorDiv:
            merged = _with_dividend(state, total, atom.operands, value, dtype)
            if merged is None:
                merged = _with_rest(state, total, atom.operands, value, dtype)
        if merged is not None:
            rest = minus(total, {mono: value})
            add_into(rest, merged)
            return rest
    return None


def _with_dividend(
    state: State, total: Sum, operands: tuple[Sum, ...], value: int, dtype: DataType
) -> Sum | None:
    """What replaces -k*c*(x // c) if the sum has k*x: k*(x % c) - k*x."""
    dividend, divisor = operands[0], const_of(operands[1])
    if not divisor or value % divisor:
        return None
    factor = -value // divisor
    if any(mono and total.get(mono) != part * factor for mono, part in dividend.items()):
        return None
    rest = floormod(state, dividend, operands[1], dtype)
    return scale(minus(rest, dividend), factor)


def _with_rest(
    state: State, total: Sum, operands: tuple[Sum, ...], value: int, dtype: DataType
) -> Sum | None:
    """What replaces k*c*(x // c) if the sum has k*(x % c), which may be of less than x."""
    dividend, divisor = operands[0], const_of(operands[1])
    if not divisor or value % divisor:
        return None
    factor, rest = value // divisor, floormod(state, dividend, operands[1], dtype)
    if not rest or any(mono and total.get(mono) != part * factor for mono, part in rest.items()):
        return None
    return scale(minus(dividend, rest), factor)


def _with_quotient(
    state: State, total: Sum, operands: tuple[Sum, ...], value: int, dtype: DataType
) -> Sum | None:
    """What replaces value*(x % c) if the sum has value*c*(x // c)."""
    dividend, divisor = operands
    quotient = floordiv(state, dividend, divisor, dtype)
    whole = scale(times(quotient, divisor), value)
    if not whole or any(mono and total.get(mono) != part for mono, part in whole.items()):
        return None
    return minus(scale(dividend, value), whole)


def _with_remainder(
    state: State, total: Sum, operands: tuple[Sum, ...], value: int, dtype: DataType
) -> Sum | None:
    """What replaces value*(x % c) if the sum has value*c*((x//c) % d)."""
    divisor = const_of(operands[1])
    if divisor is None or divisor <= 0:
        return None
    quotient = floordiv(state, operands[0], operands[1], dtype)
    for mono, part in total.items():
        if part != value * divisor or len(mono) != 1:
            continue
        atom = state.atoms[mono[0]]
        if atom.kind is FloorMod:
            outer = const_of(atom.operands[1])
            step = outer is not None and outer > 0
            if step and key_of(_reduce(state, quotient, outer or 1)) == key_of(atom.operands[0]):
                joint = constant(divisor * (outer or 1))
                whole = floormod(state, operands[0], joint, dtype)
                return minus(scale(whole, value), {mono: part})
    return None


def _with_lower_digit(
    state: State, total: Sum, operands: tuple[Sum, ...], value: int, dtype: DataType
) -> Sum | None:
    """What replaces k*c*((x//c) % d) if the sum has k*(x % c), which may be of less than x."""
    upper = const_of(operands[1])
    if upper is None or upper <= 0 or len(operands[0]) != 1:
        return None
    (mono, part), = operands[0].items()
    if len(mono) != 1 or part != 1 or state.atoms[mono[0]].kind is not FloorDiv:
        return None
    number, by = state.atoms[mono[0]].operands
    divisor = const_of(by)
    if divisor is None or divisor <= 0 or value % divisor:
        return None
    factor, rest = value // divisor, floormod(state, number, by, dtype)
    if not rest or any(mono and total.get(mono) != part * factor for mono, part in rest.items()):
        return None
    whole = floormod(state, number, constant(divisor * upper), dtype)
    return scale(minus(whole, rest), factor)


OPERATIONS: dict[type[BinaryExpr], Operation] = {
    FloorDiv: floordiv,
    FloorMod: floormod,
    TruncDiv: truncdiv,
    TruncMod: truncmod,
}
