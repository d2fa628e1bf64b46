"""Putting expressions in the place of variables."""

from collections.abc import Mapping
from typing import Any

from sterna.ir.expr import Expr, Var
from sterna.ir.node import Node, NodeType
from sterna.ir.visitor import Rewriter


class _Substitution(Rewriter):
    """Rewrites every node once, so that what was shared (a buffer, say) stays shared."""

    def __init__(self, mapping: Mapping[Var, Expr]) -> None:
        self.mapping: dict[int, Node] = {id(var): expr for var, expr in mapping.items()}
        self.done: dict[int, tuple[Node, Node]] = {}  # the first holds the id's owner alive

    def rewrite(self, node: Any) -> Any:
        if isinstance(node, Var):
            return self.mapping.get(id(node), node)
        known = self.done.get(id(node))
        if known is not None:
            return known[1]
        changed = self.rewrite_children(node)
        if changed is not node:
            changed = self._keep_binder(node, changed)
            self._map_derived(node, changed)
        self.done[id(node)] = node, changed
        return changed

    def _keep_binder(self, old: Any, new: Any) -> Any:
        """What binds a variable (a field named var) binds a variable, never an expression."""
        if "var" not in old.FIELDS or isinstance(new.var, Var):
            return new
        values = [old.var if name == "var" else getattr(new, name) for name in old.FIELDS]
        return old if all(
            value is getattr(old, name) for name, value in zip(old.FIELDS, values, strict=True)
        ) else type(old)(*values)

    def _map_derived(self, old: Node, new: Node) -> None:
        """A rebuilt buffer has an address variable of its own; uses of the old one follow."""
        for name in old.DERIVED_FIELDS:
            value = getattr(old, name)
            if isinstance(value, Var):
                self.mapping[id(value)] = getattr(new, name)


def substitute(node: NodeType, mapping: Mapping[Var, Expr]) -> NodeType:
    """The node with variables replaced; the same object when none occurs in it.

    substitute(x*4 + y, {y: z//2}) → x*4 + z//2
    """
    if not mapping:
        return node
    result: NodeType = _Substitution(mapping).rewrite(node)
    return result
