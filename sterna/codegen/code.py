"""Compiled code in its forms: what runs here, what is shown, what is written."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from sterna.codegen.part import Part
from sterna.runtime import Module
from sterna.runtime._core import PackedFunc
from sterna.tir.stmt import PrimFunc


class Code(Protocol):
    """The code of one module."""

    kind: str
    """What sort of code it is: llvm, c, ..."""
    context: int
    """The address of the module, once there is one."""
    names: list[str]
    """Its packed functions, and _library_ctx if it looks others up."""
    can_rename: bool
    """Whether their symbols are still open."""

    def find(self, name: str) -> int | PackedFunc | None:
        """A packed function of it, ready to run here."""

    def source(self, form: str) -> str:
        """It as text, in a form."""

    def joins(self, other: "Code") -> bool:
        """Whether other code can be in one file with it."""

    def write(self, folder: Path, stem: str, members: "Members", table: bytes) -> list[Path]:
        """Files for a linker or a compiler: it and those that join it, and the modules' table."""


Members = Sequence[tuple[Code, Mapping[str, str]]]
"""Code with the symbols of those functions whose symbol is not __tvm_ffi_<name>."""


def names_of(functions: Sequence[PrimFunc]) -> list[str]:
    """Those of the packed ones, and _library_ctx if they look others up."""
    names = [function.name for function in functions if function.attrs.get("packed")]
    return [*names, "_library_ctx"] if Part(functions).calls_by_name() else names


SUPPORT = ""
"""Beside the names of kernels: what they share."""


class KernelsCode(ABC):
    """Kernels that were compiled one by one: their symbols are settled."""

    kind: str
    can_rename = False
    context = 0

    def __init__(self, kernels: Mapping[str, bytes], text: Callable[[str], str]) -> None:
        """kernels: what was compiled, by name; text: gives all of it in a form."""
        self.kernels = kernels
        self.names = [name for name in kernels if name != SUPPORT]
        self._text = text

    @abstractmethod
    def find(self, name: str) -> int | PackedFunc | None:
        """A packed function of it, ready to run here."""

    def source(self, form: str) -> str:
        """It as text, in a form."""
        return self._text(form)

    def joins(self, other: Code) -> bool:
        """Whether other code can be in one file with it."""
        return False

    @abstractmethod
    def write(self, folder: Path, stem: str, members: Members, table: bytes) -> list[Path]:
        """Files for a linker: it, and the modules' table."""


class MixedCode:
    """The functions of one module, compiled for different targets."""

    can_rename = True

    def __init__(self, parts: Sequence[Code]) -> None:
        self.parts = parts
        self.kind = parts[0].kind
        self.names = [name for part in parts for name in part.names]

    @property
    def device_modules(self) -> list[Module]:
        """The kernels of devices that functions launch."""
        return [m for part in self.parts for m in getattr(part, "device_modules", ())]

    @property
    def context(self) -> int:
        """The address of the module."""
        return self.parts[0].context

    @context.setter
    def context(self, address: int) -> None:
        for part in self.parts:
            part.context = address

    def find(self, name: str) -> int | PackedFunc | None:
        home = next((part for part in self.parts if name in part.names), None)
        return None if home is None else home.find(name)

    def source(self, form: str) -> str:
        raise ValueError(
            "the module's functions are compiled for different targets; build it for one target "
            "to see its source"
        )

    def joins(self, other: Code) -> bool:
        return False

    def write(self, folder: Path, stem: str, members: Members, table: bytes) -> list[Path]:
        _, own = members[0]
        files: list[Path] = []
        for place, part in enumerate(self.parts):
            files += part.write(folder, f"{stem}.{place}", [(part, own)], b"" if files else table)
        return files
