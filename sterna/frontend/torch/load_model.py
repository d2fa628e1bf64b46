"""A model of PyTorch in any form, as a graph."""

import importlib.util
import io
import os
from typing import Any

from sterna.frontend.calls import limited_folding
from sterna.frontend.format import Graph, ImportOptions
from sterna.frontend.torch.archive import Archive
from sterna.frontend.torch.importer import ProgramImporter
from sterna.frontend.torch.program import Program
from sterna.frontend.torch.read_exported import read_exported
from sterna.frontend.torch.read_pt2 import PROGRAM, read_archive
from sterna.frontend.torch.read_script import BROKEN, read_script
from sterna.frontend.torch.script_inputs import script_infos
from sterna.frontend.torch.script_nesting import check_nesting
from sterna.frontend.torch.source_records import check_source_records
from sterna.support.errors import MissingPackageError


def load(model: Any, options: ImportOptions) -> Graph:
    """The graph and the weights of an exported program, its file, or a module."""
    return import_program(read(model, options), options)


def import_program(program: Program, options: ImportOptions) -> Graph:
    """The graph of a program that a reader made."""
    with limited_folding() as room:
        return ProgramImporter(program, options.inputs(), options.freeze_params, room).run()


def read(model: Any, options: ImportOptions) -> Program:
    """The program of a model; a .pt2 file is read without PyTorch."""
    if isinstance(model, Program):
        return model
    if not isinstance(model, str | os.PathLike | bytes | bytearray | memoryview):
        return _live(model, options)
    archive = Archive(model if isinstance(model, str | os.PathLike) else bytes(model))
    if PROGRAM in archive:
        return read_archive(archive)
    if not any(name.startswith("code/") for name in archive.names()):
        raise ValueError(
            f"{archive.name} holds weights and no program; make the module, load them into it, "
            "and give it with example inputs, or write it by torch.export.save"
        )
    check_nesting(archive)
    check_source_records(archive)
    return _live(_loaded_script(model, archive.name), options)


def _loaded_script(model: Any, name: str) -> Any:
    """TorchScript from a file, which PyTorch itself reads."""
    if importlib.util.find_spec("torch") is None:
        raise MissingPackageError("torch", f"reading {name}, which is TorchScript,")
    import torch

    try:
        return torch.jit.load(
            model if isinstance(model, str | os.PathLike) else io.BytesIO(bytes(model)),
            map_location="cpu",
        )
    except BROKEN as error:
        raise ValueError(f"PyTorch cannot read {name}: {error}") from None


def _live(model: Any, options: ImportOptions) -> Program:
    import torch

    if isinstance(model, torch.export.ExportedProgram):
        return read_exported(model)
    if options.example_inputs is None:
        raise TypeError(
            f"the PyTorch module {type(model).__name__} is recorded while it runs: give example "
            "inputs, sterna.compile(module, (x,)), or export it by torch.export.export"
        )
    given = tuple(options.example_inputs)
    if isinstance(model, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        return read_script(model, script_infos(model, given))
    with torch.no_grad():
        return read_exported(torch.export.export(model, given))
