"""Write out the loops that are marked unrolled."""

from sterna.ir import build
from sterna.ir.visitor import Rewriter
from sterna.tir.copy import copy_stmt
from sterna.tir.stmt import For, PrimFunc, Stmt, nothing, seq


def unroll_loops(func: PrimFunc) -> PrimFunc:
    """for i in range(2):  # unrolled: A[i] = 0   ->   A[0] = 0; A[1] = 0"""
    return func.with_body(_Unroller().rewrite(func.body))


class _Unroller(Rewriter):
    def visit_For(self, loop: For) -> Stmt:
        count = build.int_value(loop.extent)
        if loop.kind != "unrolled" or count is None:
            kept: Stmt = self.rewrite_children(loop)
            return kept
        body = self.rewrite(loop.body)
        copies = [copy_stmt(body, {loop.var: build.add(loop.min, i)}) for i in range(count)]
        return seq(*copies) if copies else nothing()
