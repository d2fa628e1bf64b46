"""What build gives: a module that runs, shows its sources and is written to files."""

import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from sterna.driver.code import Code
from sterna.ir.module import IRModule
from sterna.runtime import Module, _core
from sterna.support import toolchain
from sterna.target import Target

LIBRARY_SUFFIXES = frozenset({".so", ".dylib", ".dll"})


class OperatorModule(Module):
    """Compiled functions, with what they were compiled from."""

    code: Code
    target: Target
    ir_module: IRModule
    name: str

    @classmethod
    def make(cls, code: Code, name: str, target: Target, lowered: IRModule) -> Self:
        """A module over code; machine code for this machine is made when it is first run."""
        module: Self = _core.make_module(cls, code.find)
        module.code, module.name = code, name
        module.target, module.ir_module = target, lowered
        return module

    @property
    def ir_module_by_target(self) -> dict[Target, IRModule]:
        """The loops that it was compiled from."""
        return {self.target: self.ir_module}

    def get_source(self, fmt: str = "") -> str:
        """The code as text: LLVM IR ("ll") or assembly ("asm") of an LLVM module, C of a C one."""
        return self.code.source(fmt)

    def save(self, file_name: str | os.PathLike[str], fmt: str = "") -> None:
        """Write the code in the form that the file's name says: .o .ll .s of LLVM, .c of C."""
        path = Path(file_name)
        form = fmt or path.suffix.lstrip(".")
        if form == "o":
            _write(path, lambda aside: _one_object(self.code, aside))
        else:
            text = self.code.source(form)
            _write(path, lambda aside: aside.write_text(text, encoding="utf-8"))

    def export_library(
        self,
        file_name: str | os.PathLike[str],
        *,
        fcompile: Callable[..., Any] | None = None,
        addons: Sequence[str | os.PathLike[str]] | None = None,
        workspace_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Any:
        """Write a library: .so, .tar (a linked library and its parts), .o, .a or .c.

        cc= names the compiler that links, options= adds to its command line.
        """
        path = Path(file_name)
        with tempfile.TemporaryDirectory(dir=workspace_dir) as name:
            parts = self.code.object_files(Path(name)) + [Path(p) for p in addons or ()]
            if fcompile is not None:
                return fcompile(os.fspath(path), [os.fspath(p) for p in parts], **options)
            if path.suffix in LIBRARY_SUFFIXES:
                self._link(path, parts, options)
            elif path.suffix == ".tar":
                library = Path(name) / "lib.so"
                self._link(library, parts, options)
                _write(path, lambda aside: _pack(aside, [library, *parts]))
            elif path.suffix == ".a":
                _write(path, lambda aside: toolchain.archive(aside, _objects(parts, Path(name))))
            elif path.suffix == ".o":
                _write(path, lambda aside: _one_object(self.code, aside))
            elif path.suffix == ".c":
                self.save(path)
            else:
                raise ValueError(
                    f"cannot export '{path}': the name must end in .so, .tar, .o, .a or .c"
                )
        return None

    def _link(self, output: Path, parts: Sequence[Path], options: dict[str, Any]) -> None:
        extra = [*options.get("options", ()), "-lm"]
        toolchain.link_shared(output, parts, extra, options.get("cc"))


def _write(path: Path, fill: Callable[[Path], object]) -> None:
    """Fill a file aside and move it into place, so that nobody sees half of it."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    aside = Path(name)
    try:
        fill(aside)
        os.chmod(aside, 0o644)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def _objects(parts: Sequence[Path], folder: Path) -> list[Path]:
    """The parts with C sources compiled."""
    done = []
    for part in parts:
        if part.suffix == ".c":
            made = folder / f"{part.stem}.o"
            toolchain.compile_object(made, part)
            part = made
        done.append(part)
    return done


def _one_object(code: Code, output: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        (made,) = _objects(code.object_files(Path(name)), Path(name))
        shutil.copyfile(made, output)


def _pack(output: Path, members: Sequence[Path]) -> None:
    """A tar whose bytes depend on nothing but its members."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        info.mode = 0o644
        return info

    with tarfile.open(output, "w", format=tarfile.USTAR_FORMAT) as archive:
        for member in members:
            archive.add(member, member.name, filter=plain)
