"""The folder of a session: every file that a client names lies in it."""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOST_PARTS = 16
MOST_PART = 255

_DRIVE = re.compile(r"[A-Za-z]:")
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PART_OF = ".part-of-"


class SessionFolder:
    """A folder that is made for one session and goes with it."""

    def __init__(self, most_bytes: int = 0, path: str | None = None) -> None:
        """most_bytes limits what uploads may fill it with; 0 is no limit. path: it exists."""
        self.path = Path(path or tempfile.mkdtemp(prefix="sterna-rpc-")).resolve()
        self.most_bytes = most_bytes

    def remove_all(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def used_bytes(self) -> int:
        """What the files in it take."""
        total = 0
        for folder, _, files in os.walk(self.path):
            for name in files:
                total += os.lstat(os.path.join(folder, name)).st_size
        return total

    def require_room(self, nbytes: int, name: str) -> None:
        """Refuse what would take more than the files of a session may."""
        if self.most_bytes and self.used_bytes() + nbytes > self.most_bytes:
            raise ValueError(
                f"'{name}' does not fit: a session's files may take {self.most_bytes} bytes"
            )

    def locate(self, name: str) -> Path:
        """The path of a regular file in it, for loading."""
        with self._open(name):
            return self.path.joinpath(*split_name(name))

    def write(self, name: str, offset: int, data: bytes, is_last: bool) -> None:
        """Take one piece of a file; it appears under its name when the last one has come."""
        parts = split_name(name)
        with self._folder(parts[:-1], make=True) as folder:
            aside = _PART_OF + parts[-1]
            if len(aside.encode()) > MOST_PART:
                raise ValueError(f"the file name '{name}' is too long")
            try:
                self._write_piece(folder, aside, name, offset, data)
                if is_last:
                    os.rename(aside, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except OSError as error:
                _unlink(folder, aside)
                raise type(error)(error.errno, f"{error.strerror}: uploading '{name}'") from None
            except ValueError:
                _unlink(folder, aside)
                raise

    def _write_piece(self, folder: int, aside: str, name: str, offset: int, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        if offset == 0:
            _unlink(folder, aside)
            flags |= os.O_CREAT | os.O_EXCL
        file = os.open(aside, flags, 0o600, dir_fd=folder)
        try:
            found = os.fstat(file)
            if offset != found.st_size or not stat.S_ISREG(found.st_mode):
                raise ValueError(f"a piece of '{name}' at {offset} does not follow {found.st_size}")
            self.require_room(len(data), name)
            os.lseek(file, offset, os.SEEK_SET)
            view = memoryview(data)
            while len(view):
                view = view[os.write(file, view) :]
        finally:
            os.close(file)

    def read(self, name: str, offset: int, count: int) -> bytes:
        """A piece of a file; short only at its end."""
        if offset < 0 or count < 0:
            raise ValueError(f"there are no {count} bytes at {offset} of '{name}'")
        with self._open(name) as file:
            return os.pread(file, count, offset)

    def remove(self, name: str) -> None:
        """Remove a file, a link, or a folder with all that is in it."""
        parts = split_name(name)
        with self._folder(parts[:-1]) as folder:
            try:
                found = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                raise FileNotFoundError(f"the session has no file '{name}'") from None
            if stat.S_ISDIR(found.st_mode):
                shutil.rmtree(parts[-1], dir_fd=folder)
            else:
                os.unlink(parts[-1], dir_fd=folder)

    def names_in(self, name: str) -> list[str]:
        """The names in a folder, sorted; those of files that are not whole yet are left out."""
        with self._folder([] if name in ("", ".", "/") else split_name(name)) as folder:
            return sorted(n for n in os.listdir(folder) if not n.startswith(_PART_OF))

    @contextmanager
    def _folder(self, parts: list[str], make: bool = False) -> Iterator[int]:
        """A folder, opened part by part so that no link leads out."""
        at = os.open(self.path, _OPEN_FOLDER)
        try:
            for part in parts:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=at)
                below = self._step_into(at, part)
                os.close(at)
                at = below
            yield at
        finally:
            os.close(at)

    def _step_into(self, at: int, part: str) -> int:
        try:
            return os.open(part, _OPEN_FOLDER, dir_fd=at)
        except FileNotFoundError:
            raise FileNotFoundError(f"the session has no folder '{part}'") from None
        except OSError:
            raise ValueError(
                f"'{part}' is no folder of the session; a link would lead outside"
            ) from None

    @contextmanager
    def _open(self, name: str) -> Iterator[int]:
        parts = split_name(name)
        with self._folder(parts[:-1]) as folder:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            try:
                file = os.open(parts[-1], flags, dir_fd=folder)
            except FileNotFoundError:
                raise FileNotFoundError(f"the session has no file '{name}'") from None
            except OSError as error:
                raise ValueError(f"'{name}' cannot be opened: {error.strerror}") from None
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                raise ValueError(f"'{name}' is no plain file, or another name for one outside")
            yield file
        finally:
            os.close(file)


def _unlink(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def split_name(name: str) -> list[str]:
    """The parts of a file's name, if it stays inside the folder on every system."""
    if not isinstance(name, str):
        raise TypeError(f"a file is named by text, not by {type(name).__name__}")
    parts = name.split("/")
    while "." in parts and len(parts) > 1:
        parts.remove(".")
    if (
        not name or name.startswith("/") or "\\" in name or "\0" in name or _DRIVE.match(name)
        or any(part in ("", ".", "..") for part in parts)
    ):
        raise ValueError(
            f"the file name {name!r} leads outside the session's folder; name it relative to that "
            "folder, like 'net.tar' or 'parts/net.so'"
        )
    if len(parts) > MOST_PARTS or any(len(part.encode()) > MOST_PART for part in parts):
        raise ValueError(f"the file name {name[:40]!r}... is too long")
    return parts
