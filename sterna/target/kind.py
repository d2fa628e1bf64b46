"""What a kind of target is, and the list of them.

A kind is declared in a file, which holds it in a name of its own: `KIND = TargetKind(name=...)`, or
`KINDS = [...]` where several differ only by name. The files of sterna/target/kinds are found by
being there. Others are modules that a program registers, or that an installed package names as an
entry point of the group sterna.targets.
"""

import importlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from sterna.support.discovery import modules_of
from sterna.support.fingerprint import fingerprint
from sterna.target.wording import unknown

if TYPE_CHECKING:
    from sterna.target.code_generator import CodeGenerator

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
    """The module that holds its code generator as GENERATOR; None if there is none yet."""
    schedules: tuple[str, ...] = ()
    """The modules that register schedules for its keys, beside those in operators' records."""
    triple: str | None = None
    """LLVM's triple when -mtriple does not give one; "host" is the one of this machine."""
    query_device: Callable[[int], Mapping[str, Value]] | str | None = None
    """Reads options from a live device, for -from_device; or the module that does, by ask."""

    def device_query(self) -> Callable[[int], Mapping[str, Value]] | None:
        """What reads options from a live device; None if nothing does."""
        if not isinstance(self.query_device, str):
            return self.query_device
        found: Callable[[int], Mapping[str, Value]] = importlib.import_module(self.query_device).ask
        return found

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

    def code_generator(self) -> "CodeGenerator":
        """What makes code of this kind; an error that lists what can be built if nothing does."""
        if self.codegen is None:
            able = ", ".join(sorted(k.name for k in all_kinds().values() if k.codegen))
            raise ValueError(
                f"target kind '{self.name}' can be described but not built for: this version of "
                f"sterna has no code generator for it. It builds for: {able}"
            )
        found: CodeGenerator = importlib.import_module(self.codegen).GENERATOR
        return found

    def load_schedules(self) -> None:
        """Let the kind's modules register their schedules."""
        for module in self.schedules:
            importlib.import_module(module)

    @property
    def picks_instructions(self) -> bool:
        """Whether code of this kind names a processor's instructions; see code_generator.py."""
        return self.codegen is not None and self.code_generator().picks_instructions

    def fingerprint(self) -> str:
        """Of the sources that make code of this kind, for what is kept on disk."""
        own = () if self.codegen is None else (self.codegen,)
        return fingerprint(*own, *self.schedules)


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


ENTRY_POINTS = "sterna.targets"

_registered: dict[str, None] = {}


def register(module: str) -> None:
    """Make known the kinds that a module declares, as a file of sterna/target/kinds declares them.

    It is named as import names it, so that processes that compile kernels find it too.
    """
    if module not in _registered:
        _kinds_of(importlib.import_module(module))
        _registered[module] = None
        _kinds.cache_clear()


def registered() -> list[str]:
    """The modules that this program has registered."""
    return list(_registered)


@cache
def _announced() -> tuple[str, ...]:
    """The modules that installed packages name; looking through these takes its time."""
    metadata = importlib.import_module("importlib.metadata")
    return tuple(sorted({found.module for found in metadata.entry_points(group=ENTRY_POINTS)}))


def all_kinds() -> dict[str, TargetKind]:
    """The kinds by name."""
    return _kinds(installed=True)


def find_kind(name: str) -> TargetKind:
    """The kind with a name."""
    found = _kinds(installed=False).get(name) or all_kinds().get(name)
    if found is None:
        raise unknown(name, [*all_kinds(), "native"], "It should be a kind of target or a tag")
    return found


@cache
def _kinds(installed: bool) -> dict[str, TargetKind]:
    """The kinds by name, with those of installed packages or without them."""
    kinds: dict[str, TargetKind] = {}
    names = dict.fromkeys([*_registered, *(_announced() if installed else ())])
    foreign = [module for module in map(_loaded, names) if module is not None]
    for module in (*modules_of("sterna.target.kinds"), *foreign):
        for kind in _kinds_of(module):
            if kind.name in kinds:
                raise ValueError(f"{module.__name__} declares '{kind.name}', which exists already")
            kinds[kind.name] = kind
    return dict(sorted(kinds.items()))


def _loaded(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError as error:  # other targets need not suffer from it
        warnings.warn(
            f"an installed package declares targets in {name}, which cannot be loaded: {error}",
            stacklevel=2,
        )
        return None


def _kinds_of(module: ModuleType) -> list[TargetKind]:
    found: list[object] = getattr(module, "KINDS", None) or [getattr(module, "KIND", None)]
    kinds = [kind for kind in found if isinstance(kind, TargetKind)]
    if len(kinds) < len(found):
        raise TypeError(f"{module.__name__} declares no target kind; set KIND in it")
    return kinds
