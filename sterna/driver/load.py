"""Loading objects, archives and C sources without a linker of the system."""

from collections.abc import Iterator
from pathlib import Path

from sterna.codegen.llvm import JitModule
from sterna.driver.code import load_c
from sterna.runtime import Module, _core
from sterna.support import toolchain

ARCHIVE_MAGIC = b"!<arch>\n"
MEMBER_HEADER = 60
ELF_MAGIC = b"\x7fELF"


def load(path: Path) -> Module:
    """The modules in an object file, in all objects of an archive, or in a C source."""
    if path.suffix == ".c":
        return _load_source(path)
    content = path.read_bytes()
    objects = list(_members(path, content)) if path.suffix == ".a" else [content]
    if not objects:
        raise ValueError(f"cannot load '{path}': the archive is empty")
    for each in objects:
        _require_this_machine(path, each)
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


def _require_this_machine(path: Path, content: bytes) -> None:
    """LLVM would link code for another processor too, and that code would run."""
    with open(_core.__file__, "rb") as file:
        ours = file.read(20)
    # Word size, byte order and processor.
    same = all(content[part] == ours[part] for part in (slice(4, 6), slice(18, 20)))
    if content.startswith(ELF_MAGIC) and ours.startswith(ELF_MAGIC) and not same:
        raise ValueError(f"cannot load '{path}': it is built for another machine than this")


def _members(path: Path, content: bytes) -> Iterator[bytes]:
    """The object files in an archive."""
    if not content.startswith(ARCHIVE_MAGIC):
        raise ValueError(f"cannot load '{path}': it is no archive")
    at = len(ARCHIVE_MAGIC)
    while at + MEMBER_HEADER <= len(content):
        header = content[at : at + MEMBER_HEADER]
        digits = header[48:58].strip()
        if header[58:] != b"`\n" or not digits.isdigit():
            raise ValueError(f"cannot load '{path}': the archive is broken at byte {at}")
        begin, size = at + MEMBER_HEADER, int(digits)
        if begin + size > len(content):
            raise ValueError(f"cannot load '{path}': the archive is truncated")
        if not header.startswith(b"/"):  # a table of symbols or names
            yield content[begin : begin + size]
        at = begin + size + size % 2
    if at < len(content):
        raise ValueError(f"cannot load '{path}': the archive is truncated")
