"""children and map_children of a class of nodes, written out from its fields.

Walks and rewrites of the IR are most of what the compiler does in Python, so each class gets
methods that name its fields, as dataclasses get their constructors. For BufferLoad(buffer, indices)

    def children(self):
        return [self.buffer, *self.indices]

    def map_children(self, change):
        buffer, indices = self.buffer, self.indices
        new_buffer, new_indices = change(buffer), map_tuple(indices, change)
        if new_buffer is buffer and new_indices is indices:
            return self
        return type(self)(new_buffer, new_indices)
"""

from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

Change = Callable[[Any], Any]

# How a field's nodes are listed and mapped, by what it holds; "" where no nodes are.
_LISTED = {
    "node": "self.{name}", "optional": "*optional(self.{name})", "tuple": "*self.{name}",
    "other": "*nodes_in(self.{name})",
}
_MAPPED = {
    "node": "change({name})", "optional": "None if {name} is None else change({name})",
    "tuple": "map_tuple({name}, change)",
    "other": "map_value({name}, change) if {name} else {name}",
}


def write_children(
    fields: Mapping[str, object], base: type, nodes_in: Callable[[Any], list[Any]]
) -> Callable[[Any], list[Any]]:
    """children of a class; fields: those that may hold nodes, and their types."""
    listed = [(name, _holds(annotation, base)) for name, annotation in fields.items()]
    items = [_LISTED[holds].format(name=name) for name, holds in listed if holds]
    names = {"nodes_in": nodes_in, "optional": _optional}
    made: Callable[[Any], list[Any]] = _written(
        "children", "self", [f"return [{', '.join(items)}]"], names
    )
    return made


def write_map_children(
    order: Sequence[str], fields: Mapping[str, object], base: type,
    map_value: Callable[[Any, Change], Any],
) -> Callable[[Any, Change], Any]:
    """map_children of a class; order: all arguments of its constructor."""
    held = {name: _holds(annotation, base) for name, annotation in fields.items()}
    mapped = {name: holds for name, holds in held.items() if holds}
    if not mapped:
        return lambda self, change: self
    lines = [f"{name} = self.{name}" for name in mapped]
    for name, holds in mapped.items():
        lines.append(f"new_{name} = {_MAPPED[holds].format(name=name)}")
    same = " and ".join(f"new_{name} is {name}" for name in mapped)
    given = ", ".join(f"new_{name}" if name in mapped else f"self.{name}" for name in order)
    lines += [f"if {same}:", "    return self", f"return type(self)({given})"]
    names = {"map_value": map_value, "map_tuple": map_tuple}
    made: Callable[[Any, Change], Any] = _written("map_children", "self, change", lines, names)
    return made


def map_tuple(items: tuple[Any, ...], change: Change) -> tuple[Any, ...]:
    """Nodes, each replaced; the same tuple when none changed."""
    mapped = [change(item) for item in items]
    for before, after in zip(items, mapped, strict=True):
        if before is not after:
            return tuple(mapped)
    return items


def _optional(value: Any) -> tuple[Any, ...]:
    return () if value is None else (value,)


def _holds(annotation: object, base: type) -> str:
    """What a field of a type holds: a node, one or None, a tuple of nodes, or other things."""
    if isinstance(annotation, type) and issubclass(annotation, base):
        return "node"
    parts = get_args(annotation)
    if isinstance(annotation, UnionType) and len(parts) == 2 and NoneType in parts:
        one = next(part for part in parts if part is not NoneType)
        return "optional" if _holds(one, base) == "node" else "other"
    if get_origin(annotation) is tuple and parts[1:] == (Ellipsis,):
        if parts[0] in (int, float, str, bool):
            return ""
        return "tuple" if _holds(parts[0], base) == "node" else "other"
    return "other"


def _written(name: str, arguments: str, lines: list[str], names: dict[str, Any]) -> Any:
    body = "".join(f"    {line}\n" for line in lines)
    made = dict(names)
    exec(f"def {name}({arguments}):\n{body}", made)
    return made[name]
