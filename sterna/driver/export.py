"""Modules into files that load elsewhere: libraries, archives, objects, C."""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sterna.driver import bundle
from sterna.driver.files import as_objects, pack, write_object
from sterna.driver.operator_module import OperatorModule
from sterna.runtime import Module
from sterna.support import cross, native, toolchain
from sterna.support.keys import read_secret_key
from sterna.support.seal import seal
from sterna.support.write_aside import write_aside
from sterna.target import Target

LINK_OPTIONS = ("cc", "cwd", "options")
LIBRARY_FORMS = frozenset({".so", ".dylib", ".dll"})
# An archive's members have seals of their own, and C has none.
SEALED_FORMS = LIBRARY_FORMS | {".tar", ".o", ".wasm"}


def export_library(
    module: Module,
    file_name: str | os.PathLike[str],
    fcompile: Callable[..., Any] | None = None,
    addons: Sequence[str | os.PathLike[str]] | None = None,
    workspace_dir: str | os.PathLike[str] | None = None,
    write_more: Callable[[Path, str | None], list[Path]] = lambda folder, cc: [],
    attach: Callable[[Path], None] | None = None,
    **options: Any,
) -> Any:
    """Write a module and all that it imports; see Module.export_library.

    write_more: writes what goes into the file beside the modules, into a folder, with the
    command of a C compiler. attach: puts further things behind what was linked; then there is no
    form but that of libraries.
    """
    path, further = Path(file_name), [Path(p) for p in addons or ()]
    key = options.pop("sign", None)
    _expect_name(path, is_signed=key is not None, by_user=fcompile is not None)
    secret = None if key is None else read_secret_key(key)
    with tempfile.TemporaryDirectory(dir=workspace_dir) as name:
        tools = _Tools(_triple(module), options.get("cc"))
        made = bundle.write(module, Path(name))
        if fcompile is None:
            tools = tools.completed(path.suffix, _hold_c((*made, *further)), Path(name))
        more = write_more(Path(name), tools.command)
        if fcompile is not None:
            files = [os.fspath(p) for p in (*made, *more, *further)]
            result = fcompile(os.fspath(path), files, **options)
            if path.suffix in SEALED_FORMS and path.is_file():
                seal(path, secret)
            return result
        unknown = sorted(options.keys() - set(LINK_OPTIONS))
        if unknown:
            known = ", ".join((*LINK_OPTIONS, "sign"))
            raise TypeError(f"export_library has no option '{unknown[0]}'; linking takes {known}")
        export = _Export(path, made, more, further, Path(name), options, tools, secret, attach)
        _WRITERS[path.suffix](export)
    return None


def expect_form(
    path: Path, target: Target, cc: str | None = None, is_signed: bool = False
) -> None:
    """Refuse, before a model is built for a target, a file that could not be written of it."""
    _expect_name(path, is_signed)
    generator = target.kind.code_generator()
    with tempfile.TemporaryDirectory() as name:
        tools = _Tools(generator.triple(target), cc)
        tools.completed(path.suffix, "c" in generator.forms, Path(name))


def _expect_name(path: Path, is_signed: bool, by_user: bool = False) -> None:
    """by_user: a function of the user's writes the file."""
    if not by_user and path.suffix not in _WRITERS:
        raise ValueError(
            f"cannot export '{path}': the name must end in .so, .tar, .o, .a, .c or .wasm"
        )
    if is_signed and path.suffix == ".c":
        raise ValueError(f"cannot sign '{path}': C has no seal; sign what is compiled from it")


def _triple(module: Module) -> str:
    """What a module is built for; empty: this machine, or C for any."""
    if not isinstance(module, OperatorModule):
        return ""
    return module.target.kind.code_generator().triple(module.target)


def _hold_c(files: Sequence[Path]) -> bool:
    """Whether there is C to compile."""
    return any(path.suffix not in (".o", ".a") for path in files)


@dataclass(frozen=True, slots=True)
class _Tools:
    """What compiles and links for a module's target."""

    triple: str
    """Empty: this machine's."""
    command: str | None
    """None: this machine's own compiler, or none where none is needed."""
    options: Sequence[str] = ("-lm",)
    has_libraries: bool = True
    """Whether shared libraries can be linked."""

    @property
    def is_here(self) -> bool:
        """Whether they are this machine's own."""
        return not self.triple or cross.is_here(self.triple)

    def completed(self, suffix: str, is_c: bool, folder: Path) -> "_Tools":
        """With what a file of a form takes, where no compiler is given."""
        triple, is_here = self.triple, self.is_here
        if suffix == ".wasm" and not triple.startswith("wasm"):
            raise ValueError(
                f"a .wasm cannot be exported from what is built for {triple or 'this machine'}; "
                'build it for the target "llvm -mtriple=wasm32-wasi"'
            )
        if suffix in LIBRARY_FORMS:
            cross.require_shared_libraries(triple)
        if self.command is not None or suffix == ".c":
            return self
        machine = cross.Machine.here() if is_here else cross.Machine.of(triple)
        if is_here and not is_c and toolchain.find_c_compiler() is None:
            if suffix in LIBRARY_FORMS:
                cross.require_linker(suffix, triple)
            return replace(self, has_libraries=False)
        if is_here:
            return replace(self, options=[*self.options, *(machine.compact if machine else ())])
        links = machine is not None and machine.has_shared_libraries
        if is_c or suffix == ".wasm":
            return replace(self, command=cross.compiler_for(triple), has_libraries=links)
        if suffix == ".o":
            return replace(self, command=cross.joiner_for(triple))
        if suffix == ".a" or (suffix == ".tar" and not links):
            return replace(self, has_libraries=False)
        linker = cross.linker_for(triple)
        return replace(self, command=linker.command, options=linker.prepare(folder))


@dataclass(frozen=True, slots=True)
class _Export:
    path: Path
    made: Sequence[Path]
    more: Sequence[Path]
    addons: Sequence[Path]
    folder: Path
    options: Mapping[str, Any]
    tools: _Tools
    secret: bytes | None
    """The key that the file is signed with."""
    attach: Callable[[Path], None] | None = None

    @property
    def files(self) -> list[Path]:
        return [*self.made, *self.more, *self.addons]

    def link(self, output: Path) -> None:
        extra = [*(self.options.get("options") or ()), *self.tools.options]
        toolchain.link_shared(
            output, self.files, extra, self.tools.command, self.options.get("cwd"),
            needs_runtime=bool(self.addons) and self.tools.is_here, finish=self.finish,
        )

    def finish(self, library: Path) -> None:
        if self.attach is not None:
            self.attach(library)
        self.seal(library)

    def seal(self, path: Path) -> None:
        seal(path, self.secret)

    def library(self) -> None:
        self.link(self.path)

    def tar(self) -> None:
        library = [self.folder / "lib.so"] if self.tools.has_libraries else []
        for path in library:
            self.link(path)
        self.write(lambda aside: pack(aside, [*library, *self.files]))

    def write(self, fill: Callable[[Path], None]) -> None:
        def fill_and_seal(aside: Path) -> None:
            fill(aside)
            self.seal(aside)

        write_aside(self.path, fill_and_seal)

    def wasm(self) -> None:
        if not self.more:
            raise ValueError(
                f"cannot export '{self.path}': a module of WebAssembly holds a whole model, as "
                "relay.build makes it; export functions alone as objects (.o or .a)"
            )
        cc, cwd = str(self.tools.command), self.options.get("cwd")
        small = []
        for source in native.wasm_sources():  # what is hot in a model is the model's own code
            small.append(self.folder / f"runtime.{source.stem}.o")
            toolchain.compile_object(small[-1], source, ["-Os", "-fno-pic"], cc)
        extra = self.options.get("options") or ()
        toolchain.link_wasm(self.path, [*small, *self.files], extra, cc, cwd, self.seal)

    def archive(self) -> None:
        sealed = []
        for place, path in enumerate(as_objects(self.files, self.folder, self.tools.command)):
            sealed.append(path)
            if path.suffix == ".o":  # a copy: an addon is the user's own file
                sealed[-1] = self.folder / f"sealed{place}" / path.name
                sealed[-1].parent.mkdir()
                shutil.copyfile(path, sealed[-1])
                self.seal(sealed[-1])
        write_aside(self.path, lambda aside: toolchain.archive(aside, sealed))

    def object(self) -> None:
        cc = self.tools.command
        self.write(lambda aside: write_object(aside, self.files, self.folder, cc))

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
    **dict.fromkeys(LIBRARY_FORMS, _Export.library),
    ".tar": _Export.tar, ".a": _Export.archive, ".o": _Export.object, ".c": _Export.source,
    ".wasm": _Export.wasm,
}
