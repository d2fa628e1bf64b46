"""Specialisation: conditions on sizes under which something was said."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from sterna.ir.expr import CompareExpr, Expr


class SpecializedCondition:
    """The conditions for which what is chosen inside a with block is meant.

    with te.SpecializedCondition(n > 16): strategy.add_implementation(...)
    """

    def __init__(self, conditions: Expr | Sequence[Expr]) -> None:
        several = isinstance(conditions, list | tuple)
        given: list[Any] = list(conditions) if several else [conditions]  # type: ignore[arg-type]
        for condition in given:
            if not isinstance(condition, CompareExpr):
                raise TypeError(
                    f"Only support list of comparision expr: SpecializedCondition got {condition!r}"
                )
        self.clauses = given

    @staticmethod
    def current() -> "SpecializedCondition | None":
        """The conditions of the innermost block; None outside of all."""
        blocks = _BLOCKS.get()
        return blocks[-1] if blocks else None

    def __enter__(self) -> "SpecializedCondition":
        _BLOCKS.set((*_BLOCKS.get(), self))
        return self

    def __exit__(self, *exception: object) -> None:
        _BLOCKS.set(_BLOCKS.get()[:-1])


_BLOCKS: ContextVar[tuple[SpecializedCondition, ...]] = ContextVar("conditions", default=())
