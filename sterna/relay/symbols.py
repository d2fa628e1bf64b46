"""Symbolic shapes: variables that stand for extents which only a run tells.

    Tensor[(?batch, 4), float32], Tensor[(?batch, ?), float32]  ->  (batch, 4), (batch, n0)

Equal names are one variable, and Any without a name is one of its own. Types of operators' results
are expressions over these variables, which arith simplifies.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from sterna.arith import Analyzer
from sterna.ir.expr import INT32, Expr, Var, variables_in
from sterna.ir.types import Any, Dim, TensorType, TupleType, Type, as_dim, same_dim


@dataclass(slots=True)
class Symbols:
    """The variables of a program, by the names that its dimensions have."""

    named: dict[str, Var] = field(default_factory=dict)
    count: int = 0

    def fresh(self, hint: str = "n") -> Var:
        """A variable that no other dimension has."""
        self.count += 1
        return Var(f"{hint}{self.count - 1}", INT32)

    def of_dim(self, dim: Dim) -> Dim:
        """A dimension, which a variable stands for where nothing is known of it."""
        if not isinstance(dim, Any):
            return dim
        if dim.name is None:
            return self.fresh()
        return self.named.setdefault(dim.name, Var(dim.name, INT32))

    def opened(self, kind: Type) -> Type:
        """A type with variables for its unknown dimensions."""
        return map_dims_of(kind, self.of_dim)


def map_dims_of(kind: Type, change: Callable[[Dim], Dim]) -> Type:
    """The type of tensors with other dimensions."""
    if isinstance(kind, TensorType):
        if kind.is_static:
            return kind
        return TensorType(tuple(map(change, kind.shape)), kind.dtype)
    if isinstance(kind, TupleType):
        return TupleType(tuple(map_dims_of(part, change) for part in kind.fields))
    return kind


def simplified(kind: Type) -> Type:
    """A type whose dimensions are written in one way, so that equal ones are seen to be equal."""
    return map_dims_of(kind, simplified_dim)


def simplified_dim(dim: Dim) -> Dim:
    """A dimension in its simplest form."""
    if type(dim) is int or isinstance(dim, Var | Any):
        return dim
    assert isinstance(dim, Expr)
    return as_dim(Analyzer().simplify(dim))


def symbols_in(kinds: Iterable[TensorType]) -> list[Var]:
    """The variables of shapes, in the order in which they first appear."""
    found: dict[Var, None] = {}
    for kind in kinds:
        for dim in kind.shape:
            if isinstance(dim, Expr) and not isinstance(dim, Any):
                found.update(dict.fromkeys(variables_in(dim)))
    return list(found)


def bindable(kinds: Sequence[Type], symbols: Symbols) -> list[Type]:
    """Types of operands, all of whose variables stand alone in some shape, where a call finds them.

    A dimension that is computed from other variables becomes one of its own, an equal one the same.
    """
    alone = {
        dim for kind in kinds if isinstance(kind, TensorType) for dim in kind.shape
        if isinstance(dim, Var)
    }
    known: list[tuple[Dim, Var]] = []

    def change(dim: Dim) -> Dim:
        if type(dim) is int or isinstance(dim, Var):
            return dim
        if isinstance(dim, Expr) and all(var in alone for var in variables_in(dim)):
            return dim
        for same, var in known:
            if same_dim(same, dim):
                return var
        known.append((dim, symbols.fresh()))
        return known[-1][1]

    return [map_dims_of(kind, change) for kind in kinds]
