"""Walks over statements and expressions, by the functions that classic passes are written with."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sterna.arith import substitute as substitute_in
from sterna.ir.build import as_expr
from sterna.ir.expr import Expr, Var
from sterna.ir.node import Node, class_name, map_children, post_order
from sterna.tir.stmt import PrimFunc, Stmt

Change = Callable[[Any], Any] | None


def post_order_visit(node: Stmt | Expr | PrimFunc, fvisit: Callable[[Any], object]) -> None:
    """Call a function with every node once, children first."""
    post_order(_body(node), fvisit)


def pre_order_visit(node: Stmt | Expr | PrimFunc, fvisit: Callable[[Any], bool]) -> None:
    """Call a function with every node, parents first; where it says False children are left out."""
    stack: list[Node] = [_body(node)]
    while stack:
        current = stack.pop()
        if fvisit(current) is not False:
            stack += reversed(current.children())


def ir_transform(
    stmt: Stmt, preorder: Change, postorder: Change, only_enable: Sequence[str] | None = None
) -> Stmt:
    """A statement in which nodes are replaced by what functions give for them; None keeps a node.

    preorder: asked first; its answer is taken as it is, without a look at its children.
    only_enable: the classes of nodes that are asked about, as "tir.For"; none: all statements.
    """
    wanted = None if only_enable is None else {name.rpartition(".")[2] for name in only_enable}

    def is_asked(node: Node) -> bool:
        if wanted is None:
            return isinstance(node, Stmt)
        return class_name(type(node)).rpartition(".")[2] in wanted or type(node).__name__ in wanted

    def change(node: Node) -> Any:
        asked = is_asked(node)
        if asked and preorder is not None and (made := preorder(node)) is not None:
            return made
        changed = map_children(node, change)
        if asked and postorder is not None and (made := postorder(changed)) is not None:
            return made
        return changed

    result = change(stmt)
    if not isinstance(result, Stmt):
        raise TypeError(f"ir_transform makes a statement of {stmt}, not {result!r}")
    return result


def substitute(node: Stmt | Expr, vmap: Mapping[Var, Any]) -> Any:
    """A statement or an expression with other expressions in the place of variables."""
    return substitute_in(node, {var: as_expr(value) for var, value in vmap.items()})


def _body(node: Any) -> Node:
    found: Node = node.body if isinstance(node, PrimFunc) else node
    return found
