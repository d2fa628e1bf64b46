"""Proving that a sum is at least 0, from bounds, facts, and what quotients and minima are."""

from collections.abc import Iterable, Iterator
from math import gcd, inf

from sterna.arith.bounds import is_index
from sterna.arith.linear import (
    Mono,
    Sum,
    SumKey,
    add_into,
    const_of,
    key_of,
    minus,
    plus_const,
    scale,
    times,
    without,
)
from sterna.arith.state import Atom, State
from sterna.ir.expr import FloorDiv, FloorMod, Max, Min, Select

# Steps of one proof. A proof that succeeds takes few; this bounds those that fail.
MAX_STEPS = 16
MAX_DEPTH = 7
MAX_TERMS = 24


def nonnegative(state: State, total: Sum, extra: list[Sum] | None = None) -> bool:
    """Whether a sum is at least 0 in all cases; extra: further sums that are at least 0."""
    low, high = state.bound(total)
    if low >= 0:
        return True
    if high < 0 or len(total) > MAX_TERMS:
        return False
    facts = state.known.facts.values()
    if extra:
        return _Search(state, [*facts, *extra]).prove(total, 1, MAX_DEPTH)
    mentioned, atoms = state.known.mentioned, state.atoms
    if not any(i in mentioned or atoms[i].operands for mono in total for i in mono):
        return False
    key = key_of(total)
    known = state.proofs.get(key)
    if known is None:
        known = state.proofs[key] = _Search(state, facts).prove(total, 1, MAX_DEPTH)
    return known


def positive(state: State, total: Sum) -> bool:
    """Whether a sum is at least 1 in all cases."""
    if state.bound(total).low > 0:
        return True
    return nonnegative(state, plus_const(total, -1))


class _Search:
    """Subtracts facts until the bounds alone say it."""

    def __init__(self, state: State, facts: Iterable[Sum]) -> None:
        self.state = state
        self.facts = [(fact, _leads(fact)) for fact in facts]
        self.steps = MAX_STEPS
        self.seen: set[int] = set()
        self.tried: set[tuple[int, SumKey]] = set()

    def prove(self, total: Sum, factor: int, depth: int) -> bool:
        """Whether total > -factor, where factor times an integer is at least total.

        An integer times 4 that is at least -3 is at least 0.
        """
        state = self.state
        if state.bound(total).low > -factor:
            return True
        self.steps -= 1
        if depth == 0 or self.steps <= 0 or len(total) > MAX_TERMS:
            return False
        key = factor, key_of(total)
        if key in self.tried:
            return False
        self.tried.add(key)
        self.learn(total)
        # What is unbounded below must be cancelled sooner or later, so it goes first and alone.
        terms = [(mono, value) for mono, value in total.items() if mono]
        for mono, value in terms:
            least, most = state.mono_bound(mono)
            if (least if value > 0 else most) * value == -inf:
                terms = [(mono, value)]
                break
        for mono, value in terms:
            for smaller, times_more in self.cancel(total, mono, value):
                if self.prove(smaller, factor * times_more, depth - 1):
                    return True
            if self.by_cases(total, mono, value, factor, depth):
                return True
        return False

    def cancel(self, total: Sum, mono: Mono, value: int) -> Iterator[tuple[Sum, int]]:
        """Sums that lack the product and are at most total times a factor, and that factor."""
        for fact in self.facts_about(mono):
            for part, weight in fact.items():
                if not part or (weight > 0) != (value > 0):
                    continue
                rest = without(mono, part)
                if rest is None or (rest and self.state.mono_bound(rest).low < 0):
                    continue
                shared = gcd(weight, value)
                multiple = abs(weight) // shared
                smaller = dict(scale(total, multiple))
                part_of_fact = times(fact, {rest: 1}) if rest else fact
                add_into(smaller, part_of_fact, -(abs(value) // shared))
                yield smaller, multiple

    def facts_about(self, mono: Mono) -> list[Sum]:
        """Facts in which an atom of the product occurs."""
        return [fact for fact, leads in self.facts if not leads.isdisjoint(mono)]

    def learn(self, total: Sum) -> None:
        """Add what the quotients, remainders, minima and maxima in a sum state."""
        atoms = self.state.atoms
        for mono in total:
            for index in mono:
                if index not in self.seen and atoms[index].operands:
                    self.seen.add(index)
                    learned = structural_facts(self.state, atoms[index])
                    self.facts.extend([(fact, _leads(fact)) for fact in learned])

    def by_cases(self, total: Sum, mono: Mono, value: int, factor: int, depth: int) -> bool:
        """An atom that is one of its operands: whichever it is, the sum is at least 0."""
        if len(mono) != 1:
            return False
        atom = self.state.atoms[mono[0]]
        wanted = value > 0 if atom.kind is Min else value < 0
        if atom.kind in (Select, "if_then_else"):
            wanted = True
        elif atom.kind not in (Min, Max):
            return False
        if not wanted or not is_index(atom.operand_type):
            return False
        rest = {part: weight for part, weight in total.items() if part != mono}
        for case in atom.operands:
            sum_of_case = dict(rest)
            add_into(sum_of_case, case, value)
            if not self.prove(sum_of_case, factor, depth - 1):
                return False
        return True


def _leads(fact: Sum) -> frozenset[int]:
    """The atoms that come first in the products of a sum."""
    return frozenset([part[0] for part in fact if part])


def structural_facts(state: State, atom: Atom) -> list[Sum]:
    """What holds of a quotient, a remainder, a minimum or a maximum."""
    if not atom.operands or not is_index(atom.operand_type):
        return []
    me: Sum = {(atom.index,): 1}
    if atom.kind is Min:
        return [minus(operand, me) for operand in atom.operands]
    if atom.kind is Max:
        return [minus(me, operand) for operand in atom.operands]
    if atom.kind not in (FloorDiv, FloorMod):
        return []
    dividend, divisor = atom.operands
    if state.bound(divisor).low <= 0:
        return []
    if atom.kind is FloorMod:
        below = plus_const(minus(divisor, me), -1)
        facts = [] if const_of(divisor) is not None else [below, me]
        if state.bound(dividend).low >= 0:
            facts.append(minus(dividend, me))
        return facts
    rest = minus(dividend, times(divisor, me))
    return [rest, plus_const(minus(divisor, rest), -1)]
