"""A further segment behind a linked ELF library: data of any size that the loader maps.

Linkers reach at most 2 GiB from code to what lies behind its data, so that larger data is not
linked. It is written behind the linked file, a program header that the link kept free (that of a
note) becomes the one of its segment, and the symbol that names it gets its address.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import IO

_HEADER, _PROGRAM = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ")
_SECTION, _SYMBOL = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
_ELF64_LITTLE = b"\x7fELF\x02\x01"
_LOAD, _NOTE, _DYNAMIC_SYMBOLS, _READ = 1, 4, 11, 4
# Pages have up to 64 KB.
PAGE = 1 << 16


def append_segment(
    path: Path, symbol: str, size: int, fill: Callable[[IO[bytes], int], None]
) -> None:
    """Let a symbol of a library name a segment of so many bytes; fill(file, at) writes them."""
    with open(path, "r+b") as file:
        head = _HEADER.unpack(file.read(_HEADER.size))
        if head[0][:6] != _ELF64_LITTLE:
            raise ValueError(f"'{path}' is no little-endian ELF library of 64 bits")
        programs, sections = head[5], head[6]
        address, free = _place(file, programs, head[10])
        at = _up(file.seek(0, 2))
        fill(file, at)
        file.truncate(at + size)
        file.seek(free)
        file.write(_PROGRAM.pack(_LOAD, _READ, at, address, address, size, size, PAGE))
        _set_symbol(file, sections, head[12], symbol.encode(), address, size)


def _up(size: int) -> int:
    return -(-size // PAGE) * PAGE


def _rows(file: IO[bytes], form: struct.Struct, at: int, count: int) -> list[tuple[int, ...]]:
    file.seek(at)
    return list(form.iter_unpack(file.read(count * form.size)))


def _place(file: IO[bytes], at: int, count: int) -> tuple[int, int]:
    """An address behind all segments, and where the header of the last note is."""
    rows = _rows(file, _PROGRAM, at, count)
    end = max(row[3] + row[6] for row in rows if row[0] == _LOAD)
    last = max(place for place, row in enumerate(rows) if row[0] == _LOAD)
    notes = [place for place, row in enumerate(rows) if row[0] == _NOTE and place > last]
    if not notes:
        raise ValueError("the linker left no note's program header behind the others")
    return _up(end), at + notes[-1] * _PROGRAM.size


def _set_symbol(
    file: IO[bytes], at: int, count: int, name: bytes, address: int, size: int
) -> None:
    sections = _rows(file, _SECTION, at, count)
    (symbols,) = [section for section in sections if section[1] == _DYNAMIC_SYMBOLS]
    strings = sections[symbols[6]]
    file.seek(strings[4])
    names = file.read(strings[5])
    rows = _rows(file, _SYMBOL, symbols[4], symbols[5] // _SYMBOL.size)
    for place, (text, info, other, section, _, _) in enumerate(rows):
        if names[text : names.index(b"\0", text)] == name:
            file.seek(symbols[4] + place * _SYMBOL.size)
            file.write(_SYMBOL.pack(text, info, other, section, address, size))
            return
    raise ValueError(f"the library has no symbol {name.decode()}")
