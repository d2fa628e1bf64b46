"""Run everything in one thread."""

from sterna.ir.visitor import Rewriter
from sterna.tir.stmt import For, PrimFunc, Stmt


def in_one_thread(func: PrimFunc) -> PrimFunc:
    """parallel for i: S   ->   for i: S"""
    return func.with_body(_Serializer().rewrite(func.body))


class _Serializer(Rewriter):
    def visit_For(self, loop: For) -> Stmt:
        kind = "serial" if loop.kind == "parallel" else loop.kind
        return loop.with_body(self.rewrite(loop.body), kind)
