"""Values of other folders that nodes may hold, such as arrays: how they are compared and saved."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Leaf:
    """A class whose objects may be fields of nodes."""

    kind: type
    tag: str
    """The key of its JSON form."""
    to_bytes: Callable[[Any], bytes]
    """Equal values have equal bytes."""
    to_json: Callable[[Any], Any]
    from_json: Callable[[Any], Any]


# By tag, and by class.
LEAVES: dict[str, Leaf] = {}
_BY_KIND: dict[type, Leaf] = {}


def register_leaf(leaf: Leaf) -> None:
    """Let objects of a class be fields of nodes."""
    LEAVES[leaf.tag] = leaf
    _BY_KIND[leaf.kind] = leaf


def leaf_of(value: object) -> Leaf | None:
    """What is known about the value's class; None for a class that no node may hold."""
    for kind in type(value).__mro__:
        if kind in _BY_KIND:
            return _BY_KIND[kind]
    return None
