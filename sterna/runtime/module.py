"""Modules: sets of functions, most of them in a shared library."""

import difflib
import enum
import importlib
import importlib.util
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from sterna.runtime import _core
from sterna.runtime._core import PackedFunc
from sterna.runtime.device import DEVICE_TYPES, KINDS, Device, device
from sterna.runtime.registry import get_global_func
from sterna.runtime.timing import BenchmarkResult, make_evaluator
from sterna.support import seal
from sterna.support.architecture import (
    AR_MAGIC,
    Architecture,
    architecture_of,
    archive_members,
    require_architecture,
)
from sterna.support.elf_check import check_elf
from sterna.support.file_view import BrokenFileError
from sterna.support.keys import File
from sterna.support.plain_tar import BrokenTarError, extract, files_in, open_plain_tar

# Files that are no libraries yet: the module whose function load(path) makes them one.
LOADERS = {".o": "sterna.driver.load", ".a": "sterna.driver.load", ".c": "sterna.driver.load"}

# Writing modules to files takes the compiler too.
EXPORTER = "sterna.driver.export"

DEVICE_KINDS = frozenset({"cuda", "opencl", "metal", "hip", "rocm", "vulkan", "webgpu"})


class ModulePropertyMask(enum.IntFlag):
    """What can be done with a module."""

    BINARY_SERIALIZABLE = 1
    """Go into a file as bytes, for a loader of its kind."""
    RUNNABLE = 2
    """Run here."""
    DSO_EXPORTABLE = 4
    """Go into a file as code, for a linker."""


class Module(_core.Module):
    """A set of functions that are found by name."""

    __slots__ = ()

    @property
    def home(self) -> Device | None:
        """The processor of another machine that its functions run on; None for this machine."""
        return None

    def _linked_params(self) -> list[Any]:
        """Pairs of names and arrays that a graph's code carries."""
        found = self._get_function("get_graph_params", False)
        return list(found()) if isinstance(found, PackedFunc) else []

    def _find_global(self, name: str) -> PackedFunc:
        """A registered function of the machine that the module is on."""
        return get_global_func(name)

    def get_function(self, name: str, query_imports: bool = False) -> PackedFunc:
        """The function of that name; it keeps the module alive."""
        found = self._get_function(name, query_imports)
        if found is None:
            raise AttributeError(f"Module has no function '{name}'")
        return found

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a function of that name."""
        return self._get_function(name, query_imports) is not None

    def __getitem__(self, name: str) -> PackedFunc:
        if not isinstance(name, str):
            raise TypeError(f"a module's functions are found by name, not by {name!r}")
        return self.get_function(name)

    def __call__(self, *args: Any) -> Any:
        return self.entry_func(*args)

    entry_name: ClassVar[str] = "main"
    """The function that calling the module calls."""

    @property
    def entry_func(self) -> PackedFunc:
        """What calling the module calls."""
        return self.get_function(self.entry_name)

    def time_evaluator(
        self,
        func_name: str,
        dev: Device,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """A function that times one of the module's functions on its arguments.

        Each of `repeat` results is the mean of `number` calls, or of what min_repeat_ms allows.
        Before each, cache_flush_bytes are written, and the registered f_preproc is called.
        """
        return make_evaluator(
            self.get_function(func_name), dev, number, repeat, min_repeat_ms,
            limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown,
            cache_flush_bytes, f_preproc,
        )

    @property
    def type_key(self) -> str:
        """What sort of module it is, under its classic name."""
        return self.kind

    def get_property_mask(self) -> int:
        """What can be done with it; see ModulePropertyMask."""
        return ModulePropertyMask.RUNNABLE

    @property
    def is_binary_serializable(self) -> bool:
        """Whether it goes into files as bytes, for a loader of its kind."""
        return bool(self.get_property_mask() & ModulePropertyMask.BINARY_SERIALIZABLE)

    @property
    def is_runnable(self) -> bool:
        """Whether it runs here."""
        return bool(self.get_property_mask() & ModulePropertyMask.RUNNABLE)

    @property
    def is_dso_exportable(self) -> bool:
        """Whether it goes into files as code, for a linker."""
        return bool(self.get_property_mask() & ModulePropertyMask.DSO_EXPORTABLE)

    @property
    def is_device_module(self) -> bool:
        """Whether its functions are kernels of a device."""
        return self.kind in DEVICE_KINDS

    def _collect_from_import_tree(self, wanted: Callable[["Module"], bool]) -> list["Module"]:
        """The module and all that it imports, each once, where a condition holds."""
        found: dict[int, Module] = {}
        stack: list[Module] = [self]
        while stack:
            module = stack.pop()
            if module.handle not in found:
                found[module.handle] = module
                stack += reversed(module.imported_modules)
        return [module for module in found.values() if wanted(module)]

    def _collect_dso_modules(self) -> list["Module"]:
        """Those that go into files as code."""
        return self._collect_from_import_tree(lambda module: module.is_dso_exportable)

    def get_source(self, fmt: str = "") -> str:
        """The code as text; a loaded library has none."""
        return ""

    def save(self, file_name: str | os.PathLike[str], fmt: str = "") -> None:
        """Write the module alone, without its imports, in the form that the file's name says."""
        raise ValueError(f"cannot save '{file_name}': a module of kind '{self.kind}' has no source")

    def export_library(
        self,
        file_name: str | os.PathLike[str],
        *,
        fcompile: Callable[..., Any] | None = None,
        addons: Sequence[str | os.PathLike[str]] | None = None,
        workspace_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Any:
        """Write it and all that it imports to a file that load_module takes anywhere.

        The name says the form: .so, .tar (a linked library and its parts), .o, .a, .c or .wasm.
        cc= names the compiler that links, options= adds to its command line; addons= are further
        sources and objects. fcompile= does the linking instead: fcompile(file_name, files, ...).
        sign= is the file of a secret key (PEM, Ed25519) to sign with, for load_module's trust.
        """
        exporter = importlib.import_module(EXPORTER)
        return exporter.export_library(
            self, file_name, fcompile, addons, workspace_dir, **options
        )

    def __repr__(self) -> str:
        return f"Module({self.kind}, {self.handle:x})"


def load_module(
    path: str | os.PathLike[str], *, trust: File | Sequence[File] | None = None
) -> Module:
    """Load a library; its functions are found by name.

    A .tar holds the shared library that is loaded, or objects; .o, .a and .c files are linked in
    memory. What is built for another machine is an error that names both, and so is a file that
    was changed after export_library wrote it. trust: files of public keys (PEM, Ed25519); then
    only what was signed with one of them (export_library's sign) is loaded.
    """
    file = Path(path)
    if not file.exists():
        raise ValueError(f"cannot load '{file}': there is no such file")
    is_sealed = _check_seal(file, None if trust is None else seal.Trust.of(trust))
    module: Module
    if file.suffix in LOADERS:
        module = importlib.import_module(LOADERS[file.suffix]).load(file)
    elif file.suffix == ".tar":
        module = _load_tar(file)
    else:
        module = _core.load_module(path)
    if not is_sealed and file.suffix != ".c":
        warnings.warn(
            f"'{file}' has no seal, so that damage to it goes unnoticed; load files of others only "
            "if you trust them: their code runs as yours",
            RuntimeWarning, stacklevel=2,
        )
    return module


@cache
def this_architecture() -> Architecture:
    """What this process loads."""
    return architecture_of(_core.__file__)


def _check_seal(file: Path, trust: seal.Trust | None) -> bool:
    """Refuse a file that is damaged, not trusted or not for this machine; whether it is sealed."""
    if not file.is_file() or file.suffix == ".c":
        if trust is not None:
            raise ValueError(
                f"cannot load '{file}': only signed files are trusted, and C has no seal; "
                "export a .so, .tar, .o or .a, and sign it"
            )
        return False
    if file.suffix == ".a":
        sealed = _check_members(file, trust)
    elif trust is None and file.suffix not in (".tar", ".o"):
        sealed = seal.find_seal(file)  # the runtime compares a shared library with it
    else:
        sealed = seal.check_file(file, trust)
    try:
        require_architecture(file, this_architecture())
    except ValueError:
        if file.suffix != ".a":  # whose members are checked by now
            seal.check_file(file)  # a byte that was changed may say another machine
        raise
    if not sealed:
        try:
            with open(file, "rb") as opened:
                check_elf(seal.view_of(opened))
        except BrokenFileError as error:
            raise ValueError(f"cannot load '{file}': {error}") from None
    return sealed


def _check_members(archive: Path, trust: seal.Trust | None) -> bool:
    """Check the seals of an archive's objects; whether all have one."""
    try:
        with open(archive, "rb") as file:
            view = seal.view_of(file)
            if view.head(len(AR_MAGIC)) != AR_MAGIC:
                return seal.check(view, trust)
            sealed = [seal.check(member, trust) for _, member in archive_members(view)]
            return all(sealed)
    except BrokenFileError as error:
        raise ValueError(f"cannot load '{archive}': {error}") from None


def _load_tar(path: Path) -> Module:
    """The shared library inside an archive, else its objects; nothing else is taken out of it."""
    try:
        with open_plain_tar(path) as archive, tempfile.TemporaryDirectory() as name:
            files = files_in(archive)
            if "lib.so" in files:
                library = Path(name) / "lib.so"
                extract(archive, files["lib.so"], library)
                return _load_from(library, path)
    except BrokenTarError as error:
        raise ValueError(f"cannot load '{path}': {error}") from None
    if not any(name.endswith(".o") for name in files):
        raise ValueError(f"cannot load '{path}': it holds neither lib.so nor objects")
    objects: Module = importlib.import_module(LOADERS[".o"]).load(path)
    return objects


def _load_from(library: Path, archive: Path) -> Module:
    try:
        if not seal.is_sealed(library):
            with open(library, "rb") as opened:
                check_elf(seal.view_of(opened))
        module: Module = _core.load_module(library)
    except BrokenFileError as error:
        raise ValueError(f"cannot load 'lib.so' of '{archive}': {error}") from None
    except ValueError as error:
        text = str(error).replace(f"'{library}'", f"'lib.so' of '{archive}'")
        raise ValueError(text) from None
    return module


def load_extension(path: str | os.PathLike[str], init: str | None = None) -> None:
    """Load a shared library for good and call its function int init(void), if one is named."""
    _core.load_extension(path, init)


def system_lib(symbol_prefix: str = "") -> Module:
    """The functions that are linked into this program."""
    module: Module = _core.system_lib(symbol_prefix)
    return module


def enabled(kind: str) -> bool:
    """Whether code of this kind can be made and run here: "cpu", "llvm", "cuda", ..."""
    if importlib.util.find_spec(KINDS) is not None:
        target_kind = importlib.import_module(KINDS).all_kinds().get(kind)
        if target_kind is not None:
            return target_kind.codegen is not None and device(target_kind.device_type).exist
    if kind not in DEVICE_TYPES and kind != "rpc":
        near = difflib.get_close_matches(kind, DEVICE_TYPES, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise ValueError(f"unknown kind '{kind}'{hint}")
    return kind == "rpc" or device(kind).exist
