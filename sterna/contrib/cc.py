"""Compiling and linking C and C++ with the machine's compiler."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sterna.support import cross, native, toolchain
from sterna.support.classic import classic_names
from sterna.support.seal import seal
from sterna.target import Target, machine_of

StrPath = str | os.PathLike[str]


def get_cc() -> str | None:
    """The command of the C compiler that is used by default, or None where there is none."""
    command = toolchain.find_c_compiler()
    return shlex.join(command) if command else None


def _paths(objects: StrPath | Sequence[StrPath]) -> list[Path]:
    if isinstance(objects, str | os.PathLike):
        objects = [objects]
    return [Path(path) for path in objects]


def create_shared(
    output: StrPath,
    objects: StrPath | Sequence[StrPath],
    options: Sequence[str] | None = None,
    cc: StrPath | None = None,
    cwd: StrPath | None = None,
    ccache_env: Mapping[str, str] | None = None,
) -> None:
    """Compile and link sources, objects and archives into a shared library.

    sterna.h and sterna.hpp are found, and the runtime is linked if the code uses it. ccache_env:
    compile through ccache, with these variables in its environment.
    """
    toolchain.link_shared(
        Path(output), _paths(objects), options or (), _cached(cc, ccache_env), cwd,
        needs_runtime=_is_for_here(cc), variables=ccache_env, finish=seal,
    )


def create_executable(
    output: StrPath,
    objects: StrPath | Sequence[StrPath],
    options: Sequence[str] | None = None,
    cc: StrPath | None = None,
    cwd: StrPath | None = None,
    ccache_env: Mapping[str, str] | None = None,
) -> None:
    """Compile and link sources, objects and archives into a program, as create_shared does."""
    toolchain.link_executable(
        Path(output), _paths(objects), options or (), _cached(cc, ccache_env), cwd,
        needs_runtime=_is_for_here(cc), variables=ccache_env,
    )


def create_staticlib(
    output: StrPath, inputs: StrPath | Sequence[StrPath], ar: str | None = None
) -> None:
    """Put object files, and those of other archives, into a static library."""
    toolchain.archive(Path(output), _paths(inputs), ar)


def _cached(cc: StrPath | None, ccache_env: Mapping[str, str] | None) -> StrPath | None:
    if ccache_env is None:
        return cc
    if shutil.which("ccache") is None:
        raise ValueError("ccache_env= was given, but ccache was not found; install ccache")
    return f"ccache {os.fspath(cc) if cc is not None else get_cc() or 'cc'}"


def _is_for_here(cc: StrPath | None) -> bool:
    """Whether a compiler makes code for this machine, which the runtime is there for."""
    triple = get_target_by_dump_machine(cc)() if cc is not None else None
    return triple is None or cross.is_here(triple)


def get_target_by_dump_machine(compiler: StrPath | None) -> Callable[[], str | None]:
    """A function that asks a compiler which triple it makes code for; None if it does not say."""

    def get_target_triple() -> str | None:
        words = shlex.split(os.fspath(compiler)) if compiler is not None else []
        if not words or shutil.which(words[0]) is None:
            return None
        done = subprocess.run(
            [*words, "-dumpmachine"], capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout.strip() or None if done.returncode == 0 else None

    return get_target_triple


def get_global_symbol_section_map(path: StrPath, *, nm: str | None = None) -> dict[str, str]:
    """The global symbols that a library or object defines, each with nm's letter of its section."""
    command = nm or next((name for name in ("nm", "llvm-nm") if shutil.which(name)), None)
    if command is None:
        raise toolchain.MissingToolError("listing symbols needs nm; install binutils or llvm")
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file '{os.fspath(path)}' to list the symbols of")
    words = [*shlex.split(command), "-g", "--defined-only", os.fspath(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(words)} failed: {done.stderr.strip()}")
    lines = [line.split() for line in done.stdout.splitlines()]
    return {words[-1]: words[-2] for words in lines if len(words) >= 2 and len(words[-2]) == 1}


def cross_compile(
    compile_func: Any,
    output: StrPath | Sequence[str] | None = None,
    output_format: str | None = None,
    get_target_triple: Callable[[], str] | None = None,
    add_files: Sequence[StrPath] | None = None,
    *,
    target: Any = None,
    static: bool = False,
    options: Sequence[str] | None = None,
    cc: StrPath | None = None,
) -> Any:
    """Build a program for another machine, or name a compiler for export_library.

    cross_compile(inputs, program, target="llvm -mtriple=aarch64-linux-gnu") compiles and links
    sources, objects and archives with the runtime into a program for a target.

    cross_compile("arm-linux-gnueabihf-gcc", options) is what fcompile= takes: it links with that
    compiler, or calls a function that does.
    """
    if target is None and (isinstance(compile_func, str) or callable(compile_func)):
        given = options if output is None else output
        if isinstance(given, str | os.PathLike):
            raise TypeError(
                f"cross_compile with a compiler takes a list of options behind it, not '{given}'; "
                "a program is built with target="
            )
        return _fcompile(compile_func, given, output_format, get_target_triple, add_files)
    if output is None or not isinstance(output, str | os.PathLike) or target is None:
        raise ValueError(
            "cross_compile needs inputs, an output and target=; or the command of a compiler"
        )
    build_program(Path(output), _paths(compile_func), Target(target), static, options or (), cc)
    return None


def build_program(
    output: Path,
    inputs: Sequence[Path],
    target: Target,
    static: bool,
    extra: Sequence[str],
    cc: StrPath | None,
) -> None:
    """Compile and link inputs and the runtime into a program for a target."""
    triple = machine_of(target).triple
    command = cc or (None if cross.is_here(triple) else cross.compiler_for(triple, static))
    mode = [*(["-static"] if static else []), *(["-s"] if static or command else [])]
    libraries = [] if static and command is not None else ["-lpthread", "-ldl"]
    sources = [*inputs, native.runtime_source()]
    toolchain.link_executable(
        output, sources, [*mode, *extra, "-lm", *libraries], command, needs_runtime=False
    )


def _fcompile(
    compile_func: str | Callable[..., Any],
    fixed: Sequence[str] | None,
    output_format: str | None,
    get_target_triple: Callable[[], str] | None,
    add_files: Sequence[StrPath] | None,
) -> Callable[..., Any]:
    base, more = list(fixed or ()), list(add_files or ())

    def compile_with(
        outputs: StrPath, objects: Sequence[StrPath], options: Sequence[str] | None = None
    ) -> Any:
        every, words = [*objects, *more], [*base, *(options or ())]
        if isinstance(compile_func, str):
            return create_shared(outputs, every, words, cc=compile_func)
        return compile_func(outputs, every, options=words)

    made: Any = compile_with
    made.output_format = output_format or getattr(compile_func, "output_format", "so")
    asked = getattr(compile_func, "get_target_triple", None)
    if isinstance(compile_func, str):
        asked = get_target_by_dump_machine(compile_func)
    made.get_target_triple = get_target_triple or asked
    return compile_with


_create_shared: Any = create_shared
_create_shared.output_format = "so"
_create_shared.get_target_triple = lambda: get_target_by_dump_machine(get_cc())()
_create_staticlib: Any = create_staticlib
_create_staticlib.output_format = "a"


__getattr__ = classic_names(__name__)
