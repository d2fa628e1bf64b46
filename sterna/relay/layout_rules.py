"""How layouts pass through operators.

A rule says in which layout a call wants its operands and gives its results, once some operands have
another layout than in the user's graph. It is a function

    rule(attrs, old_attrs, operands) -> LayoutPlan | None

where attrs are those with which the call will be made (a pass may have altered them) and old_attrs
those of the user's graph; None means: as in the user's graph. Operators that work element by
element need no rule of their own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sterna.ir.types import TensorType
from sterna.relay.attributes import Attrs
from sterna.relay.layout import layout_of
from sterna.relay.op import BROADCAST, ELEMWISE, AnyOp


@dataclass(frozen=True, slots=True)
class Laid:
    """A tensor's layout in the user's graph, and the one in which it is now."""

    before: str
    now: str

    @property
    def is_permutation(self) -> bool:
        """Whether only the order of the axes differs, so that each has a letter of its own."""
        return sorted(self.before) == sorted(self.now) and not layout_of(self.now).is_blocked

    @property
    def rank(self) -> int:
        """The number of dimensions in the user's graph."""
        return len(layout_of(self.before))

    def axis(self, place: int) -> int:
        """Where an axis of the user's graph is now; of a blocked axis its outer part."""
        return layout_of(self.now).index_of(self.before[place])

    def permuted(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Per-axis values of the user's graph in the order of the layout now."""
        return tuple(values[self.before.index(axis)] for axis in self.now)


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a call in the user's graph."""

    type: TensorType
    laid: Laid | None
    """None where the layout is the user's and has no name."""
    is_constant: bool


@dataclass(frozen=True, slots=True)
class LayoutPlan:
    """The layouts of a call; None leaves a tensor as it is in the user's graph."""

    operands: tuple[Laid | None, ...]
    results: tuple[Laid | None, ...]
    attrs: Attrs | None


Operands = Sequence[Operand]
# An operand that is a tuple comes as a list of operands, as rules of such operators know.
Rule = Callable[[Any, Any, Sequence[Any]], LayoutPlan | None]


def rule_of(record: AnyOp) -> Rule | None:
    """The rule of an operator: its own, or the one of its pattern."""
    if record.layout is not None:
        rule: Rule = record.layout
        return rule
    if record.gives_tuple or any(name.startswith("*") for name in record.inputs):
        return None
    if record.pattern == ELEMWISE and len(record.inputs) == 1:
        return follow
    if record.pattern in (ELEMWISE, BROADCAST) and len(record.inputs) > 1 and not record.attrs:
        return broadcast
    return None


def follow(attrs: Any, old: Any, operands: Operands) -> LayoutPlan | None:
    """The result has the layout of the first operand; the others are as the user has them."""
    laid = operands[0].laid
    if laid is None:
        return None
    return LayoutPlan((laid, *[None] * (len(operands) - 1)), (laid,), attrs)


def broadcast(attrs: Any, old: Any, operands: Operands) -> LayoutPlan | None:
    """Operands of full rank get one layout; scalars fit to any."""
    rank = max(operand.type.ndim for operand in operands)
    laid = next((o.laid for o in operands if o.laid and o.laid.rank == rank), None)
    if laid is None:
        return None
    wanted: list[Laid | None] = []
    for operand in operands:
        if operand.type.ndim == 0:
            wanted.append(None)
        elif _can_be(operand, laid):
            wanted.append(laid)
        else:
            return None
    return LayoutPlan(tuple(wanted), (laid,), attrs)


def _can_be(operand: Operand, laid: Laid) -> bool:
    """Whether an operand can be brought into a layout of higher or equal rank."""
    if operand.laid is not None and operand.laid.before != laid.before:
        return False
    if laid.is_permutation:
        return True
    if layout_of(laid.before).is_blocked:
        return operand.laid is not None
    blocked = [axis for axis in laid.before if layout_of(laid.now).blocks_of(axis)]
    full = (1,) * (len(laid.before) - operand.type.ndim) + operand.type.shape
    return all(
        type(full[place]) is int and full[place] % layout_of(laid.now).factor_of(axis) == 0
        for place, axis in enumerate(laid.before)
        if axis in blocked
    )


def along_axis(attrs: Any, old: Any, operands: Operands) -> LayoutPlan | None:
    """Operators with an attribute axis that keep the shape: softmax, prelu, bias_add."""
    laid = operands[0].laid
    if laid is None or not laid.is_permutation:
        return None
    moved = attrs.replace(axis=laid.axis(attrs.axis % len(laid.before)))
    return LayoutPlan((laid, *[None] * (len(operands) - 1)), (laid,), moved)


def joined(attrs: Any, old: Any, operands: Sequence[Operands]) -> LayoutPlan | None:
    """Tuples of tensors joined along an axis; all get the layout that most of them have."""
    parts = operands[0]
    known = [part.laid for part in parts if part.laid is not None]
    if not known:
        return None
    laid = max(known, key=known.count)
    if not laid.is_permutation or any(p.laid and p.laid.before != laid.before for p in parts):
        return None
    if any(part.type.ndim != len(laid.before) for part in parts):
        return None
    moved = attrs.replace(axis=laid.axis(attrs.axis % len(laid.before)))
    return LayoutPlan((laid,), (laid,), moved)


def reduced(attrs: Any, old: Any, operands: Operands) -> LayoutPlan | None:
    """Reductions over axes: what is left keeps its layout."""
    laid = operands[0].laid
    if laid is None or not laid.is_permutation:
        return None
    rank = len(laid.before)
    given = range(rank) if attrs.axis is None else attrs.axis
    places = [place % rank for place in (given if not isinstance(given, int) else (given,))]
    if getattr(attrs, "exclude", False):
        places = [place for place in range(rank) if place not in places]
    changes: dict[str, Any] = {"axis": tuple(sorted(laid.axis(place) for place in places))}
    if hasattr(attrs, "exclude"):
        changes["exclude"] = False
    moved = attrs.replace(**changes)
    if attrs.keepdims:
        return LayoutPlan((laid,), (laid,), moved)
    gone = {laid.before[place] for place in places}
    before = "".join(axis for axis in laid.before if axis not in gone)
    now = "".join(axis for axis in laid.now if axis not in gone)
    return LayoutPlan((laid,), (Laid(before, now) if before != now else None,), moved)


def with_layout(attrs: Any, old: Any, operands: Operands) -> LayoutPlan | None:
    """Operators with an attribute layout that run in any: pools, resizing."""
    if attrs is not old:
        laid = Laid(old.layout, attrs.layout)
    elif operands[0].laid is not None and operands[0].laid.before == old.layout:
        laid = operands[0].laid
    else:
        return None
    others = [None] * (len(operands) - 1)
    return LayoutPlan((laid, *others), (laid,), attrs.replace(layout=laid.now))
