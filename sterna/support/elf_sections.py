"""Sections of a shared library, where it has them, against what its loader is told.

Loaders do not look at sections; they say again, and in another way, where everything is.
"""

from sterna.support.elf_image import EXECUTABLE, WRITABLE, Image
from sterna.support.file_view import BrokenFileError

DYNAMIC_SECTION = 6
_RELA, _NOBITS, _REL = 4, 8, 9
_TABLES = frozenset({
    _RELA, 5, DYNAMIC_SECTION, _REL, 11, 14, 15, 19, 0x6FFFFFF6, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
})
_WRITABLE, _MAPPED, _CODE, _TLS = 1, 2, 4, 1 << 10
# No linker makes these read-only after relocation.
_VARIABLES = frozenset({b".data", b".bss"})

_Tables = dict[int, list[tuple[int, int | None]]]


def check_sections(
    image: Image, tables: _Tables, entry_points: set[int], header: tuple[int, int, int]
) -> None:
    """A BrokenFileError if they do not fit segments, the loader's tables or the code it runs."""
    form = image.form
    at, count, names_at = header
    rows = list(form.rows(image.view.part(at, count * form.size(form.section)), form.section))
    names = image.view.read(rows[names_at][4], rows[names_at][5]) if names_at < count else b""
    mapped = [row for row in rows if row[2] & _MAPPED and row[5]]
    for name, kind, flags, address, offset, size, *_ in mapped:
        if flags & _TLS and kind == _NOBITS:
            continue
        used = WRITABLE * bool(flags & _WRITABLE) | EXECUTABLE * bool(flags & _CODE)
        home = image.home(address, size, used)
        is_there = offset - home.offset == address - home.address
        if kind != _NOBITS and not (is_there and offset + size <= home.offset + home.file_size):
            raise BrokenFileError("its sections are not where its segments are")
        if kind in _TABLES and not _is_known(address, size, tables.get(kind, [])):
            raise BrokenFileError("its dynamic section leaves out what its sections have")
        is_variable = names[name : names.find(b"\0", name)] in _VARIABLES
        if is_variable and image.becomes_read_only(address, size):
            raise BrokenFileError("its variables would become read-only")
    code = [(row[3], row[3] + row[5]) for row in mapped if row[2] & _CODE]
    for each in entry_points:
        if not any(begin <= each < end for begin, end in code):
            raise BrokenFileError("the code that begins or ends it is in no section of code")


def _is_known(address: int, size: int, tables: list[tuple[int, int | None]]) -> bool:
    """Whether a section is a table of the loader's, or part of one."""
    for begin, extent in tables:
        if begin == address if extent is None else begin <= address <= begin + extent - size:
            return True
    return False
