"""What type relations ask of operands, with one wording for what is wrong."""

import math
from collections.abc import Callable, Iterable, Sequence

from sterna.ir import build
from sterna.ir.expr import Select
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType, TupleType, Type, as_dim, same_dim, show_shape
from sterna.relay.requirements import EqualDims, NotEmpty, require


def tensor(kind: Type, name: str, ndim: int | None = None) -> TensorType:
    """The operand as a tensor, of so many dimensions if that is asked."""
    if not isinstance(kind, TensorType):
        raise ValueError(f"{name} is a tensor, not {kind!r}")
    if ndim is not None and kind.ndim != ndim:
        raise ValueError(f"{name} has {ndim} dimensions, not shape {show_shape(kind.shape)}")
    return kind


def at_least(kind: Type, name: str, ndim: int) -> TensorType:
    """The operand as a tensor of so many dimensions or more."""
    found = tensor(kind, name)
    if found.ndim < ndim:
        raise ValueError(
            f"{name} has at least {ndim} dimensions, not shape {show_shape(found.shape)}"
        )
    return found


def tensors(kind: Type, name: str) -> list[TensorType]:
    """The operand as a tuple of tensors."""
    if not isinstance(kind, TupleType) or not kind.fields:
        raise ValueError(f"{name} is a tuple of tensors, not {kind!r}")
    return [tensor(part, f"{name}[{i}]") for i, part in enumerate(kind.fields)]


def same_dtype(kinds: Sequence[TensorType], names: Sequence[str]) -> None:
    """All operands have one element type."""
    for kind, name in zip(kinds[1:], names[1:], strict=True):
        if kind.dtype != kinds[0].dtype:
            raise ValueError(
                f"{name} has the element type {kind.dtype}, {names[0]} has {kinds[0].dtype}; "
                "cast one of them"
            )


def axis_of(axis: int, ndim: int, name: str = "axis") -> int:
    """An axis counted from the front."""
    if not -ndim <= axis < ndim:
        raise ValueError(f"{name} {axis} is not one of the {ndim} dimensions")
    return axis % ndim


def expect_dim(have: Dim, want: Dim, what: str) -> None:
    """A dimension that must be another; where only the run can tell, it will be checked there."""
    if type(have) is int and type(want) is int:
        if have != want:
            raise ValueError(f"{what} is {want}, not {have}")
    elif not same_dim(have, want):
        require(EqualDims(have, want, (), what))


def not_empty(kind: TensorType, name: str, axes: Iterable[int], why: str) -> None:
    """None of these dimensions is known to be 0; why says what must have elements for what."""
    if any(type(kind.shape[axis]) is int and kind.shape[axis] == 0 for axis in axes):
        raise ValueError(f"{name} of shape {show_shape(kind.shape)} is empty where {why}")


def expect_some(dim: Dim, result: TensorType, what: str) -> None:
    """A dimension that indices point to has elements, where the result that is read has some."""
    if type(dim) is not int:
        require(NotEmpty(dim, result.shape, what))


def map_dims(function: Callable[..., object], *dims: Dim) -> Dim:
    """A dimension computed from others; unknown where one of them is."""
    if any(isinstance(dim, AnyDim) for dim in dims):
        return AnyDim()
    return as_dim(function(*dims))


def size_of(shape: Sequence[Dim]) -> Dim:
    """The number of elements of a shape; unknown where a dimension is."""
    return map_dims(lambda *dims: math.prod(dims), *shape)


def broadcast_dims(a: Dim, b: Dim) -> Dim | None:
    """The dimension of two combined element by element; None if they do not fit."""
    if same_dim(a, b) and not (isinstance(a, AnyDim) and a.name is None):
        return a
    if type(a) is int and a == 1:
        return b
    if type(b) is int and b == 1:
        return a
    if type(a) is int and type(b) is int:
        return None
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return a if type(a) is int else b if type(b) is int else AnyDim()
    require(EqualDims(a, b, (a, b), "a dimension"))
    if type(a) is int or type(b) is int:
        return a if type(a) is int else b
    for whole, part in ((a, b), (b, a)):
        if isinstance(whole, Select) and any(
            same_dim(part, own) for own in (whole.then, whole.otherwise)
        ):
            return whole  # it was combined with this one before
    return build.select(build.equal(a, 1), b, a)


def repeats_to(have: Dim, want: Dim) -> bool:
    """Whether a dimension can become another by repeating; where only the run can tell, it will be
    checked there.
    """
    if same_dim(have, want) or (type(have) is int and have == 1):
        return True
    if type(have) is int and type(want) is int:
        return False
    or_ones = () if type(have) is int else (have,)
    require(EqualDims(have, want, or_ones, "a dimension that is repeated"))
    return True


def broadcast_shapes(a: Sequence[Dim], b: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape of two tensors combined element by element."""
    size = max(len(a), len(b))
    left = (1,) * (size - len(a)) + tuple(a)
    right = (1,) * (size - len(b)) + tuple(b)
    shape = []
    for x, y in zip(left, right, strict=True):
        dim = broadcast_dims(x, y)
        if dim is None:
            raise ValueError(
                f"shapes {show_shape(tuple(a))} and {show_shape(tuple(b))} do not broadcast: "
                f"{x} against {y}"
            )
        shape.append(dim)
    return tuple(shape)


def of_kind(kind: TensorType, name: str, *allowed: str) -> TensorType:
    """The operand, whose elements are of one of the kinds "float", "int", "uint" and "bool"."""
    dtype = kind.dtype
    have = "float" if dtype.is_float else dtype.kind
    if have not in allowed:
        words = " or ".join(allowed)
        raise ValueError(f"{name} has elements of type {words}, not {dtype}; cast it")
    return kind
