"""Extents of open programs: numbers, or expressions over the symbols of open dimensions.

A converter that asks `shape_of` needs numbers and is refused where an extent is a symbol; one that
asks `dims_of` computes with both. A symbol is not 1: PyTorch records programs so.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from sterna.frontend.calls import call, cast, constant, reshape, type_of
from sterna.ir import build
from sterna.ir.expr import Expr, variables_in
from sterna.ir.expr import Var as ShapeVar
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType, same_dim
from sterna.relay.expr import Call, Let, RelayExpr, Var
from sterna.relay.steps import Extents as ToldExtents
from sterna.relay.steps import Trim
from sterna.relay.symbols import Symbols, simplified_dim, symbols_in
from sterna.relay.traverse import post_order
from sterna.support.errors import OpNotImplemented

Extent = Dim
Extents = Sequence[Dim]

class Found:
    """Extents that data decides: symbols, and the tensors that have them."""

    def __init__(self) -> None:
        self.symbols = Symbols()
        self.tensors: dict[ShapeVar, RelayExpr] = {}
        self.numbers: dict[ShapeVar, RelayExpr] = {}
        self.counts: dict[ShapeVar, RelayExpr] = {}
        """How many elements were found, by symbol."""
        self.checks: list[tuple[bool | RelayExpr, list[ShapeVar], str]] = []
        """What must hold, which numbers an error tells, and its text."""
        self.bodies = 0
        """How many branches and rounds the importer is in, whose numbers others do not see."""

    def most_of(self, symbol: ShapeVar) -> int:
        """The largest extent that a symbol can stand for."""
        tensor = self.tensors.get(symbol)
        if isinstance(tensor, Trim):
            room = type_of(tensor.value).shape[tensor.axis]
            if isinstance(room, int):
                return room
        return FAR

    def bound(self, body: RelayExpr) -> RelayExpr:
        """An expression that first makes the tensors whose extents its calls have as numbers."""
        named: dict[ShapeVar, None] = {}
        for part in post_order(body):
            if isinstance(part, Call) and isinstance(part.checked_type, TensorType):
                given = [each.checked_type for each in part.args]
                known = symbols_in([kind for kind in given if isinstance(kind, TensorType)])
                own = symbols_in([part.checked_type])
                named.update(dict.fromkeys(each for each in own if each not in known))
        for symbol in named:
            if symbol in self.tensors:
                tensor = self.tensors[symbol]
                body = Let(Var(symbol.name, tensor.checked_type), tensor, body)
        return body


_found: ContextVar[Found] = ContextVar("found")


def found_here() -> Found:
    """What the program that is imported has found so far."""
    return _found.get()


@contextmanager
def counting_found() -> Iterator[Found]:
    """Within it symbols of extents that data decides have numbers of their own."""
    found = Found()
    token = _found.set(found)
    try:
        yield found
    finally:
        _found.reset(token)


def trimmed(value: RelayExpr, count: RelayExpr, axis: int) -> Trim:
    """The first elements along an axis, as many as a count says, which a symbol stands for."""
    found = _found.get()
    symbol = found.symbols.fresh("found")
    made = found.tensors[symbol] = Trim(value, count, axis, symbol)
    found.counts[symbol] = reshape(cast(count, "int64"), ())
    return made


def told(number: RelayExpr) -> ShapeVar:
    """An extent that a computed number tells; a run in which it is below 0 ends with an error."""
    found = _found.get()
    if found.bodies:
        raise OpNotImplemented("a size that data decides, in a branch or a loop")
    symbol = found.symbols.fresh("told")
    whole = cast(number, "int64")
    found.numbers[symbol] = reshape(whole, ())
    found.tensors[symbol] = ToldExtents(reshape(whole, (1,)), symbol)
    return symbol


def is_told(extent: Extent) -> bool:
    """Whether an extent is one that computed numbers tell."""
    numbers = _found.get().numbers
    return isinstance(extent, Expr) and any(each in numbers for each in variables_in(extent))


@contextmanager
def in_body() -> Iterator[None]:
    """Within it a branch or a round of a loop is imported."""
    found = _found.get()
    found.bodies += 1
    try:
        yield
    finally:
        found.bodies -= 1


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
    if isinstance(extent, ShapeVar):
        found = _found.get()
        number = found.numbers.get(extent, found.counts.get(extent))
        if number is not None:
            return number
    if str(extent.dtype) == "bool":
        return cast(as_tensor(build.select(extent, build.const(1), build.const(0))), "bool")
    ones = call("full", constant(1, "int64"), (extent,), dtype="int64")
    return call("sum", ones)
