"""Modules: sets of functions, most of them in a shared library."""

import difflib
import os
from typing import Any

from sterna.runtime import _core
from sterna.runtime._core import PackedFunc
from sterna.runtime.device import DEVICE_TYPES, device

# Kinds that need the compiler rather than a device.
COMPILED_KINDS = frozenset({"llvm", "c", "stackvm"})


class Module(_core.Module):
    """A set of functions that are found by name."""

    __slots__ = ()

    def get_function(self, name: str, query_imports: bool = False) -> PackedFunc:
        """The function of that name; it keeps the module alive."""
        found = self._get_function(name, query_imports)
        if found is None:
            raise AttributeError(f"Module has no function '{name}'")
        return found

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a function of that name."""
        return self._get_function(name, query_imports) is not None

    def __getitem__(self, name: str) -> PackedFunc:
        if not isinstance(name, str):
            raise TypeError(f"a module's functions are found by name, not by {name!r}")
        return self.get_function(name)

    def __call__(self, *args: Any) -> Any:
        return self.entry_func(*args)

    @property
    def entry_func(self) -> PackedFunc:
        """What calling the module calls: its function main."""
        return self.get_function("main")

    @property
    def type_key(self) -> str:
        """What sort of module it is, under its classic name."""
        return self.kind

    def __repr__(self) -> str:
        return f"Module({self.kind}, {self.handle:x})"


def load_module(path: str | os.PathLike[str]) -> Module:
    """Load a shared library; its functions are found by name."""
    module: Module = _core.load_module(path)
    return module


def load_extension(path: str | os.PathLike[str], init: str | None = None) -> None:
    """Load a shared library for good and call its function int init(void), if one is named."""
    _core.load_extension(path, init)


def system_lib(symbol_prefix: str = "") -> Module:
    """The functions that are linked into this program."""
    module: Module = _core.system_lib(symbol_prefix)
    return module


def enabled(kind: str) -> bool:
    """Whether code of this kind can be made and run here: "cpu", "llvm", "cuda", ..."""
    if kind in COMPILED_KINDS:
        return False  # no code generator is part of this version
    if kind not in DEVICE_TYPES and kind != "rpc":
        near = difflib.get_close_matches(kind, DEVICE_TYPES, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise ValueError(f"unknown kind '{kind}'{hint}")
    return kind != "rpc" and device(kind).exist
