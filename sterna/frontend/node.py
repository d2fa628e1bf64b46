"""What converters work with: a node of a model, its operands and what is known about them.

A converter is a function from a Node to an expression, or to one per output.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from sterna.frontend.calls import type_of
from sterna.frontend.limits import MOST_NUMBERS
from sterna.frontend.open_shapes import UndecidedError
from sterna.ir.types import Dim
from sterna.relay.analysis import free_vars
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.expr import Constant, Function, RelayExpr, Var
from sterna.relay.interpreter import interpret
from sterna.relay.symbolic_values import extents_in, symbolic_value
from sterna.relay.symbols import simplified_dim
from sterna.runtime import NDArray
from sterna.support.dtype import DataType

Result = RelayExpr | Sequence[RelayExpr | None]
# An extent that is not known, as in the shape of a reshape.
OPEN = -1


@dataclass(slots=True)
class Feeds:
    """What a model will be run on, for operands that decide the graph itself, such as shapes."""

    values: dict[str, Array] = field(default_factory=dict)
    decisive: set[str] = field(default_factory=set)
    """The inputs whose values were asked for: the graph holds for these values alone."""

    can_measure: ClassVar[bool] = False
    """Whether values whose shapes only runs tell can be run and measured."""
    keeps_loops: ClassVar[bool] = False
    """Whether loops may stay loops, which graphs have none of."""

    def measured(self, count: RelayExpr, results: Sequence[RelayExpr]) -> list[RelayExpr]:
        """Results of known shapes, as a run for these inputs gives them; a count decides."""
        raise UndecidedError(f"only a run tells the shape of {results!r}")

    def by_host(
        self, function: Callable[[list[Array]], list[Array]], operands: Sequence[RelayExpr],
        count: int, text: DataType,
    ) -> list[RelayExpr]:
        """What a function of the host makes of operands; text is the element type of strings."""
        raise UndecidedError(
            "a part of the model is run by the host in each run: sterna.compile does that, graphs "
            "of Relay cannot"
        )

    def value_of(self, expr: RelayExpr) -> Array | None:
        """The value of an expression, if it depends on nothing but these inputs."""
        if isinstance(expr, Constant):
            return to_numpy(expr.data)
        if not self.values:  # a call of constants was too large to be computed
            return None
        needed = free_vars(expr)
        if any(var.name_hint not in self.values for var in needed):
            return None
        self.decisive.update(var.name_hint for var in needed)
        given = [self.values[var.name_hint] for var in needed]
        return np.asarray(interpret(Function(tuple(needed), expr), *given))


class ProgramFeeds(Feeds):
    """What nothing is known of but extents: a program for all values, in which loops stay."""

    keeps_loops: ClassVar[bool] = True

    def measured(self, count: RelayExpr, results: Sequence[RelayExpr]) -> list[RelayExpr]:
        """The results as they are: each run tells their shapes."""
        return list(results)


@dataclass(slots=True)
class Node:
    """One node of a model: its operands as expressions and its attributes as Python's values.

    A format whose nodes say more has a class of its own, made from this one.
    """

    kind: str
    name: str
    inputs: list[RelayExpr | None]
    attrs: dict[str, Any]
    outputs: list[str]
    """The names of the results; an empty one is not wanted."""
    weights: dict[Var, NDArray] = field(default_factory=dict)
    """What is known about variables: the model's own weights."""
    feeds: Feeds = field(default_factory=Feeds)

    # ---- operands ----

    def has(self, place: int) -> bool:
        """Whether there is an operand at that place."""
        return place < len(self.inputs) and self.inputs[place] is not None

    def __getitem__(self, place: int) -> RelayExpr:
        found = self.inputs[place] if place < len(self.inputs) else None
        if found is None:
            raise ValueError(f"{self}: operand {place} is missing")
        return found

    def get(self, place: int) -> RelayExpr | None:
        """The operand at that place, if there is one."""
        return self.inputs[place] if self.has(place) else None

    def operands(self) -> list[RelayExpr]:
        """All operands, none of which may be missing."""
        return [self[place] for place in range(len(self.inputs))]

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute or what it is if it is not given."""
        return self.attrs.get(name, default)

    def positive(self, name: str) -> int:
        """An attribute that must be given, and above 0."""
        given = self.attr(name)
        if not isinstance(given, int) or given < 1:
            raise ValueError(f"it needs the attribute {name}, a number above 0, not {given}")
        return given

    def wants(self, place: int) -> bool:
        """Whether the result of that place has a name, so that something may read it."""
        return place < len(self.outputs) and bool(self.outputs[place])

    # ---- what is known when the model is imported ----

    def known(self, place: int) -> Array | None:
        """The value of an operand, if it is known."""
        expr = self[place]
        if isinstance(expr, Constant):
            return to_numpy(expr.data)
        if isinstance(expr, Var) and expr in self.weights:
            return to_numpy(self.weights[expr])
        return None

    def decided(self, place: int) -> Array | None:
        """The value of an operand that decides the graph, if it is known or the inputs tell it."""
        value = self.known(place)
        return self.feeds.value_of(self[place]) if value is None else value

    def array(self, place: int, what: str) -> Array:
        """The value of an operand that must be known."""
        value = self.decided(place)
        if value is None:
            raise UndecidedError(
                f"{self}: {what} depends on the model's inputs or on a dimension that is not "
                "known; give the inputs' shapes by shape={name: (...)}, or fold it in the model"
            )
        return value

    def ints(self, place: int, what: str) -> list[int]:
        """The whole numbers of an operand that must be known."""
        return self._few(self.array(place, what), what)

    def static(self, place: int) -> tuple[Dim, ...] | RelayExpr:
        """The numbers of an operand if they or extents that they are computed from are known.

        Else the operand.
        """
        value = self.decided(place)
        if value is not None:
            return tuple(self._few(value, f"operand {place}"))
        numbers = symbolic_value(self[place])
        return self[place] if numbers is None else tuple(numbers.ravel().tolist())

    def sizes(self, place: int, what: str) -> tuple[Dim, ...]:
        """The extents that an operand says; it may be told of some only which others they are."""
        value = self.decided(place)
        found = extents_in(self[place]) if value is None else None
        return tuple(self.ints(place, what)) if found is None else tuple(found.ravel().tolist())

    def _few(self, value: Array, what: str) -> list[int]:
        """Whole numbers one by one: extents, axes and such."""
        if value.size > MOST_NUMBERS:
            raise ValueError(f"{self}: {what} has {value.size} numbers, more than {MOST_NUMBERS}")
        return [int(number) for number in value.reshape(-1)]

    def number(self, place: int, what: str) -> Any:
        """The one number of an operand that must be known."""
        value = self.array(place, what)
        if value.size != 1:
            raise ValueError(f"{self}: {what} is one number, not {value.size} of them")
        return value.reshape(()).item()

    def shape(self, place: int = 0) -> tuple[int, ...]:
        """The shape of an operand, which must be known."""
        return self.shape_of(self[place])

    def shape_of(self, expr: RelayExpr) -> tuple[int, ...]:
        """The shape of an expression, which must be known."""
        kind = type_of(expr)
        if not kind.is_static:
            raise UndecidedError(
                f"{self}: it needs the whole shape of its operand, which is {kind}; "
                "give the inputs' shapes by shape={name: (...)}"
            )
        return tuple(int(extent) for extent in kind.concrete_shape)

    def dims(self, place: int = 0) -> tuple[Dim, ...]:
        """The shape of an operand: numbers, and what stands for extents that are open."""
        return tuple(simplified_dim(dim) for dim in type_of(self[place]).shape)

    def extents(self, axes: Iterable[int], place: int = 0) -> tuple[int, ...]:
        """The extents of some axes of an operand, which must be known; others may be open."""
        return self.extents_of(self[place], axes)

    def extents_of(self, expr: RelayExpr, axes: Iterable[int]) -> tuple[int, ...]:
        """The extents of some axes of an expression, which must be known; others may be open."""
        shape = type_of(expr).shape
        found = [shape[axis] for axis in axes]
        known = tuple(extent for extent in found if isinstance(extent, int))
        return known if len(known) == len(found) else self.shape_of(expr)

    def __str__(self) -> str:
        return f"node '{self.name}' ({self.kind})"
