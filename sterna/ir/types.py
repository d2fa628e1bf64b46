"""What a graph's values are: tensors, tuples, functions.

A dimension is a Python int where it is known, an expression where it is symbolic, and Any() where
only the run will tell.
"""

from collections.abc import Iterable
from dataclasses import field

from sterna.ir.expr import INT32, Expr, IntImm
from sterna.ir.node import Node, node
from sterna.ir.structural import structural_equal
from sterna.support.dtype import DataType

Dim = int | Expr


class Type(Node):
    """What sort of value an expression has."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and structural_equal(self, other))

    def __hash__(self) -> int:
        return hash(repr(self))


@node
class Any(Expr):
    """A dimension that is not known before the run; those of one name are equal."""

    name: str | None = None
    dtype: DataType = field(init=False, default=INT32)


def as_dim(value: object, what: str = "a shape") -> Dim:
    """A dimension as it is kept: an int if it is known."""
    if isinstance(value, IntImm):
        return value.value
    if isinstance(value, Expr):
        return value
    if not hasattr(value, "__index__") or isinstance(value, bool):
        raise TypeError(f"{what} is made of integers, not of {value!r}")
    number = int(value.__index__())
    if number < 0:
        raise ValueError(f"{what} cannot have the negative extent {number}")
    return number


@node
class TensorType(Type):
    """An array of a shape and an element type."""

    shape: tuple[Dim, ...]
    dtype: DataType = DataType("float32")

    def __post_init__(self) -> None:
        given: Iterable[object] = self.shape
        if not isinstance(given, tuple | list):
            raise TypeError(f"a shape is a tuple of integers, not {given!r}")
        self.shape = tuple([d if type(d) is int and d >= 0 else as_dim(d) for d in given])
        self.dtype = DataType(self.dtype)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TensorType) or self.dtype != other.dtype:
            return False
        return len(self.shape) == len(other.shape) and all(
            map(same_dim, self.shape, other.shape)
        )

    __hash__ = Type.__hash__

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every dimension is known."""
        return all(type(d) is int for d in self.shape)

    @property
    def is_symbolic(self) -> bool:
        """Whether every dimension is known, or an expression over symbols that a run binds."""
        return not any(isinstance(d, Any) for d in self.shape)

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The shape, all of whose dimensions must be known."""
        if not self.is_static:
            raise ValueError(f"the shape of {self!r} is not known before the run")
        return self.shape  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"Tensor[{show_shape(self.shape)}, {self.dtype}]"


def scalar_type(dtype: str | DataType) -> TensorType:
    """The type of a single number."""
    return TensorType((), DataType(dtype))


@node
class TupleType(Type):
    """Several values."""

    fields: tuple[Type, ...]

    def __post_init__(self) -> None:
        self.fields = tuple(self.fields)

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self.fields))
        return f"({inner},)" if len(self.fields) == 1 else f"({inner})"


@node
class FuncType(Type):
    """A function of values, for all types that its parameters of types may stand for."""

    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[Type, ...] = ()

    def __post_init__(self) -> None:
        self.arg_types = tuple(self.arg_types)
        self.type_params = tuple(self.type_params or ())

    def __repr__(self) -> str:
        return f"fn ({', '.join(map(repr, self.arg_types))}) -> {self.ret_type!r}"


@node
class TypeVar(Type):
    """A type that a use decides; one name is one type within a function."""

    name_hint: str

    def __repr__(self) -> str:
        return self.name_hint


@node
class GlobalTypeVar(Type):
    """An algebraic data type of the module, by name."""

    name_hint: str

    def __call__(self, *args: Type) -> "TypeCall":
        return TypeCall(self, args)

    def __repr__(self) -> str:
        return self.name_hint


@node
class TypeCall(Type):
    """An algebraic data type over types."""

    func: GlobalTypeVar
    args: tuple[Type, ...]

    def __post_init__(self) -> None:
        self.args = tuple(self.args)

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self.args))
        return f"{self.func!r}[{inner}]" if self.args else repr(self.func)


@node
class IncompleteType(Type):
    """A type that nothing has decided yet, such as that of the elements of an empty list."""

    def __repr__(self) -> str:
        return "_"


@node
class RefType(Type):
    """A cell that holds a value."""

    value: Type

    def __repr__(self) -> str:
        return f"ref({self.value!r})"


@node
class ListType(Type):
    """Any number of tensors of one type."""

    element: TensorType

    def __repr__(self) -> str:
        return f"list({self.element!r})"


def same_dim(a: Dim, b: Dim) -> bool:
    """Whether two dimensions are known to be the same; Any is not the same as anything but Any."""
    if type(a) is int or type(b) is int:
        return type(a) is type(b) and bool(a == b)
    if isinstance(a, Any) and isinstance(b, Any):
        return a.name == b.name
    return a is b or structural_equal(a, b)


def show_shape(shape: tuple[Dim, ...]) -> str:
    """A shape as text: (1, ?, ?rows, 3)."""
    inner = ", ".join(f"?{d.name or ''}" if isinstance(d, Any) else str(d) for d in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


def has_no_elements(kind: TensorType) -> bool:
    """Whether one of the dimensions is known to be 0."""
    return any(type(extent) is int and extent == 0 for extent in kind.shape)


def flatten_type(kind: Type) -> list[TensorType]:
    """The tensors in a type, in order."""
    if isinstance(kind, TensorType):
        return [kind]
    if isinstance(kind, TupleType):
        return [leaf for part in kind.fields for leaf in flatten_type(part)]
    raise ValueError(f"a value of type {kind!r} holds no tensors")
