"""A target that runs kernels by the reference interpreter: kind, code generator and schedule.

Slow and plain, it needs no machine code at all; a real target differs in what `find` gives.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sterna.codegen.code import Code, Members, names_of
from sterna.runtime import PackedFunc
from sterna.schedule.kernel import Kernel
from sterna.schedule.registry import generic_schedule, schedule_for
from sterna.target import Target
from sterna.target.code_generator import CodeGenerator
from sterna.target.kind import TargetKind
from sterna.tir import interpreter
from sterna.tir.stmt import PrimFunc

KIND = TargetKind(
    name="interpreted",
    device_type=1,  # DLPack's number of memory that this process sees
    default_keys=("interpreted",),
    codegen="interpreted",  # the modules, as import names them
    schedules=("interpreted",),
    triple="host",
)


@generic_schedule("interpreted")
def schedule_plain(kernel: Kernel) -> None:
    """Loops as they are written: nothing is vectorized or shared."""


@schedule_for("nn.dense", "interpreted")
def schedule_dense(kernel: Kernel) -> None:
    """Columns outside of rows."""
    stage = kernel.schedule[kernel.outputs[0]]
    row, column = stage.op.axis
    stage.reorder(column, row)


class InterpretedCode:
    """Functions that are read whenever they are called."""

    kind = "interpreted"
    can_rename = True
    context = 0

    def __init__(self, functions: Sequence[PrimFunc]) -> None:
        self.functions = functions
        self.names = names_of(functions)

    def find(self, name: str) -> int | PackedFunc | None:
        plain = [f for f in self.functions if f.name == name and not f.attrs.get("packed")]
        return PackedFunc(_runner(plain[0])) if plain else None

    def source(self, form: str) -> str:
        return "\n\n".join(str(f) for f in self.functions if not f.attrs.get("packed"))

    def joins(self, other: Code) -> bool:
        return False

    def write(self, folder: Path, stem: str, members: Members, table: bytes) -> list[Path]:
        raise ValueError("interpreted kernels have no files; compile for llvm to export a model")


def _runner(function: PrimFunc) -> Callable[..., None]:
    def run(*arrays: Any) -> None:
        held = [array.numpy() for array in arrays]
        interpreter.run(function, *held)
        for array, values in zip(arrays, held, strict=True):
            array.copyfrom(values)

    return run


class Interpreted(CodeGenerator):
    """Leaves loops as they are."""

    forms = ("tir",)

    def compile(
        self, functions: Sequence[PrimFunc], target: Target, name: str,
        targets: Sequence[Target] = (),
    ) -> Code:
        return InterpretedCode(functions)


GENERATOR = Interpreted()
