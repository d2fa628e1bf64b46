"""A network as a file of C that programs are built from, without a runtime."""

from collections.abc import Sequence
from pathlib import Path

from sterna.codegen.c.code import CCode
from sterna.codegen.c.interface import Interface
from sterna.codegen.c.module import generate
from sterna.codegen.code import Code, Members, names_of
from sterna.tir.stmt import PrimFunc


class ProgramCode(CCode):
    """Kernels, the function that calls them, constants and memory, in one file.

    With a C interface a header says how to call it; else it has one packed function.
    """

    can_rename = False

    def __init__(
        self, functions: Sequence[PrimFunc], interface: Interface, tail: Sequence[str], *,
        vectors: bool = False,
    ) -> None:
        self.functions = functions
        self.names = names_of(functions)
        self.name = interface.prefix
        self.interface = interface
        self.has_header = not self.names
        rest = [part for part in (interface.memory(), *tail) if part]
        body = generate(functions, self.name, rest=rest, vectors=vectors)
        self.text = f"{interface.header()}\n{body}" if self.has_header else body

    @property
    def header(self) -> str:
        """The text of the header; one without a C interface has none."""
        if not self.has_header:
            raise ValueError(
                f'{self.name} has no header: build it with Executor("aot", {{"interface-api": "c", '
                '"unpacked-api": True})'
            )
        return self.interface.header()

    def joins(self, other: Code) -> bool:
        return False

    def write(self, folder: Path, stem: str, members: Members, table: bytes) -> list[Path]:
        path = folder / f"{stem}.c"
        path.write_text(self.text, encoding="utf-8")
        return [path]
