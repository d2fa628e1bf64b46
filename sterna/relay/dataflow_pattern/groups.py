"""Matches of a pattern in a graph that do not get in each other's way."""

from collections.abc import Callable
from dataclasses import dataclass

from sterna.relay.dataflow_pattern.matcher import Matcher
from sterna.relay.dataflow_pattern.pattern import (
    CallPattern,
    ConstantPattern,
    DFPattern,
    DominatorPattern,
    FunctionPattern,
    IfPattern,
    LetPattern,
    TupleGetItemPattern,
    TuplePattern,
)
from sterna.relay.expr import Constant, Function, RelayExpr
from sterna.relay.op import Op
from sterna.relay.traverse import post_order

# What these stand for belongs to a match; what others stand for goes into it.
_INNER = (
    CallPattern, ConstantPattern, FunctionPattern, IfPattern, LetPattern, TupleGetItemPattern,
    TuplePattern,
)


@dataclass(frozen=True, slots=True)
class Group:
    """One match: its last expression, all that belong to it, and what its patterns stand for."""

    root: RelayExpr
    inside: dict[int, RelayExpr]
    found: dict[DFPattern, list[RelayExpr]]


def find_groups(
    pattern: DFPattern, expr: RelayExpr, takes: Callable[[RelayExpr], bool]
) -> dict[int, Group]:
    """The matches in a graph by the id of their last expression, from the results backwards.

    takes(root) says whether a match counts. No expression but a constant belongs to two of them,
    and what is inside of one is used by nothing else than it.
    """
    order = post_order(expr)
    users: dict[int, list[int]] = {}
    for each in order:
        for part in each.operands():  # type: ignore[attr-defined]
            users.setdefault(id(part), []).append(id(each))
    groups: dict[int, Group] = {}
    taken: set[int] = set()
    for root in reversed(order):
        if id(root) in taken or isinstance(root, Op):
            continue
        matcher = Matcher()
        if not matcher.match(pattern, root):
            continue
        inside = _inside(root, matcher.found)
        if _is_free(root, inside, users, taken) and takes(root):
            groups[id(root)] = Group(root, inside, matcher.found)
            taken.update(key for key, each in inside.items() if not _is_shared(each))
    return groups


def _inside(root: RelayExpr, found: dict[DFPattern, list[RelayExpr]]) -> dict[int, RelayExpr]:
    """The expressions that belong to a match, its last one among them."""
    paths = {each.path for each in found if isinstance(each, DominatorPattern)}
    own = {
        id(expr)
        for pattern, exprs in found.items()
        for expr in exprs
        if isinstance(pattern, _INNER) or pattern in paths
    }
    inside = {id(root): root}
    waiting = [root]
    while waiting:
        for part in waiting.pop().operands():  # type: ignore[attr-defined]
            if id(part) in own and id(part) not in inside:
                inside[id(part)] = part
                waiting.append(part)
    return inside


def _is_shared(expr: RelayExpr) -> bool:
    return isinstance(expr, Constant | Function)


def _is_free(
    root: RelayExpr, inside: dict[int, RelayExpr], users: dict[int, list[int]], taken: set[int]
) -> bool:
    """Whether a match takes nothing from another, and nothing else needs what is inside of it."""
    return all(
        key not in taken
        and (each is root or all(user in inside for user in users.get(key, ())))
        for key, each in inside.items()
        if not _is_shared(each)
    )
