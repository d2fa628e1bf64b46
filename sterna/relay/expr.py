"""The graph IR, and what it means.

Grammar
    e := Var(name_hint, type_annotation) | GlobalVar(name_hint) | Constant(data) | Op
       | Call(op, args, attrs) | Function(params, body, ret_type, type_params, attrs)
       | Let(var, value, body) | If(cond, true_branch, false_branch)
       | Tuple(fields) | TupleGetItem(tuple_value, index)

Meaning
    Values     Tensors and tuples of values; no value ever changes. An expression that occurs in
               several places of a graph is computed once.
    Order      Nothing has effects, so the order of evaluation does not matter. If evaluates only
               the branch that is taken.
    Var        Each object is a variable of its own, whatever its name. A function's parameters and
               a Let's variable are bound in its body.
    Types      Every expression has a type (types.py of the IR folder); an operator's relation gives
               a call's type from its arguments' types and its attributes. A call whose arguments
               have types gets its own when it is made, so a mistake is reported where it stands.
    Function   attrs of a function: Primitive=1 marks one kernel made by fusion.

Nodes do not change once they are made, except that an inferred type is kept in them. Every walk
through expressions is iterative (traverse.py): graphs are deep.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import InitVar
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sterna.ir.node import Node, node
from sterna.ir.structural import binds, has_identity
from sterna.ir.types import Dim, TensorType, TupleType, Type
from sterna.relay.arrays import Array, from_numpy
from sterna.runtime import NDArray
from sterna.runtime.ndarray import expect_fits
from sterna.support.classic import classic_names
from sterna.support.dtype import DataType

if TYPE_CHECKING:
    from sterna.relay.attributes import Attrs


class RelayExpr(Node):
    """A value of a graph. Python's operators on it are defined in operators.py."""

    __slots__ = ("_type", "span")

    NAMESPACE: ClassVar[str] = "relay."

    # Packed functions get expressions as they are, although these can be called.
    passed_as_object: ClassVar[bool] = True

    _type: Type | None
    span: str | None
    """What it is called where it comes from, such as the name of a node in a model file; what
    stands for several nodes has a line for each."""

    # How the type of an expression is found; infer.py sets it.
    infer: ClassVar[Callable[["RelayExpr"], Type]]

    def __post_init__(self) -> None:
        self._type = None
        self.span = None

    @property
    def checked_type(self) -> Type:
        """The type; it is inferred when it is first asked for."""
        return self._type if self._type is not None else RelayExpr.infer(self)

    def __call__(self, *args: "RelayExpr") -> "Call":
        """A call of the function that this is."""
        return Call(self, args)

    def __repr__(self) -> str:
        return RelayExpr.write(self)

    # How an expression is written; text.py sets it.
    write: ClassVar[Callable[..., str]]

    def astext(self, show_meta_data: bool = True) -> str:
        """The expression as text that fromtext reads."""
        return RelayExpr.write(self, show_meta_data)

    if TYPE_CHECKING:

        def _binary(self, other: Any) -> "Call": ...

        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _binary
        __truediv__ = __rtruediv__ = _binary
        __lt__ = __le__ = __gt__ = __ge__ = _binary

        def __neg__(self) -> "Call": ...
        def astype(self, dtype: str) -> "Call": ...


@node
class Var(RelayExpr):
    """A parameter or a local name."""

    name_hint: str
    type_annotation: Type | None = None

    def __post_init__(self) -> None:
        self._type = self.type_annotation
        self.span = None

    def operands(self) -> tuple[RelayExpr, ...]:
        """What it is made of."""
        return ()


@node
class GlobalVar(RelayExpr):
    """A function of the module, by name."""

    name_hint: str

    def operands(self) -> tuple[RelayExpr, ...]:
        """What it is made of."""
        return ()


@node
class Constant(RelayExpr):
    """A tensor that is known."""

    data: NDArray

    def __post_init__(self) -> None:
        self._type = TensorType(tuple(self.data.shape), DataType(self.data.dtype))
        self.span = None

    def operands(self) -> tuple[RelayExpr, ...]:
        """What it is made of."""
        return ()


@node
class Call(RelayExpr):
    """An operator or a function applied to arguments."""

    op: RelayExpr
    args: tuple[RelayExpr, ...]
    attrs: "Attrs | None" = None
    type_args: InitVar[Sequence[Type] | None] = ()
    """Classic mutators hand these on; types are inferred here, so none are kept."""
    span: InitVar[str | None] = None

    def __post_init__(
        self, type_args: Sequence[Type] | None = (), span: str | None = None
    ) -> None:
        self.args = tuple(self.args)
        self.span = span
        self._type = None
        if isinstance(self.op, GlobalVar | Var | Call | TupleGetItem) and self.op._type is None:
            return
        for arg in self.args:
            if arg._type is None:
                return
        RelayExpr.infer(self)

    def operands(self) -> tuple[RelayExpr, ...]:
        """What it is made of; an operator or a global name is no part of it."""
        if isinstance(self.op, Function | Var | Call | TupleGetItem | If | Let):
            return (self.op, *self.args)
        return self.args


# The default of the constructor's argument must not hide the slot of every expression.
del Call.span


@node
class Tuple(RelayExpr):
    """Several values."""

    fields: tuple[RelayExpr, ...]

    def __post_init__(self) -> None:
        self.fields = tuple(self.fields)
        self.span = None
        kinds = [part._type for part in self.fields]
        known = [kind for kind in kinds if kind is not None]
        self._type = TupleType(tuple(known)) if len(known) == len(kinds) else None

    def operands(self) -> tuple[RelayExpr, ...]:
        """What it is made of."""
        return self.fields

    def __getitem__(self, index: int) -> RelayExpr:
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)


@node
class TupleGetItem(RelayExpr):
    """One of several values."""

    tuple_value: RelayExpr
    index: int

    def __post_init__(self) -> None:
        self.span = None
        self._type = None
        if self.tuple_value._type is not None:
            RelayExpr.infer(self)

    def operands(self) -> tuple[RelayExpr, ...]:
        """What it is made of."""
        return (self.tuple_value,)


@node
class Let(RelayExpr):
    """A value with a name, in a body."""

    var: Var
    value: RelayExpr
    body: RelayExpr

    def operands(self) -> tuple[RelayExpr, ...]:
        """What it is made of."""
        return (self.var, self.value, self.body)


@node
class If(RelayExpr):
    """One of two values."""

    cond: RelayExpr
    true_branch: RelayExpr
    false_branch: RelayExpr

    def operands(self) -> tuple[RelayExpr, ...]:
        """What it is made of."""
        return (self.cond, self.true_branch, self.false_branch)


@node
class Function(RelayExpr):
    """A body with parameters."""

    params: tuple[Var, ...]
    body: RelayExpr
    ret_type: Type | None = None
    type_params: tuple[Type, ...] = ()
    attrs: "dict[str, Any] | None" = None

    def __post_init__(self) -> None:
        self.params = tuple(self.params)
        if isinstance(self.body, TupleWrapper):
            self.body = self.body.tuple_value
        self.type_params = tuple(self.type_params or ())
        self.attrs = dict(self.attrs or {})
        self.span = None
        self._type = None
        for param in self.params:
            if not isinstance(param, Var):
                raise TypeError(f"a function's parameters are variables, not {param!r}")

    def operands(self) -> tuple[RelayExpr, ...]:
        """What it is made of."""
        return (*self.params, self.body)

    def with_attr(self, name: str | dict[str, Any], value: Any = None) -> "Function":
        """The function with more attributes."""
        more = name if isinstance(name, dict) else {name: value}
        return Function(
            self.params, self.body, self.ret_type, self.type_params, {**(self.attrs or {}), **more}
        )

    @property
    def is_primitive(self) -> bool:
        """Whether it is one kernel, made by fusion."""
        return bool(self.attrs and self.attrs.get("Primitive"))


has_identity(Var, ignored=("name_hint",))
binds(Function, "params")
binds(Let, "var")


class TupleWrapper:
    """A call that gives several values: it can be unpacked and indexed like a tuple."""

    def __init__(self, tuple_value: RelayExpr, size: int) -> None:
        self.tuple_value = tuple_value
        self.size = size

    def astuple(self) -> RelayExpr:
        """The expression whose value is the tuple."""
        return self.tuple_value

    def astext(self) -> str:
        """The expression as text."""
        return self.tuple_value.astext()

    def __getitem__(self, index: int) -> RelayExpr:
        if not -self.size <= index < self.size:
            raise IndexError(f"there are {self.size} values; there is none at {index}")
        return TupleGetItem(self.tuple_value, index % self.size)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[RelayExpr]:
        return (self[index] for index in range(self.size))

    def __repr__(self) -> str:
        return f"TupleWrapper({self.tuple_value!r}, {self.size})"


def var(
    name_hint: str,
    type_annotation: Type | str | None = None,
    shape: Iterable[Dim] | None = None,
    dtype: str = "float32",
) -> Var:
    """A variable; its type is given whole, or as a shape and an element type, or not at all."""
    if type_annotation is not None and shape is not None:
        raise ValueError(f"variable {name_hint}: give type_annotation or shape, not both")
    if isinstance(type_annotation, str):
        return Var(name_hint, TensorType((), DataType(type_annotation)))
    if shape is not None:
        return Var(name_hint, TensorType(tuple(shape), DataType(str(dtype))))
    return Var(name_hint, type_annotation)


def const(value: Any, dtype: str | None = None) -> Constant | Tuple:
    """A constant from a number, a list, a NumPy array or an array of the runtime.

    Without dtype a Python float is float32 and a Python int is int32, as users expect.
    """
    if isinstance(value, tuple | list) and any(isinstance(v, np.ndarray | NDArray) for v in value):
        return Tuple(tuple(const(part, dtype) for part in value))
    if isinstance(value, NDArray):
        return Constant(value)
    if isinstance(value, Constant):
        return value
    from_python = not isinstance(value, np.ndarray | np.generic)
    array = np.asarray(value)
    if dtype is None and from_python:
        dtype = {"float64": "float32", "int64": "int32"}.get(str(array.dtype))
    if dtype is not None and dtype != array.dtype.name:
        expect_fits(array, DataType(dtype))
    return Constant(from_numpy(array, dtype))


# What users may write where an expression is wanted: also numbers and arrays.
RelayExprLike = (
    RelayExpr | TupleWrapper | NDArray | Array | np.generic | float | Sequence["RelayExprLike"]
)


def as_expr(value: RelayExprLike) -> RelayExpr:
    """The expression that a user means."""
    if isinstance(value, RelayExpr):
        return value
    if isinstance(value, TupleWrapper):
        return value.tuple_value
    if isinstance(value, tuple | list) and any(isinstance(v, RelayExpr) for v in value):
        return Tuple(tuple(as_expr(part) for part in value))
    if isinstance(value, bool | int | float | np.ndarray | np.generic | NDArray | list | tuple):
        return const(value)
    raise TypeError(f"expected an expression of a graph, got {value!r}")

__getattr__ = classic_names(__name__)
