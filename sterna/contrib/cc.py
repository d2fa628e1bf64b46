"""Compiling and linking C and C++ with the machine's compiler."""

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sterna.support import cross, native, toolchain
from sterna.support.classic import classic_names
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
) -> None:
    """Compile and link sources, objects and archives into a shared library.

    sterna.h and sterna.hpp are found, and the runtime is linked if the code uses it.
    """
    toolchain.link_shared(Path(output), _paths(objects), options or (), cc, cwd)


def create_executable(
    output: StrPath,
    objects: StrPath | Sequence[StrPath],
    options: Sequence[str] | None = None,
    cc: StrPath | None = None,
    cwd: StrPath | None = None,
) -> None:
    """Compile and link sources, objects and archives into a program."""
    toolchain.link_executable(Path(output), _paths(objects), options or (), cc, cwd)


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
    if isinstance(compile_func, str) or callable(compile_func):
        given = options if output is None else output
        assert not isinstance(given, str | os.PathLike)
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
    mode = ["-static", "-s"] if static else []
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
    made.get_target_triple = get_target_triple
    return compile_with


__getattr__ = classic_names(__name__)
