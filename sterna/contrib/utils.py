"""Folders for a while, under their classic name."""

import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self
from weakref import finalize

__all__ = ["TempDirectory", "tempdir"]


class PathInFolder(str):
    """A path that keeps the folder that it lies in."""

    __slots__ = ("folder",)

    folder: "TempDirectory"


class TempDirectory:
    """A folder that goes with the last use of it or of a path that relpath gave.

    It also goes by remove(), by a with block, and when Python ends.
    """

    def __init__(
        self,
        custom_path: str | os.PathLike[str] | None = None,
        keep_for_debug: bool | None = None,
    ) -> None:
        if custom_path is None:
            self.temp_dir = tempfile.mkdtemp(prefix="sterna-")
        else:
            Path(custom_path).mkdir(parents=True)
            self.temp_dir = os.fspath(custom_path)
        self.path = Path(self.temp_dir)
        self._finalizer = finalize(self, shutil.rmtree, self.temp_dir, ignore_errors=True)
        if keep_for_debug:
            self._finalizer.detach()

    def remove(self) -> None:
        """Remove the folder now."""
        self._finalizer()

    def relpath(self, name: str) -> str:
        """The path of a file in the folder."""
        path = PathInFolder(os.path.join(self.temp_dir, name))
        path.folder = self
        return path

    def listdir(self) -> list[str]:
        """The names in the folder."""
        return os.listdir(self.temp_dir)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()


def tempdir(
    custom_path: str | os.PathLike[str] | None = None, keep_for_debug: bool | None = None
) -> TempDirectory:
    """A new folder: one of its own, or the one named, which may not exist yet."""
    return TempDirectory(custom_path, keep_for_debug)
