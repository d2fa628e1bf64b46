"""Nodes as JSON: exchange and storage without pickle.

    {"format": "sterna-ir", "version": 1, "root": <value>,
     "nodes": [{"class": "Var", "name": "i", "dtype": {"dtype": "int32"}, "is_size": false}, ...]}

Nodes stand after their children, and a node that occurs twice is written once. A value is a number,
text, true, false, null, a list (a tuple), or an object with one key that says what it is:
{"node": index}, {"owned": index, "field": name} (a variable that belongs to a buffer),
{"float": text}, {"dtype": name}, {"dict": {...}}, {"module": {...}}, {"array": ...} and the tags of
other leaves (leaves.py).
"""

import json
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

from sterna.ir.leaves import LEAVES, leaf_of
from sterna.ir.module import IRModule
from sterna.ir.node import NODE_CLASSES, Node, class_name
from sterna.ir.structural import IDENTITIES
from sterna.support.dtype import DataType

FORMAT = "sterna-ir"
VERSION = 1


# ---- saving ----


def save_json(root: Any, indent: int | None = None) -> str:
    """A node (or module, tuple or dict of nodes) as JSON."""
    saver = _Saver(root)
    return json.dumps(
        {
            "format": FORMAT,
            "version": VERSION,
            "root": saver.value(root),
            "nodes": saver.nodes,
        },
        indent=indent,
        allow_nan=False,
    )


class _Saver:
    def __init__(self, root: Any) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.index: dict[int, int] = {}
        self.owners: dict[int, tuple[Node, str]] = {}
        for found in _all_nodes(root):
            identity = IDENTITIES.get(type(found))
            for name in identity.owned if identity is not None else ():
                self.owners[id(getattr(found, name))] = (found, name)
        self._write_all(root)

    def _write_all(self, root: Any) -> None:
        stack: list[tuple[Node, bool]] = [(child, False) for child in _nodes_in(root)]
        stack.reverse()
        while stack:
            node, ready = stack.pop()
            if id(node) in self.index:
                continue
            if ready:
                self.index[id(node)] = len(self.nodes)
                row = {"class": class_name(type(node))}
                self.nodes.append(
                    row | {name: self.value(getattr(node, name)) for name in node.FIELDS}
                )
                continue
            if id(node) in self.owners:
                stack.append((self.owners[id(node)][0], False))
                continue
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(node.children()))

    def value(self, value: Any) -> Any:
        if isinstance(value, Node):
            if id(value) in self.owners:
                owner, name = self.owners[id(value)]
                return {"owned": self.index[id(owner)], "field": name}
            return {"node": self.index[id(value)]}
        if isinstance(value, IRModule):
            parts = {"functions": value.functions, "attrs": value.attrs}
            return {"module": {key: self.value(part) for key, part in parts.items()}}
        if isinstance(value, tuple):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                raise TypeError("a dict in a node has keys of text")
            return {"dict": {key: self.value(item) for key, item in value.items()}}
        if isinstance(value, DataType):
            return {"dtype": str(value)}
        if isinstance(value, float):
            return {"float": repr(float(value))}
        if value is None or isinstance(value, (bool, int, str)):
            return value
        leaf = leaf_of(value)
        if leaf is None:
            raise TypeError(f"{value!r} of type {type(value).__name__} cannot be saved as JSON")
        return {leaf.tag: leaf.to_json(value)}


def _nodes_in(value: Any) -> Iterator[Node]:
    """The outermost nodes in a value."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, IRModule):
        yield from _nodes_in((value.functions, value.attrs))
    elif isinstance(value, (tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _nodes_in(item)


def _all_nodes(root: Any) -> Iterator[Node]:
    seen: set[int] = set()
    stack = list(_nodes_in(root))
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            stack.extend(node.children())


# ---- loading ----


def load_json(text: str | bytes) -> Any:
    """The node that save_json wrote; ValueError says what is wrong with anything else."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("this is no saved IR: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"this is no saved IR: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f'this is no saved IR: it lacks "format": "{FORMAT}"')
    if data.get("version") != VERSION:
        raise ValueError(f"saved IR of version {data.get('version')!r}; this reads {VERSION}")
    rows = data.get("nodes")
    if not isinstance(rows, list) or "root" not in data:
        raise ValueError("the saved IR lacks its list of nodes or its root")
    loader = _Loader()
    try:
        for at, row in enumerate(rows):
            loader.where = f"node {at}"
            loader.nodes.append(loader.node(row))
        loader.where = "the root"
        return loader.value(data["root"])
    except RecursionError:
        raise loader.fail("it is nested too deeply") from None


class _Loader:
    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.where = ""

    def fail(self, reason: str) -> ValueError:
        return ValueError(f"the saved IR is broken: {self.where}: {reason}")

    def node(self, row: Any) -> Node:
        if not isinstance(row, dict) or not isinstance(row.get("class"), str):
            raise self.fail("it has no class")
        name = row["class"]
        kind = NODE_CLASSES.get(name)
        if kind is None:
            raise self.fail(f"there is no class '{name[:80]}'")
        self.where = f"{self.where} ({name})"
        if set(row) - {"class"} != set(kind.FIELDS):
            given = ", ".join(sorted(set(row) - {"class"}))[:200] or "nothing"
            raise self.fail(f"its fields are {', '.join(kind.FIELDS)}, not {given}")
        hints = {} if kind.CHECKS_FIELDS else _field_types(kind)
        values = []
        for field in kind.FIELDS:
            value = self.value(row[field])
            if not _fits(value, hints.get(field, Any)):
                shown = type(value).__name__
                raise self.fail(f"the field {field} cannot hold {shown} {str(row[field])[:80]}")
            values.append(value)
        try:
            return kind(*values)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise self.fail(str(error)) from None

    def value(self, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(self.value(item) for item in value)
        if isinstance(value, dict):
            return self._tagged(value)
        if isinstance(value, float):
            raise self.fail(f"the number {value} is not written as a float")
        return value

    def _tagged(self, value: dict[str, Any]) -> Any:
        keys = tuple(sorted(value))
        if keys == ("node",):
            return self._reference(value["node"])
        if keys == ("field", "owned"):
            owner = self._reference(value["owned"])
            identity = IDENTITIES.get(type(owner))
            if identity is None or value["field"] not in identity.owned:
                raise self.fail(f"{type(owner).__name__} owns no '{str(value['field'])[:80]}'")
            return getattr(owner, value["field"])
        if keys == ("float",) and isinstance(value["float"], str):
            try:
                return float(value["float"])
            except ValueError:
                raise self.fail(f"'{value['float'][:80]}' is no float") from None
        if keys == ("dtype",) and isinstance(value["dtype"], str):
            try:
                return DataType(value["dtype"])
            except ValueError as error:
                raise self.fail(str(error)) from None
        if keys == ("dict",) and isinstance(value["dict"], dict):
            return {key: self.value(item) for key, item in value["dict"].items()}
        if len(keys) == 1 and keys[0] in LEAVES:
            try:
                return LEAVES[keys[0]].from_json(value[keys[0]])
            except (KeyError, TypeError, ValueError) as error:
                raise self.fail(f"its {keys[0]} cannot be read: {error}") from None
        if keys == ("module",) and isinstance(value["module"], dict):
            return self._module(value["module"])
        raise self.fail(f"{str(value)[:80]} is no value")

    def _reference(self, index: Any) -> Node:
        if type(index) is not int or not 0 <= index < len(self.nodes):
            raise self.fail(f"it refers to node {str(index)[:80]}, which does not come before it")
        return self.nodes[index]

    def _module(self, parts: dict[str, Any]) -> IRModule:
        functions, attrs = self.value(parts.get("functions")), self.value(parts.get("attrs"))
        if not isinstance(functions, dict) or not isinstance(attrs, dict):
            raise self.fail("a module has functions and attrs")
        if not all(isinstance(function, Node) for function in functions.values()):
            raise self.fail("a module's functions are nodes")
        return IRModule(functions, attrs)


_FIELD_TYPES: dict[type[Node], dict[str, Any]] = {}


def _field_types(kind: type[Node]) -> dict[str, Any]:
    if kind not in _FIELD_TYPES:
        # A name that only a type checker imports is that of a node; the module's own come first.
        own = {name for base in kind.__mro__ for name in vars(sys.modules[base.__module__])}
        nodes = {each.__name__: each for each in _all_kinds(Node) if each.__name__ not in own}
        _FIELD_TYPES[kind] = typing.get_type_hints(kind, localns=nodes)
    return _FIELD_TYPES[kind]


def _all_kinds(kind: type[Node]) -> Iterator[type[Node]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _all_kinds(each)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return True
    if hint is None or hint is type(None):
        return value is None
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(hint))
    if origin is typing.Literal:
        options = typing.get_args(hint)
        return any(type(value) is type(one) and value == one for one in options)
    if origin is tuple:
        return isinstance(value, tuple) and _fit_items(value, typing.get_args(hint))
    if origin is dict:
        inner = typing.get_args(hint)[1]
        return isinstance(value, dict) and all(_fits(item, inner) for item in value.values())
    if hint in (int, float, bool):
        return type(value) is hint
    return isinstance(value, hint) if isinstance(hint, type) else True


def _fit_items(value: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return all(_fits(item, hints[0]) for item in value)
    return len(value) == len(hints) and all(map(_fits, value, hints))
