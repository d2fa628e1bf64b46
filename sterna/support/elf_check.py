"""Bounds of ELF files that nobody has sealed, before a loader or linker believes what they say.

A shared library is judged by its segments and its dynamic section, an object by its sections,
symbols and relocations: every place that they name must be there, and hold what a linker takes for
granted. Code itself cannot be judged.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from sterna.support.elf_instructions import bytes_written, is_expected
from sterna.support.file_view import BrokenFileError, FileView

_RELOCATABLE, _DYNAMIC = 1, 3
_LOAD, _DYNAMIC_SEGMENT = 1, 2
_SYMBOLS, _STRINGS, _RELA, _NOBITS, _REL, _DYNAMIC_SYMBOLS = 2, 3, 4, 8, 9, 11
_RESERVED_SECTIONS = 0xFF00
_MOST_BYTES = 1 << 48

# Entries of a dynamic section: tables by their address, and which entry has their size.
_TABLES = {5: 10, 7: 8, 17: 18, 23: 2, 25: 27, 26: 28, 36: 35}
_ADDRESSES = frozenset({4, 6, 12, 13, 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFE})
_NEEDED = frozenset({5, 6})  # the strings and the symbols, which every loader reads
_END = 0
# Meanings that systems and processors add to the standard's are below this.
_MOST_TAGS = 1 << 31


@dataclass(frozen=True, slots=True)
class _Form:
    """Where things stand in a file of one word size and byte order."""

    order: str
    header: str
    segment: str
    section: str
    symbol: str
    relocation: dict[int, str]
    dynamic: str
    is_64: bool

    @staticmethod
    def of(ident: bytes) -> "_Form":
        order = "<" if ident[5] == 1 else ">"
        if ident[4] == 2:
            return _Form(order, "16xHHIQQQIHHHHHH", "IIQQQQQQ", "IIQQQQIIQQ", "IBBHQQ",
                         {_RELA: "QQq", _REL: "QQ"}, "qQ", True)
        return _Form(order, "16xHHIIIIIHHHHHH", "IIIIIIII", "IIIIIIIIII", "IIIBBH",
                     {_RELA: "IIi", _REL: "II"}, "iI", False)

    def read(self, view: FileView, at: int, words: str) -> tuple[int, ...]:
        return struct.unpack(self.order + words, view.read(at, struct.calcsize(self.order + words)))

    def rows(self, view: FileView, words: str) -> Iterator[tuple[int, ...]]:
        size = struct.calcsize(self.order + words)
        whole = view.read(0, view.size // size * size)
        return struct.iter_unpack(self.order + words, whole)


def check_elf(view: FileView, is_object: bool = False) -> None:
    """A BrokenFileError if an ELF file speaks of what is not there; other files pass.

    is_object: whether it is to be linked, which takes objects alone.
    """
    if view.head(4) != b"\x7fELF":
        return
    ident = view.read(0, 16)
    if ident[4] not in (1, 2) or ident[5] not in (1, 2) or ident[6] != 1:
        raise BrokenFileError("its ELF header names no word size, byte order or version")
    form = _Form.of(ident)
    kind, machine, version, _, segments, sections, _, size, segment_size, segment_count, \
        section_size, section_count, names = form.read(view, 0, form.header)
    if version != 1 or size != struct.calcsize(form.order + form.header):
        raise BrokenFileError("its ELF header is broken")
    if is_object and kind != _RELOCATABLE:
        raise BrokenFileError("it is no object file")
    if kind == _DYNAMIC:
        _expect_size(segment_size, form, form.segment, "program headers")
        _check_library(view, form, segments, segment_count)
    elif kind == _RELOCATABLE:
        _expect_size(section_size, form, form.section, "section headers")
        _check_object(view, form, machine, sections, section_count, names)


def _expect_size(size: int, form: _Form, words: str, what: str) -> None:
    if size != struct.calcsize(form.order + words):
        raise BrokenFileError(f"its {what} are broken")


# ---- shared libraries ----


# What memory of a segment may be used for.
_EXECUTABLE, _WRITABLE, _READABLE = 1, 2, 4
# DT_INIT and DT_FINI: code that the loader runs.
_CODE = (12, 13)


@dataclass(frozen=True, slots=True)
class _Segment:
    kind: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    alignment: int
    flags: int

    def holds(self, address: int, size: int) -> bool:
        return self.address <= address and address + size <= self.address + self.memory_size


def _check_library(view: FileView, form: _Form, at: int, count: int) -> None:
    rows = view.part(at, count * struct.calcsize(form.order + form.segment))
    found = []
    for row in form.rows(rows, form.segment):
        if form.is_64:
            kind, flags, offset, address, _, file_size, memory_size, alignment = row
        else:
            kind, offset, address, _, file_size, memory_size, flags, alignment = row
        found.append(_Segment(kind, offset, address, file_size, memory_size, alignment, flags))
    loads = [segment for segment in found if segment.kind == _LOAD]
    for segment in loads:
        _check_segment(view, segment)
    for before, after in pairwise(loads):
        if after.address < before.address + before.memory_size:
            raise BrokenFileError("its segments lie over each other")
    dynamic = [segment for segment in found if segment.kind == _DYNAMIC_SEGMENT]
    if len(dynamic) != 1:
        raise BrokenFileError("it has no dynamic section, or several")
    _check_dynamic(view, form, dynamic[0], loads)


def _check_segment(view: FileView, segment: _Segment) -> None:
    view.part(segment.offset, segment.file_size)
    alignment = segment.alignment
    if (
        not segment.flags & _READABLE
        or segment.file_size > segment.memory_size
        or segment.address + segment.memory_size > _MOST_BYTES
        or alignment & (alignment - 1)
        or (alignment > 1 and (segment.address - segment.offset) % alignment)
    ):
        raise BrokenFileError("its program headers are broken")


def _check_dynamic(view: FileView, form: _Form, own: _Segment, loads: list[_Segment]) -> None:
    home = next((each for each in loads if each.holds(own.address, own.memory_size)), None)
    is_there = home is not None and own.address - home.address == own.offset - home.offset
    if home is None or not is_there or not home.flags & _WRITABLE:
        raise BrokenFileError("its dynamic section is in none of its segments")
    entries: dict[int, int] = {}
    for tag, value in form.rows(view.part(own.offset, own.file_size), form.dynamic):
        if tag == _END:
            break
        if not 0 < tag < _MOST_TAGS:
            raise BrokenFileError("its dynamic section has entries of no meaning")
        entries[tag] = value
    else:
        raise BrokenFileError("its dynamic section has no end")
    if not entries.keys() >= _NEEDED:
        raise BrokenFileError("its dynamic section has no symbols or no names of them")
    for table, size in _TABLES.items():
        if entries.get(size) and table not in entries:
            raise BrokenFileError("its dynamic section has the size of a table, and no table")
    sized = ((tag, entries.get(size, 0)) for tag, size in _TABLES.items())
    ranges = [
        (entries[tag], size) for tag, size in (*sized, *((tag, 1) for tag in _ADDRESSES))
        if tag in entries
    ]
    for address, size in ranges:
        if not any(each.holds(address, size) for each in loads):
            raise BrokenFileError("its dynamic section speaks of what is not there")
    code = [each for each in loads if each.flags & _EXECUTABLE]
    for tag in _CODE:
        if tag in entries and not any(each.holds(entries[tag], 1) for each in code):
            raise BrokenFileError("the code that begins or ends it is in no segment of code")


# ---- objects ----


@dataclass(frozen=True, slots=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


def _check_object(
    view: FileView, form: _Form, machine: int, at: int, count: int, names: int
) -> None:
    rows = view.part(at, count * struct.calcsize(form.order + form.section))
    sections = []
    for row in form.rows(rows, form.section):
        _, kind, _, _, offset, size, link, info, alignment, entry = row
        sections.append(_Section(kind, offset, size, link, info, alignment, entry))
    if names >= count or sections[names].kind != _STRINGS:
        raise BrokenFileError("its sections have no names")
    for section in sections[1:]:
        if section.kind != _NOBITS:
            view.part(section.offset, section.size)
        if section.link >= count or section.alignment & (section.alignment - 1):
            raise BrokenFileError("its section headers are broken")
        if section.kind == _STRINGS and section.size and view.read(
            section.offset + section.size - 1, 1
        ) != b"\0":
            raise BrokenFileError("a table of names has no end")
    for section in sections[1:]:
        if section.kind in (_SYMBOLS, _DYNAMIC_SYMBOLS):
            _check_symbols(view, form, section, sections)
        elif section.kind in form.relocation:
            _check_relocations(view, form, machine, section, sections)


def _check_symbols(view: FileView, form: _Form, own: _Section, sections: list[_Section]) -> None:
    _expect_size(own.entry, form, form.symbol, "symbols")
    names = sections[own.link]
    part = view.part(own.offset, own.size)
    if own.size % own.entry or own.info > own.size // own.entry or names.kind != _STRINGS:
        raise BrokenFileError("its symbols are broken")
    for row in form.rows(part, form.symbol):
        name, home = row[0], row[3] if form.is_64 else row[5]
        is_there = home < len(sections) or home >= _RESERVED_SECTIONS
        if name >= max(names.size, 1) or not is_there:
            raise BrokenFileError("a symbol speaks of what is not there")


def _check_relocations(
    view: FileView, form: _Form, machine: int, own: _Section, sections: list[_Section]
) -> None:
    words = form.relocation[own.kind]
    _expect_size(own.entry, form, words, "relocations")
    symbols = sections[own.link]
    if own.size % own.entry or own.info >= len(sections) or symbols.kind != _SYMBOLS:
        raise BrokenFileError("its relocations are broken")
    count = symbols.size // max(symbols.entry, 1)
    place = sections[own.info]
    content = view.read(place.offset, place.size) if place.kind != _NOBITS else b""
    for row in form.rows(view.part(own.offset, own.size), words):
        at, info = row[:2]
        symbol, relocation = divmod(info, 1 << (32 if form.is_64 else 8))
        size = bytes_written(machine, relocation)
        if at + size > len(content) or symbol >= count:
            raise BrokenFileError("a relocation speaks of what is not there")
        instruction = int.from_bytes(content[at : at + 4], "little")
        if size and not is_expected(machine, relocation, instruction):
            raise BrokenFileError("a relocation is for another instruction than stands there")
