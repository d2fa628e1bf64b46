"""What a kind of target is, and the list of them.

A kind is declared in a file of sterna/target/kinds, which holds it in a name of its own:
`KIND = TargetKind(name=..., ...)`, or `KINDS = [...]` where several differ only by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from sterna.support.discovery import modules_of
from sterna.target.wording import unknown

Value = str | int | bool | tuple[str, ...]
"""What an option holds; a list is held as a tuple."""

Type = Literal["int", "str", "bool", "list", "targets"]

Refine = Callable[[dict[str, Value]], tuple[str, ...]]
"""Checks and completes the options in place and returns the keys that follow from them."""


@dataclass(frozen=True, slots=True)
class Option:
    """One `-name=value` of a kind."""

    name: str
    type: Type = "str"
    default: Value | None = None
    choices: tuple[str, ...] = ()


def _nothing(attrs: dict[str, Value]) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True, eq=False)
class TargetKind:
    """Everything known about a kind of target."""

    name: str
    device_type: int
    """DLPack's number of the device that the code runs on."""
    default_keys: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    refine: Refine = _nothing
    codegen: str | None = None
    """The code generator's name in sterna.codegen; None if there is none yet."""
    triple: str | None = None
    """LLVM's triple when -mtriple does not give one; "host" is the one of this machine."""
    query_device: Callable[[int], Mapping[str, Value]] | None = None
    """Reads options from a live device, for -from_device."""

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"TargetKind({self.name!r})"

    def __reduce__(self) -> tuple[Callable[[str], "TargetKind"], tuple[str]]:
        return (find_kind, (self.name,))

    def option(self, name: str) -> Option | None:
        """The option with a name; - and _ in it are the same."""
        wanted = name.replace("-", "_")
        for option in (*self.options, *COMMON):
            if option.name.replace("-", "_") == wanted:
                return option
        return None

    @property
    def option_names(self) -> list[str]:
        """The names that `-name=value` may use."""
        return sorted(option.name for option in (*self.options, *COMMON))

    @property
    def picks_instructions(self) -> bool:
        """Whether code of this kind names a processor's instructions."""
        return self.codegen == "llvm"

    def require_codegen(self) -> str:
        """The name of the code generator; an error that lists what can be built if none exists."""
        if self.codegen is None:
            able = ", ".join(sorted(k.name for k in all_kinds().values() if k.codegen))
            raise ValueError(
                f"target kind '{self.name}' can be described but not built for: this version of "
                f"sterna has no code generator for it. It builds for: {able}"
            )
        return self.codegen


# What every kind accepts. keys, tag and host are fields of a target, the others are attributes.
COMMON = (
    Option("keys", "list"),
    Option("tag"),
    Option("host", "targets"),
    Option("device"),
    Option("model"),
    Option("libs", "list"),
    Option("from_device", "int"),
    Option("target_device_type", "int"),
)


@cache
def all_kinds() -> dict[str, TargetKind]:
    """The kinds by name, from the files in sterna/target/kinds."""
    kinds: dict[str, TargetKind] = {}
    for module in modules_of("sterna.target.kinds"):
        found = getattr(module, "KINDS", None) or [getattr(module, "KIND", None)]
        for kind in found:
            if not isinstance(kind, TargetKind):
                raise TypeError(f"{module.__name__} declares no target kind; set KIND in it")
            if kind.name in kinds:
                raise ValueError(f"{module.__name__} declares '{kind.name}', which exists already")
            kinds[kind.name] = kind
    return dict(sorted(kinds.items()))


def find_kind(name: str) -> TargetKind:
    """The kind with a name."""
    kinds = all_kinds()
    if name not in kinds:
        raise unknown(name, kinds, "It should be a kind of target or a tag")
    return kinds[name]
