"""Equality and hash of nodes by what they say.

Two nodes are equal if they have one class and equal fields. Objects with an identity (variables,
buffers) that are bound inside correspond by the place that binds them, whatever their names; those
that are free must be the same object, unless map_free_vars lets them correspond too. Which objects
have an identity and which fields bind them is declared here and by the folders above, with
has_identity and binds. Everything is iterative, and shared nodes are compared once.
"""

import hashlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sterna.ir.expr import Let, Var
from sterna.ir.leaves import leaf_of
from sterna.ir.module import IRModule
from sterna.ir.node import Node, class_name


@dataclass(frozen=True, slots=True)
class Identity:
    """How a class whose objects have an identity is compared."""

    ignored: tuple[str, ...]
    """Fields that do not matter for a bound object."""
    owned: tuple[str, ...]
    """Derived fields that hold an object with an identity of its own."""


IDENTITIES: dict[type[Node], Identity] = {}

# What begins in a field: nothing, the objects in it, or those and all that they are made of.
USES, BINDS, BINDS_DEEP = range(3)
BINDERS: dict[type[Node], dict[str, int]] = {}


def has_identity(
    kind: type[Node], ignored: tuple[str, ...] = ("name",), owned: tuple[str, ...] = ()
) -> None:
    """Declare that two objects of a class differ even if their fields agree."""
    IDENTITIES[kind] = Identity(ignored, owned)


def binds(kind: type[Node], *names: str, deep: tuple[str, ...] = ()) -> None:
    """Declare the fields of a class in which objects with an identity begin.

    deep: fields where also the unknown objects inside those objects begin.
    """
    BINDERS[kind] = {**dict.fromkeys(names, BINDS), **dict.fromkeys(deep, BINDS_DEEP)}


has_identity(Var)
binds(Let, "var")

# A place in a node: the place of its parent and the step from there.
_Path = tuple[Any, str] | None


@dataclass(slots=True)
class _Task:
    a: Any
    b: Any
    path: _Path
    binding: int
    """Whether objects with an identity begin here: USES, BINDS or BINDS_DEEP."""


def structural_equal(a: Any, b: Any, map_free_vars: bool = False) -> bool:
    """Whether two nodes say the same."""
    return explain_difference(a, b, map_free_vars) is None


def assert_structural_equal(a: Any, b: Any, map_free_vars: bool = False) -> None:
    """A ValueError that says where two nodes differ, if they do."""
    difference = explain_difference(a, b, map_free_vars)
    if difference is not None:
        raise ValueError(f"the two differ: {difference}")


def explain_difference(a: Any, b: Any, map_free_vars: bool = False) -> str | None:
    """The first place where two nodes differ, and how; None if they are equal."""
    return _Comparison(map_free_vars).run(_opened(a), _opened(b))


def _opened(value: Any) -> Any:
    """A module as what it consists of."""
    if isinstance(value, IRModule):
        functions = {str(name): function for name, function in value.functions.items()}
        return {"functions": functions, "attrs": value.attrs}
    return value


class _Comparison:
    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.forth: dict[int, Any] = {}
        self.back: dict[int, Any] = {}
        self.seen: set[tuple[int, int]] = set()
        self.tasks: list[_Task] = []

    def run(self, a: Any, b: Any) -> str | None:
        self.tasks.append(_Task(a, b, None, USES))
        while self.tasks:
            task = self.tasks.pop()
            reason = self._compare(task)
            if reason is not None:
                place = _show_path(task.path)
                return f"at {place}: {reason}" if place else reason
        return None

    def _compare(self, task: _Task) -> str | None:
        a, b = task.a, task.b
        if type(a) is not type(b):
            return f"{_brief(a)} is {_kind(a)}, {_brief(b)} is {_kind(b)}"
        if isinstance(a, Node):
            return self._compare_nodes(task)
        if isinstance(a, tuple):
            if len(a) != len(b):
                return f"{len(a)} items against {len(b)}"
            steps = [(f"[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b, strict=True))]
            self._push(steps, task)
            return None
        if isinstance(a, dict):
            if a.keys() != b.keys():
                odd = sorted(map(str, a.keys() ^ b.keys()))[0]
                return f"only the {'first' if odd in map(str, a) else 'second'} has '{odd}'"
            self._push([(f"[{key!r}]", a[key], b[key]) for key in sorted(a)], task)
            return None
        same = _encode_plain(a) == _encode_plain(b)
        return None if same else f"{_brief(a)} against {_brief(b)}"

    def _push(self, steps: list[tuple[str, Any, Any]], task: _Task) -> None:
        for step, x, y in reversed(steps):
            self.tasks.append(_Task(x, y, (task.path, step), task.binding))

    def _compare_nodes(self, task: _Task) -> str | None:
        a, b = task.a, task.b
        identity = IDENTITIES.get(type(a))
        ignored: tuple[str, ...] = ()
        if identity is not None:
            ignored = identity.ignored
            if id(a) in self.forth or id(b) in self.back:
                if self.forth.get(id(a)) is not b or self.back.get(id(b)) is not a:
                    return f"{_brief(a)} and {_brief(b)} do not correspond"
                return None
            owned = [(getattr(a, name), getattr(b, name)) for name in identity.owned]
            known = [(x, y) for x, y in owned if id(x) in self.forth or id(y) in self.back]
            if not task.binding and not self.map_free_vars and not known:
                return None if a is b else f"{_brief(a)} and {_brief(b)} are different {_kind(a)}s"
            for x, y in known:
                if self.forth.get(id(x)) is not y or self.back.get(id(y)) is not x:
                    return f"{_brief(a)} and {_brief(b)} do not correspond"
            for x, y in [(a, b), *owned]:
                self.forth[id(x)] = y
                self.back[id(y)] = x
        if (id(a), id(b)) in self.seen:
            return None
        self.seen.add((id(a), id(b)))
        for name in reversed(a.FIELDS):
            if name not in ignored:
                path = (task.path, f".{name}")
                begins = _begins(a, name, task.binding)
                self.tasks.append(_Task(getattr(a, name), getattr(b, name), path, begins))
        return None


def _begins(parent: Node, name: str, binding: int) -> int:
    """What begins in a field of a node that stands where `binding` holds."""
    if binding == BINDS_DEEP:
        return BINDS_DEEP
    return BINDERS.get(type(parent), {}).get(name, USES)


def _show_path(path: _Path) -> str:
    steps = []
    while path is not None:
        path, step = path
        steps.append(step)
    text = "".join(reversed(steps)).lstrip(".")
    return text if len(text) < 400 else f"{text[:150]} ... {text[-200:]}"


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 and "\n" not in text else f"{text.splitlines()[0][:76]} ..."


# ---- hash ----


def structural_hash(root: Any, map_free_vars: bool = False) -> int:
    """A 64-bit number that equal nodes share, in every process."""
    root = _opened(root)
    numbers = _number_bound(root, map_free_vars)
    digests: dict[int, bytes] = {}
    for found in _children_first(root):
        digests[id(found)] = _hash_node(found, digests, numbers)
    return int.from_bytes(_digest(_encode(root, lambda child: digests[id(child)])), "little")


def _number_bound(root: Any, map_free_vars: bool) -> dict[int, int]:
    """Numbers for the objects that are bound inside, in the order in which they begin."""
    numbers: dict[int, int] = {}
    seen: set[int] = set()
    stack: list[tuple[Any, int]] = [(root, USES)]
    while stack:
        value, binding = stack.pop()
        if isinstance(value, tuple):
            stack.extend((item, binding) for item in reversed(value))
        elif isinstance(value, dict):
            stack.extend((value[key], binding) for key in sorted(value, reverse=True))
        elif isinstance(value, Node):
            identity = IDENTITIES.get(type(value))
            if identity is not None and id(value) not in numbers:
                owned = [id(getattr(value, name)) for name in identity.owned]
                known = any(one in numbers for one in owned)
                if not binding and not map_free_vars and not known:
                    continue
                for one in [id(value), *owned]:
                    numbers.setdefault(one, len(numbers))
            if id(value) not in seen:
                seen.add(id(value))
                for name in reversed(value.FIELDS):
                    stack.append((getattr(value, name), _begins(value, name, binding)))
    return numbers


def _children_first(root: Any) -> Iterator[Node]:
    seen: set[int] = set()
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        value, done = stack.pop()
        if isinstance(value, tuple):
            stack.extend((item, False) for item in reversed(value))
        elif isinstance(value, dict):
            stack.extend((item, False) for item in value.values())
        elif isinstance(value, Node):
            if done:
                yield value
            elif id(value) not in seen:
                seen.add(id(value))
                stack.append((value, True))
                stack.extend((getattr(value, f), False) for f in reversed(value.FIELDS))


def _hash_node(value: Node, digests: dict[int, bytes], numbers: dict[int, int]) -> bytes:
    identity = IDENTITIES.get(type(value))
    parts = [class_name(type(value)).encode()]
    ignored: tuple[str, ...] = ()
    if identity is not None:
        number = numbers.get(id(value))
        if number is not None:
            parts.append(b"#%d" % number)
            ignored = identity.ignored
    for name in value.FIELDS:
        if name not in ignored:
            parts.append(_encode(getattr(value, name), lambda child: digests[id(child)]))
    return _digest(b"|".join(parts))


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8).digest()


def _encode(value: Any, of_node: Callable[[Node], bytes]) -> bytes:
    if isinstance(value, Node):
        return b"n" + of_node(value)
    if isinstance(value, tuple):
        return b"(" + _digest(b",".join(_encode(item, of_node) for item in value)) + b")"
    if isinstance(value, dict):
        rows = (key.encode() + b"=" + _encode(value[key], of_node) for key in sorted(value))
        return b"{" + _digest(b",".join(rows)) + b"}"
    return _encode_plain(value)


def _encode_plain(value: Any) -> bytes:
    """Plain values: equal ones have equal bytes; 1, 1.0 and True differ, nan equals itself."""
    if isinstance(value, float):
        return b"f" + (b"nan" if value != value else struct.pack("<d", value))
    if value is None or isinstance(value, (bool, int, str)):
        return type(value).__name__.encode() + b":" + str(value).encode()
    leaf = leaf_of(value)
    if leaf is None:
        raise TypeError(f"{value!r} of type {type(value).__name__} cannot be a field of a node")
    return leaf.tag.encode() + b":" + leaf.to_bytes(value)
