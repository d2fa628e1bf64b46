"""What an analyzer knows: atoms, ranges, facts, and constant bounds that follow from them."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import gcd, inf

from sterna.arith.bounds import (
    BIT,
    EVERYTHING,
    NATURAL,
    IntBound,
    and_bound,
    div_bound,
    fits,
    is_index,
    join,
    meet,
    mod_bound,
    mul_bound,
    or_bound,
    shift_left_bound,
    shift_right_bound,
    square_bound,
    truncdiv_bound,
    truncmod_bound,
    type_bound,
    xor_bound,
)
from sterna.arith.linear import Mono, Sum, SumKey, const_of
from sterna.ir.expr import (
    Call,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Select,
    TruncDiv,
    TruncMod,
    Var,
)
from sterna.support.dtype import DataType

Modulus = tuple[int, int]
# Whose binding a fact came from, and its terms without their number.
FactKey = tuple[Var | None, SumKey]
# A node's class, or the name of a call; None for what is not looked into.
Kind = type[Expr] | str | None
Pair = Callable[[IntBound, IntBound], IntBound]
# Bounds and remainders of atoms, and which sums are at least 0.
Derived = tuple[dict[int, IntBound], dict[int, Modulus], dict[SumKey, bool]]

# Ranges of operators and calls of two operands.
_PAIRS: dict[Kind, Pair] = {
    FloorDiv: div_bound,
    FloorMod: mod_bound,
    TruncDiv: truncdiv_bound,
    TruncMod: truncmod_bound,
    Select: join,
    "if_then_else": join,
    "shift_left": shift_left_bound,
    "shift_right": shift_right_bound,
    "bitwise_and": and_bound,
    "bitwise_or": or_bound,
    "bitwise_xor": xor_bound,
}


@dataclass(slots=True, eq=False)
class Atom:
    """A part of a sum that is not a sum itself."""

    index: int
    kind: Kind
    expr: Expr
    operands: tuple[Sum, ...]
    operand_type: DataType
    variables: frozenset[Var]
    """The variables in it."""


@dataclass(slots=True)
class Knowledge:
    """What holds here; copied when an assumption begins."""

    ranges: dict[int, IntBound]
    """Constant bounds of atoms."""
    facts: dict[FactKey, Sum]
    """Sums that are at least 0; of those that differ in a number alone the strongest."""
    values: dict[int, Sum]
    """What variables stand for, and atoms of which the value is known."""
    truths: dict[Hashable, bool]
    """Conditions that hold or do not hold, by their keys."""
    moduli: dict[int, Modulus]
    """Atoms whose remainder is known."""
    mentioned: set[int]
    """The atoms that occur in facts."""

    def add_fact(self, fact: Sum, owner: Var | None = None) -> None:
        """Take in that a sum is at least 0."""
        key = owner, frozenset([term for term in fact.items() if term[0]])
        known = self.facts.get(key)
        if known is None or fact.get((), 0) < known.get((), 0):
            self.facts[key] = fact
        self.mentioned.update(index for mono in fact for index in mono)

    def drop_facts(self, owner: Var) -> None:
        """Forget what a binding stated."""
        self.facts = {key: fact for key, fact in self.facts.items() if key[0] is not owner}
        self.mentioned = {index for fact in self.facts.values() for mono in fact for index in mono}

    def copy(self) -> "Knowledge":
        """One that can change on its own."""
        return Knowledge(
            dict(self.ranges), dict(self.facts), dict(self.values), dict(self.truths),
            dict(self.moduli), set(self.mentioned),
        )


class State:
    """Atoms by their keys, what is known of them, and constant bounds."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self.by_key: dict[Hashable, Atom] = {}
        self.order: dict[Mono, Mono] = {}
        """How a product was written first."""
        self.known = Knowledge({}, {}, {}, {}, {}, set())
        self._bounds: dict[int, IntBound] = {}
        self._moduli: dict[int, Modulus] = {}
        self.proofs: dict[SumKey, bool] = {}
        """Whether sums were found to be at least 0."""

    def forget(self) -> None:
        """Drop what was derived from knowledge that has changed."""
        self._bounds = {}
        self._moduli = {}
        self.proofs = {}

    def derived(self) -> Derived:
        """What was derived from what is known now, for when the same is known again."""
        return self._bounds, self._moduli, self.proofs

    def restore(self, derived: Derived) -> None:
        """Take back what was derived from what is known again."""
        self._bounds, self._moduli, self.proofs = derived

    # ---- atoms ----

    def atom(
        self,
        key: Hashable,
        kind: Kind,
        make: Callable[[], Expr],
        operands: tuple[Sum, ...],
        operand_type: DataType,
        extra: frozenset[Var] = frozenset(),
    ) -> Sum:
        """The sum of one atom, which is made unless its key is known."""
        found = self.by_key.get(key)
        if found is None:
            variables = extra.union(*[self.variables(operand) for operand in operands])
            found = Atom(len(self.atoms), kind, make(), operands, operand_type, variables)
            self.atoms.append(found)
            self.by_key[key] = found
        known = self.known.values.get(found.index)
        return {(found.index,): 1} if known is None else known

    def var_atom(self, var: Var) -> Atom:
        """The atom of a variable, whatever it stands for."""
        found = self.by_key.get(var)
        if found is None:
            found = Atom(len(self.atoms), Var, var, (), var.dtype, frozenset((var,)))
            self.atoms.append(found)
            self.by_key[var] = found
        return found

    def variables(self, total: Sum) -> frozenset[Var]:
        """The variables in a sum."""
        atoms = self.atoms
        indices = {index for mono in total for index in mono}
        if len(indices) == 1:
            return atoms[indices.pop()].variables
        return frozenset().union(*[atoms[index].variables for index in indices])

    # ---- constant bounds ----

    def bound(self, total: Sum) -> IntBound:
        """Constants between which a sum of mathematical integers lies."""
        low: int | float = 0
        high: int | float = 0
        for mono, value in total.items():
            if not mono:
                low += value
                high += value
                continue
            least, most = self.mono_bound(mono)
            if value > 0:  # a coefficient is never 0, so that infinity times it is infinite
                low += least * value
                high += most * value
            else:
                low += most * value
                high += least * value
        return IntBound(low, high)

    def typed_bound(self, total: Sum, dtype: DataType) -> IntBound:
        """Constants between which a sum of a type lies, which may wrap."""
        if is_index(dtype):
            return self.bound(total)
        low, high = self.bound(total)
        least, most = type_bound(dtype.element)
        if low > -inf and high < inf and dtype.is_integer:
            size = 1 << dtype.bits
            turns = (low - least) // size
            low, high = low - turns * size, high - turns * size
        return IntBound(low, high) if least <= low and high <= most else IntBound(least, most)

    def mono_bound(self, mono: Mono) -> IntBound:
        """Constants between which a product lies."""
        if len(mono) == 1:
            return self.atom_bound(mono[0])
        result: IntBound | None = None
        done = 0
        while done < len(mono):
            factor = self.atom_bound(mono[done])
            if done + 1 < len(mono) and mono[done + 1] == mono[done]:
                factor = square_bound(factor)
                done += 1
            done += 1
            result = factor if result is None else mul_bound(result, factor)
        return EVERYTHING if result is None else result

    def atom_bound(self, index: int) -> IntBound:
        """Constants between which an atom lies."""
        found = self._bounds.get(index)
        if found is None:
            atom = self.atoms[index]
            found = self._structural_bound(atom)
            given = self.known.ranges.get(index)
            if given is not None:
                found = meet(given, found)
            self._bounds[index] = found
        return found

    def _structural_bound(self, atom: Atom) -> IntBound:
        dtype = atom.expr.dtype
        if atom.kind is Var:
            if isinstance(atom.expr, Var) and atom.expr.is_size:
                return meet(NATURAL, EVERYTHING if is_index(dtype) else type_bound(dtype.element))
            return EVERYTHING if is_index(dtype) else type_bound(dtype.element)
        found = self._kind_bound(atom)
        # A shift drops bits even in index arithmetic.
        exact = is_index(dtype) and atom.kind != "shift_left"
        if found is not None and (exact or fits(found, dtype)):
            return found
        return EVERYTHING if is_index(dtype) and atom.kind is not Cast else type_bound(dtype)

    def _kind_bound(self, atom: Atom) -> IntBound | None:
        parts = [self.typed_bound(part, atom.operand_type) for part in atom.operands]
        pair = _PAIRS.get(atom.kind)
        if pair is not None:
            return pair(parts[0], parts[1])
        if atom.kind is Min:
            return IntBound(min(part.low for part in parts), min(part.high for part in parts))
        if atom.kind is Max:
            return IntBound(max(part.low for part in parts), max(part.high for part in parts))
        if atom.kind == "sum":
            return parts[0]
        if atom.kind is Cast and parts:
            return parts[0] if fits(parts[0], atom.expr.dtype) else None
        if atom.kind is Cast and isinstance(atom.expr, Cast) and atom.expr.value.dtype.is_bool:
            return BIT
        return None

    # ---- remainders ----

    def modulus(self, total: Sum) -> Modulus:
        """(m, r): the sum is r modulo m; m is 0 for the constant r."""
        step, base = 0, 0
        for mono, value in total.items():
            if not mono:
                base += value
                continue
            inner_step, inner_base = self.mono_modulus(mono)
            step = gcd(step, inner_step * value)
            base += inner_base * value
            if step == 1:
                return 1, 0
        return step, base % step if step else base

    def mono_modulus(self, mono: Mono) -> Modulus:
        """The remainder of a product."""
        step, base = self.atom_modulus(mono[0])
        for index in mono[1:]:
            other_step, other_base = self.atom_modulus(index)
            step, base = (
                gcd(step * other_step, step * other_base, other_step * base),
                base * other_base,
            )
        return step, base % step if step else base

    def atom_modulus(self, index: int) -> Modulus:
        """The remainder of an atom."""
        found = self._moduli.get(index)
        if found is None:
            found = self.known.moduli.get(index) or self._structural_modulus(self.atoms[index])
            self._moduli[index] = found
        return found

    def _structural_modulus(self, atom: Atom) -> Modulus:
        if not is_index(atom.operand_type) or atom.kind in (Var, Call, None):
            return 1, 0
        if atom.kind in (FloorDiv, FloorMod):
            step, base = self.modulus(atom.operands[0])
            divisor = const_of(atom.operands[1])
            if divisor is None or divisor <= 0:
                return 1, 0
            if atom.kind is FloorMod:
                step = gcd(step, divisor)
                return step, base % step
            if step and step % divisor == 0:
                return step // divisor, base // divisor % (step // divisor)
            return 1, 0
        if atom.kind in (Min, Max, Select, "if_then_else", "sum") or (
            atom.kind is Cast and atom.operands
            and fits(self.bound(atom.operands[0]), atom.expr.dtype)
        ):
            step, base = self.modulus(atom.operands[0])
            for operand in atom.operands[1:]:
                other_step, other_base = self.modulus(operand)
                step = gcd(step, other_step, base - other_base)
            return step, base % step if step else base
        return 1, 0
