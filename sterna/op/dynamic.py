"""Operands that say a shape: numbers where they are known, expressions where the run will tell."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sterna.ir.expr import Expr, IntImm
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import of_kind, tensor
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.attributes import Attrs
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.op import Op, call
from sterna.relay.steps import Extents
from sterna.relay.symbolic_values import is_of_shapes, symbolic_value

MOST_DIMENSIONS = 64

ToStatic = Callable[[Attrs | None, tuple[RelayExpr, ...]], RelayExpr | None]

# What users write where dimensions are wanted: numbers, or what the run will tell.
DimsLike = RelayExpr | Array | np.generic | Dim | Sequence[RelayExpr | Dim]


def known(value: DimsLike) -> Any:
    """A number or a tuple of dimensions where a value says them; None if the run must tell.

    Users write numbers, lists, arrays and constants of a graph.
    """
    if isinstance(value, Constant):
        value = to_numpy(value.data)
    if isinstance(value, RelayExpr):
        return None
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, tuple | list):
        parts = [_dim(part) for part in value]
        return None if any(part is None for part in parts) else tuple(parts)
    return _dim(value)


def _dim(value: Any) -> Any:
    if isinstance(value, Constant):
        value = to_numpy(value.data).item()
    if isinstance(value, RelayExpr):
        return None
    return value.value if isinstance(value, IntImm) else value


def known_dims(value: DimsLike) -> tuple[Dim, ...] | None:
    """What `known` finds, as a tuple also where users write a single number."""
    found = known(value)
    return (found,) if isinstance(found, int | Expr) else found


def open_dims(value: DimsLike) -> tuple[Dim, ...] | None:
    """What `known_dims` finds, or the extents of operands' shapes that a value is computed from."""
    found = known_dims(value)
    if found is not None or not isinstance(value, RelayExpr):
        return found
    numbers = symbolic_value(value)
    return None if numbers is None else tuple(numbers.ravel().tolist())


def length_of(kind: Type, name: str) -> int:
    """How many numbers a one-dimensional operand of integers holds, which must be known."""
    vector = of_kind(tensor(kind, name, 1), name, "int", "uint")
    (length,) = vector.shape
    if type(length) is not int:
        raise ValueError(f"the length of {name} says the number of dimensions; it must be known")
    if length > MOST_DIMENSIONS:
        raise ValueError(f"{name} says {length} dimensions; there are at most {MOST_DIMENSIONS}")
    return length


def unknown_shape(rank: int) -> tuple[Dim, ...]:
    """A shape that only the run will tell."""
    return tuple(AnyDim() for _ in range(rank))


def to_static(
    name: str, attribute: str | Sequence[str], read: Callable[[DimsLike], Any] = known
) -> ToStatic:
    """The operator `name` with its last operands as attributes, once they are constants, or
    extents where the attributes may be.
    """
    names = [attribute] if isinstance(attribute, str) else list(attribute)

    def convert(attrs: Attrs | None, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
        tensors, shapes = args[: -len(names)], [read(arg) for arg in args[-len(names) :]]
        if any(shape is None for shape in shapes):
            return None
        given = dict(attrs.items()) if attrs is not None else {}
        return call(name, *tensors, **given, **dict(zip(names, shapes, strict=True)))

    return convert


def told_by_shape(numbers: RelayExpr) -> RelayExpr | None:
    """Computed numbers as the shape of an empty tensor; None where shapes of others tell them."""
    if is_of_shapes(numbers):
        return None
    count = length_of(numbers.checked_type, "the shape")
    shape = call("shape_of", Extents(numbers), dtype="int64")
    return call("strided_slice", shape, begin=(1,), end=(count + 1,))


def by_extents(name: str) -> ToStatic:
    """The operator `name`, whose last operand says a shape, with what an empty tensor tells."""

    def measured(attrs: Attrs | None, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
        numbers = told_by_shape(args[-1])
        return None if numbers is None else Call(Op(name), (*args[:-1], numbers), attrs)

    return measured


def tensor_type(expr: RelayExpr) -> TensorType:
    """The type of an expression that is a tensor."""
    return tensor(expr.checked_type, "the operand")
