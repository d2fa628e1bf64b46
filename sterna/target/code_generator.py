"""Code generators: from the loops of kernels to code for the targets of a kind.

A kind's file names the module of its code generator, which holds it as GENERATOR; the module is
loaded when something is first built for the kind. The driver asks a code generator for everything
that differs between kinds, and no kind for its name. What a code generator can do beyond compiling
a module is said by the class that it derives from:

    CodeGenerator           compiles the functions of a module together
    KernelCodeGenerator     also one kernel at a time, so that several processes share the work,
                            and what they made is kept on disk by its content
    ProgramCodeGenerator    also whole networks that need no runtime, as C
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from sterna.codegen import c
from sterna.codegen.code import Code, KernelsCode
from sterna.codegen.model_data import ModelData
from sterna.runtime import Module
from sterna.support import toolchain
from sterna.target.here import runs_here
from sterna.target.machine import machine_of
from sterna.target.target import Target
from sterna.tir.stmt import PrimFunc

DATA_FILE = "model.bin"


class CodeGenerator(ABC):
    """What the driver asks for code."""

    forms: ClassVar[tuple[str, ...]] = ()
    """The texts that its code can be shown as, by their files' endings; the last is the nearest to
    the machine."""
    picks_instructions: ClassVar[bool] = False
    """Whether it picks a processor's instructions: products of bytes, float16, tiles of matrices.

    Others leave that to a compiler behind them; operators and schedules offer them plain loops.
    """

    @abstractmethod
    def compile(
        self, functions: Sequence[PrimFunc], target: Target, name: str,
        targets: Sequence[Target] = (),
    ) -> Code:
        """The code of a module; targets: all that functions of the module are compiled for."""

    def runs_here(self, target: Target) -> bool:
        """Whether this machine runs what is compiled for a target."""
        return runs_here(target)

    def triple(self, target: Target) -> str:
        """The machine that linkers and compilers of its files work for; empty: whichever it is."""
        return machine_of(target).triple

    def write_model(
        self, model: ModelData, target: Target, folder: Path, called: Sequence[str] | None,
        cc: str | None, compiles: bool,
    ) -> list[Path]:
        """Files that hold a model beside its code, for a linker or compiler: as C.

        called: the kernels that a program must announce with it when it starts, or None for what is
        loaded at run time; compiles: whether cc may compile it, which takes large data faster.
        """
        if model.is_large:
            raise ValueError(
                f"a model of {model.size} bytes is too large for C; build it for a target of LLVM"
            )
        if compiles:
            text = c.assembled_model_text(model.name, DATA_FILE, model.size)
        else:
            text = c.model_text(model.name, model.to_bytes())
        if called is not None:
            text += c.linked_model_text(model.name, called)
        source = folder / "model.c"
        source.write_text(text, "utf-8")
        if not compiles:
            return [source]
        (folder / DATA_FILE).write_bytes(model.to_bytes())
        toolchain.compile_object(folder / "model.o", source, cc=cc, cwd=folder)
        return [folder / "model.o"]


class KernelCodeGenerator(CodeGenerator):
    """One that compiles kernels one by one.

    What compile_kernel gives depends on nothing but its arguments and the settings of passes.
    """

    @abstractmethod
    def compile_kernel(self, functions: Sequence[PrimFunc], target: Target, name: str) -> bytes:
        """The functions of one kernel, as link and load take them."""

    @abstractmethod
    def link(
        self, kernels: Mapping[str, bytes], target: Target, text: Callable[[str], str]
    ) -> KernelsCode:
        """The code of a module of kernels, with what they share under the name SUPPORT.

        text: gives it in one of the forms.
        """

    @abstractmethod
    def load(self, kernels: Sequence[bytes]) -> Callable[[str], int | None]:
        """What link made code of, loaded into this process: finds the address of a symbol."""

    def device_modules(self, kernels: Sequence[bytes]) -> list[Module]:
        """What these kernels launch on a device, for the module over them to import."""
        return []


class ProgramCodeGenerator(CodeGenerator):
    """One that writes networks as C that needs no runtime: Runtime("crt")."""

    @abstractmethod
    def program(
        self, functions: Sequence[PrimFunc], target: Target, interface: c.Interface,
        tail: Sequence[str],
    ) -> c.ProgramCode:
        """A network with its constants and memory; tail: what comes behind its functions."""
