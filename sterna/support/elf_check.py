"""Bounds of ELF files that nobody has sealed, before a loader or linker believes what they say.

A shared library is judged by its segments and its dynamic section, an object by its sections,
symbols and relocations: every place that they name must be there, and hold what a linker takes for
granted. Code itself cannot be judged.
"""

from dataclasses import dataclass

from sterna.support.elf_form import ElfForm
from sterna.support.elf_instructions import bytes_written, is_expected
from sterna.support.elf_library import check_library
from sterna.support.file_view import BrokenFileError, FileView

_RELOCATABLE, _DYNAMIC = 1, 3
_SYMBOLS, _STRINGS, _NOBITS, _DYNAMIC_SYMBOLS = 2, 3, 8, 11
_RESERVED_SECTIONS = 0xFF00


def check_elf(view: FileView, is_object: bool = False) -> None:
    """A BrokenFileError if an ELF file speaks of what is not there; other files pass.

    is_object: whether it is to be linked, which takes objects alone.
    """
    if view.head(4) != b"\x7fELF":
        return
    ident = view.read(0, 16)
    if ident[4] not in (1, 2) or ident[5] not in (1, 2) or ident[6] != 1:
        raise BrokenFileError("its ELF header names no word size, byte order or version")
    form = ElfForm.of(ident)
    header = form.read(view, 0, form.header)
    kind, machine, version, _, _, sections, _, size, segment_size, _, section_size, count, names = (
        header
    )
    if version != 1 or size != form.size(form.header):
        raise BrokenFileError("its ELF header is broken")
    if is_object and kind != _RELOCATABLE:
        raise BrokenFileError("it is no object file")
    if kind == _DYNAMIC:
        form.expect_size(segment_size, form.segment, "program headers")
        check_library(view, form, machine, header)
    elif kind == _RELOCATABLE:
        form.expect_size(section_size, form.section, "section headers")
        _check_object(view, form, machine, sections, count, names)


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
    view: FileView, form: ElfForm, machine: int, at: int, count: int, names: int
) -> None:
    rows = view.part(at, count * form.size(form.section))
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


def _check_symbols(view: FileView, form: ElfForm, own: _Section, sections: list[_Section]) -> None:
    form.expect_size(own.entry, form.symbol, "symbols")
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
    view: FileView, form: ElfForm, machine: int, own: _Section, sections: list[_Section]
) -> None:
    words = form.relocation[own.kind]
    form.expect_size(own.entry, words, "relocations")
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
