"""What a linked program for a 32-bit machine consists of: its sections and symbols."""

import struct
from dataclasses import dataclass
from pathlib import Path

ALLOCATED, WRITABLE = 2, 1
"""The flags of sections that are in memory while the program runs, and that it writes to."""
NO_BITS, SYMBOLS = 8, 2
"""Kinds of sections: memory that is zero at first, and the table of symbols."""
HEADER, SECTION, SYMBOL = 52, 40, 16


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the file."""

    name: str
    kind: int
    flags: int
    content: bytes
    size: int
    names_at: int
    """The section with the names of its symbols."""

    @property
    def is_stored(self) -> bool:
        """Whether it takes room where the program is kept."""
        return bool(self.flags & ALLOCATED) and self.kind != NO_BITS

    @property
    def is_variable(self) -> bool:
        """Whether it takes memory that the program writes to."""
        return self.flags & (ALLOCATED | WRITABLE) == ALLOCATED | WRITABLE


@dataclass(frozen=True, slots=True)
class Program:
    """The sections of a file, and by name the sizes of its symbols, one for each address."""

    sections: list[Section]
    symbols: dict[str, int]


def read_program(path: Path) -> Program:
    """Read a file that a linker for a 32-bit machine with low bytes first has written."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x01\x01" or len(data) < HEADER:
        raise ValueError(f"{path} is no program for a 32-bit machine")
    (start,) = struct.unpack_from("<I", data, 32)
    count, names_at = struct.unpack_from("<HH", data, 48)
    rows = [struct.unpack_from("<10I", data, start + SECTION * i) for i in range(count)]
    contents = [b"" if row[1] == NO_BITS else data[row[4] : row[4] + row[5]] for row in rows]
    sections = [
        Section(_text(contents[names_at], row[0]), row[1], row[2], content, row[5], row[6])
        for row, content in zip(rows, contents, strict=True)
    ]
    found: dict[int, tuple[str, int]] = {}
    for section in sections:
        if section.kind == SYMBOLS:
            for at in range(0, len(section.content), SYMBOL):
                name, address, size = struct.unpack_from("<III", section.content, at)
                if size:
                    found.setdefault(address, (_text(contents[section.names_at], name), size))
    return Program(sections, dict(found.values()))


def _text(names: bytes, at: int) -> str:
    return names[at : names.index(b"\0", at)].decode()
