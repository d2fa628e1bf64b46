"""Part of a file, of which nothing beyond its end is ever read."""

from dataclasses import dataclass
from typing import IO, Literal

Order = Literal["little", "big"]


class BrokenFileError(ValueError):
    """A file is not what it says; the text says where."""


@dataclass(frozen=True, slots=True)
class FileView:
    """So many bytes of a file from a place on."""

    file: IO[bytes]
    begin: int
    size: int

    def head(self, count: int) -> bytes:
        """The first bytes, or all if they are fewer."""
        return self.read(0, min(count, self.size))

    def read(self, at: int, count: int) -> bytes:
        """Bytes from a place on."""
        if at < 0 or count < 0 or at > self.size or count > self.size - at:
            raise BrokenFileError(
                f"the file is truncated: bytes {at} to {at + count} of {self.size}"
            )
        self.file.seek(self.begin + at)
        found = self.file.read(count)
        if len(found) != count:
            raise BrokenFileError(f"the file is truncated: it ends before byte {at + count}")
        return found

    def number(self, at: int, count: int, order: Order) -> int:
        """An unsigned number of so many bytes."""
        return int.from_bytes(self.read(at, count), order)

    def part(self, at: int, count: int) -> "FileView":
        """Some of it."""
        if at < 0 or count < 0 or at > self.size or count > self.size - at:
            raise BrokenFileError(
                f"the file is truncated: bytes {at} to {at + count} of {self.size}"
            )
        return FileView(self.file, self.begin + at, count)

    @staticmethod
    def order(little: bool) -> Order:
        """The name of a byte order."""
        return "little" if little else "big"
