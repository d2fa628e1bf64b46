"""Scalar loops: those in which LLVM may still find vectors."""

from collections.abc import Iterable

from sterna.ir import build
from sterna.tir.stmt import BufferStore, For, PrimFunc, Stmt, statements_in


def has_scalar_loops(functions: Iterable[PrimFunc]) -> bool:
    """Whether an innermost loop of a function stores single elements and no vectors."""
    return any(_Innermost().look(function.body) for function in functions)


class _Innermost:
    def __init__(self) -> None:
        self.loops = 0

    def look(self, stmt: Stmt) -> bool:
        """Whether a statement holds such a loop."""
        if isinstance(stmt, For):
            before = self.loops
            if self.look(stmt.body):
                return True
            is_loop = build.int_value(stmt.extent) != 1
            self.loops += is_loop
            return is_loop and self.loops == before + 1 and _stores_elements(stmt.body)
        return any(self.look(part) for part in stmt.children() if isinstance(part, Stmt))


def _stores_elements(stmt: Stmt) -> bool:
    """Whether all of its stores, of which there are some, are of single elements."""
    stores = (part for part in statements_in(stmt) if isinstance(part, BufferStore))
    lanes = [store.value.dtype.lanes for store in stores]
    return bool(lanes) and max(lanes) == 1
