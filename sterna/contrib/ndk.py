"""Linking with Android's NDK, under its classic name; TVM_NDK_CC names the NDK's compiler."""

import os
from collections.abc import Sequence
from pathlib import Path

from sterna.support import cross, toolchain

StrPath = str | os.PathLike[str]

__all__ = ["create_shared", "create_staticlib"]


def create_shared(
    output: StrPath, objects: Sequence[StrPath], options: Sequence[str] | None = None
) -> None:
    """Compile and link sources and objects into a shared library for Android."""
    inputs = [Path(path) for path in objects]
    extra = [*(options or ()), "-lm"]
    command = cross.ndk_compiler()
    toolchain.link_shared(Path(output), inputs, extra, command, needs_runtime=False)


def create_staticlib(output: StrPath, objects: Sequence[StrPath]) -> None:
    """Put object files into a static library."""
    toolchain.archive(Path(output), [Path(path) for path in objects])
