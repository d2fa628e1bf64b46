"""The base of every IR node.

A node is a slots dataclass. Its fields are declared once, and everything else is derived from them:
children, rewriting that keeps identity, structural equality and hash, JSON.

Fields hold nodes, tuples of nodes, and plain values (int, float, str, bool, None, DataType, tuples
and dicts with str keys of these). `==` and `hash` mean identity, except that expressions build
comparisons with `==` (see expr.py).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform, get_origin

from sterna.ir.node_children import write_children, write_map_children
from sterna.support.dtype import DataType
from sterna.support.show_text import show_text

# Classes by name: dispatch tables and JSON find them here.
NODE_CLASSES: dict[str, type["Node"]] = {}

NodeType = TypeVar("NodeType", bound="Node")

# Types of fields in which no walk needs to look for nodes.
_PLAIN = (bool, int, float, str, DataType)


class Node:
    """Something the compiler works on."""

    __slots__ = ()

    FIELDS: ClassVar[tuple[str, ...]] = ()
    """The fields that define the node, in the order of its constructor."""
    CHILD_FIELDS: ClassVar[tuple[str, ...]] = ()
    """Those that may hold nodes."""
    DERIVED_FIELDS: ClassVar[tuple[str, ...]] = ()
    """Those that the node makes for itself, beside plain values."""
    IS_PAIR: ClassVar[bool] = False
    """Whether it is made of two nodes and nothing else, as operators are."""
    IS_STATEMENT: ClassVar[bool] = False
    """Whether it stands in no expression."""
    NAMESPACE: ClassVar[str] = ""
    """What distinguishes its class from one of the same name in another IR: "relay."."""
    CHECKS_FIELDS: ClassVar[bool] = False
    """Whether its constructor refuses fields of wrong types by itself."""

    @staticmethod
    def child_values(node: "Node") -> tuple[Any, ...]:
        """What the fields of a node that may hold nodes hold."""
        return ()

    def same_as(self, other: object) -> bool:
        """Whether both are the same object."""
        return self is other

    def show(self, style: str | None = None) -> None:
        """Print it, in colours on a terminal; style: "light", "dark" or "ansi"."""
        show_text(str(self), style)

    def children(self) -> "list[Node]":
        """The nodes in the fields, in order."""
        cls = type(self)  # the first of its class to be asked; see node_children.py
        made = write_children(cls.child_types(), Node, _nodes_in)
        cls.children = made  # type: ignore[assignment, method-assign]
        return made(self)

    def map_children(self, change: Callable[["Node"], "Node"]) -> Any:
        """The node with every child replaced; the same object when no child changed."""
        cls = type(self)
        made = write_map_children(cls.FIELDS, cls.child_types(), Node, _map_value)
        cls.map_children = made  # type: ignore[assignment, method-assign]
        return made(self, change)

    @classmethod
    def child_types(cls) -> dict[str, object]:
        """The types of the fields that may hold nodes."""
        types = {f.name: f.type for f in fields(cls)}  # type: ignore[arg-type]
        return {name: types[name] for name in cls.CHILD_FIELDS}


@dataclass_transform(eq_default=False)
def node(cls: type[NodeType]) -> type[NodeType]:
    """Makes a class a node: a dataclass with slots, registered under its name.

    Fields that the constructor does not take are derived and do not define the node.
    """
    made = dataclass(slots=True, eq=False, repr=False)(cls)
    defining = [f for f in fields(made) if f.init]  # type: ignore[arg-type]
    made.FIELDS = tuple(f.name for f in defining)
    made.CHILD_FIELDS = tuple(
        f.name for f in defining if f.type not in _PLAIN and get_origin(f.type) is not Literal
    )
    made.DERIVED_FIELDS = tuple(
        f.name for f in fields(made) if not f.init and f.type not in _PLAIN  # type: ignore[arg-type]
    )
    read = _reader(made.CHILD_FIELDS)
    made.child_values = staticmethod(read)  # type: ignore[assignment, method-assign]
    # not those of a base, which were written out for its fields
    made.children = Node.children  # type: ignore[method-assign]
    made.map_children = Node.map_children  # type: ignore[method-assign]
    types = {f.name: f.type for f in defining}
    plain = all(_is_node(types[name]) for name in made.CHILD_FIELDS)
    made.IS_PAIR = plain and made.FIELDS == made.CHILD_FIELDS and len(made.FIELDS) == 2
    name = class_name(made)
    known = NODE_CLASSES.setdefault(name, made)
    if known is not made and known.__module__ != made.__module__:
        raise TypeError(f"two nodes are named {name}")
    NODE_CLASSES[name] = made
    return made


def _is_node(annotation: object) -> bool:
    """Whether a field of a type holds one node."""
    return isinstance(annotation, type) and issubclass(annotation, Node)


def _reader(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that gives some fields of a node."""
    if not names:
        return lambda _: ()
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda node: (read(node),)


def class_name(kind: type[Node]) -> str:
    """The name under which a class of nodes is registered."""
    return kind.NAMESPACE + kind.__name__


def _nodes_in(value: Any) -> list[Node]:
    """The nodes in what a field holds, in order."""
    found: list[Node] = []
    _add_nodes_in(value, found)
    return found


def _add_nodes_in(value: Any, found: list[Node]) -> None:
    if isinstance(value, Node):
        found.append(value)
    elif isinstance(value, tuple):
        for item in value:
            _add_nodes_in(item, found)
    elif isinstance(value, dict):
        for item in value.values():
            _add_nodes_in(item, found)


def _map_value(value: Any, change: Callable[[Node], Node]) -> Any:
    if isinstance(value, Node):
        return change(value)
    if isinstance(value, tuple) and value:
        mapped = [_map_value(item, change) for item in value]
        for before, after in zip(value, mapped, strict=True):
            if before is not after:
                return tuple(mapped)
        return value
    if isinstance(value, dict) and value:
        changed = {key: _map_value(item, change) for key, item in value.items()}
        return value if all(changed[key] is value[key] for key in value) else changed
    return value


def map_children(original: NodeType, change: Callable[[Node], Node]) -> NodeType:
    """The node with every child replaced; the same object when no child changed."""
    mapped: NodeType = original.map_children(change)
    return mapped


def post_order(root: Node, visit: Callable[[Node], object]) -> None:
    """Visit every node once, children first."""
    seen = {id(root)}
    stack = [(root, iter(root.children()))]
    while stack:
        current, rest = stack[-1]
        for child in rest:
            if id(child) in seen:
                continue
            seen.add(id(child))
            if child.CHILD_FIELDS and (inner := child.children()):
                stack.append((child, iter(inner)))
                break
            visit(child)
        else:
            stack.pop()
            visit(current)


def nodes_of(root: Node, kind: type[NodeType]) -> Iterator[NodeType]:
    """The nodes of a class, each once, those that are found soonest first."""
    seen, stack = {id(root)}, [root]
    while stack:
        node = stack.pop()
        if isinstance(node, kind):
            yield node
        for child in node.children():
            if (child.CHILD_FIELDS or isinstance(child, kind)) and id(child) not in seen:
                seen.add(id(child))
                stack.append(child)
