"""One library with a model's code for several levels of an architecture, one of which a load picks.

Each level is a model of its own in the file: its kernels, its graph, and its weights as these
kernels want them. A table says what each needs of a processor; see runtime/src/processor.c.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sterna.codegen import llvm
from sterna.codegen.model_data import MOST_LINKED, ModelData
from sterna.driver import bundle
from sterna.driver.export import LIBRARY_FORMS, export_library
from sterna.driver.factory import GraphExecutorFactoryModule
from sterna.driver.model_files import write_model_files
from sterna.isa.instruction_set import Level
from sterna.support.table import show_bytes
from sterna.target import Target, machine_of
from sterna.target.code_generators.llvm import llvm_options
from sterna.target.needed import needed

# The threads that work is shared for, where the target does not say: few enough for small machines,
# and loops of four shares spread well over more.
CORES = 4
# What the model is called in a file, whichever level runs.
NAME = "default"


@dataclass(frozen=True, slots=True)
class LevelCode:
    """A model that was built for one level."""

    level: Level
    factory: GraphExecutorFactoryModule


def levels_of(target: Target) -> list[tuple[Level, Target]]:
    """The levels of a target's architecture, the lowest first, and the target of each."""
    if not target.kind.picks_instructions:
        raise ValueError(f"portable files hold machine code: name a target of llvm, not {target}")
    machine = machine_of(target)
    isa = machine.instructions.isa
    if not isa.levels:
        raise ValueError(
            f"portable files are made for x86-64 and AArch64, not for {machine.triple}; name its "
            "processors by -mcpu, and write a file for each"
        )
    given = [name for name in ("mcpu", "mattr") if target.attrs.get(name) not in (None, "native")]
    if given:
        raise ValueError(
            f"a portable file is for every processor of its architecture: leave out -{given[0]} of "
            f"the target '{target}'"
        )
    cores = target.attrs.get("num-cores", CORES)
    common = f"llvm -mtriple={machine.triple} -num-cores={cores}"
    return [(each, Target(f"{common} {each.options}")) for each in isa.levels]


def expect_library(file_name: str | os.PathLike[str]) -> None:
    """Refuse a file of a form in which nobody picks."""
    if Path(file_name).suffix not in LIBRARY_FORMS:
        raise ValueError(
            f"cannot export '{os.fspath(file_name)}': loading picks among levels, so that portable "
            "files are shared libraries; let the name end in .so"
        )


def export_levels(
    levels: Sequence[LevelCode], file_name: str | os.PathLike[str], **options: Any
) -> None:
    """Write a library with all levels, the lowest first, each built under a name of its own."""
    expect_library(file_name)
    form = Path(file_name).suffix
    names = [each.level.name for each in levels]
    data = [_data(each, names) for each in levels]
    if any(each.is_large for each in data):
        raise ValueError(
            f"a portable file holds at most {show_bytes(MOST_LINKED)} of weights for each level; "
            "write a file for each processor"
        )
    lowest, *others = levels

    def write(folder: Path, cc: str | None) -> list[Path]:
        files = []
        for place, each in enumerate(levels):
            own = folder / f"level{place}"
            own.mkdir()
            files += bundle.write(each.factory.lib, own) if each in others else []
            files += write_model_files(each.factory.lib, data[place], own, form, True, cc)
        table = folder / "levels.o"
        needs = [(each.level.name, _needs(each.factory.target)) for each in reversed(levels)]
        table.write_bytes(llvm.levels_object(llvm_options(lowest.factory.target), needs))
        return [*files, table]

    export_library(lowest.factory.lib, file_name, write_more=write, **options)


def _data(built: LevelCode, names: Sequence[str]) -> ModelData:
    """The model of a level; its graph tells which levels there are."""
    graph = json.loads(built.factory.graph_json)
    graph["attrs"]["level"] = ["list_str", [built.level.name, *names]]
    return ModelData(NAME, json.dumps(graph), built.factory.params, built.level.name)


def _needs(target: Target) -> str:
    """What the code of a target needs of a processor, tiles of matrices among it."""
    machine = machine_of(target)
    unit = machine.instructions.isa.tile_unit
    tiles = sorted(f for f in machine.feature_set if unit is not None and f.startswith(unit.prefix))
    return " ".join([needed(machine), *tiles])
