"""How often a kernel's expression writes out what it reads in several places.

    %1 = reverse(%0, axis=1)
    add(%0, %1)              ->    %0[i] + %0[n - 1 - i]: %0 is written out twice

A fused operator is computed where it is read (te/inline.py), once for all readers of the same
element. Readers of different elements have a copy each, and so has all that it is made of: n steps
that read the one before in two places make 2 ** n copies of the first.
"""

from collections.abc import Sequence
from typing import Any

from sterna.ir.types import TensorType
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import BROADCAST, ELEMWISE


def has_at_most(most: int, members: Sequence[Any]) -> bool:
    """Whether so many copies at most are made of the calls of a kernel, nodes of a graph.

    A way to an element is where indices change on the way from the result to it; calls have as
    many copies as there are ways to them. Only calls of several readers add ways, if any of these
    does not read the element that it computes.
    """
    if not any(len(node.consumers) > 1 for node in members):
        return True
    if all(edge == ELEMWISE for node in members for _, edge in node.consumers):
        return True
    inside = set(members)
    ways: dict[Any, set[int]] = {}
    numbers: dict[tuple[object, ...], int] = {}
    copies = 0
    for node in sorted(members, key=lambda each: each.index, reverse=True):
        own: set[int] = set()
        for place, (user, edge) in enumerate(node.consumers):
            if user in inside:
                own |= {
                    way if edge == ELEMWISE else
                    numbers.setdefault((way, *_change(node.expr, user, edge, place)), len(numbers))
                    for way in ways[user]
                }
        ways[node] = own or {-1}
        copies += len(ways[node]) - 1 if isinstance(node.expr, Call) else 0
        if copies > most:
            return False
    return True


def _change(expr: RelayExpr, user: Any, edge: int, place: int) -> tuple[object, ...]:
    """What tells a change of indices from others: equal broadcasts are the same."""
    before, after = expr.checked_type, user.expr.checked_type
    if edge == BROADCAST and isinstance(before, TensorType) and isinstance(after, TensorType):
        return (str(before.shape), str(after.shape))
    return (user, place)
