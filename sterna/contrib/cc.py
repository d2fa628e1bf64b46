"""Compiling and linking C and C++ with the machine's compiler."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from sterna.support import toolchain

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
