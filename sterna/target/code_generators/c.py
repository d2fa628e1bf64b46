"""C99, for whatever compiler the device has."""

from collections.abc import Sequence

from sterna.codegen import c
from sterna.codegen.code import Code
from sterna.target.code_generator import ProgramCodeGenerator
from sterna.target.machine import machine_of
from sterna.target.target import Target
from sterna.tir.stmt import PrimFunc


class CGenerator(ProgramCodeGenerator):
    """One file of C for a module, or for a whole network."""

    forms = ("c",)

    def compile(
        self, functions: Sequence[PrimFunc], target: Target, name: str,
        targets: Sequence[Target] = (),
    ) -> Code:
        return c.CCode(functions, name, vectors=_has_vectors(target))

    def triple(self, target: Target) -> str:
        """C that names no machine is for any: the compiler at hand decides."""
        return super().triple(target) if target.attrs.get("mtriple") else ""

    def program(
        self, functions: Sequence[PrimFunc], target: Target, interface: c.Interface,
        tail: Sequence[str],
    ) -> c.ProgramCode:
        return c.ProgramCode(functions, interface, tail, vectors=_has_vectors(target))


def _has_vectors(target: Target) -> bool:
    """Whether compilers for the target take MVE's intrinsics."""
    return machine_of(target).provides("dot_across")


GENERATOR = CGenerator()
