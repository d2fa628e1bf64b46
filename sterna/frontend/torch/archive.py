"""The archive of a .pt2 file: a zip of plain, uncompressed entries in one folder.

Nothing in it is believed: names and sizes are checked before anything is read, no entry is
unpickled, and none is written anywhere.
"""

import io
import json
import os
import zipfile
import zlib
from typing import Any

from sterna.frontend.files import read_whole

MOST_ENTRIES = 1 << 20
MOST_JSON = 1 << 30

# What zipfile raises of archives that are damaged, and of entries packed as it cannot read them.
_DAMAGE = (zipfile.BadZipFile, zlib.error, RuntimeError, ValueError, OSError, EOFError)


class Archive:
    """The entries of one file, by their names behind its folder."""

    def __init__(self, source: "str | os.PathLike[str] | bytes") -> None:
        if isinstance(source, bytes):
            self.name, raw = "the PyTorch model", source
        else:
            self.name, raw = f"'{os.fspath(source)}'", read_whole(source)
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(raw))
            listed = self._zip.infolist()
        except _DAMAGE as error:
            raise ValueError(f"{self.name} is no archive of PyTorch: {error}") from None
        if len(listed) > MOST_ENTRIES:
            raise ValueError(f"{self.name} has {len(listed)} entries, more than {MOST_ENTRIES}")
        self._entries: dict[str, zipfile.ZipInfo] = {}
        for entry in listed:
            _, _, name = entry.filename.partition("/")
            if name in self._entries:
                raise ValueError(f"{self.name} has the entry '{name}' twice")
            self._entries[name] = entry

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def names(self) -> list[str]:
        """The names of all entries."""
        return list(self._entries)

    def read(
        self, name: str, most: int | None = None, *, may_be_compressed: bool = False
    ) -> bytes:
        """The bytes of an entry, which lie in the file as they are unless it says otherwise."""
        entry = self._entries.get(name)
        if entry is None:
            raise ValueError(f"{self.name} has no entry '{name}'")
        plain = entry.compress_type == zipfile.ZIP_STORED and entry.flag_bits & 1 == 0
        whole = plain and entry.file_size == entry.compress_size
        if not whole and not may_be_compressed:
            raise ValueError(
                f"the entry '{name}' of {self.name} is compressed or encrypted; torch.export.save "
                "writes entries as they are"
            )
        if most is not None and entry.file_size > most:
            raise ValueError(
                f"the entry '{name}' of {self.name} has {entry.file_size} bytes, more than {most}"
            )
        try:
            return self._zip.read(entry)
        except _DAMAGE as error:
            raise ValueError(f"the entry '{name}' of {self.name} is broken: {error}") from None

    def json(self, name: str) -> dict[str, Any]:
        """The object that an entry of JSON holds."""
        try:
            found = json.loads(self.read(name, MOST_JSON))
        except (RecursionError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"the entry '{name}' of {self.name} is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise ValueError(f"the entry '{name}' of {self.name} is no object of JSON")
        return found
