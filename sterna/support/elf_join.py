"""Joining ELF objects without a linker: sections of several files in one relocatable object.

Sections stay apart, as many as there are. Symbols of one name become one, by the rules of linkers:
a definition before a weak one, that before a reference. Of COMDAT groups the first stays.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

_HEADER, _SECTION = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ")
_SYMBOL, _WORD = struct.Struct("<IBBHQQ"), struct.Struct("<I")
_RELOCATION = {4: struct.Struct("<QQq"), 9: struct.Struct("<QQ")}  # with addends and without
_ELF64_LITTLE = b"\x7fELF\x02\x01"
_SYMBOLS, _STRINGS, _NO_BITS, _GROUP, _MORE_INDICES = 2, 3, 8, 17, 18
_ADDRESS_TAKEN = 0x6FFF4C03  # LLVM's list of symbols, which only says what may be folded
_LINK_ORDER = 0x80
_FIRST_RESERVED = 0xFF00
_LOCAL, _GLOBAL, _WEAK = 0, 1, 2


class NotJoinedError(ValueError):
    """Objects that cannot be joined here; the text says why."""


@dataclass(slots=True)
class Symbol:
    """A row of a table of symbols."""

    name: bytes
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def binding(self) -> int:
        """Local, global or weak."""
        return self.info >> 4

    @property
    def rank(self) -> int:
        """Which of several symbols of one name counts: the highest."""
        is_defined, is_strong = self.section != 0, self.binding == _GLOBAL
        return 2 * is_defined + is_strong


@dataclass(slots=True)
class ElfObject:
    """A relocatable object, taken apart."""

    data: memoryview
    machine: int
    flags: int
    sections: list[list[int]]
    names: list[bytes]
    symbols: list[Symbol]

    @classmethod
    def read(cls, path: Path) -> "ElfObject":
        """The object in a file."""
        data = memoryview(path.read_bytes())
        if len(data) < _HEADER.size or data[:6] != _ELF64_LITTLE:
            raise NotJoinedError(f"'{path.name}' is no little-endian ELF object of 64 bits")
        head = _HEADER.unpack_from(data)
        at, count, names = head[6], head[12], head[13]
        rows = [list(_SECTION.unpack_from(data, at + n * _SECTION.size)) for n in range(count)]
        if any(row[1] == _MORE_INDICES for row in rows):
            raise NotJoinedError(f"'{path.name}' has more sections than fit into a symbol")
        made = cls(data, head[2], head[7], rows, [], [])
        made.names = [made.text(names, row[0]) for row in rows]
        for row in rows:
            if row[1] == _SYMBOLS:
                made.symbols = [
                    Symbol(made.text(row[6], name), *rest)
                    for name, *rest in _SYMBOL.iter_unpack(made.content(row))
                ]
        return made

    def content(self, row: Sequence[int]) -> memoryview:
        """What a section holds in the file."""
        return self.data[row[4] : row[4] + (0 if row[1] == _NO_BITS else row[5])]

    def text(self, section: int, at: int) -> bytes:
        """A name in a section of names."""
        begin = self.sections[section][4] + at
        raw = self.data.obj
        assert isinstance(raw, bytes)
        return raw[begin : raw.index(b"\0", begin)]

    def exported(self) -> list[bytes]:
        """The names that others may refer to."""
        return [s.name for s in self.symbols if s.section and s.binding != _LOCAL and s.name]


@dataclass(slots=True)
class _Names:
    """A section of names, each once."""

    content: bytearray = field(default_factory=lambda: bytearray(1))
    places: dict[bytes, int] = field(default_factory=lambda: {b"": 0})

    def add(self, name: bytes) -> int:
        if name not in self.places:
            self.places[name] = len(self.content)
            self.content += name + b"\0"
        return self.places[name]


@dataclass(slots=True)
class _Joined:
    """The object that is being made."""

    rows: list[list[int]] = field(default_factory=lambda: [[0] * 10])
    contents: list[bytes | memoryview] = field(default_factory=lambda: [b""])
    names: _Names = field(default_factory=_Names)
    local: list[Symbol] = field(default_factory=lambda: [Symbol(b"", 0, 0, 0, 0, 0)])
    shared: dict[bytes, Symbol] = field(default_factory=dict)
    groups: set[bytes] = field(default_factory=set)

    def place_sections(self, one: ElfObject) -> list[int]:
        """Where the sections of an object are from now on; 0: left out."""
        dropped = self._repeated(one)
        places = [0] * len(one.sections)
        for number, row in enumerate(one.sections):
            if row[1] in (0, _SYMBOLS, _STRINGS, _ADDRESS_TAKEN) or number in dropped:
                continue
            if row[1] in _RELOCATION and row[7] in dropped:
                continue
            places[number] = len(self.rows)
            self.rows.append([self.names.add(one.names[number]), *row[1:]])
            self.contents.append(one.content(row))
        if len(self.rows) >= _FIRST_RESERVED - 3:
            raise NotJoinedError("the objects have more sections than one may have")
        return places

    def _repeated(self, one: ElfObject) -> set[int]:
        """The sections of groups that came before, and these groups themselves."""
        found: set[int] = set()
        for number, row in enumerate(one.sections):
            if row[1] != _GROUP:
                continue
            name = one.symbols[row[7]].name
            if name in self.groups:
                members = [word for (word,) in _WORD.iter_unpack(one.content(row))]
                found |= {number, *members[1:]}
            self.groups.add(name)
        return found

    def add_symbols(self, one: ElfObject, places: list[int]) -> list[Symbol | None]:
        """What stands for each symbol of an object."""
        found: list[Symbol | None] = [self.local[0]]
        for symbol in one.symbols[1:]:
            section = symbol.section
            if 0 < section < _FIRST_RESERVED:
                section = places[section]
            made = Symbol(
                symbol.name, symbol.info, symbol.other, section, symbol.value, symbol.size
            )
            if symbol.binding != _LOCAL:
                found.append(self._share(made))
            elif symbol.section and not section:
                found.append(None)
            else:
                self.local.append(made)
                found.append(made)
        return found

    def _share(self, symbol: Symbol) -> Symbol:
        known = self.shared.setdefault(symbol.name, symbol)
        if known is symbol:
            return known
        if known.section and symbol.section and known.binding == symbol.binding == _GLOBAL:
            raise NotJoinedError(f"two objects define {symbol.name.decode(errors='replace')}")
        seen = [each.other & 3 for each in (known, symbol) if each.other & 3]
        if symbol.rank > known.rank:
            known.info, known.section = symbol.info, symbol.section
            known.value, known.size, known.other = symbol.value, symbol.size, symbol.other
        known.other = known.other & ~3 | min(seen, default=0)  # the least that others may see
        return known

    def write(self, file: IO[bytes], first: ElfObject) -> None:
        """The whole file."""
        names, table = _Names(), [*self.local, *self.shared.values()]
        symbols = b"".join(
            _SYMBOL.pack(names.add(s.name), s.info, s.other, s.section, s.value, s.size)
            for s in table
        )
        at = len(self.rows)
        for name, kind, table_content, *rest in (
            (b".symtab", _SYMBOLS, symbols, at + 1, len(self.local), 8, _SYMBOL.size),
            (b".strtab", _STRINGS, bytes(names.content), 0, 0, 1, 0),
        ):
            self.rows.append([self.names.add(name), kind, 0, 0, 0, len(table_content), *rest])
            self.contents.append(table_content)
        self.rows.append([self.names.add(b".shstrtab"), _STRINGS, 0, 0, 0, 0, 0, 0, 1, 0])
        self.contents.append(bytes(self.names.content))
        self.rows[-1][5] = len(self.names.content)
        file.write(bytes(_HEADER.size))
        for row, content in zip(self.rows[1:], self.contents[1:], strict=True):
            row[4] = _pad(file, max(1, row[8]))
            file.write(content)
        sections = _pad(file, 8)
        file.writelines(_SECTION.pack(*row) for row in self.rows)
        head = list(_HEADER.unpack_from(first.data))
        head[6], head[12], head[13] = sections, len(self.rows), len(self.rows) - 1
        file.seek(0)
        file.write(_HEADER.pack(*head))


def join_objects(output: Path, objects: Sequence[Path]) -> None:
    """Write one object that holds all of them."""
    made, parts = _Joined(), [ElfObject.read(path) for path in objects]
    if len({(part.machine, part.flags) for part in parts}) > 1:
        raise NotJoinedError("the objects are for different machines")
    places = [made.place_sections(part) for part in parts]
    symbols = [made.add_symbols(*each) for each in zip(parts, places, strict=True)]
    table = [*made.local, *made.shared.values()]
    numbers = {id(symbol): number for number, symbol in enumerate(table)}
    for part, own, found in zip(parts, places, symbols, strict=True):
        indices = [0 if symbol is None else numbers[id(symbol)] for symbol in found]
        _refer(made, part, own, indices)
    with open(output, "wb") as file:
        made.write(file, parts[0])


def _refer(made: _Joined, part: ElfObject, places: list[int], symbols: list[int]) -> None:
    """Let the sections of an object refer to the new numbers of symbols and sections."""
    table = len(made.rows)
    for number, place in enumerate(places):
        if not place:
            continue
        row, old = made.rows[place], part.sections[number]
        if form := _RELOCATION.get(old[1]):
            row[6], row[7] = table, places[old[7]]
            made.contents[place] = b"".join(
                form.pack(where, symbols[info >> 32] << 32 | info & 0xFFFFFFFF, *addend)
                for where, info, *addend in form.iter_unpack(part.content(old))
            )
        elif old[1] == _GROUP:
            row[6], row[7] = table, symbols[old[7]]
            kind, *members = [word for (word,) in _WORD.iter_unpack(part.content(old))]
            kept = [places[member] for member in members if places[member]]
            made.contents[place] = b"".join(map(_WORD.pack, (kind, *kept)))
            row[5] = len(made.contents[place])
        elif old[2] & _LINK_ORDER:
            row[6] = places[old[6]]


def _pad(file: IO[bytes], boundary: int) -> int:
    """Fill a file up to a boundary; where that is."""
    at = file.tell()
    file.write(bytes(-at % boundary))
    return file.tell()
