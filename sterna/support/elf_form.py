"""Where things stand in ELF files of one word size and byte order."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from sterna.support.file_view import BrokenFileError, FileView

RELA, REL = 4, 9  # kinds of sections of relocations


@dataclass(frozen=True, slots=True)
class ElfForm:
    """The fields of headers and tables, as struct names them."""

    order: str
    header: str
    segment: str
    section: str
    symbol: str
    relocation: dict[int, str]
    dynamic: str
    is_64: bool

    @staticmethod
    def of(ident: bytes) -> "ElfForm":
        """The form that the first 16 bytes of a file name."""
        order = "<" if ident[5] == 1 else ">"
        if ident[4] == 2:
            return ElfForm(order, "16xHHIQQQIHHHHHH", "IIQQQQQQ", "IIQQQQIIQQ", "IBBHQQ",
                           {RELA: "QQq", REL: "QQ"}, "qQ", True)
        return ElfForm(order, "16xHHIIIIIHHHHHH", "IIIIIIII", "IIIIIIIIII", "IIIBBH",
                       {RELA: "IIi", REL: "II"}, "iI", False)

    @property
    def word(self) -> str:
        """A word, which holds an address."""
        return "Q" if self.is_64 else "I"

    def size(self, words: str) -> int:
        """How many bytes fields take."""
        return struct.calcsize(self.order + words)

    def read(self, view: FileView, at: int, words: str) -> tuple[int, ...]:
        """Fields at a place of a file."""
        return struct.unpack(self.order + words, view.read(at, self.size(words)))

    def rows(self, view: FileView, words: str) -> Iterator[tuple[int, ...]]:
        """All rows of a table."""
        return self.rows_of(view.read(0, view.size // self.size(words) * self.size(words)), words)

    def rows_of(self, content: bytes, words: str) -> Iterator[tuple[int, ...]]:
        """All rows of a table that was read."""
        return struct.iter_unpack(self.order + words, content)

    def expect_size(self, size: int, words: str, what: str) -> None:
        """A BrokenFileError if rows are said to have another size."""
        if size != self.size(words):
            raise BrokenFileError(f"its {what} are broken")

    def symbol_of(self, row: tuple[int, ...]) -> tuple[int, int, int, int, int]:
        """Name, type and binding, visibility, section and value of a symbol."""
        if self.is_64:
            name, info, other, section, value, _ = row
        else:
            name, value, _, info, other, section = row
        return name, info, other, section, value
