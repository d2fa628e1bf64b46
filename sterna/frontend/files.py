"""The files of a model: only plain ones are read, and never more than they hold.

A model's path may be anything that a user can name; a path that stands in a model is a stranger's,
and leads nowhere but to plain files below the model's own folder.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import PurePosixPath, PureWindowsPath

from sterna.frontend.limits import LARGEST
from sterna.support.mapped_file import map_part

# What formats look at to recognise their own.
HEAD_BYTES = 4096

# Parts of files from this size on are mapped.
MAPPED_BYTES = 1 << 20

# A pipe or a device must not keep an importer waiting for somebody to write.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


@contextmanager
def open_plain(path: str | os.PathLike[str]) -> Iterator[tuple[BufferedReader, int]]:
    """A plain file, opened to be read, and its size in bytes."""
    handle = os.open(path, _FLAGS)
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError(f"'{os.fspath(path)}' is no plain file")
        with open(handle, "rb", closefd=False) as file:
            yield file, about.st_size
    finally:
        os.close(handle)


def read_head(path: str | os.PathLike[str]) -> bytes:
    """The first bytes of a file, by which formats recognise their own."""
    with open_plain(path) as (file, _):
        return file.read(HEAD_BYTES)


def read_whole(path: str | os.PathLike[str], most: int = LARGEST, way_out: str = "") -> bytes:
    """All bytes of a file that has no more than so many; way_out is what larger models do."""
    with open_plain(path) as (file, size):
        if size > most:
            raise ValueError(
                f"'{os.fspath(path)}' has {size} bytes, more than {most}"
                + (f"; {way_out}" if way_out else "")
            )
        return file.read(size)


def read_beside(
    location: str, folder: str, offset: int, length: int, what: str
) -> bytes | memoryview:
    """Part of a file below a model's folder, whose name stands in the model; what needs it.

    Large parts are mapped: they lie in memory only while somebody reads them.
    """
    path = _safe_path(location, folder, what)
    try:
        handle = os.open(path, _FLAGS | getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        raise ValueError(f"{what}: '{location}' cannot be read: {error}") from None
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
            raise ValueError(f"{what}: '{location}' is a link or no plain file")
        if offset + length > about.st_size:
            raise ValueError(
                f"{what} ends at byte {offset + length} of '{location}', which has {about.st_size}"
            )
        if length >= MAPPED_BYTES:
            return map_part(handle, offset, length)
        with open(handle, "rb", closefd=False) as file:
            file.seek(offset)
            return file.read(length)
    finally:
        os.close(handle)


def _safe_path(location: str, folder: str, what: str) -> str:
    """A path below the folder, with no link on the way."""
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    if not location or "\0" in location:
        raise ValueError(f"{what} has its data in a file without a name")
    if posix.is_absolute() or windows.drive or windows.root or ".." in windows.parts:
        raise ValueError(f"{what}: '{location}' lies outside the model's folder")
    root = os.path.realpath(folder)
    path = os.path.normpath(os.path.join(root, location))
    if os.path.realpath(path) != path:
        raise ValueError(f"{what}: '{location}' is reached by a link")
    return path
