"""Modules into files that load elsewhere: libraries, archives, objects, C."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sterna.driver import bundle
from sterna.driver.files import as_objects, pack, write_object
from sterna.driver.operator_module import OperatorModule
from sterna.runtime import Module
from sterna.support import cross, toolchain
from sterna.support.write_aside import write_aside
from sterna.target import machine_of

LINK_OPTIONS = ("cc", "cwd", "options")


def export_library(
    module: Module,
    file_name: str | os.PathLike[str],
    fcompile: Callable[..., Any] | None = None,
    addons: Sequence[str | os.PathLike[str]] | None = None,
    workspace_dir: str | os.PathLike[str] | None = None,
    write_more: Callable[[Path], list[Path]] = lambda folder: [],
    **options: Any,
) -> Any:
    """Write a module and all that it imports; see Module.export_library.

    write_more: writes what goes into the file beside the modules, into a folder.
    """
    path = Path(file_name)
    with tempfile.TemporaryDirectory(dir=workspace_dir) as name:
        if options.get("cc") is None and fcompile is None and path.suffix != ".a":
            options["cc"] = _compiler_for(module, path.suffix)
        made, more = bundle.write(module, Path(name)), write_more(Path(name))
        export = _Export(path, made, more, [Path(p) for p in addons or ()], Path(name), options)
        if fcompile is not None:
            return fcompile(os.fspath(path), [os.fspath(p) for p in export.files], **options)
        unknown = sorted(options.keys() - set(LINK_OPTIONS))
        if unknown:
            known = ", ".join(LINK_OPTIONS)
            raise TypeError(f"export_library has no option '{unknown[0]}'; linking takes {known}")
        write = _WRITERS.get(path.suffix)
        if write is None:
            raise ValueError(
                f"cannot export '{path}': the name must end in .so, .tar, .o, .a or .c"
            )
        write(export)
    return None


def _compiler_for(module: Module, suffix: str) -> str | None:
    """The compiler for what a module is built for; None if it is this machine's own."""
    if not isinstance(module, OperatorModule):
        return None
    target = module.target
    if target.kind.name == "c" and not target.attrs.get("mtriple"):
        return None
    triple = machine_of(target).triple
    if cross.is_here(triple):
        return None
    return cross.joiner_for(triple) if suffix == ".o" else cross.compiler_for(triple)


@dataclass(frozen=True, slots=True)
class _Export:
    path: Path
    made: Sequence[Path]
    more: Sequence[Path]
    addons: Sequence[Path]
    folder: Path
    options: Mapping[str, Any]

    @property
    def files(self) -> list[Path]:
        return [*self.made, *self.more, *self.addons]

    def link(self, output: Path) -> None:
        extra = [*(self.options.get("options") or ()), "-lm"]
        toolchain.link_shared(
            output, self.files, extra, self.options.get("cc"), self.options.get("cwd"),
            needs_runtime=bool(self.addons),
        )  # fmt: skip

    def library(self) -> None:
        self.link(self.path)

    def tar(self) -> None:
        library = self.folder / "lib.so"
        self.link(library)
        write_aside(self.path, lambda aside: pack(aside, [library, *self.files]))

    def archive(self) -> None:
        objects = as_objects(self.files, self.folder, self.options.get("cc"))
        write_aside(self.path, lambda aside: toolchain.archive(aside, objects))

    def object(self) -> None:
        cc = self.options.get("cc")
        write_aside(self.path, lambda aside: write_object(aside, self.files, self.folder, cc))

    def source(self) -> None:
        alone = len(self.made) == 1 and not self.addons
        if not alone or any(path.suffix != ".c" for path in self.files):
            raise ValueError(
                f"cannot export '{self.path}': not all of the module, its imports and addons is C "
                'code; build them for the target "c"'
            )
        text = "\n".join(path.read_text("utf-8") for path in self.files)
        write_aside(self.path, lambda aside: aside.write_text(text, encoding="utf-8"))


_WRITERS: dict[str, Callable[[_Export], None]] = {
    ".so": _Export.library, ".dylib": _Export.library, ".dll": _Export.library,
    ".tar": _Export.tar, ".a": _Export.archive, ".o": _Export.object, ".c": _Export.source,
}  # fmt: skip
