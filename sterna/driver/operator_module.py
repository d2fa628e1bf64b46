"""What build gives: a module that runs, shows its sources and is written to files."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sterna.codegen.code import Code
from sterna.driver.files import write_object
from sterna.ir.module import IRModule
from sterna.runtime import Module, ModulePropertyMask, _core
from sterna.runtime._core import PackedFunc
from sterna.support.write_aside import write_aside
from sterna.target import Target


@dataclass(frozen=True, slots=True)
class Compiled:
    """What stands behind an OperatorModule."""

    code: Code
    name: str
    modules: Mapping[Target, IRModule]

    def find(self, name: str) -> int | PackedFunc | None:
        """A function of it, ready to run here."""
        if name.startswith("_library_"):  # variables, not functions
            return None
        return self.code.find(name)


class OperatorModule(Module):
    """Compiled functions, with what they were compiled from."""

    _implementation: Compiled

    @classmethod
    def make(cls, code: Code, name: str, modules: Mapping[Target, IRModule]) -> Self:
        """A module over code; machine code for this machine is made when it is first run."""
        return cls.over(Compiled(code, name, dict(modules)))

    @classmethod
    def over(cls, compiled: Compiled) -> Self:
        """The module that something compiled stands behind."""
        module: Self = _core.make_module(cls, compiled)
        compiled.code.context = module.handle
        for kernels in getattr(compiled.code, "device_modules", ()):
            module.import_module(kernels)
        return module

    @property
    def code(self) -> Code:
        """What was generated."""
        return self._implementation.code

    @property
    def name(self) -> str:
        """What build was told."""
        return self._implementation.name

    @property
    def target(self) -> Target:
        """What it was compiled for; the first where there are several targets."""
        return next(iter(self._implementation.modules))

    @property
    def ir_module_by_target(self) -> dict[Target, IRModule]:
        """The loops that it was compiled from, by target."""
        return dict(self._implementation.modules)

    @property
    def kind(self) -> str:
        """What sort of code it is: llvm, c, ..."""
        return self.code.kind

    def get_property_mask(self) -> int:
        """What can be done with it; see ModulePropertyMask."""
        return ModulePropertyMask.RUNNABLE | ModulePropertyMask.DSO_EXPORTABLE

    def get_source(self, fmt: str = "") -> str:
        """The code as text: LLVM IR ("ll") or assembly ("asm") of an LLVM module, C of a C one."""
        return self.code.source(fmt)

    def save(self, file_name: str | os.PathLike[str], fmt: str = "") -> None:
        """Write the code in the form that the file's name says: .o .ll .s of LLVM, .c of C.

        Imports are left out: export_library takes them along.
        """
        path = Path(file_name)
        form = fmt or path.suffix.lstrip(".")
        if form == "o":
            with tempfile.TemporaryDirectory() as name:
                files = self.code.write(Path(name), "lib0", [(self.code, {})], b"")
                write_aside(path, lambda aside: write_object(aside, files, Path(name), None))
        else:
            text = self.code.source(form)
            write_aside(path, lambda aside: aside.write_text(text, encoding="utf-8"))
