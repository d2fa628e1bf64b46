"""Results of long work, kept on disk by what they were made from.

A hash finds an entry and the whole key, kept with it, confirms it. Entries are written aside and
moved into place, so several processes may share a cache; the oldest go when it grows too large.
"""

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from sterna.support.options import options

_MAGIC = b"sterna-cache-1\n"

# Looking through a folder takes its time: a process does so at first, and then whenever it has
# written this part of what the folder may hold.
_PART = 64
_written: dict[Path, int] = {}


class Cache:
    """Bytes by text."""

    def __init__(self, name: str, part: float = 1.0) -> None:
        """part: how much of what the whole cache may hold."""
        root = options.cache_folder
        self.folder = None if root is None else Path(root) / name
        self.limit = int(options.cache_bytes * part)

    def get(self, key: str) -> memoryview | None:
        """What was made from this key, if it is there and whole."""
        if self.folder is None:
            return None
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        head = _head(key)
        if not content.startswith(head):
            return None
        whole = memoryview(content)
        body, digest = whole[len(head) : -32], whole[-32:]
        if hashlib.sha256(body).digest() != digest:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # used just now
        return body

    def put(self, key: str, *parts: bytes | bytearray) -> None:
        """Keep a result, in one or more parts; a disk that is full or read-only is no error."""
        if self.folder is None:
            return
        path = self._path(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
            try:
                digest = hashlib.sha256()
                with os.fdopen(handle, "wb") as file:
                    file.write(_head(key))
                    for part in parts:
                        file.write(part)
                        digest.update(part)
                    file.write(digest.digest())
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
                status = path.stat()
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
