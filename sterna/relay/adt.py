"""Algebraic data types: constructors, and matches that take their values apart.

    List[A] = Cons(A, List[A]) | Nil()

    match (%l) { Cons(%x, %rest) => ..., Nil() => ... }
"""

from collections.abc import Iterator, Sequence

from sterna.ir.node import Node, node
from sterna.ir.structural import binds
from sterna.ir.types import FuncType, GlobalTypeVar, TupleType, Type, TypeCall, TypeVar
from sterna.relay.expr import Call, RelayExpr, Var
from sterna.relay.unify import replace_types


@node
class Constructor(RelayExpr):
    """What makes values of a data type from fields."""

    name_hint: str
    inputs: tuple[Type, ...]
    belong_to: GlobalTypeVar
    tag: int = -1
    type_vars: tuple[TypeVar, ...] = ()

    def __post_init__(self) -> None:
        self.inputs = tuple(self.inputs)
        self.span = None
        self._complete()

    def _complete(self) -> None:
        made = TypeCall(self.belong_to, self.type_vars)
        self._type = FuncType(self.inputs, made, self.type_vars)

    def operands(self) -> tuple[RelayExpr, ...]:
        """Nothing: it is a name."""
        return ()

    def __call__(self, *args: RelayExpr) -> Call:
        return Call(self, args)


class TypeData(Node):
    """A data type with its constructors; mod[var] = TypeData(var, type_vars, constructors)."""

    def __init__(
        self, header: GlobalTypeVar, type_vars: Sequence[TypeVar],
        constructors: Sequence[Constructor],
    ) -> None:
        self.header, self.type_vars = header, tuple(type_vars)
        self.constructors = tuple(constructors)
        for tag, constructor in enumerate(self.constructors):
            constructor.tag, constructor.type_vars = tag, self.type_vars
            constructor._complete()


class Pattern(Node):
    """What a value may look like."""

    __slots__ = ()


@node
class PatternWildcard(Pattern):
    """Any value."""


@node
class PatternVar(Pattern):
    """Any value, which gets a name."""

    var: Var


@node
class PatternConstructor(Pattern):
    """A constructor's value whose fields look like patterns; without them, whatever they are."""

    constructor: Constructor
    patterns: tuple[Pattern, ...] = ()

    def __post_init__(self) -> None:
        self.patterns = tuple(self.patterns or ())


@node
class PatternTuple(Pattern):
    """A tuple whose fields look like patterns."""

    patterns: tuple[Pattern, ...]

    def __post_init__(self) -> None:
        self.patterns = tuple(self.patterns)


@node
class Clause(Node):
    """A pattern, and the value for what looks like it."""

    lhs: Pattern
    rhs: RelayExpr


@node
class Match(RelayExpr):
    """The value of the first clause whose pattern a value looks like."""

    data: RelayExpr
    clauses: tuple[Clause, ...]
    complete: bool = True

    def __post_init__(self) -> None:
        self.clauses = tuple(self.clauses)
        self.span = None
        self._type = None

    def operands(self) -> tuple[RelayExpr, ...]:
        """The value, the variables of the patterns, and the clauses' values."""
        bound = [var for clause in self.clauses for var, _ in variables_of(clause.lhs)]
        return (self.data, *bound, *(clause.rhs for clause in self.clauses))

    def with_operands(self, parts: Sequence[RelayExpr]) -> "Match":
        """The same of other parts."""
        count = len(self.clauses)
        values = parts[len(parts) - count :]
        pairs = zip(self.clauses, values, strict=True)
        return Match(parts[0], tuple(Clause(c.lhs, rhs) for c, rhs in pairs), self.complete)


binds(PatternVar, "var")


def variables_of(pattern: Pattern) -> Iterator[tuple[Var, Pattern]]:
    """The variables of a pattern, each with what it stands in."""
    stack = [pattern]
    while stack:
        each = stack.pop()
        if isinstance(each, PatternVar):
            yield each.var, each
        elif isinstance(each, PatternConstructor | PatternTuple):
            stack += reversed(each.patterns)


def bind_pattern(pattern: Pattern, kind: Type) -> None:
    """Give the variables of a pattern the types that a value of this type has there."""
    stack = [(pattern, kind)]
    while stack:
        each, known = stack.pop()
        if isinstance(each, PatternVar):
            if each.var._type is None:
                each.var._type = known
        elif isinstance(each, PatternTuple):
            if not isinstance(known, TupleType) or len(known.fields) != len(each.patterns):
                raise ValueError(f"a pattern of {len(each.patterns)} fields for {known!r}")
            stack += zip(each.patterns, known.fields, strict=True)
        elif isinstance(each, PatternConstructor) and each.patterns:
            stack += zip(each.patterns, _fields(each, known), strict=True)


def _fields(pattern: PatternConstructor, known: Type) -> Sequence[Type]:
    made = pattern.constructor
    if not isinstance(known, TypeCall) or known.func.name_hint != made.belong_to.name_hint:
        raise ValueError(f"the pattern {made.name_hint} of {made.belong_to!r} for {known!r}")
    if len(pattern.patterns) != len(made.inputs):
        raise ValueError(f"{made.name_hint} has {len(made.inputs)} fields, its pattern "
                         f"{len(pattern.patterns)}")
    bound = dict(zip((v.name_hint for v in made.type_vars), known.args, strict=True))
    return [replace_types(kind, bound) for kind in made.inputs]
