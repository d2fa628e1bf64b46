"""What a model's file may ask of an importer: sizes, counts and depths that are no mistakes."""

import math
from collections.abc import Iterable

# More bytes than any machine's memory has: such sizes are mistakes.
LARGEST = 1 << 47
MOST_DIMENSIONS = 64

# How deep graphs may lie in each other, and functions call each other.
DEEPEST = 64

# What functions that call functions and loops in loops may grow to: nodes, and bytes. A file of few
# nodes is given fewer, so that a small one does not keep an importer busy for minutes.
MOST_NODES, MOST_BYTES = 200_000, 1 << 31
_NODES_OF_ANY_FILE, _NODES_FOR_EACH = 10_000, 100

# What an operator whose results each read many elements may read in all to be computed here.
MOST_WORK = 1 << 24

# What a converter may write out by itself.
MOST_ELEMENTS = 1 << 26

# Operands of numbers that say how, such as a shape or axes, are not longer than this.
MOST_NUMBERS = 1 << 16


def count_of(dims: Iterable[int], bits: int, what: str) -> int:
    """The number of elements of a shape, which is one that memory could hold."""
    extents = list(dims)
    if len(extents) > MOST_DIMENSIONS:
        raise ValueError(f"{what} has {len(extents)} dimensions, more than {MOST_DIMENSIONS}")
    if any(extent < 0 for extent in extents):
        raise ValueError(f"{what} has the shape {extents}, of which an extent is negative")
    count = math.prod(extents)
    if count * bits > 8 * LARGEST or any(extent > LARGEST for extent in extents):
        raise ValueError(f"{what} has the shape {extents}, which no memory holds")
    return count


def most_nodes(written: int) -> int:
    """How many nodes a model may grow to in whose file so many are written."""
    return min(MOST_NODES, _NODES_OF_ANY_FILE + _NODES_FOR_EACH * written)


def expect_moderate(count: int, what: str) -> None:
    """So many elements can be made while a model is imported."""
    if count > MOST_ELEMENTS:
        raise ValueError(f"{what} asks for {count} elements, more than {MOST_ELEMENTS}")
