"""Expressions that only the virtual machine and the interpreter run: lists and references.

    EmptyList(type)   Append(list, value)   Stack(list)   values collected by a loop, as one tensor
    RefCreate(value)  RefRead(ref)          RefWrite(ref, value)       a cell that can be written
    Trim(tensor, count)                     a tensor of which only so many elements are filled
    Extents(numbers)                        an empty tensor whose shape tells numbers to blocks
    Refuse(type, reason)                    a value that cannot be: runs that ask for it are errors
    Expect(value, holds, numbers, reason)   the value, or an error that tells the numbers

Lists never change; a machine that nobody else watches appends in place. References do change, so
programs with them say the order by Let.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from sterna.ir.node import node
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, ListType, RefType, TensorType, TupleType, Type
from sterna.relay.arrays import from_numpy, numpy_dtype
from sterna.relay.expr import RelayExpr
from sterna.runtime import NDArray
from sterna.support.dtype import DataType
from sterna.support.errors import BranchNotCompiled

Emitted = tuple[Any, ...]


class Step(RelayExpr):
    """One of them: what it gives, how it is run, and the instruction that it becomes."""

    __slots__ = ()

    INSTRUCTION: ClassVar[str]

    def operands(self) -> tuple[RelayExpr, ...]:
        """What it is made of."""
        return ()

    def with_operands(self, parts: Sequence[RelayExpr]) -> "Step":
        """The same of other parts."""
        return type(self)(*parts)

    def conclude(self, *kinds: Type) -> Type:
        """Its type, from those of its operands."""
        raise NotImplementedError

    def evaluate(self, *values: Any) -> Any:
        """Its value, from those of its operands."""
        raise NotImplementedError

    def emitted(self, registers: tuple[int, ...], constant: Callable[[NDArray], int]) -> Emitted:
        """The operands of its instruction behind the register of its value."""
        return registers


@node
class EmptyList(Step):
    """A list of tensors of one type, with nothing in it."""

    INSTRUCTION: ClassVar[str] = "object"
    element: TensorType

    def with_operands(self, parts: Sequence[RelayExpr]) -> "Step":
        """Itself: it has no parts."""
        return self

    def conclude(self, *kinds: Type) -> Type:
        """A list."""
        return ListType(self.element)

    def evaluate(self, *values: Any) -> Any:
        """An empty tuple."""
        return ()

    def emitted(self, registers: tuple[int, ...], constant: Callable[[NDArray], int]) -> Emitted:
        """The tag of lists, and no fields."""
        return (-3, ())


@node
class Append(Step):
    """A list with one more at its end."""

    INSTRUCTION: ClassVar[str] = "append"
    items: RelayExpr
    value: RelayExpr

    def operands(self) -> tuple[RelayExpr, ...]:
        """The list and the value."""
        return (self.items, self.value)

    def conclude(self, *kinds: Type) -> Type:
        """The list's type, whose element the value must be."""
        whole, value = kinds
        if not isinstance(whole, ListType) or whole.element != value:
            raise ValueError(f"a value of type {value!r} is appended to {whole!r}")
        return whole

    def evaluate(self, *values: Any) -> Any:
        """A longer tuple."""
        return (*values[0], values[1])


@node
class Stack(Step):
    """The tensors of a list along a new first axis, whose extent may be known."""

    INSTRUCTION: ClassVar[str] = "stack"
    items: RelayExpr
    count: Dim | None = None

    def operands(self) -> tuple[RelayExpr, ...]:
        """The list."""
        return (self.items,)

    def with_operands(self, parts: Sequence[RelayExpr]) -> "Step":
        """The same of another list."""
        return Stack(parts[0], self.count)

    def conclude(self, *kinds: Type) -> Type:
        """A tensor of one more dimension."""
        (whole,) = kinds
        if not isinstance(whole, ListType):
            raise ValueError(f"what is stacked is a list, not {whole!r}")
        first = AnyDim() if self.count is None else self.count
        return TensorType((first, *whole.element.shape), whole.element.dtype)

    def evaluate(self, *values: Any) -> Any:
        """The arrays stacked; the type says what an empty stack is."""
        return np.stack(values[0]) if values[0] else self._nothing()

    def _nothing(self) -> Any:
        """An empty stack; where runs tell the extents of its rows, one row of none."""
        kind = self.items.checked_type
        assert isinstance(kind, ListType)
        is_open = not kind.element.is_static
        rows = [dim if isinstance(dim, int) else 0 for dim in kind.element.shape]
        return np.zeros((int(is_open), *rows), numpy_dtype(kind.element.dtype))

    def emitted(self, registers: tuple[int, ...], constant: Callable[[NDArray], int]) -> Emitted:
        """The list, and a constant that tells what the machine stacks."""
        return (*registers, constant(from_numpy(self._nothing())))


@node
class Trim(Step):
    """A tensor cut along an axis to as many elements as another, of one element, says."""

    INSTRUCTION: ClassVar[str] = "trim"
    value: RelayExpr
    count: RelayExpr
    axis: int = 0
    extent: Dim | None = None
    """A variable that stands for the count in types; if None, nothing is known of it there."""

    def operands(self) -> tuple[RelayExpr, ...]:
        """The tensor and the count."""
        return (self.value, self.count)

    def with_operands(self, parts: Sequence[RelayExpr]) -> "Step":
        """The same of other tensors."""
        return Trim(parts[0], parts[1], self.axis, self.extent)

    def conclude(self, *kinds: Type) -> Type:
        """The tensor's type, with one dimension that only the run tells."""
        whole, count = kinds
        if not isinstance(whole, TensorType) or not isinstance(count, TensorType):
            raise ValueError(f"a tensor is cut, not {whole!r}, to a count, not {count!r}")
        shape = list(whole.shape)
        shape[self.axis] = AnyDim() if self.extent is None else self.extent
        return TensorType(tuple(shape), whole.dtype)

    def evaluate(self, *values: Any) -> Any:
        """The first of its elements along the axis."""
        whole, count = values
        cut = [slice(None)] * self.axis + [slice(int(np.asarray(count).item()))]
        return whole[tuple(cut)]

    def emitted(self, registers: tuple[int, ...], constant: Callable[[NDArray], int]) -> Emitted:
        """Both, and the axis."""
        return (*registers, self.axis)


@node
class Extents(Step):
    """An empty tensor whose dimensions behind the first are computed numbers.

    Its shape makes symbols of them, which kernels behind it may have as extents.
    """

    INSTRUCTION: ClassVar[str] = "extents"
    numbers: RelayExpr
    extent: Dim | None = None
    """A variable that stands for the only number in types; if None, nothing is known there."""

    def operands(self) -> tuple[RelayExpr, ...]:
        """The numbers."""
        return (self.numbers,)

    def with_operands(self, parts: Sequence[RelayExpr]) -> "Step":
        """The same of other numbers."""
        return Extents(parts[0], self.extent)

    def conclude(self, *kinds: Type) -> Type:
        """A tensor of no elements, all but one of whose dimensions the run tells."""
        (kind,) = kinds
        if not isinstance(kind, TensorType) or kind.ndim != 1 or not kind.is_static:
            raise ValueError(f"extents are a vector of known length, not {kind!r}")
        (count,) = kind.concrete_shape
        if self.extent is not None and count != 1:
            raise ValueError(f"one variable stands for one number, not for {count}")
        told = [AnyDim() for _ in range(count)] if self.extent is None else [self.extent]
        return TensorType((0, *told), DataType("uint8"))

    def evaluate(self, *values: Any) -> Any:
        """An array of no bytes."""
        numbers = [int(each) for each in values[0]]
        if min(numbers, default=0) < 0:
            raise ValueError(
                f"a tensor cannot have the extent {min(numbers)}, which was computed for it"
            )
        return np.empty((0, *numbers), np.uint8)


@node
class Refuse(Step):
    """What stands where a value cannot be made: a run that comes here ends with an error."""

    INSTRUCTION: ClassVar[str] = "refuse"
    kind: Type
    reason: str

    MOST_BYTES: ClassVar[int] = 500

    def with_operands(self, parts: Sequence[RelayExpr]) -> "Step":
        """Itself: it has no parts."""
        return self

    def conclude(self, *kinds: Type) -> Type:
        """The type that the value would have."""
        return self.kind

    def evaluate(self, *values: Any) -> Any:
        """The error."""
        raise BranchNotCompiled(self.reason)

    def emitted(self, registers: tuple[int, ...], constant: Callable[[NDArray], int]) -> Emitted:
        """The error's text."""
        return (constant(_text(self.reason, self.MOST_BYTES)),)


def _text(reason: str, most: int) -> NDArray:
    """The bytes of an error's text, of which there are not too many."""
    whole = reason.encode()[:most].decode(errors="ignore")
    return from_numpy(np.frombuffer(whole.encode(), np.uint8))


@node
class Expect(Step):
    """A value for which something must hold: a run in which it does not ends with an error.

    Every # of the reason becomes one of the numbers, while there are any.
    """

    INSTRUCTION: ClassVar[str] = "expect"
    value: RelayExpr
    holds: RelayExpr
    numbers: RelayExpr
    reason: str

    MOST_BYTES: ClassVar[int] = 300
    MOST_NUMBERS: ClassVar[int] = 8

    def operands(self) -> tuple[RelayExpr, ...]:
        """The value, the truth value and the numbers."""
        return (self.value, self.holds, self.numbers)

    def with_operands(self, parts: Sequence[RelayExpr]) -> "Step":
        """The same of other parts."""
        return Expect(parts[0], parts[1], parts[2], self.reason)

    def conclude(self, *kinds: Type) -> Type:
        """The type of the value."""
        kind, holds, numbers = kinds
        if holds != TensorType((), DataType("bool")):
            raise ValueError(f"what is expected is one truth value, not {holds!r}")
        if not isinstance(numbers, TensorType) or numbers.ndim != 1 or not numbers.is_static:
            raise ValueError(f"what an error tells is a vector of known length, not {numbers!r}")
        if numbers.concrete_shape[0] > self.MOST_NUMBERS or numbers.dtype != DataType("int64"):
            raise ValueError(f"an error tells up to {self.MOST_NUMBERS} int64, not {numbers!r}")
        return kind

    def evaluate(self, *values: Any) -> Any:
        """The value, or the error."""
        value, holds, numbers = values
        if not np.asarray(holds).item():
            text = self.reason
            for number in np.asarray(numbers):
                text = text.replace("#", str(int(number)), 1)
            raise ValueError(text)
        return value

    def emitted(self, registers: tuple[int, ...], constant: Callable[[NDArray], int]) -> Emitted:
        """All three, and the error's text."""
        return (*registers, constant(_text(self.reason, self.MOST_BYTES)))


@node
class RefCreate(Step):
    """A cell that holds a value."""

    INSTRUCTION: ClassVar[str] = "reference"
    value: RelayExpr

    def operands(self) -> tuple[RelayExpr, ...]:
        """The value."""
        return (self.value,)

    def conclude(self, *kinds: Type) -> Type:
        """A reference to the value's type."""
        return RefType(kinds[0])

    def evaluate(self, *values: Any) -> Any:
        """A cell of its own."""
        return RefValue(values[0])


@node
class RefRead(Step):
    """What a cell holds now."""

    INSTRUCTION: ClassVar[str] = "read"
    ref: RelayExpr

    def operands(self) -> tuple[RelayExpr, ...]:
        """The cell."""
        return (self.ref,)

    def conclude(self, *kinds: Type) -> Type:
        """The type of what it holds."""
        return _held(kinds[0])

    def evaluate(self, *values: Any) -> Any:
        """What it holds."""
        return values[0].value


@node
class RefWrite(Step):
    """A cell given another value; it gives an empty tuple."""

    INSTRUCTION: ClassVar[str] = "write"
    ref: RelayExpr
    value: RelayExpr

    def operands(self) -> tuple[RelayExpr, ...]:
        """The cell and the value."""
        return (self.ref, self.value)

    def conclude(self, *kinds: Type) -> Type:
        """An empty tuple."""
        if _held(kinds[0]) != kinds[1]:
            raise ValueError(f"a value of type {kinds[1]!r} is written to {kinds[0]!r}")
        return TupleType(())

    def evaluate(self, *values: Any) -> Any:
        """Write, and give nothing."""
        values[0].value = values[1]
        return ()


class RefValue:
    """A cell of the interpreter."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _held(kind: Type) -> Type:
    if not isinstance(kind, RefType):
        raise ValueError(f"a value of type {kind!r} is no reference")
    return kind.value
