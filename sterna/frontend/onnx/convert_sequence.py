"""Sequences of tensors, whose lengths and places are known: they are tuples."""

from itertools import pairwise

import numpy as np

from sterna.frontend.calls import (
    axis_below,
    call,
    constant,
    fields_of,
    is_sequence,
    rank_of,
    type_of,
)
from sterna.frontend.graph_importer import ABSENT
from sterna.frontend.limits import MOST_NUMBERS
from sterna.frontend.onnx.node import Node, converter
from sterna.relay.expr import RelayExpr, Tuple


def _items(node: Node, place: int) -> list[RelayExpr]:
    """The tensors of an operand."""
    if not is_sequence(node[place]):
        raise ValueError(f"operand {place} is a tensor, not a sequence")
    return fields_of(node[place])


def _position(node: Node, place: int, count: int, last: int) -> int:
    """A place among so many, which may be counted from the end."""
    found = int(node.number(place, "position"))
    if not -count <= found <= last:
        raise ValueError(f"position {found} is none of a sequence of {count}")
    return found + count if found < 0 else found


@converter("SequenceConstruct")
def construct(node: Node) -> RelayExpr:
    return Tuple(tuple(node.operands()))


@converter("SequenceEmpty")
def empty(node: Node) -> RelayExpr:
    return Tuple(())


@converter("SequenceLength")
def length(node: Node) -> RelayExpr:
    return constant(np.int64(len(_items(node, 0))))


@converter("SequenceAt")
def at(node: Node) -> RelayExpr:
    items = _items(node, 0)
    return items[_position(node, 1, len(items), len(items) - 1)]


@converter("SequenceInsert")
def insert(node: Node) -> RelayExpr:
    items = _items(node, 0)
    place = _position(node, 2, len(items), len(items)) if node.has(2) else len(items)
    return Tuple((*items[:place], node[1], *items[place:]))


@converter("SequenceErase")
def erase(node: Node) -> RelayExpr:
    items = _items(node, 0)
    place = _position(node, 1, len(items), len(items) - 1) if node.has(1) else len(items) - 1
    if not items:
        raise ValueError("the sequence has nothing to erase")
    return Tuple((*items[:place], *items[place + 1 :]))


@converter("ConcatFromSequence")
def concat(node: Node) -> RelayExpr:
    items, axis = _items(node, 0), node.attr("axis")
    if not items:
        raise ValueError("the sequence is empty")
    if node.attr("new_axis", 0):
        return call("stack", items, axis=axis)
    return items[0] if len(items) == 1 else call("concatenate", items, axis=axis)


@converter("SplitToSequence")
def split(node: Node) -> RelayExpr:
    """By sizes, by one size for all but the last, or into single slices."""
    data = node[0]
    axis = axis_below(node.attr("axis", 0), rank_of(data))
    extent = type_of(data).shape[axis]
    if type(extent) is not int:
        raise ValueError(f"it splits axis {axis}, whose extent is not known; give shape=")
    sizes = node.ints(1, "split") if node.has(1) else [1]
    if not node.has(1) or not node.shape(1):
        if sizes[0] < 1:
            raise ValueError(f"it splits by {sizes[0]}")
        whole, rest = divmod(extent, sizes[0])
        if whole > MOST_NUMBERS:
            raise ValueError(f"it makes {whole} parts, more than {MOST_NUMBERS}")
        sizes = sizes * whole + [rest] * (rest > 0)
    elif sum(sizes) != extent or min(sizes, default=0) < 0:
        raise ValueError(f"the parts {sizes} are not the {extent} elements of axis {axis}")
    ends = np.cumsum([0, *sizes]).tolist()
    made = [
        call("strided_slice", data, (begin,), (end,), axes=(axis,))
        for begin, end in pairwise(ends)
    ]
    if not node.has(1) and not node.attr("keepdims", 1):
        made = [call("squeeze", part, (axis,)) for part in made]
    return Tuple(tuple(made))


# ---- what may be there or not ----


@converter("Optional")
def optional(node: Node) -> RelayExpr:
    return node[0] if node.has(0) else ABSENT


@converter("OptionalGetElement")
def get_element(node: Node) -> RelayExpr:
    if not node.has(0):
        raise ValueError("the optional value is not there")
    return node[0]


@converter("OptionalHasElement")
def has_element(node: Node) -> RelayExpr:
    return constant(node.has(0))
