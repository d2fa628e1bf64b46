"""Constraints on symbolic shapes: what type relations take for granted, and runs must check."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Any, Dim


class Requirement(ABC):
    """Something that must hold of dimensions; its text says what, for an error."""

    @abstractmethod
    def dims(self) -> tuple[Dim, ...]:
        """The dimensions that it speaks of."""

    @abstractmethod
    def condition(self) -> Expr:
        """What holds if it is kept."""


@dataclass(frozen=True, slots=True, eq=False)
class EqualDims(Requirement):
    """Two dimensions that must be equal; or, where elements are broadcast, one of some 1."""

    have: Dim
    want: Dim
    or_ones: tuple[Dim, ...]
    what: str

    def dims(self) -> tuple[Dim, ...]:
        return (self.have, self.want)

    def condition(self) -> Expr:
        have, want = build.as_expr(self.have), build.as_expr(self.want)
        holds = build.equal(have, want)
        for each in map(build.as_expr, self.or_ones):
            if build.int_value(each) is None:
                holds = build.logical_or(holds, build.equal(each, 1))
        return holds

    def __str__(self) -> str:
        ones = "one of them" if len(self.or_ones) > 1 else f"{self.have}"
        or_one = f", or {ones} 1" if self.or_ones else ""
        return f"{self.what}: {self.have} and {self.want} must be equal{or_one}"


@dataclass(frozen=True, slots=True, eq=False)
class NotEmpty(Requirement):
    """A dimension that is not 0, unless the result that is read from it has no elements."""

    have: Dim
    result: tuple[Dim, ...]
    what: str

    def dims(self) -> tuple[Dim, ...]:
        return (self.have, *self.result)

    def condition(self) -> Expr:
        holds = build.not_equal(build.as_expr(self.have), 0)
        for each in map(build.as_expr, self.result):
            if build.int_value(each) is None:
                holds = build.logical_or(holds, build.equal(each, 0))
        return holds

    def __str__(self) -> str:
        return f"{self.what}: the dimension {self.have} must not be 0"


_collected: ContextVar[list[Requirement] | None] = ContextVar("requirements", default=None)


def require(wanted: Requirement) -> None:
    """Note what a run must check; dimensions of which nothing is known are checked by nobody."""
    found = _collected.get()
    if found is not None and not any(isinstance(dim, Any) for dim in wanted.dims()):
        found.append(wanted)


@contextmanager
def collecting() -> Iterator[list[Requirement]]:
    """Collects what is noted meanwhile."""
    found: list[Requirement] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)
