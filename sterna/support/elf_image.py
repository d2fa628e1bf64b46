"""What a loader maps of an ELF library: its segments, and the bytes at an address."""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from sterna.support.elf_form import ElfForm
from sterna.support.file_view import BrokenFileError, FileView

# Kinds of segments.
LOAD, DYNAMIC, NOTE, RESERVED, HEADERS, TLS = 1, 2, 4, 5, 6, 7
UNWINDING, READ_ONLY_LATER, PROPERTIES = 0x6474E550, 0x6474E552, 0x6474E553
_STANDARD, _SYSTEMS = range(TLS + 1), range(0x6000_0000, 0x8000_0000)
_IN_FILE = (NOTE, TLS, UNWINDING, PROPERTIES)
_SINGLE = (TLS, HEADERS, READ_ONLY_LATER, PROPERTIES)
# What memory of a segment may be used for.
EXECUTABLE, WRITABLE, READABLE = 1, 2, 4

_MOST_BYTES = 1 << 48
_MOST_ALIGNMENT = 1 << 32
_MOST_TLS, _MOST_TLS_ALIGNMENT = 1 << 30, 1 << 16


@dataclass(frozen=True, slots=True)
class Segment:
    """A program header."""

    kind: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    alignment: int
    flags: int

    def holds(self, address: int, size: int) -> bool:
        """Whether all of these bytes are in its memory."""
        return self.address <= address and address + size <= self.address + self.memory_size

    @property
    def pages(self) -> tuple[int, int]:
        """Where its first page begins and its last one ends."""
        end = self.address + self.memory_size
        return self.address // mmap.PAGESIZE, -(-end // mmap.PAGESIZE)


class Image:
    """The segments of a library, each of them checked against its bounds."""

    def __init__(self, view: FileView, form: ElfForm, at: int, count: int) -> None:
        self.view, self.form = view, form
        rows = view.part(at, count * form.size(form.segment))
        self.segments = [self._segment(row) for row in form.rows(rows, form.segment)]
        self.loads = list(self.of_kind(LOAD))
        self._check_loads()
        for segment in self.segments:
            if segment.kind not in _STANDARD and segment.kind not in _SYSTEMS:
                raise BrokenFileError("its program headers are of no known kind")
        for kind in _SINGLE:
            if len(list(self.of_kind(kind))) > 1:
                raise BrokenFileError("its program headers are broken")
        self._check_special(at)

    def _segment(self, row: tuple[int, ...]) -> Segment:
        if self.form.is_64:
            kind, flags, offset, address, _, file_size, memory_size, alignment = row
        else:
            kind, offset, address, _, file_size, memory_size, flags, alignment = row
        return Segment(kind, offset, address, file_size, memory_size, alignment, flags)

    def of_kind(self, kind: int) -> Iterator[Segment]:
        """The segments of a kind."""
        return (each for each in self.segments if each.kind == kind)

    def _check_loads(self) -> None:
        for segment in self.loads:
            self.view.part(segment.offset, segment.file_size)
            alignment = segment.alignment
            if (
                not segment.flags & READABLE
                or segment.file_size > segment.memory_size
                or segment.address + segment.memory_size > _MOST_BYTES
                or alignment & (alignment - 1)
                or alignment > _MOST_ALIGNMENT
                or (alignment > 1 and (segment.address - segment.offset) % alignment)
            ):
                raise BrokenFileError("its program headers are broken")
        for before, after in pairwise(self.loads):
            is_shifted = before.address - before.offset != after.address - after.offset
            if after.address < before.address + before.memory_size or (
                is_shifted and after.pages[0] < before.pages[1]
            ):
                raise BrokenFileError("its segments lie over each other")

    def _check_special(self, headers: int) -> None:
        """Whatever else a loader looks at lies in what it has mapped."""
        for segment in self.segments:
            if segment.kind == RESERVED:
                raise BrokenFileError("its program headers are broken")
            if segment.kind in _IN_FILE and segment.file_size:
                home = self.home(segment.address, segment.file_size)
                if segment.address - home.address != segment.offset - home.offset:
                    raise BrokenFileError("its program headers are broken")
            if segment.kind in (NOTE, PROPERTIES):
                self._check_notes(segment)
            elif segment.kind == TLS:
                self._check_tls(segment)
            elif segment.kind == UNWINDING:
                self.content(segment.address, segment.memory_size)
            elif segment.kind == HEADERS:
                home = self.home(segment.address, segment.memory_size)
                if segment.address - home.address != headers - home.offset:
                    raise BrokenFileError("its program headers are not where they say")
            elif segment.kind == READ_ONLY_LATER:
                self._check_read_only(segment)

    def _check_notes(self, own: Segment) -> None:
        self.view.part(own.offset, own.file_size)
        content = self.content(own.address, own.memory_size)
        step = 8 if own.alignment == 8 else 4
        at = 0
        while at + 12 <= len(content):
            ((name, size, _),) = self.form.rows_of(content[at : at + 12], "III")
            begin = -(-(at + 12 + name) // step) * step
            if begin + size > len(content):
                raise BrokenFileError("a note is longer than its segment")
            at = -(-(begin + size) // step) * step

    def _check_tls(self, own: Segment) -> None:
        alignment = own.alignment
        if (
            own.file_size > own.memory_size
            or own.memory_size > _MOST_TLS
            or not 0 < alignment <= _MOST_TLS_ALIGNMENT
            or alignment & (alignment - 1)
        ):
            raise BrokenFileError("its thread-local data is broken")
        self.content(own.address, own.file_size)

    def _check_read_only(self, own: Segment) -> None:
        """Linkers may round its end up to that of a page."""
        begin, end = own.address, own.address + own.memory_size
        for each in self.loads:
            is_inside = each.address <= begin and end <= each.pages[1] * mmap.PAGESIZE
            if is_inside and each.flags & WRITABLE and not each.flags & EXECUTABLE:
                return
        raise BrokenFileError("what becomes read-only is in no segment of data")

    def becomes_read_only(self, address: int, size: int) -> bool:
        """Whether these bytes cannot be written after relocation; whole pages are meant."""
        page = mmap.PAGESIZE
        for each in self.of_kind(READ_ONLY_LATER):
            end = (each.address + each.memory_size) // page * page
            if address < end and each.address // page * page < address + size:
                return True
        return False

    def home(self, address: int, size: int, flags: int = 0) -> Segment:
        """The segment that holds these bytes, to be used for this."""
        for each in self.loads:
            if each.holds(address, size) and each.flags & flags == flags:
                return each
        raise BrokenFileError("it speaks of what is in none of its segments")

    def content(self, address: int, size: int) -> bytes:
        """Bytes at an address, all of which the file has."""
        home = self.home(address, size)
        if address + size > home.address + home.file_size:
            raise BrokenFileError("it speaks of what is in none of its segments")
        return self.view.read(home.offset + address - home.address, size)

    def rows(self, address: int, size: int, words: str) -> list[tuple[int, ...]]:
        """All rows of a table at an address."""
        if size % self.form.size(words):
            raise BrokenFileError("a table of its dynamic section has a broken end")
        return list(self.form.rows_of(self.content(address, size), words))

    def row(self, address: int, words: str) -> tuple[int, ...]:
        """The row at an address."""
        (found,) = self.rows(address, self.form.size(words), words)
        return found
