"""What runs a compiled network: an executor, over a runtime, each with options."""

import difflib
from typing import Any, ClassVar, Self

from sterna.support.classic import classic_names

# What the classic API calls the types of options.
_TYPE_NAMES = {bool: "runtime.BoxBool", int: "runtime.BoxInt", str: "runtime.String"}


class _Choice:
    """A name and options, both from a list."""

    KNOWN: ClassVar[dict[str, dict[str, tuple[type, Any]]]] = {}

    def __init__(self, name: str, options: dict[str, Any] | None = None) -> None:
        what = type(self).__name__
        if name not in self.KNOWN:
            known = ", ".join(self.KNOWN)
            raise ValueError(f'{what} "{name}" is not defined; there are {known}')
        allowed = self.KNOWN[name]
        values = {key: default for key, (_, default) in allowed.items()}
        for key, value in (options or {}).items():
            if key not in allowed:
                near = difflib.get_close_matches(key, allowed, n=2)
                hint = f'; did you mean "{near[0]}"?' if near else ""
                raise ValueError(f'Attribute "{key}" is not available on this {what}{hint}')
            values[key] = _checked(what, key, allowed[key][0], value)
        self.name = name
        self.options = {key: value for key, value in values.items() if value is not None}

    def __getitem__(self, key: str) -> Any:
        if key not in self.options:
            raise KeyError(f"{self!r} has no option '{key}'")
        return self.options[key]

    def __contains__(self, key: object) -> bool:
        return key in self.options

    def __eq__(self, other: object) -> bool:
        return (
            type(self) is type(other)
            and isinstance(other, _Choice)
            and (self.name, self.options) == (other.name, other.options)
        )

    def __hash__(self) -> int:
        return hash((type(self), self.name, tuple(sorted(self.options.items()))))

    def __repr__(self) -> str:
        return f'{type(self).__name__}("{self.name}", {self.options})'

    @classmethod
    def list_registered(cls) -> list[str]:
        """The names."""
        return list(cls.KNOWN)

    @classmethod
    def list_registered_options(cls, name: Any) -> dict[str, str]:
        """The options of one of them, and their types."""
        chosen = cls(str(name)).name
        return {key: _TYPE_NAMES[kind] for key, (kind, _) in cls.KNOWN[chosen].items()}

    @classmethod
    def of(cls, given: Any, default: str) -> Self:
        """What a user gave: nothing, a name, or the thing itself."""
        if given is None:
            return cls(default)
        if isinstance(given, str):
            return cls(given)
        if not isinstance(given, cls):
            raise TypeError(f"expected an {cls.__name__}, got {given!r}")
        return given


def _checked(what: str, key: str, kind: type, value: Any) -> Any:
    if kind is bool and isinstance(value, int):
        return bool(value)
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    given = _TYPE_NAMES.get(type(value), type(value).__name__)
    raise ValueError(
        f'Attribute "{key}" should have type "{_TYPE_NAMES[kind]}" but instead found "{given}"'
    )


class Executor(_Choice):
    """How the kernels are called: by a graph, or by one compiled function."""

    KNOWN: ClassVar = {
        "graph": {"link-params": (bool, False)},
        "aot": {
            "link-params": (bool, True),
            "unpacked-api": (bool, None),
            "interface-api": (str, None),
            "workspace-byte-alignment": (int, None),
            "constant-byte-alignment": (int, None),
        },
    }


class Runtime(_Choice):
    """What is there when the network runs: the runtime library, or nothing but C."""

    KNOWN: ClassVar = {
        "cpp": {"system-lib": (bool, None)},
        "crt": {"system-lib": (bool, None)},
    }

__getattr__ = classic_names(__name__)
