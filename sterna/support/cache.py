"""Results of long work, kept on disk by what they were made from.

A hash finds an entry and the whole key, kept with it, confirms it; a digest, by the user's own key
where others may write, confirms both and the result. Entries are written aside and moved into
place, so several processes may share a cache; the oldest go when it grows too large.
"""

import contextlib
import hashlib
import hmac
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sterna.support.cache_folder import find_folder, say
from sterna.support.options import options

_MAGIC = b"sterna-cache-2\n"
_DIGEST = 32

# Looking through a folder takes its time: a process does so at first, and then whenever it has
# written this part of what the folder may hold.
_PART = 64
_written: dict[Path, int] = {}

Result = TypeVar("Result")


class Cache:
    """Bytes by text."""

    def __init__(self, name: str, part: float = 1.0) -> None:
        """part: how much of what the whole cache may hold."""
        root = options.cache_folder
        found = None if root is None else find_folder(Path(root), name)
        self.folder = None if found is None else found.path
        self._secret = None if found is None else found.key
        self.limit = int(options.cache_bytes * part)

    def get(self, key: str) -> memoryview | None:
        """What was made from this key, if it is there and whole."""
        return self.read(key, lambda body: body)

    def read(self, key: str, parse: Callable[[memoryview], Result]) -> Result | None:
        """What parse makes of what was made from this key.

        An entry that is not whole, or that parse fails at, is as good as none, and the user is
        told: somebody has changed it.
        """
        if self.folder is None:
            return None
        path = self._path(key)
        try:
            content = _read_plain(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            say(f"the cache's entry '{path}' is not used: {error}")
            return None
        if not content.startswith(_MAGIC):
            return None  # of another version
        head, whole = _head(key), memoryview(content)
        made, digest = whole[:-_DIGEST], whole[-_DIGEST:]
        if not content.startswith(head) or not hmac.compare_digest(self._digest(made), digest):
            say(f"the cache's entry '{path}' is not used: it is damaged, or another user's work")
            return None
        try:
            result = parse(made[len(head) :])
        except Exception as error:
            say(f"the cache's entry '{path}' is not used: it holds something else ({error!r})")
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # used just now
        return result

    def _digest(self, *parts: bytes | bytearray | memoryview) -> bytes:
        """Of an entry's head and body."""
        made = (
            hashlib.sha256() if self._secret is None
            else hmac.new(self._secret, digestmod=hashlib.sha256)
        )
        for part in parts:
            made.update(part)
        return made.digest()

    def put(self, key: str, *parts: bytes | bytearray) -> None:
        """Keep a result, in one or more parts; a disk that is full or read-only is no error."""
        if self.folder is None:
            return
        path, head = self._path(key), _head(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
            try:
                with os.fdopen(handle, "wb") as file:
                    for part in (head, *parts, self._digest(head, *parts)):
                        file.write(part)
                os.replace(name, path)
                if self.folder in _written:
                    _written[self.folder] += sum(map(len, parts))
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise

    def trim(self) -> None:
        """Remove the entries that were not used for longest, until the rest fits, or nearly."""
        if self.folder is None or not self.folder.is_dir():
            return
        if _written.get(self.folder, self.limit) < self.limit // _PART:
            return
        _written[self.folder] = 0
        found = []
        for path in self.folder.glob("*/*"):
            with contextlib.suppress(OSError):
                status = path.lstat()
                if not stat.S_ISDIR(status.st_mode):
                    found.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self.limit:
                break
            path.unlink(missing_ok=True)
            total -= size

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        digest = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / digest[:2] / digest[2:]


def _head(key: str) -> bytes:
    text = key.encode()
    return _MAGIC + len(text).to_bytes(8, "little") + text


def _read_plain(path: Path) -> bytes:
    """The content of a plain file; nothing else is opened for long, or waited for."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(file, "rb") as opened:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            raise OSError("it is no plain file")
        if about.st_size > options.cache_bytes:
            raise OSError(f"it has {about.st_size} bytes, more than the whole cache may")
        return opened.read(about.st_size)
