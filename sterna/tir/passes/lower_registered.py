"""Calls of users' own as calls that code generators know.

    mylog(x)                                    ->   what a rule that was registered says
    call_pure_extern("__expf", x), for a GPU    ->   exp(x)

GPUs have no C library to link with: its functions of numbers, and CUDA's, are intrinsics there.
"""

from typing import Any

from sterna.ir.expr import Call, Expr, StringImm
from sterna.ir.visitor import Rewriter
from sterna.tir.intrinsics import INTRINSICS
from sterna.tir.registered import by_rule, is_registered
from sterna.tir.stmt import PrimFunc

_SUFFIX = {"float32": "f", "float64": ""}
_BY_NAME = {row.spelled["c"]: row.name for row in INTRINSICS.values()
            if row.spelled.get("c", "").isidentifier()}


def lower_registered(func: PrimFunc, kind: str, on_gpu: bool) -> PrimFunc:
    """The function for targets of a kind."""
    return func.with_body(_Lowering(kind, on_gpu).rewrite(func.body))


class _Lowering(Rewriter):
    def __init__(self, kind: str, on_gpu: bool) -> None:
        self.kind, self.on_gpu = kind, on_gpu
        self.inside: list[str] = []
        """The intrinsics whose rules are being followed."""
        self.done: set[Expr] = set()
        """What rules were given, in which all is lowered already."""

    def rewrite(self, node: Any) -> Any:
        """The node, lowered once."""
        return node if node in self.done else super().rewrite(node)

    def visit_Call(self, call: Call) -> Expr:
        done: Call = self.rewrite_children(call)
        if is_registered(done.op) and done.op not in self.inside:
            made = by_rule(done, self.kind)
            if made is done:
                return done
            self.done.update(done.args)
            self.inside.append(done.op)  # a rule for a known one may well say it by itself
            lowered: Expr = self.rewrite(made)
            self.inside.pop()
            return lowered
        if self.on_gpu and done.op == "call_pure_extern":
            found = _mathematics(done)
            return done if found is None else found
        return done


def _mathematics(call: Call) -> Expr | None:
    """A function of <math.h> or of CUDA as an intrinsic."""
    name, suffix = call.args[0], _SUFFIX.get(str(call.dtype))
    if suffix is None or not isinstance(name, StringImm):
        return None
    plain = name.value.removeprefix("__" if suffix else "")
    found = _BY_NAME.get(plain.removesuffix(suffix)) if plain.endswith(suffix) else None
    if found is None or INTRINSICS[found].arity != len(call.args) - 1:
        return None
    return Call(call.dtype, found, call.args[1:])
