"""The code generator of the target toy: its code is the loops themselves."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sterna.codegen.code import Code, Members, names_of
from sterna.runtime import PackedFunc
from sterna.target import Target
from sterna.target.code_generator import CodeGenerator
from sterna.tir import interpreter
from sterna.tir.stmt import PrimFunc


class ToyCode:
    """Functions that are interpreted when they are called."""

    kind = "toy"
    can_rename = True
    context = 0

    def __init__(self, functions: Sequence[PrimFunc]) -> None:
        self.functions = functions
        self.names = names_of(functions)

    def find(self, name: str) -> PackedFunc | None:
        for function in self.functions:
            if function.name == name and function.attrs.get("packed"):
                return PackedFunc(self._runner(function))
        return None

    def _runner(self, function: PrimFunc) -> Callable[..., None]:
        def run(*args: Any) -> None:
            arrays = [np.from_dlpack(arg) for arg in args]
            interpreter.run(function, *arrays, functions=self.functions)

        return run

    def source(self, form: str) -> str:
        if form not in ("", "tir"):
            raise ValueError(f"a toy module has the source tir, not '{form}'")
        return "\n\n".join(map(str, self.functions))

    def joins(self, other: Code) -> bool:
        return False

    def write(self, folder: Path, stem: str, members: Members, table: bytes) -> list[Path]:
        raise ValueError(
            'the target toy has no files: its code runs in this process; build for "llvm" or "c" '
            "to export a library"
        )


class ToyGenerator(CodeGenerator):
    """Keeps the loops of all functions."""

    forms = ("tir",)

    def compile(
        self, functions: Sequence[PrimFunc], target: Target, name: str,
        targets: Sequence[Target] = (),
    ) -> Code:
        return ToyCode(functions)


GENERATOR = ToyGenerator()
