"""Workspace lifting: take the memory that a function works in from its caller."""

from sterna.ir.visitor import Rewriter
from sterna.tir.stmt import Allocate, Buffer, For, PrimFunc, Stmt

LARGEST_LOCAL = 256
"""Bytes of a buffer that stays on the stack, where a compiler can keep it in registers."""


def lift_allocations(func: PrimFunc, largest_local: int = LARGEST_LOCAL) -> PrimFunc:
    """def f(A): allocate B; S   ->   def f(A, B): S

    The function must run its loops in one thread: a caller has one such memory, not one per thread.
    """
    lifter = _Lifter(func.name, largest_local)
    body = lifter.rewrite(func.body)
    if not lifter.lifted:
        return func
    params = (*func.params, *(buffer.data for buffer in lifter.lifted))
    buffers = (*func.buffers, *lifter.lifted)
    return PrimFunc(func.name, params, buffers, body, func.attrs)


class _Lifter(Rewriter):
    def __init__(self, name: str, largest_local: int) -> None:
        self.name = name
        self.largest_local = largest_local
        self.lifted: list[Buffer] = []

    def visit_For(self, loop: For) -> Stmt:
        made: Stmt = self.rewrite_children(loop)
        assert loop.kind != "parallel" or not self.lifted, f"{self.name} runs in several threads"
        return made

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        size = stmt.buffer.known_bytes
        if size is None:
            raise ValueError(
                f"{self.name} needs memory of a size that only its run tells ({stmt.buffer.name}), "
                "which no caller can give"
            )
        if size <= self.largest_local:
            kept: Stmt = self.rewrite_children(stmt)
            return kept
        self.lifted.append(stmt.buffer)
        body: Stmt = self.rewrite(stmt.body)
        return body
