"""Target: what code is made for."""

import json
import threading
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Self

from sterna.support.classic import classic_names
from sterna.target.features import Features
from sterna.target.kind import Option, TargetKind, Value, all_kinds, find_kind
from sterna.target.machine import Machine, machine_of
from sterna.target.tags import TAGS
from sterna.target.text import convert, find_option, read_options, split_words, write
from sterna.target.wording import unknown

_FIELDS = frozenset({"keys", "tag", "host", "from_device"})
_NATIVE = {"kind": "llvm", "mcpu": "native"}


class _Scopes(threading.local):
    """The targets that this thread is inside of."""

    def __init__(self) -> None:
        self.entered: list[Target] = []


_scopes = _Scopes()


class Target:
    """A target, from text such as "llvm -mcpu=native", a dict, JSON text or a tag.

    A target does not change. Two with the same content are equal; `Target(str(t)) == t`.
    """

    __slots__ = ("_attrs", "_hash", "_host", "_keys", "_kind", "_tag", "_text")

    _kind: TargetKind
    _tag: str
    _keys: tuple[str, ...]
    _attrs: Mapping[str, Value]
    _host: "Target | None"
    _hash: int
    _text: str

    def __init__(
        self,
        target: "str | Mapping[str, Any] | Target",
        host: "str | Mapping[str, Any] | Target | None" = None,
    ) -> None:
        if isinstance(target, Target):
            self._kind, self._tag, self._keys = target._kind, target._tag, target._keys
            self._attrs, self._host = target._attrs, target._host
        else:
            kind, options, text = _read(target)
            self._fill(kind, options, text)
        if host is not None:
            self._host = host if isinstance(host, Target) else Target(host)
        self._text = write(self._kind.name, self._shown(), self.export())
        self._hash = hash(self._content())

    def _fill(self, kind: TargetKind, options: dict[str, object], text: str) -> None:
        self._kind = kind
        host = options.pop("host", None)
        self._host = None if host is None else _inner(host, "host", text)
        values = {name: _convert(kind, name, value, text) for name, value in options.items()}
        self._tag = str(values.pop("tag", ""))
        given = values.pop("keys", None)
        index = values.pop("from_device", None)
        if isinstance(index, int):
            values = {**_ask_device(kind, index), **values}
        for option in kind.options:
            if option.default is not None:
                values.setdefault(option.name, option.default)
        try:
            derived = kind.refine(values)
        except ValueError as error:
            raise ValueError(f"{error} (in the target '{text}')") from None
        keys = (*given, *derived) if isinstance(given, tuple) else (*derived, *kind.default_keys)
        device = str(values.get("device", ""))
        if device and device not in keys:
            keys = (device, *keys)
        self._keys = tuple(dict.fromkeys(keys))
        self._attrs = MappingProxyType(dict(sorted(values.items())))

    def _shown(self) -> dict[str, Value]:
        fields: dict[str, Value] = {}
        if self._keys or self._kind.default_keys:
            fields["keys"] = self._keys
        if self._tag:
            fields["tag"] = self._tag
        fields.update(self._attrs)
        if self._host is not None:
            fields["host"] = str(self._host)
        return fields

    def _content(self) -> tuple[object, ...]:
        # By type as well, so that 1 and True stay apart.
        attrs = tuple((name, type(value), value) for name, value in self._attrs.items())
        return (self._kind.name, self._tag, self._keys, attrs, self._host)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Target):
            return NotImplemented
        return self is other or self._content() == other._content()

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Target({self._text!r})"

    def __reduce__(self) -> "tuple[type[Target], tuple[dict[str, Any]]]":
        return (Target, (self.export(),))

    def export(self) -> dict[str, Any]:
        """The target as a dict that JSON can hold; Target reads it back."""
        return {
            "kind": self._kind.name,
            "tag": self._tag,
            "keys": list(self._keys),
            **{n: list(v) if isinstance(v, tuple) else v for n, v in self._attrs.items()},
            **({} if self._host is None else {"host": self._host.export()}),
        }

    def with_host(self, host: "str | Mapping[str, Any] | Target") -> "Target":
        """The same target with another host."""
        return Target(self, host)

    @property
    def kind(self) -> TargetKind:
        """The record of its kind; its name is kind.name."""
        return self._kind

    @property
    def tag(self) -> str:
        """The tag that it was made from, or an empty text."""
        return self._tag

    @property
    def keys(self) -> list[str]:
        """Names by which schedules are chosen, the most telling first."""
        return list(self._keys)

    @property
    def attrs(self) -> Mapping[str, Value]:
        """Its options by name."""
        return self._attrs

    @property
    def host(self) -> "Target | None":
        """The target of the code that calls this one's kernels, if it was given."""
        return self._host

    @property
    def features(self) -> Features:
        """Its processor's features: features.has_dotprod and so on."""
        return Features(self)

    @property
    def mcpu(self) -> str:
        """The processor, or an empty text."""
        return str(self._attrs.get("mcpu", ""))

    @property
    def mattr(self) -> list[str]:
        """The features that differ from the processor's own, as +name and -name."""
        return self._list("mattr")

    @property
    def libs(self) -> list[str]:
        """Libraries that operators may use."""
        return self._list("libs")

    @property
    def model(self) -> str:
        """The name of the device's model, or "unknown"."""
        return str(self._attrs.get("model", "unknown"))

    @property
    def device_name(self) -> str:
        """What -device gave, or an empty text."""
        return str(self._attrs.get("device", ""))

    @property
    def arch(self) -> str:
        """The GPU's architecture, such as sm_80, or an empty text."""
        return str(self._attrs.get("arch", ""))

    def _list(self, name: str) -> list[str]:
        value = self._attrs.get(name)
        return list(value) if isinstance(value, tuple) else []

    def __getattr__(self, name: str) -> Any:
        """An option of the kind by its name, such as max_num_threads."""
        if not name.startswith("_"):
            option = self._kind.option(name)
            if option is not None and option.name in self._attrs:
                return self._attrs[option.name]
        raise AttributeError(f"the target '{self}' has no '{name}'" if name[0] != "_" else name)

    def get_target_device_type(self) -> int:
        """DLPack's number of the device that the code runs on."""
        given = self._attrs.get("target_device_type")
        return given if isinstance(given, int) else self._kind.device_type

    def resolved(self) -> Machine:
        """The machine that it stands for: triple, processor, features, sizes."""
        return machine_of(self)

    def __enter__(self) -> Self:
        _scopes.entered.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _scopes.entered.pop()

    @staticmethod
    def current(allow_none: bool = True) -> "Target | None":
        """The target of the innermost `with target:` of this thread."""
        if _scopes.entered:
            return _scopes.entered[-1]
        if allow_none:
            return None
        raise RuntimeError("no target is set here; enter one first: with Target('llvm'): ...")

    @staticmethod
    def list_kinds() -> list[str]:
        """The names of all kinds."""
        return list(all_kinds())

    @staticmethod
    def canon_target(target: "str | Mapping[str, Any] | Target | None") -> "Target | None":
        """A target from whatever names one; None stays None."""
        return target if target is None or isinstance(target, Target) else Target(target)

    @staticmethod
    def canon_target_and_host(
        target: "str | Mapping[str, Any] | Target | None",
        target_host: "str | Mapping[str, Any] | Target | None" = None,
    ) -> "tuple[Target | None, Target | None]":
        """A target with its host inside, and the host."""
        made = Target.canon_target(target)
        if made is None:
            return None, Target.canon_target(target_host)
        if target_host is not None:
            made = made.with_host(target_host)
        return made, made.host


def _read(target: object) -> tuple[TargetKind, dict[str, object], str]:
    """The kind, the options that were given, and the target's text for messages."""
    if isinstance(target, str):
        return _read_text(target.strip())
    if not isinstance(target, Mapping):
        raise TypeError(
            f"a target is made from text, a dict or a target, not from {type(target).__name__}"
        )
    text = str(dict(target))
    options = dict(target)
    tag = options.get("tag")
    if "kind" not in options and tag:
        options = {**_find_tag(str(tag)), **options}
    kind_name = options.pop("kind", None)
    if not isinstance(kind_name, str):
        raise ValueError(f"the target {text} names no kind; add 'kind', such as 'llvm'")
    kind = find_kind(kind_name)
    found: dict[str, object] = {}
    for name, value in options.items():
        if value is not None:
            found[find_option(str(name), kind, text).name] = value
    return kind, found, text


def _read_text(text: str) -> tuple[TargetKind, dict[str, object], str]:
    if text.startswith("{"):
        try:
            loaded = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the target {text!r} is no valid JSON: {error}") from None
        return _read(loaded)
    words = split_words(text)
    if not words:
        raise ValueError("the target's text is empty; it starts with a kind, such as llvm")
    base: dict[str, Any] = {"kind": words[0]}
    if words[0] == "native":
        base = _NATIVE
    elif words[0] in TAGS or "/" in words[0]:
        base = {**_find_tag(words[0]), "tag": words[0]}
    kind, found, _ = _read(base)
    return kind, {**found, **read_options(words[1:], kind, text)}, text


def _find_tag(tag: str) -> Mapping[str, Any]:
    if tag not in TAGS:
        raise unknown(tag, TAGS, "It should be the tag of a target")
    return TAGS[tag]


def _inner(value: object, name: str, text: str) -> Target:
    if isinstance(value, str | Mapping | Target):
        return Target(value)
    raise ValueError(f"'{name}' of the target '{text}' should be a target, not {value!r}")


def _convert(kind: TargetKind, name: str, value: object, text: str) -> Value:
    option = kind.option(name) or Option(name)
    if option.type != "targets":
        return convert(option, value, text)
    if not isinstance(value, list | tuple):
        raise ValueError(f"'{name}' of the target '{text}' should be a list of targets")
    return tuple(str(_inner(one, name, text)) for one in value)


def _ask_device(kind: TargetKind, index: int) -> dict[str, Value]:
    query = kind.device_query()
    if query is None:
        raise ValueError(f"-from_device: a device of kind '{kind.name}' cannot be asked")
    return dict(query(index))


__getattr__ = classic_names(__name__)
