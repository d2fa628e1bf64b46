"""Linking with Android's NDK, under its classic name; TVM_NDK_CC names the NDK's compiler."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterna.contrib.cc import get_global_symbol_section_map, get_target_by_dump_machine
from sterna.support import cross, toolchain

StrPath = str | os.PathLike[str]

__all__ = ["create_shared", "create_staticlib", "get_global_symbol_section_map"]


def create_shared(
    output: StrPath, objects: Sequence[StrPath], options: Sequence[str] | None = None
) -> None:
    """Compile and link sources and objects into a shared library for Android."""
    inputs = [Path(path) for path in objects]
    extra = [*(options or ()), "-lm"]
    command = cross.ndk_compiler()
    toolchain.link_shared(Path(output), inputs, extra, command, needs_runtime=False)


def create_staticlib(output: StrPath, inputs: Sequence[StrPath]) -> None:
    """Put object files, and those of other archives, into a static library."""
    toolchain.archive(Path(output), [Path(path) for path in inputs])


_create_shared: Any = create_shared
_create_shared.output_format = "so"
_create_shared.get_target_triple = lambda: get_target_by_dump_machine(cross.ndk_compiler())()
_create_staticlib: Any = create_staticlib
_create_staticlib.output_format = "a"
