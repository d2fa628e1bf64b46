"""Loading objects, archives and C sources without a linker of the system."""

from io import BytesIO
from pathlib import Path

from sterna.codegen.c import load_c
from sterna.codegen.llvm import JitModule
from sterna.runtime import Module, _core
from sterna.support import toolchain
from sterna.support.architecture import AR_MAGIC, archive_members
from sterna.support.elf_check import check_elf
from sterna.support.file_view import BrokenFileError, FileView
from sterna.support.plain_tar import content_of, files_in, open_plain_tar
from sterna.support.seal import check, is_sealed, view_of


def load(path: Path) -> Module:
    """The modules in an object file, in all objects of an archive or tar, or in a C source.

    Whoever calls it has seen that they are for this machine, since LLVM would link others too and
    their code would run, and has checked the file's seal.
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
    is_known = is_sealed(path)
    if path.suffix == ".tar":
        with open_plain_tar(path) as archive:
            files = files_in(archive)
            found = [content_of(archive, files[name]) for name in files if name.endswith(".o")]
        return [_checked(FileView(BytesIO(each), 0, len(each)), is_known) for each in found]
    with open(path, "rb") as file:
        view = view_of(file)
        if path.suffix != ".a":
            return [_checked(view, is_known)]
        if view.head(len(AR_MAGIC)) != AR_MAGIC:
            raise BrokenFileError("it is no archive")
        return [_checked(member, check(member)) for _, member in archive_members(view)]


def _checked(view: FileView, is_known: bool) -> bytes:
    """An object, which is looked through before it is linked unless a seal vouches for it."""
    if not is_known:
        check_elf(view, is_object=True)
    return view.read(0, view.size)
