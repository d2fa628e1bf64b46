"""What a loader takes for granted of a library's symbols, their hash tables and versions."""

from dataclasses import dataclass
from itertools import islice

from sterna.support.elf_image import EXECUTABLE, TLS, WRITABLE, Image
from sterna.support.file_view import BrokenFileError

# Entries of a dynamic section.
NEEDED, HASH, STRINGS, SYMBOLS, STRINGS_SIZE, SYMBOL_SIZE = 1, 4, 5, 6, 10, 11
GNU_HASH, VERSIONS = 0x6FFFFEF5, 0x6FFFFFF0
DEFINED_VERSIONS, NEEDED_VERSIONS = 0x6FFFFFFC, 0x6FFFFFFE

# Types, bindings and visibilities of symbols; sections that are none.
OBJECT, FUNCTION, THREAD_LOCAL, INDIRECT = 1, 2, 6, 10
_GLOBAL, _WEAK, _UNIQUE = 1, 2, 10
_DEFAULT, _PROTECTED = 0, 3
_UNDEFINED, _RESERVED, _ABSOLUTE = 0, 0xFF00, 0xFFF1
_MOST_VERSIONS = 1 << 15

# What the runtime writes to as soon as a library is loaded.
_WRITTEN = frozenset({b"__sterna__host"})


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol as relocations need it."""

    type: int
    is_defined: bool
    is_global: bool
    value: int


class SymbolTable:
    """The symbols of a library, each of them checked."""

    def __init__(self, image: Image, entries: dict[int, int], needed: list[int], least: int):
        """least: how many symbols relocations name, which no table says."""
        self.image, self.entries = image, entries
        self._names = image.content(entries[STRINGS], entries.get(STRINGS_SIZE, 0))
        if not self._names.endswith(b"\0"):
            raise BrokenFileError("a table of names has no end")
        form = image.form
        if entries.get(SYMBOL_SIZE, form.size(form.symbol)) != form.size(form.symbol):
            raise BrokenFileError("its symbols are broken")
        count = max(self._count_by_gnu_hash(), self._count_by_hash(), least)
        size = count * form.size(form.symbol)
        self.written: list[int] = []
        self.run: set[int] = set()
        self._needed = {self.name(each) for each in needed}
        rows = image.rows(entries[SYMBOLS], size, form.symbol)
        self.symbols = [self._check(index, row) for index, row in enumerate(rows)]
        self._check_versions(count)

    def name(self, at: int) -> bytes:
        """A name of the table of names."""
        if at >= len(self._names):
            raise BrokenFileError("a name of its dynamic section is not there")
        return self._names[at : self._names.index(b"\0", at)]

    def _check(self, index: int, row: tuple[int, ...]) -> Symbol:
        name, info, other, section, value = self.image.form.symbol_of(row)
        binding, kind = divmod(info, 16)
        text = self.name(name)
        is_defined = section != _UNDEFINED
        visible = (_DEFAULT, _PROTECTED) if is_defined else (_DEFAULT,)
        is_global = binding in (_GLOBAL, _WEAK, _UNIQUE) and other & 3 in visible
        if not is_defined:
            if index and (value or not is_global):
                raise BrokenFileError("a symbol of other libraries cannot be found there")
        elif kind == THREAD_LOCAL:
            if not any(value <= each.memory_size for each in self.image.of_kind(TLS)):
                raise BrokenFileError("a symbol of thread-local data is not there")
        elif section < _RESERVED:
            self._check_place(kind, value, text)
        elif section != _ABSOLUTE:
            raise BrokenFileError("a symbol is in no section")
        return Symbol(kind, is_defined, is_global, value)

    def _check_place(self, kind: int, value: int, text: bytes) -> None:
        image = self.image
        if kind in (FUNCTION, INDIRECT):
            image.home(value, 1, EXECUTABLE)
            if kind == INDIRECT:
                self.run.add(value)
        elif text in _WRITTEN:
            size = image.form.size(image.form.word)
            image.home(value, size, WRITABLE)
            if value % size or image.becomes_read_only(value, size):
                raise BrokenFileError("what the runtime writes to cannot be written")
            self.written.append(value)
        elif not any(each.holds(value, 0) for each in image.loads):
            raise BrokenFileError("a symbol speaks of what is not there")

    # ---- hash tables ----

    def _count_by_hash(self) -> int:
        """The number of symbols that the hash table of the standard names."""
        if (at := self.entries.get(HASH)) is None:
            return 0
        buckets, count = self.image.row(at, "II")
        chains = [row[0] for row in self.image.rows(at + 8, 4 * (buckets + count), "I")]
        following = chains[buckets:]
        if any(each >= count for each in chains):
            raise BrokenFileError("its hash table speaks of what is not there")
        seen = [False] * count
        for each in chains[:buckets]:
            while each:
                if seen[each]:
                    raise BrokenFileError("its hash table has no end")
                seen[each] = True
                each = following[each]
        return count

    def _count_by_gnu_hash(self) -> int:
        """The same of GNU's, which has the sum of each name with the name's end of a chain."""
        if (at := self.entries.get(GNU_HASH)) is None:
            return 0
        count, first, words, shift = self.image.row(at, "IIII")
        if words == 0 or words & (words - 1) or shift >= 64:
            raise BrokenFileError("its hash table is broken")
        form = self.image.form
        at += 16 + words * form.size(form.word)
        self.image.content(self.entries[GNU_HASH], at - self.entries[GNU_HASH])
        buckets = [row[0] for row in self.image.rows(at, 4 * count, "I")]
        begins = sorted({each for each in buckets if each})
        if not begins:
            return first
        if begins[0] < first:
            raise BrokenFileError("its hash table speaks of what is not there")
        chains = at + 4 * count
        last = begins[-1]
        while not self.image.row(chains + 4 * (last - first), "I")[0] & 1:
            last += 1
        self.image.content(chains, 4 * (last + 1 - first))
        return last + 1

    # ---- versions ----

    def _check_versions(self, count: int) -> None:
        found = {*self._versions_needed(), *self._versions_defined()}
        if VERSIONS not in self.entries:
            if found or self.entries.keys() & {DEFINED_VERSIONS, NEEDED_VERSIONS}:
                raise BrokenFileError("its versions belong to no symbols")
            return
        if not found or max(found) == 0:
            raise BrokenFileError("its symbols have versions that it does not name")
        for (version,) in self.image.rows(self.entries[VERSIONS], 2 * count, "H"):
            if version % _MOST_VERSIONS not in found | {0, 1}:
                raise BrokenFileError("its symbols have versions that it does not name")

    def _chain(self, at: int | None, words: str) -> list[tuple[int, tuple[int, ...]]]:
        """Places and fields of rows that each say how far the next one is, in their last field."""
        found: list[tuple[int, tuple[int, ...]]] = []
        while at is not None:
            row = self.image.row(at, words)
            found.append((at, row))
            if len(found) > _MOST_VERSIONS:
                raise BrokenFileError("its versions have no end")
            at = at + row[-1] if row[-1] else None
        return found

    def _versions_needed(self) -> list[int]:
        found = []
        for at, (form, _, file, first, _) in self._chain(
            self.entries.get(NEEDED_VERSIONS), "HHIII"
        ):
            if form != 1 or self.name(file) not in self._needed:
                raise BrokenFileError("its versions are of a library that it does not need")
            for _, (_, _, index, name, _) in self._chain(at + first, "IHHII"):
                self.name(name)
                found.append(index % _MOST_VERSIONS)
        return found

    def _versions_defined(self) -> list[int]:
        found = []
        for at, (form, _, index, _, _, first, _) in self._chain(
            self.entries.get(DEFINED_VERSIONS), "HHHHIII"
        ):
            if form != 1:
                raise BrokenFileError("its versions are broken")
            for _, (name, _) in islice(self._chain(at + first, "II"), 1):
                self.name(name)
            found.append(index % _MOST_VERSIONS)
        return found
