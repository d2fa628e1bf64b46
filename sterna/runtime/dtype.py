"""Element types."""

from typing import Self

from sterna.runtime import _core


class DataType(str):
    """An element type's name, such as float32, that also knows its parts.

    It equals and hashes like the plain text; as an argument of a packed function it is a type.
    """

    __slots__ = ()

    def __new__(cls, name: str) -> Self:
        if type(name) is cls:
            return name
        return super().__new__(cls, _core.parse_dtype(name)[0])

    @property
    def type_code(self) -> int:
        """DLPack's number for the kind of element."""
        return _core.parse_dtype(self)[1]

    @property
    def bits(self) -> int:
        """Bits of one lane."""
        return _core.parse_dtype(self)[2]

    @property
    def lanes(self) -> int:
        """1, or the length of a vector type."""
        return _core.parse_dtype(self)[3]
