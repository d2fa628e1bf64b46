"""Visiting and rewriting by the class of a node.

A subclass defines visit_Add, visit_For, ... for the nodes it cares about; all others are walked
through. A method that names no node class is refused when the class is made.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from sterna.ir.expr import Expr
from sterna.ir.node import NODE_CLASSES, Node


class _Dispatcher:
    """Finds the method for a node's class."""

    _methods: ClassVar[dict[str, Callable[..., Any]]] = {}
    _found: ClassVar[dict[type, Callable[..., Any] | None]] = {}
    _skips_expressions: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        found: dict[str, Callable[..., Any]] = {}
        for base in reversed(cls.__mro__):
            for name, method in vars(base).items():
                if name.startswith("visit_") and name != "visit_children":
                    if name[6:] not in NODE_CLASSES:
                        raise TypeError(f"{cls.__name__}.{name}: there is no node {name[6:]}")
                    found[name[6:]] = method
        cls._methods, cls._found = found, {}
        only_statements = found and all(NODE_CLASSES[name].IS_STATEMENT for name in found)
        cls._skips_expressions = bool(only_statements) and not cls._overrides_walk()

    @classmethod
    def _overrides_walk(cls) -> bool:
        """Whether a subclass sees nodes by other means than methods for their classes."""
        return any(
            name in vars(base)
            for base in cls.__mro__
            if base.__module__ != __name__
            for name in ("visit", "visit_children", "rewrite", "rewrite_children")
        )

    def _method(self, kind: type[Node]) -> Callable[..., Any] | None:
        if kind not in self._found:
            named = (self._methods.get(base.__name__) for base in kind.__mro__)
            method = next((method for method in named if method is not None), None)
            if method is None and not kind.CHILD_FIELDS:
                method = _keep
            if method is None and self._skips_expressions and issubclass(kind, Expr):
                method = _keep
            self._found[kind] = method
        return self._found[kind]


def _keep(_: _Dispatcher, node: Node) -> Node:
    """A leaf, or an expression in which a visitor of statements finds nothing."""
    return node


class ExprVisitor(_Dispatcher):
    """Walks through nodes for what it finds."""

    def visit(self, node: Node) -> None:
        """Visit a node by its class's method, or its children."""
        kind = type(node)
        method = self._found[kind] if kind in self._found else self._method(kind)
        if method is None:
            self.visit_children(node)
        else:
            method(self, node)

    def visit_children(self, node: Node) -> None:
        """Visit every child."""
        for child in node.children():
            self.visit(child)


class Rewriter(_Dispatcher):
    """Rebuilds nodes; what does not change stays the same object."""

    def rewrite(self, node: Any) -> Any:
        """The node, rewritten by its class's method or with its children rewritten."""
        try:
            method = self._found[type(node)]
        except KeyError:
            method = self._method(type(node))
        return node.map_children(self.rewrite) if method is None else method(self, node)

    def rewrite_children(self, node: Any) -> Any:
        """The node with every child rewritten."""
        return node.map_children(self.rewrite)
