"""Extents of open programs: numbers, or expressions over the symbols of open dimensions.

A converter that asks `shape_of` needs numbers and is refused where an extent is a symbol; one that
asks `dims_of` computes with both. A symbol is not 1: PyTorch records programs so.
"""

from collections.abc import Iterable, Sequence

from sterna.frontend.calls import call, cast, constant, type_of
from sterna.ir import build
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, same_dim
from sterna.relay.expr import RelayExpr
from sterna.relay.symbols import simplified_dim
from sterna.support.errors import OpNotImplemented

Extent = Dim
Extents = Sequence[Dim]

# Ends of slices that mean the end of an axis, whatever its extent.
FAR = 2**31 - 1


def dims_of(x: RelayExpr) -> tuple[Extent, ...]:
    """The shape of a tensor: numbers, and expressions where extents are open."""
    shape = type_of(x).shape
    if any(isinstance(extent, AnyDim) for extent in shape):
        raise OpNotImplemented("an operand whose shape is not known")
    return tuple(simplified_dim(extent) for extent in shape)


def is_known(extents: Iterable[Extent]) -> bool:
    """Whether all extents are numbers."""
    return all(type(extent) is int for extent in extents)


def total(extents: Iterable[Extent]) -> Extent:
    """The number of elements."""
    found: Extent = 1
    for extent in sorted(extents, key=lambda each: type(each) is not int):
        found = extent if type(found) is int and found == 1 else extent * found
    return simplified_dim(found)


def is_same(a: Extent, b: Extent) -> bool:
    """Whether two extents are known to be equal."""
    return same_dim(simplified_dim(a), simplified_dim(b))


def are_same(a: Extents, b: Extents) -> bool:
    """Whether two shapes are known to be equal."""
    return len(a) == len(b) and all(map(is_same, a, b))


def left_over(whole: Extents, taken: Extents) -> Extent:
    """What -1 stands for beside other extents; those on both sides need no division."""
    rest = list(whole)
    others: list[Extent] = []
    for extent in taken:
        place = next((at for at, each in enumerate(rest) if is_same(each, extent)), None)
        if type(extent) is int or place is None:
            others.append(extent)
        else:
            del rest[place]
    size, divisor = total(rest), total(others)
    if type(divisor) is int and divisor == 0:
        return 0
    return simplified_dim(size // divisor)


def counted(extent: Extent) -> RelayExpr:
    """The numbers from 0 to before an extent."""
    ones = call("full", constant(1, "int64"), (extent,), dtype="int64")
    return call("cumsum", ones, axis=0, exclusive=True)


def as_tensor(extent: Extent) -> RelayExpr:
    """An extent, or whether something holds of extents, as a number of the program."""
    if isinstance(extent, int):
        return constant(extent, "int64")
    if str(extent.dtype) == "bool":
        return cast(as_tensor(build.select(extent, build.const(1), build.const(0))), "bool")
    ones = call("full", constant(1, "int64"), (extent,), dtype="int64")
    return call("sum", ones)
