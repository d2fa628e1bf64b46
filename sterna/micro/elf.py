"""What a linked program consists of: its sections and symbols, and the memory they take."""

import struct
from dataclasses import dataclass
from pathlib import Path

ALLOCATED, WRITABLE = 2, 1
"""The flags of sections that are in memory while the program runs, and that it writes to."""
NO_BITS, SYMBOLS = 8, 2
"""Kinds of sections: memory that is zero at first, and the table of symbols."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How files are laid out for machines of a width."""

    word: str
    start: int
    """Where the word is that says where the sections are described."""
    counts: int
    """Where the number of sections stands, and behind it the place of their names."""
    section: str
    """Name, kind, flags, address, place, size, and the section of its symbols' names."""
    section_bytes: int
    symbol: str
    """Name, address, size."""
    symbol_bytes: int


_FORMS = {
    1: _Form("<I", 32, 48, "<7I", 40, "<III", 16),
    2: _Form("<Q", 40, 60, "<II4QI", 64, "<I4xQQ", 24),
}
"""By the byte that says the width: 32 and 64 bits."""


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

    @property
    def stored_bytes(self) -> int:
        """What it takes where it is kept, such as flash: code, constants, first values."""
        return sum(section.size for section in self.sections if section.is_stored)

    @property
    def variable_bytes(self) -> int:
        """What it takes of memory that it writes to; the stack is no part of that."""
        return sum(section.size for section in self.sections if section.is_variable)


def read_program(path: Path) -> Program:
    """Read a file that a linker for a machine with low bytes first has written."""
    data = path.read_bytes()
    form = _FORMS.get(data[4]) if data[:4] == b"\x7fELF" and data[5:6] == b"\x01" else None
    if form is None:
        raise ValueError(f"'{path}' is no program (ELF, low bytes first)")
    try:
        return _read(data, form)
    except (struct.error, IndexError, OverflowError, ValueError):
        raise ValueError(f"'{path}' is no whole program: it ends before its parts do") from None


def _read(data: bytes, form: _Form) -> Program:
    (start,) = struct.unpack_from(form.word, data, form.start)
    count, names_at = struct.unpack_from("<HH", data, form.counts)
    rows = [struct.unpack_from(form.section, data, start + form.section_bytes * i)
            for i in range(count)]
    contents = [b"" if row[1] == NO_BITS else data[row[4] : row[4] + row[5]] for row in rows]
    sections = [
        Section(_text(contents[names_at], row[0]), row[1], row[2], content, row[5], row[6])
        for row, content in zip(rows, contents, strict=True)
    ]
    found: dict[int, tuple[str, int]] = {}
    for section in sections:
        if section.kind == SYMBOLS:
            for at in range(0, len(section.content), form.symbol_bytes):
                name, address, size = struct.unpack_from(form.symbol, section.content, at)
                if size:
                    found.setdefault(address, (_text(contents[section.names_at], name), size))
    return Program(sections, dict(found.values()))


def _text(names: bytes, at: int) -> str:
    return names[at : names.index(b"\0", at)].decode()
