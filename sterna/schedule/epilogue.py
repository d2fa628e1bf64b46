"""What follows an operator of statements in its kernel: computed where its results are stored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import INT32, Add, Expr, Sub, Var, variables_in
from sterna.ir.node import Node, post_order
from sterna.ir.visitor import Rewriter
from sterna.te import ComputeOp, PlaceholderOp, Tensor
from sterna.te.tensor import replace_loads
from sterna.tir.stmt import Buffer, BufferLoad

Finish = Callable[[Sequence[Expr], Expr], Expr]
"""The kernel's element at a place where the operator's is a value."""
Begin = Callable[[Expr], Expr]
"""What a sum of a channel begins with."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What is computed of each element of an operator's result, without another pass over it."""

    result: Tensor
    out: Tensor
    reads: tuple[Tensor, ...]
    """The parameters that it reads beside the result."""

    def element(
        self, indices: Sequence[Expr], value: Expr, buffers: Mapping[Tensor, Buffer]
    ) -> Expr:
        """The kernel's element at a place where the operator's is a value."""

        def loaded(tensor: Tensor, at: tuple[Expr, ...]) -> Expr:
            if tensor == self.result:
                return value
            if tensor in buffers:
                return BufferLoad(buffers[tensor], at)
            return replace_loads(_element_of(tensor, at), loaded)

        return loaded(self.out, tuple(indices))


def epilogue_of(result: Tensor, out: Tensor) -> Epilogue | None:
    """What makes one tensor of another; None if it is not done element by element."""
    if tuple(map(build.int_value, result.shape)) != tuple(map(build.int_value, out.shape)):
        return None
    places = tuple(Var(f"i{n}", extent.dtype) for n, extent in enumerate(out.shape))
    reads: dict[Tensor, None] = {}
    fits = True

    def loaded(tensor: Tensor, at: tuple[Expr, ...]) -> Expr | None:
        nonlocal fits
        if tensor == result:
            fits = fits and all(map(_is_place, at, places, out.shape))
        elif isinstance(tensor.op, PlaceholderOp):
            reads[tensor] = None
        elif isinstance(tensor.op, ComputeOp) and not tensor.op.reduce_axis:
            return replace_loads(_element_of(tensor, at), loaded)
        else:
            fits = False
        return None

    loaded(out, places)
    return Epilogue(result, out, tuple(reads)) if fits and out != result else None


def split_bias(finish: Finish, rank: int) -> tuple[Begin, Finish] | None:
    """What is added to a sum first, by its channel, and what is made of it then.

    Sums that begin with it need no addition after them. None if nothing of the kind is added.
    """
    places = tuple(Var(f"i{n}", INT32) for n in range(rank))
    value = Var("value", INT32)
    rest, begin = finish(places, value), None
    while (found := _added_first(rest, value, places)) is not None:
        node, term = found
        begin = term if begin is None else begin + term
        rest = _Replaced(node, value).rewrite(rest)
    if begin is None:
        return None
    first, after = begin, rest

    def followed(place: Sequence[Expr], total: Expr) -> Expr:
        known = dict(zip(places, map(build.as_expr, place), strict=True))
        element: Expr = substitute(after, {**known, value: total})
        return element

    return lambda channel: substitute(first, {places[-1]: channel}), followed


def _added_first(expr: Expr, value: Var, places: Sequence[Var]) -> tuple[Expr, Expr] | None:
    """The sum that is the only use of a value, and what it adds if that is known by its channel."""
    uses: list[Any] = []
    post_order(expr, lambda node: uses.extend(node for part in node.children() if part is value))
    if len(uses) != 1 or type(uses[0]) not in (Add, Sub) or uses[0].dtype != INT32:
        return None
    (made,) = uses
    other = made.b if made.a is value else made.a
    if {value, *places[:-1]} & set(variables_in(other)):
        return None
    if isinstance(made, Sub):
        return (made, build.const(0, INT32) - other) if made.a is value else None
    return made, other


class _Replaced(Rewriter):
    """Puts one node in the place of another."""

    def __init__(self, old: Node, new: Node) -> None:
        self.old, self.new = old, new

    def rewrite(self, node: Any) -> Any:
        return self.new if node is self.old else self.rewrite_children(node)


def _element_of(tensor: Tensor, at: tuple[Expr, ...]) -> Expr:
    op = tensor.op
    assert isinstance(op, ComputeOp)
    places = {axis.var: index for axis, index in zip(op.axis, at, strict=True)}
    element: Expr = substitute(op.body[tensor.value_index], places)
    return element


def _is_place(index: Expr, place: Var, extent: Expr) -> bool:
    return index is place or build.is_const(extent, 1)
