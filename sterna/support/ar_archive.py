"""Static libraries without an archiver: objects behind a table of the symbols that they define.

The form is that of GNU's ar, which every linker reads: a table of symbols, a table of long names,
then the members, each at an even place behind a header of text.
"""

from collections.abc import Sequence
from pathlib import Path

from sterna.support.architecture import AR_MAGIC
from sterna.support.elf_join import ElfObject

_LONGEST_NAME = 15


def write_archive(output: Path, members: Sequence[Path]) -> None:
    """Put ELF objects into a static library."""
    exported = [ElfObject.read(path).exported() for path in members]
    long_names, names = _names(members)
    count = sum(map(len, exported))
    table_size = 4 + 4 * count + sum(len(name) + 1 for found in exported for name in found)
    at = len(AR_MAGIC) + _room(table_size) + (_room(len(long_names)) if long_names else 0)
    places = []
    for path in members:
        places.append(at)
        at += _room(path.stat().st_size)
    rows = [place for place, found in zip(places, exported, strict=True) for _ in found]
    table = b"".join(number.to_bytes(4, "big") for number in (count, *rows))
    table += b"".join(name + b"\0" for found in exported for name in found)
    with open(output, "wb") as file:
        file.write(AR_MAGIC)
        file.write(_member(b"/", table))
        if long_names:
            file.write(_member(b"//", long_names))
        for name, path in zip(names, members, strict=True):
            file.write(_member(name, path.read_bytes()))


def _names(members: Sequence[Path]) -> tuple[bytes, list[bytes]]:
    """The table of long names, and what headers call the members."""
    table, found = b"", []
    for path in members:
        name = path.name.encode() + b"/"
        if len(name) <= _LONGEST_NAME + 1:
            found.append(name)
        else:
            found.append(b"/%d" % len(table))
            table += name + b"\n"
    return table, found


def _room(size: int) -> int:
    """What a member takes with its header."""
    return 60 + size + size % 2


def _member(name: bytes, content: bytes) -> bytes:
    head = b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (name, 0, 0, 0, b"644", len(content))
    return head + content + b"\n" * (len(content) % 2)
