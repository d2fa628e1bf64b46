"""The memory that a kernel takes for itself while it runs."""

from dataclasses import dataclass

from sterna.ir.visitor import ExprVisitor
from sterna.tir.stmt import Allocate, For, PrimFunc


@dataclass(frozen=True, slots=True)
class Workspace:
    """The most bytes that are allocated at a time."""

    bytes: int = 0
    """Once for the kernel."""
    thread_bytes: int = 0
    """In each thread of its parallel loops."""


def workspace_of(function: PrimFunc) -> Workspace:
    """What a function's loops allocate; a buffer whose size only the run tells counts as none."""
    meter = _Meter()
    meter.visit(function.body)
    return Workspace(meter.most[False], meter.most[True])


class _Meter(ExprVisitor):
    def __init__(self) -> None:
        self.in_parallel = False
        self.now = {False: 0, True: 0}
        self.most = {False: 0, True: 0}

    def visit_For(self, loop: For) -> None:
        outer = self.in_parallel
        self.in_parallel = outer or loop.kind == "parallel"
        self.visit_children(loop)
        self.in_parallel = outer

    def visit_Allocate(self, allocate: Allocate) -> None:
        where, size = self.in_parallel, allocate.buffer.known_bytes or 0
        self.now[where] += size
        self.most[where] = max(self.most[where], self.now[where])
        self.visit(allocate.body)
        self.now[where] -= size
