"""A reader of flatbuffers that believes nothing: every offset and every length is checked.

A table is found by an offset; its vtable says where each of its fields lies. Tables may be shared,
so that a small file could describe an endless tree: what is read in all is bounded by the size of
the file.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.relay.arrays import Array

# What a file may have read of it: one field or element for each of its bytes, and some for free.
_READS_PER_BYTE, _FREE_READS = 1, 1 << 16

_OFFSET, _LENGTH = struct.Struct("<i"), struct.Struct("<I")
_SHORT = struct.Struct("<H")


class Flatbuffer:
    """The bytes of a flatbuffer, and how much of them may still be read."""

    def __init__(self, data: bytes | memoryview, identifier: bytes) -> None:
        self.data = memoryview(data).cast("B")
        self.left = _READS_PER_BYTE * len(self.data) + _FREE_READS
        if len(self.data) < 8 or bytes(self.data[4:8]) != identifier:
            raise ValueError(
                f"these bytes are no flatbuffer of {identifier.decode()}: the identifier at byte 4 "
                "is missing"
            )

    def root(self) -> "Table":
        """The table that the file begins with."""
        return Table(self, self.behind(0))

    def spend(self, count: int) -> None:
        """So much more is read."""
        self.left -= count
        if self.left < 0:
            raise ValueError("the flatbuffer shares its parts so often that it would never end")

    def unpack(self, form: struct.Struct, at: int) -> Any:
        """One number."""
        if not 0 <= at <= len(self.data) - form.size:
            raise ValueError(
                f"the flatbuffer is broken: it points to byte {at} of {len(self.data)}"
            )
        return form.unpack_from(self.data, at)[0]

    def behind(self, at: int) -> int:
        """The place to which the offset at a place leads."""
        return at + int(self.unpack(_LENGTH, at))

    def vector(self, at: int, size: int) -> tuple[int, int]:
        """The first byte and the number of the elements of a vector whose length stands there."""
        count = int(self.unpack(_LENGTH, at))
        if count * size > len(self.data) - at - 4:
            raise ValueError(
                f"the flatbuffer is broken: {count} elements at byte {at} do not fit into its "
                f"{len(self.data)} bytes"
            )
        return at + 4, count


@dataclass(frozen=True, slots=True)
class Table:
    """One table; its fields are known by their slots."""

    buffer: Flatbuffer
    at: int

    def _field(self, slot: int, size: int) -> int | None:
        """Where a field of so many bytes lies; None if the table does not have it."""
        self.buffer.spend(1)
        vtable = self.at - int(self.buffer.unpack(_OFFSET, self.at))
        length = int(self.buffer.unpack(_SHORT, vtable))
        if 4 + 2 * slot + 2 > length:
            return None
        offset = int(self.buffer.unpack(_SHORT, vtable + 4 + 2 * slot))
        if offset == 0:
            return None
        if offset + size > int(self.buffer.unpack(_SHORT, vtable + 2)):
            raise ValueError(
                f"the flatbuffer is broken: field {slot} lies beyond its table at byte {self.at}"
            )
        return self.at + offset

    def number(self, slot: int, form: str, default: float = 0) -> Any:
        """A number of a form of the module struct."""
        kind = struct.Struct("<" + form)
        at = self._field(slot, kind.size)
        return default if at is None else self.buffer.unpack(kind, at)

    def table(self, slot: int) -> "Table | None":
        """A table in it."""
        at = self._field(slot, 4)
        return None if at is None else Table(self.buffer, self.buffer.behind(at))

    def tables(self, slot: int) -> Iterator["Table"]:
        """A vector of tables."""
        at = self._field(slot, 4)
        if at is None:
            return
        first, count = self.buffer.vector(self.buffer.behind(at), 4)
        self.buffer.spend(count)
        for place in range(count):
            yield Table(self.buffer, self.buffer.behind(first + 4 * place))

    def array(self, slot: int, dtype: str) -> Array | None:
        """A vector of numbers, None if it is not there."""
        size = np.dtype(dtype).itemsize
        at = self._field(slot, 4)
        if at is None:
            return None
        first, count = self.buffer.vector(self.buffer.behind(at), size)
        self.buffer.spend(count if size > 1 else 1)
        return np.frombuffer(self.buffer.data, np.dtype(dtype).newbyteorder("<"), count, first)

    def text(self, slot: int) -> str:
        """A string; empty if it is not there."""
        found = self.array(slot, "uint8")
        if found is None:
            return ""
        self.buffer.spend(found.size)
        return found.tobytes().decode("utf-8", "replace")
