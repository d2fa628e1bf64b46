"""Bounds of shared libraries: all that a loader reads and writes before a function is called.

Loaders believe every address, index and offset of a library, and end the process where one is
wrong. What a name, an address of code or code itself mean cannot be judged.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from sterna.support.elf_form import REL, RELA, ElfForm
from sterna.support.elf_image import (
    DYNAMIC,
    EXECUTABLE,
    TLS,
    WRITABLE,
    Image,
    Segment,
)
from sterna.support.elf_sections import DYNAMIC_SECTION, check_sections
from sterna.support.elf_symbols import (
    DEFINED_VERSIONS,
    GNU_HASH,
    HASH,
    NEEDED,
    NEEDED_VERSIONS,
    OBJECT,
    STRINGS,
    SYMBOLS,
    THREAD_LOCAL,
    VERSIONS,
    SymbolTable,
)
from sterna.support.file_view import BrokenFileError, FileView

# Entries of a dynamic section: what stands with a table's address, its size and that of a row.
_RELA, _REL, _RELR, _PLT, _INIT, _FINI = 7, 17, 36, 23, 25, 26
_SIZES = {_RELA: 8, _REL: 18, _RELR: 35, _PLT: 2, _INIT: 27, _FINI: 28}
_PACKED = (_RELA, _RELR, _PLT)
_ROW_SIZES = {_RELA: 9, _REL: 19, _RELR: 37}
_PLT_KIND, _GOT, _INIT_CODE, _FINI_CODE, _TEXT_RELOCATIONS, _FLAGS = 20, 3, 12, 13, 22, 30
_FLAG_TEXT_RELOCATIONS = 4
_LEADING_RELATIVE = 0x6FFFFFF9
_READ = (HASH, GNU_HASH, STRINGS, SYMBOLS, VERSIONS, DEFINED_VERSIONS, NEEDED_VERSIONS)
_ADDRESSES = (*_READ, _GOT, 0x6FFFFEF6, 0x6FFFFEF7)
# Offsets of names: its own, paths, auditors, and of libraries that it stands for.
_NAMES = (14, 15, 29, 0x6FFFFEFA, 0x6FFFFEFB, 0x6FFFFEFC, *(_FILTERS := (0x7FFFFFFD, 0x7FFFFFFF)))
_END = 0
# Kinds of sections of which there is one, and the entry that leads to it.
_SECTION_KINDS = {
    5: HASH, 11: SYMBOLS, 14: _INIT, 15: _FINI, 19: _RELR, 0x6FFFFFF6: GNU_HASH,
    0x6FFFFFFD: DEFINED_VERSIONS, 0x6FFFFFFE: NEEDED_VERSIONS, 0x6FFFFFFF: VERSIONS,
}
# Meanings that systems and processors add to the standard's are below this.
_MOST_TAGS = 1 << 31

_NO_CODE = "the code that begins or ends it is in no segment of code"


@dataclass(frozen=True, slots=True)
class _Relocations:
    """Numbers of what a loader of one processor relocates."""

    nothing: tuple[int, ...]
    address: int
    data: int
    call: int
    relative: int
    indirect: int
    thread: tuple[int, ...]
    descriptor: int

    @property
    def known(self) -> set[int]:
        return {*self.nothing, self.address, self.data, self.call, self.relative, self.indirect,
                *self.thread, self.descriptor}


_MACHINES = {
    62: _Relocations((0,), 1, 6, 7, 8, 37, (16, 17, 18), 36),
    183: _Relocations((0, 256), 257, 1025, 1026, 1027, 1032, (1028, 1029, 1030), 1031),
}
_ALIGNED_CODE = {183: 4}


def check_library(view: FileView, form: ElfForm, machine: int, header: tuple[int, ...]) -> None:
    """A BrokenFileError if a loader that believes the file would end the process."""
    _, _, _, _, segments, at, _, _, _, segment_count, size, count, names = header
    library = _Library(Image(view, form, segments, segment_count), machine)
    library.check()
    if at and count:
        form.expect_size(size, form.section, "section headers")
        check_sections(library.image, library.tables(), library.entry_points, (at, count, names))


class _Library:
    """Its dynamic section, and what that speaks of."""

    def __init__(self, image: Image, machine: int) -> None:
        self.image, self.machine = image, machine
        self.form = image.form
        self.word = self.form.size(self.form.word)
        dynamic = list(image.of_kind(DYNAMIC))
        if len(dynamic) != 1:
            raise BrokenFileError("it has no dynamic section, or several")
        self.dynamic = dynamic[0]
        self.needed: list[int] = []
        self.entries: dict[int, int] = {}
        self.entry_points: set[int] = set()

    def tables(self) -> dict[int, list[tuple[int, int | None]]]:
        """Where the loader finds tables, by the kind of section that they are, and their sizes."""
        entries = self.entries
        relocations = [
            (entries[tag], entries[_SIZES[tag]]) for tag in (_RELA, _REL, _PLT) if tag in entries
        ]
        single = {
            kind: [(entries[tag], entries[_SIZES[tag]] if tag in _SIZES else None)]
            for kind, tag in _SECTION_KINDS.items() if tag in entries
        }
        dynamic: list[tuple[int, int | None]] = [(self.dynamic.address, self.dynamic.memory_size)]
        return {RELA: [*relocations], REL: [*relocations], **single, DYNAMIC_SECTION: dynamic}

    def check(self) -> None:
        """All of it."""
        self._read_entries(self.dynamic)
        self._check_entries()
        rows = self._relocation_rows()
        known = _MACHINES.get(self.machine)
        most = max((symbol for _, symbol, _, _ in rows), default=-1) if known else -1
        table = SymbolTable(self.image, self.entries, self.needed, most + 1)
        self.entry_points |= table.run
        for tag in _NAMES:
            if tag in self.entries and not table.name(self.entries[tag]) and tag in _FILTERS:
                raise BrokenFileError("it stands for a library without a name")
        targets = dict(self._packed_relocations())
        if known:
            self._check_relocations(rows, known, table, targets)
        else:
            for at, _, _, _ in rows:
                self.image.home(at, self.word)
        self._check_code(targets if known else None)

    def _read_entries(self, own: Segment) -> None:
        home = next((each for each in self.image.loads if each.holds(own.address, own.memory_size)),
                    None)
        is_there = home is not None and own.address - home.address == own.offset - home.offset
        if home is None or not is_there or not home.flags & WRITABLE:
            raise BrokenFileError("its dynamic section is in none of its segments")
        size = self.form.size(self.form.dynamic)
        rows = self.image.rows(own.address, own.file_size // size * size, self.form.dynamic)
        tags = [tag for tag, _ in rows]
        if _END not in tags:
            raise BrokenFileError("its dynamic section has no end")
        end = tags.index(_END)
        if any(tags[end:]):
            raise BrokenFileError("its dynamic section goes on behind its end")
        for tag, value in rows[:end]:
            if not 0 < tag < _MOST_TAGS:
                raise BrokenFileError("its dynamic section has entries of no meaning")
            if tag == NEEDED:
                self.needed.append(value)
            elif tag in self.entries:
                raise BrokenFileError("its dynamic section says something twice")
            else:
                self.entries[tag] = value

    def _check_entries(self) -> None:
        entries = self.entries
        if not entries.keys() >= {STRINGS, SYMBOLS}:
            raise BrokenFileError("its dynamic section has no symbols or no names of them")
        groups = [(table, size, _ROW_SIZES.get(table, size)) for table, size in _SIZES.items()]
        for group in (*groups, (_PLT, _SIZES[_PLT], _PLT_KIND)):
            there = [tag in entries for tag in group]
            is_empty = not there[0] and not any(entries.get(tag, 0) for tag in group[:2])
            if any(there) and not all(there) and not is_empty:
                raise BrokenFileError("its dynamic section has a table or its size, and not both")
        for table, words in ((_RELA, self.form.relocation[RELA]), (_REL, self.form.relocation[REL]),
                             (_RELR, self.form.word)):
            if table in entries:
                self.form.expect_size(entries[_ROW_SIZES[table]], words, "relocations")
        try:
            for tag in _ADDRESSES:
                if tag in entries:
                    self.image.home(entries[tag], 1)
            for table, size in _SIZES.items():
                if table in entries:
                    self.image.content(entries[table], entries[size])
        except BrokenFileError:
            raise BrokenFileError("its dynamic section speaks of what is not there") from None

    # ---- relocations ----

    def _relocation_rows(self) -> list[tuple[int, int, int, int]]:
        """Place, symbol, type and addend."""
        found = []
        kind = self.entries.get(_PLT_KIND, _RELA)
        if kind not in (_RELA, _REL) or (kind == _REL and self.machine in _MACHINES):
            raise BrokenFileError("its relocations are broken")
        split = 1 << (32 if self.form.is_64 else 8)
        for table, of in ((_RELA, RELA), (_REL, REL), (_PLT, RELA if kind == _RELA else REL)):
            if table in self.entries:
                rows = self.image.rows(
                    self.entries[table], self.entries[_SIZES[table]], self.form.relocation[of]
                )
                for at, info, *addend in rows:
                    found.append((at, info // split, info % split, addend[0] if addend else 0))
        return found

    def _packed_relocations(self) -> Iterator[tuple[int, int]]:
        """Places of words to which the library's address is added, and what they hold."""
        if _RELR not in self.entries:
            return
        at = 0
        bits = 8 * self.word - 1
        for (entry,) in self.image.rows(
            self.entries[_RELR], self.entries[_SIZES[_RELR]], self.form.word
        ):
            if entry & 1:
                places = [at + self.word * bit for bit in range(bits) if entry >> (bit + 1) & 1]
                at += bits * self.word
            else:
                places, at = [entry], entry + self.word
            for place in places:
                self.image.home(place, self.word, WRITABLE)
                yield place, self.image.row(place, self.form.word)[0]

    def _check_relocations(
        self, rows: list[tuple[int, int, int, int]], known: _Relocations, table: SymbolTable,
        targets: dict[int, int],
    ) -> None:
        """Check each, and add what the words will hold to targets, less the library's address."""
        leading = self.entries.get(_LEADING_RELATIVE, 0)
        first = [kind for _, _, kind, _ in rows[:leading]]
        rela = self.entries.get(_SIZES[_RELA], 0) // self.form.size(self.form.relocation[RELA])
        if leading > rela or any(kind != known.relative for kind in first):
            raise BrokenFileError("its relocations are not of the kinds that it says")
        has_text = _TEXT_RELOCATIONS in self.entries or (
            self.entries.get(_FLAGS, 0) & _FLAG_TEXT_RELOCATIONS
        )
        extents = [(at, at + self.word) for at in targets]
        plt = self.entries.get(_SIZES[_PLT], 0) // self.form.size(self.form.relocation[RELA])
        for place, (at, index, kind, addend) in enumerate(rows):
            if place >= len(rows) - plt and kind not in (
                known.call, known.indirect, known.descriptor
            ):
                raise BrokenFileError("its relocations are not of the kinds that it says")
            if kind in known.nothing:
                continue
            self._check_relocation(known, table, index, kind, addend)
            if at % self.word and kind in (known.data, known.call, known.indirect):
                raise BrokenFileError("a relocation changes part of an address")
            size = self.word * (2 if kind == known.descriptor else 1)
            self.image.home(at, size, 0 if has_text else WRITABLE)
            extents.append((at, at + size))
            symbol = table.symbols[index]
            targets[at] = addend if kind == known.relative else (
                symbol.value + addend if symbol.is_defined else -1
            )
        calls = [at for at, _, kind, _ in rows if kind == known.call]
        slots = {*calls, *(at for at, _, kind, _ in rows if kind == known.indirect)}
        if calls and not slots.issuperset(range(min(calls), max(calls), self.word)):
            raise BrokenFileError("its relocations of calls leave some out")
        extents += [(at, at + self.word) for at in table.written]
        self._check_extents(sorted(extents))

    def _check_relocation(
        self, known: _Relocations, table: SymbolTable, index: int, kind: int, addend: int
    ) -> None:
        symbol = table.symbols[index]
        if kind not in known.known:
            raise BrokenFileError("a relocation is of a kind that libraries do not have")
        if kind in (known.relative, known.indirect):
            is_right = index == 0
        elif kind in (known.data, known.call):
            is_code = kind == known.data or symbol.type not in (OBJECT, THREAD_LOCAL)
            is_right = symbol.is_global and addend == 0 and is_code and symbol.type != THREAD_LOCAL
        elif kind == known.address:
            is_right = symbol.type != THREAD_LOCAL
        else:
            is_right = symbol.type == THREAD_LOCAL if index else any(self.image.of_kind(TLS))
        if not is_right:
            raise BrokenFileError("a relocation does not fit its symbol")
        if kind == known.indirect:
            self._expect_code(addend)
        elif kind == known.call and symbol.is_defined:
            self.image.home(symbol.value, 1, EXECUTABLE)
        elif kind == known.relative and not any(each.holds(addend, 0) for each in self.image.loads):
            raise BrokenFileError("a relocation speaks of what is not there")

    def _check_extents(self, extents: list[tuple[int, int]]) -> None:
        """No word is relocated twice, and nothing that the loader reads itself."""
        for (_, end), (begin, _) in pairwise(extents):
            if begin < end:
                raise BrokenFileError("its relocations lie over each other")
        entries = self.entries
        own = [(self.dynamic.address, self.dynamic.memory_size)]
        own += [(entries[tag], 1) for tag in _READ if tag in entries]
        own += [(entries[tag], entries[_SIZES[tag]]) for tag in _PACKED if tag in entries]
        for begin, size in own:
            place = bisect_right(extents, (begin + size - 1, 1 << 64)) - 1
            if size and place >= 0 and extents[place][1] > begin:
                raise BrokenFileError("its relocations change what the loader reads")

    # ---- what is run ----

    def _expect_code(self, address: int) -> None:
        try:
            self.image.home(address, 1, EXECUTABLE)
            self.image.content(address, 1)
        except BrokenFileError:
            raise BrokenFileError(_NO_CODE) from None
        self.entry_points.add(address)
        if address % _ALIGNED_CODE.get(self.machine, 1):
            raise BrokenFileError("the code that begins or ends it is no instruction")

    def _check_code(self, targets: dict[int, int] | None) -> None:
        for tag in (_INIT_CODE, _FINI_CODE):
            if tag in self.entries:
                self._expect_code(self.entries[tag])
        for tag in (_INIT, _FINI):
            if tag not in self.entries:
                continue
            begin, size = self.entries[tag], self.entries[_SIZES[tag]]
            if size % self.word or begin % self.word:
                raise BrokenFileError(_NO_CODE)
            if targets is None:
                continue
            for at in range(begin, begin + size, self.word):
                if (found := targets.get(at)) is None:  # the library's address is not added
                    raise BrokenFileError(_NO_CODE)
                if found >= 0:
                    self._expect_code(found)
