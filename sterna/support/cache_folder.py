"""Where a cache may lie, and whom what is found there can be from.

A folder that only its owner can write to, and that is ours, is private: what is in it is ours. In
any other one, such as one that several users share, each user has a folder in it, and what is in
that is believed only with a digest by a key that the user alone can read.
"""

import os
import secrets
import stat
import tempfile
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_KEY_BYTES = 32
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO

_said: set[str] = set()


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """A folder to keep entries in."""

    path: Path
    key: bytes | None = None
    """What digests of entries are made with, where others may write; None in private folders."""


def find_folder(root: Path, name: str) -> CacheFolder | None:
    """A folder of a name below a root, made if it is missing; None if none can be trusted."""
    path = root / name
    try:
        make_private(path)
        if is_private(root) and is_private(path):
            return CacheFolder(path)
        own = path / f"user-{_user()}"
        make_private(own)
        if not is_private(own):
            say(
                f"the folder '{own}' belongs to another user, or others may write to it: nothing "
                "is cached there; let STERNA_CACHE name another one"
            )
            return None
        return CacheFolder(own, read_key(_key_path()))
    except OSError as error:
        if os.path.exists(path):
            say(f"nothing is cached in '{path}': {error}; let STERNA_CACHE name another folder")
        return None


def is_private(folder: Path) -> bool:
    """Whether a folder is this user's, and nobody else can write to it."""
    about = folder.stat()
    if not stat.S_ISDIR(about.st_mode):
        raise NotADirectoryError(f"'{folder}' is no folder")
    return about.st_uid == _user() and not about.st_mode & _OTHERS_WRITE


def make_private(folder: Path) -> None:
    """Make a folder and what is missing above it, for this user alone."""
    if not folder.is_dir():
        if folder.parent != folder:
            make_private(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir(0o700)


def read_key(path: Path) -> bytes:
    """The key of this user, made if there is none; an OSError if others may know it."""
    if not path.exists():
        make_private(path.parent)
        _write_key(path)
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        about = os.fstat(file)
        is_plain = stat.S_ISREG(about.st_mode) and about.st_size == _KEY_BYTES
        if not is_plain or about.st_uid != _user() or about.st_mode & _OTHERS:
            raise OSError(f"'{path}' is no key that only this user can read; remove it")
        return os.read(file, _KEY_BYTES)
    finally:
        os.close(file)


def _write_key(path: Path) -> None:
    file, aside = tempfile.mkstemp(dir=path.parent, prefix=".")  # for this user alone
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(secrets.token_bytes(_KEY_BYTES))
        with suppress(FileExistsError):  # another process was faster: its key is the one
            os.link(aside, path)
    finally:
        os.unlink(aside)


def _key_path() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "sterna" / "cache.key"


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0


def say(text: str) -> None:
    """Tell the user once what is wrong with the cache."""
    if text not in _said:
        _said.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=2)
