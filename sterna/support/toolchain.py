"""Compilers and linkers: the machine's own, else the one in PyPI's ziglang."""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from sterna.support import native
from sterna.support.ar_archive import write_archive
from sterna.support.architecture import architecture_of, archive_members
from sterna.support.elf_join import NotJoinedError, join_objects
from sterna.support.file_view import FileView
from sterna.support.options import options
from sterna.support.write_aside import errors_of, umask, write_aside

# What every model exports, and how far into an archive its table of symbols reaches at most.
MODEL_SYMBOL = b"__sterna__model"
SYMBOL_TABLE = 1 << 20

# Programs that link and do not compile.
LINKERS = frozenset({"ld", "ld.lld", "wasm-ld"})

CXX_SUFFIXES = frozenset({".cc", ".cpp", ".cxx"})


class MissingToolError(RuntimeError):
    """No compiler, linker or archiver was found; the text says what to install."""


class CompileError(RuntimeError):
    """A compiler or linker refused; the text has its command and its words."""


def zig(*words: str) -> list[str] | None:
    """The command of one of zig's programs; None if it is not installed."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    return [sys.executable, "-m", "ziglang", *words]


def _first_found(configured: str | None, names: Sequence[str]) -> list[str] | None:
    for command in ([configured] if configured else list(names)):
        words = shlex.split(command)
        if words and shutil.which(words[0]):
            return words
    return None


def find_c_compiler() -> list[str] | None:
    """The command of a C compiler: CC, cc, gcc, clang or zig."""
    return _first_found(options.c_compiler, ("cc", "gcc", "clang")) or zig("cc")


def find_cxx_compiler() -> list[str] | None:
    """The command of a C++ compiler: CXX, c++, g++, clang++ or zig."""
    return _first_found(options.cxx_compiler, ("c++", "g++", "clang++")) or zig("c++")


def find_clang() -> list[str] | None:
    """The command of a compiler that writes LLVM's text: clang, or zig for any processor."""
    return _first_found(None, ("clang",)) or zig("cc", "-mcpu=baseline")


def named_compiler(cc: str | os.PathLike[str]) -> list[str]:
    """The command of the compiler that a user names."""
    words = shlex.split(os.fspath(cc))
    if not words or not shutil.which(words[0]):
        raise MissingToolError(f"the compiler '{os.fspath(cc)}' was not found; is it on the PATH?")
    return words


def _choose(cc: str | os.PathLike[str] | None, inputs: Sequence[Path]) -> list[str]:
    if cc is not None:
        return named_compiler(cc)
    is_cxx = any(path.suffix in CXX_SUFFIXES for path in inputs)
    command = find_cxx_compiler() if is_cxx else find_c_compiler()
    if command is None:
        language = "C++" if is_cxx else "C"
        raise MissingToolError(
            f"no {language} compiler was found; install gcc or clang, or: pip install ziglang"
        )
    return command


def run_compiler(
    command: Sequence[str],
    cwd: str | os.PathLike[str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Run one compiler command; CompileError with its output when it fails.

    variables: are added to the environment.
    """
    done = subprocess.run(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", check=False, env={**os.environ, **(variables or {})},
    )
    if done.returncode != 0:
        raise CompileError(
            f"Compilation error (exit status {done.returncode}):\n{done.stdout.strip()}\n"
            f"Command line: {shlex.join(command)}"
        )


def _link(
    mode: Sequence[str],
    output: Path,
    inputs: Sequence[Path],
    extra: Sequence[str],
    cc: str | os.PathLike[str] | None,
    cwd: str | os.PathLike[str] | None,
    needs_runtime: bool = True,
    variables: Mapping[str, str] | None = None,
    finish: Callable[[Path], None] | None = None,
) -> None:
    base = Path(cwd) if cwd is not None else Path()
    for path in inputs:
        if not (base / path).exists():
            raise FileNotFoundError(f"the input '{path}' of '{output}' does not exist")
    command = _choose(cc, inputs)
    runtime = _runtime() if needs_runtime else []
    # Written aside and moved into place: nobody sees half a file, and a process that has the old
    # one loaded keeps it. Some linkers write further files beside it, which nobody asked for.
    target = base / output
    with (
        errors_of(target),
        tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder,
    ):
        aside = os.path.join(os.path.abspath(folder), target.name)
        run_compiler(
            [*command, *mode, "-o", aside, f"-I{native.include_folder()}",
             *_listed(inputs, base), *extra, *runtime],
            cwd, variables,
        )
        if finish is not None:
            finish(Path(aside))
        os.chmod(aside, 0o777 & ~umask())
        os.replace(aside, target)


def _listed(inputs: Sequence[Path], base: Path) -> Iterator[str]:
    """Inputs as a linker takes them.

    An archive that holds a model is taken whole: what announces the model is called by nobody.
    """
    for path in inputs:
        if path.suffix != ".a" or not _holds_model(base / path):
            yield str(path)
        elif architecture_of(base / path).format == "macho":
            yield f"-Wl,-force_load,{path}"
        else:
            yield from ("-Wl,--whole-archive", str(path), "-Wl,--no-whole-archive")


def _holds_model(archive_path: Path) -> bool:
    with open(archive_path, "rb") as file:
        return MODEL_SYMBOL in file.read(SYMBOL_TABLE)


def _runtime() -> list[str]:
    library = native.library_folder()
    as_needed = ["-Wl,--as-needed"] if sys.platform == "linux" else []
    return [*as_needed, f"-L{library}", f"-Wl,-rpath,{library}", "-lsterna"]


def link_shared(
    output: Path,
    inputs: Sequence[Path],
    extra: Sequence[str] = (),
    cc: str | os.PathLike[str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    needs_runtime: bool = True,
    variables: Mapping[str, str] | None = None,
    finish: Callable[[Path], None] | None = None,
) -> None:
    """Compile and link sources and objects into a shared library.

    needs_runtime: it may call the runtime, which is there for this machine alone. variables: are
    added to the compiler's environment. finish: is called with the file before it is in its place.
    """
    mode = ["-shared", "-fPIC", "-O2"]
    _link(mode, output, inputs, extra, cc, cwd, needs_runtime, variables, finish)


def link_wasm(
    output: Path,
    inputs: Sequence[Path],
    extra: Sequence[str],
    cc: str | os.PathLike[str],
    cwd: str | os.PathLike[str] | None = None,
    finish: Callable[[Path], None] | None = None,
) -> None:
    """Compile and link sources and objects into a WebAssembly module without a main function."""
    mode = ["-mexec-model=reactor", "-O2", "-s", "-Wl,--gc-sections"]
    _link(mode, output, inputs, extra, cc, cwd, needs_runtime=False, finish=finish)


def compile_object(
    output: Path,
    source: Path,
    extra: Sequence[str] = (),
    cc: str | os.PathLike[str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> None:
    """Compile one source into an object file."""
    command = [*_choose(cc, [source]), "-c", "-fPIC", "-O2", f"-I{native.include_folder()}"]
    run_compiler([*command, *extra, str(source), "-o", str(output)], cwd)


def link_relocatable(
    output: Path, objects: Sequence[Path], cc: str | os.PathLike[str] | None = None
) -> None:
    """Join object files into one; those of ELF need no linker for that."""
    if cc is not None or _first_found(options.c_compiler, ("cc", "gcc", "clang")):
        command = _choose(cc, objects)
    else:
        command = zig("ld.lld") or []
    if not command:
        return _without_tool(lambda: join_objects(output, objects))
    mode = ["-r"] if command[-1] in LINKERS else ["-r", "-nostdlib"]
    run_compiler([*command, *mode, "-o", str(output), *map(str, objects)])


def find_archiver(is_elf: bool = True) -> list[str] | None:
    """The command of an archiver; GNU's knows no other form of objects than ELF."""
    own = ("ar",) if is_elf or sys.platform == "darwin" else ()
    return _first_found(None, (*own, "llvm-ar")) or zig("ar")


def require_archiver(is_elf: bool = True) -> list[str]:
    """The same; MissingToolError says what to install."""
    command = find_archiver(is_elf)
    if command is None:
        name = "binutils" if is_elf else "llvm"
        raise MissingToolError(f"no archiver was found; install {name}, or: pip install ziglang")
    return command


def archive(output: Path, objects: Sequence[Path], ar: str | None = None) -> None:
    """Put object files, and those of other archives, into a static library."""
    for path in objects:
        if not path.exists():
            raise FileNotFoundError(f"the input '{path}' of '{output}' does not exist")
    is_elf = all(_is_elf(path) for path in objects)
    command = _choose(ar, ()) if ar is not None else find_archiver(is_elf)
    with tempfile.TemporaryDirectory() as folder:
        members = list(_extracted(objects, Path(folder)))

        def fill(aside: Path) -> None:
            aside.unlink()  # archivers add to what is there
            if command is None:
                _without_tool(lambda: write_archive(aside, members))
            else:
                run_compiler([*command, "qcsD", str(aside), *map(str, members)])

        write_aside(output, fill)


def _without_tool(make: Callable[[], None]) -> None:
    """Do without a linker or archiver; MissingToolError says why that takes one."""
    try:
        make()
    except NotJoinedError as error:
        raise MissingToolError(f"{error}; install gcc or clang, or: pip install ziglang") from None


def _is_elf(path: Path) -> bool:
    try:
        return architecture_of(path).format == "elf"
    except ValueError:
        return True  # no code at all, of which an archiver has its own opinion


def _extracted(inputs: Sequence[Path], folder: Path) -> Iterator[Path]:
    """Inputs with an archive's members in its place."""
    for place, path in enumerate(inputs):
        if path.suffix != ".a":
            yield path
            continue
        with open(path, "rb") as file:
            members = archive_members(FileView(file, 0, path.stat().st_size))
            for number, (name, member) in enumerate(members):
                # Members may have one name, and names are not to lead anywhere else.
                taken = folder / f"{place}.{number}" / (Path(name).name or "member.o")
                taken.parent.mkdir()
                taken.write_bytes(member.read(0, member.size))
                yield taken


def link_executable(
    output: Path,
    inputs: Sequence[Path],
    extra: Sequence[str] = (),
    cc: str | os.PathLike[str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    needs_runtime: bool = True,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Compile and link sources and objects into a program.

    needs_runtime: it may call the runtime, which is there for this machine alone. variables: are
    added to the compiler's environment.
    """
    _link(["-O2"], output, inputs, extra, cc, cwd, needs_runtime, variables)
