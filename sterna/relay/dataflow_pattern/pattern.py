"""Patterns: what an expression is made of, written as the expression itself would be."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sterna.ir.types import Type
from sterna.relay.expr import RelayExpr
from sterna.relay.op import Op

Check = Callable[[RelayExpr], bool]


class DFPattern:
    """What an expression may be; two patterns are the same only if they are one object."""

    def __call__(self, *args: "DFPattern") -> "CallPattern":
        """A call of what this stands for; with no arguments given, whatever they are."""
        return CallPattern(self, tuple(_expect_pattern(arg) for arg in args) if args else None)

    def __or__(self, other: "DFPattern") -> "AltPattern":
        return AltPattern(self, _expect_pattern(other))

    def __add__(self, other: "DFPattern") -> "CallPattern":
        return is_op("add")(self, other)

    def __sub__(self, other: "DFPattern") -> "CallPattern":
        return is_op("subtract")(self, other)

    def __mul__(self, other: "DFPattern") -> "CallPattern":
        return is_op("multiply")(self, other)

    def __truediv__(self, other: "DFPattern") -> "CallPattern":
        return is_op("divide")(self, other)

    def has_attr(self, attrs: Mapping[str, Any]) -> "AttrPattern":
        """The same with these attributes, of an operator, a call or a function."""
        return AttrPattern(self, dict(attrs))

    def has_type(self, ttype: Type) -> "TypePattern":
        """The same, of this type."""
        return TypePattern(self, ttype)

    def has_dtype(self, dtype: str) -> "DataTypePattern":
        """The same, a tensor of this element type."""
        return DataTypePattern(self, str(dtype))

    def has_shape(self, shape: Sequence[Any]) -> "ShapePattern":
        """The same, a tensor of this shape."""
        return ShapePattern(self, tuple(shape))

    def optional(self, option_constructor: "Callable[[DFPattern], DFPattern]") -> "AltPattern":
        """This, or what a function makes of it: conv.optional(lambda x: is_op("nn.relu")(x))."""
        return self | option_constructor(self)

    def dominates(
        self, parent: "DFPattern", path: "DFPattern | None" = None
    ) -> "DominatorPattern":
        """This, all of whose inputs lead back to parent through what path allows."""
        return DominatorPattern(parent, wildcard() if path is None else path, self)

    def match(self, expr: RelayExpr) -> bool:
        """Whether an expression is what this says."""
        return DFPattern.matches(self, expr)

    def partition(
        self, expr: RelayExpr, attrs: Mapping[str, Any] | None = None, check: Check | None = None
    ) -> RelayExpr:
        """The expression with each match as a call of a function; see partition."""
        return DFPattern.cut(self, expr, attrs, check)

    # What both do; matcher.py and rewriter.py set them.
    matches: ClassVar[Callable[..., bool]]
    cut: ClassVar[Callable[..., RelayExpr]]


def _expect_pattern(value: Any) -> DFPattern:
    if not isinstance(value, DFPattern):
        raise TypeError(
            f"a pattern is made of patterns, not of {type(value).__name__}; is_expr(x) stands for "
            "an expression itself, and wildcard() for any"
        )
    return value


@dataclass(frozen=True, eq=False)
class ExprPattern(DFPattern):
    """One expression, structurally; an operator by its name."""

    expr: RelayExpr


@dataclass(frozen=True, eq=False)
class VarPattern(DFPattern):
    """A variable, of any name if it has none here."""

    name: str = ""


@dataclass(frozen=True, eq=False)
class ConstantPattern(DFPattern):
    """A constant."""


@dataclass(frozen=True, eq=False)
class CallPattern(DFPattern):
    """A call."""

    op: DFPattern
    args: tuple[DFPattern, ...] | None
    """None: any arguments."""


@dataclass(frozen=True, eq=False)
class FunctionPattern(DFPattern):
    """A function."""

    params: Sequence[DFPattern] | None
    """None: any parameters."""
    body: DFPattern


@dataclass(frozen=True, eq=False)
class IfPattern(DFPattern):
    """A choice."""

    cond: DFPattern
    true_branch: DFPattern
    false_branch: DFPattern


@dataclass(frozen=True, eq=False)
class LetPattern(DFPattern):
    """A value with a name, in a body."""

    var: DFPattern
    value: DFPattern
    body: DFPattern


@dataclass(frozen=True, eq=False)
class TuplePattern(DFPattern):
    """Several values."""

    fields: Sequence[DFPattern] | None
    """None: any fields."""


@dataclass(frozen=True, eq=False)
class TupleGetItemPattern(DFPattern):
    """One of several values."""

    tuple_value: DFPattern
    index: int | None = None
    """None: any of them."""


@dataclass(frozen=True, eq=False)
class AltPattern(DFPattern):
    """One of two; the left one if both match."""

    left: DFPattern
    right: DFPattern


class WildcardPattern(DFPattern):
    """Anything."""

    def __init__(self) -> None:
        self.pattern: DFPattern | None = None

    def redirect_to(self, pattern: DFPattern) -> None:
        """Stand for a pattern from now on, which may contain this: patterns that repeat."""
        self.pattern = _expect_pattern(pattern)


@dataclass(frozen=True, eq=False)
class TypePattern(DFPattern):
    """A pattern of which the type is known."""

    pattern: DFPattern
    type: Type


@dataclass(frozen=True, eq=False)
class DataTypePattern(DFPattern):
    """A pattern of which the element type is known."""

    pattern: DFPattern
    dtype: str


@dataclass(frozen=True, eq=False)
class ShapePattern(DFPattern):
    """A pattern of which the shape is known."""

    pattern: DFPattern
    shape: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class AttrPattern(DFPattern):
    """A pattern of which some attributes are known."""

    pattern: DFPattern
    attrs: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class DominatorPattern(DFPattern):
    """A child all of whose inputs lead back to a parent, through what path allows."""

    parent: DFPattern
    path: DFPattern
    child: DFPattern


def is_op(op_name: str) -> ExprPattern:
    """An operator, to be called with patterns of its arguments: is_op("nn.relu")(wildcard())."""
    return ExprPattern(Op(op_name))


def is_expr(expr: RelayExpr) -> ExprPattern:
    """One expression, structurally."""
    if not isinstance(expr, RelayExpr):
        raise TypeError(f"is_expr takes an expression of a graph, not {expr!r}")
    return ExprPattern(expr)


def is_var(name: str = "") -> VarPattern:
    """A variable, of any name if none is given."""
    return VarPattern(name)


def is_constant() -> ConstantPattern:
    """A constant."""
    return ConstantPattern()


def is_tuple(fields: Sequence[DFPattern] | None = None) -> TuplePattern:
    """A tuple, of any fields if none are given."""
    return TuplePattern(None if fields is None else tuple(map(_expect_pattern, fields)))


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """An item of a tuple, any of them if no index is given."""
    return TupleGetItemPattern(_expect_pattern(tuple_value), index)


def is_if(cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> IfPattern:
    """A choice."""
    return IfPattern(*map(_expect_pattern, (cond, true_branch, false_branch)))


def is_let(var: DFPattern, value: DFPattern, body: DFPattern) -> LetPattern:
    """A value with a name, in a body."""
    return LetPattern(*map(_expect_pattern, (var, value, body)))


def wildcard() -> WildcardPattern:
    """Anything."""
    return WildcardPattern()


def has_type(ttype: Type, pattern: DFPattern | None = None) -> TypePattern:
    """A pattern of this type, of anything if none is given."""
    return TypePattern(pattern or wildcard(), ttype)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """A pattern of tensors of this element type, of any if none is given."""
    return DataTypePattern(pattern or wildcard(), str(dtype))


def has_shape(shape: Sequence[Any], pattern: DFPattern | None = None) -> ShapePattern:
    """A pattern of tensors of this shape, of any if none is given."""
    return ShapePattern(pattern or wildcard(), tuple(shape))


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """A pattern of what has these attributes, of anything if none is given."""
    return AttrPattern(pattern or wildcard(), dict(attrs))


def dominates(
    parent: DFPattern, path: DFPattern | None, child: DFPattern
) -> DominatorPattern:
    """A child all of whose inputs lead back to a parent, through what path allows."""
    return child.dominates(parent, path)
