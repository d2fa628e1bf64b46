"""Constraints on symbolic shapes: what type relations take for granted, and runs must check."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Any, Dim


@dataclass(frozen=True, slots=True, eq=False)
class Requirement:
    """Two dimensions that must be equal; or, where elements are broadcast, one of some 1."""

    have: Dim
    want: Dim
    or_ones: tuple[Dim, ...]
    what: str

    def condition(self) -> Expr:
        """What holds if it is kept."""
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


_collected: ContextVar[list[Requirement] | None] = ContextVar("requirements", default=None)


def require(wanted: Requirement) -> None:
    """Note what a run must check; dimensions of which nothing is known are checked by nobody."""
    found = _collected.get()
    if found is not None and not isinstance(wanted.have, Any) and not isinstance(wanted.want, Any):
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
