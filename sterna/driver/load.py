"""Loading objects, archives and C sources without a linker of the system."""

import os
from pathlib import Path

from sterna.codegen.c import load_c
from sterna.codegen.llvm import JitModule
from sterna.runtime import Module, _core
from sterna.support import toolchain
from sterna.support.architecture import AR_MAGIC, archive_members
from sterna.support.file_view import BrokenFileError, FileView
from sterna.support.plain_tar import content_of, files_in, open_plain_tar


def load(path: Path) -> Module:
    """The modules in an object file, in all objects of an archive or tar, or in a C source.

    Whoever calls it has seen that they are for this machine: LLVM would link others too, and their
    code would run.
    """
    if path.suffix == ".c":
        return _load_source(path)
    try:
        objects = _objects(path)
    except BrokenFileError as error:
        raise ValueError(f"cannot load '{path}': {error}") from None
    if not objects:
        raise ValueError(f"cannot load '{path}': it holds no object file")
    try:
        linked = JitModule(*objects)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"cannot load '{path}': {error}") from None
    module: Module = _core.module_from_symbols(str(path), linked.find)
    return module


def _load_source(path: Path) -> Module:
    try:
        return load_c(path.read_text("utf-8"))
    except (UnicodeDecodeError, toolchain.CompileError) as error:
        raise ValueError(f"cannot load '{path}': it is no C source ({error})") from None


def _objects(path: Path) -> list[bytes]:
    """The object files in a file."""
    if path.suffix == ".tar":
        with open_plain_tar(path) as archive:
            files = files_in(archive)
            return [content_of(archive, files[name]) for name in files if name.endswith(".o")]
    with open(path, "rb") as file:
        view = FileView(file, 0, os.fstat(file.fileno()).st_size)
        if path.suffix != ".a":
            return [view.read(0, view.size)]
        if view.head(len(AR_MAGIC)) != AR_MAGIC:
            raise BrokenFileError("it is no archive")
        return [member.read(0, member.size) for _, member in archive_members(view)]
