"""Loading objects, archives and C sources without a linker of the system."""

from collections.abc import Iterator
from pathlib import Path

from sterna.codegen.llvm import JitModule
from sterna.driver.code import CCode
from sterna.runtime import Module, _core
from sterna.runtime._core import PackedFunc

ARCHIVE_MAGIC = b"!<arch>\n"
MEMBER_HEADER = 60


def load(path: Path) -> Module:
    """The functions of an object file, of all objects in an archive, or of a C source."""
    if path.suffix == ".c":
        code = CCode(path.read_text("utf-8"))
        return _module(code.find)
    content = path.read_bytes()
    objects = list(_members(path, content)) if path.suffix == ".a" else [content]
    if not objects:
        raise ValueError(f"cannot load '{path}': the archive is empty")
    linked = [_link(path, content) for content in objects]

    def find(name: str) -> int | PackedFunc | None:
        found = (jit.find(f"__tvm_ffi_{name}") for jit in linked)
        return next((address for address in found if address is not None), None)

    return _module(find)


def _module(find: object) -> Module:
    module: Module = _core.make_module(Module, find)  # type: ignore[arg-type]
    return module


def _link(path: Path, content: bytes) -> JitModule:
    try:
        return JitModule(content)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"cannot load '{path}': {error}") from None


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
