"""Element types, written as text: float32, int8, uint4, bool, bfloat16, float8_e4m3fn, float32x4.

A DataType is that text and equals it; it also knows its parts. There is one object per name.
"""

import re
from typing import ClassVar, Self

# DLPack's numbers. A name without bits in it is followed by its bits; the others say it all.
_CODES: dict[str, tuple[int, int | None]] = {
    "int": (0, None), "uint": (1, None), "float": (2, None), "bfloat": (4, None),
    "complex": (5, None), "handle": (3, 64), "bool": (6, 8),
    "float8_e3m4": (7, 8), "float8_e4m3": (8, 8), "float8_e4m3b11fnuz": (9, 8),
    "float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8), "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8), "float8_e8m0fnu": (14, 8), "float6_e2m3fn": (15, 6),
    "float6_e3m2fn": (16, 6), "float4_e2m1fn": (17, 4),
}

_BITS = {
    "int": range(1, 65), "uint": range(1, 65), "float": (16, 32, 64), "bfloat": (16,),
    "complex": (64, 128),
}

_KINDS = "|".join(sorted(_CODES, key=len, reverse=True))
_NAME = re.compile(rf"({_KINDS})(\d{{1,3}})?(?:x(\d{{1,5}}))?")


class DataType(str):
    """An element type's name that also knows its parts."""

    __slots__ = (
        "_vectors", "bits", "element", "is_bool", "is_float", "is_int", "is_integer", "is_uint",
        "kind", "lanes", "type_code",
    )

    kind: str
    """int, uint, float, bfloat, bool, handle, ..."""
    type_code: int
    """DLPack's number for the kind."""
    bits: int
    """Bits of one lane."""
    lanes: int
    """1, or the length of a vector type."""
    element: "DataType"
    """The type of one lane."""
    is_float: bool
    """Whether it holds fractions: float16 to float64, bfloat16 and the small floats."""
    is_int: bool
    """Whether it is a signed integer."""
    is_uint: bool
    """Whether it is an unsigned integer; bool is not."""
    is_integer: bool
    """Whether it is a signed or unsigned integer; bool is not."""
    is_bool: bool
    """Whether it is a truth value."""
    _vectors: dict[int, "DataType"]

    _made: ClassVar[dict[str, "DataType"]] = {}

    def __new__(cls, name: str) -> Self:
        made = cls._made.get(name)
        if made is None:
            made = cls._parse(name)
            made = cls._made.setdefault(str(made), made)
            cls._made[str(name)] = made
        return made  # type: ignore[return-value]

    @classmethod
    def _parse(cls, name: str) -> "DataType":
        if not isinstance(name, str):
            raise TypeError(f"a data type is named by text, not by {type(name).__name__}")
        match = _NAME.fullmatch(name)
        if match is None:
            raise _unknown(name)
        kind, lanes = match[1], int(match[3] or 1)
        code, fixed = _CODES[kind]
        bits = int(match[2] or 32) if fixed is None else fixed
        if (fixed is not None and match[2]) or (fixed is None and bits not in _BITS[kind]):
            raise _unknown(name)
        if not 1 <= lanes <= 65535:
            raise _unknown(name)
        text = kind if fixed is not None else f"{kind}{bits}"
        made = str.__new__(cls, text if lanes == 1 else f"{text}x{lanes}")
        made.kind, made.type_code, made.bits, made.lanes = kind, code, bits, lanes
        made.element = made if lanes == 1 else DataType(text)
        made.is_float = kind.startswith(("float", "bfloat"))
        made.is_int, made.is_uint, made.is_bool = kind == "int", kind == "uint", kind == "bool"
        made.is_integer = made.is_int or made.is_uint
        made._vectors = {lanes: made}
        return made

    @classmethod
    def from_parts(cls, type_code: int, bits: int, lanes: int = 1) -> "DataType":
        """The type with DLPack's number for its kind, its bits and its lanes."""
        for kind, (code, fixed) in _CODES.items():
            if code == type_code and fixed in (None, bits):
                text = kind if fixed is not None else f"{kind}{bits}"
                return cls(text if lanes == 1 else f"{text}x{lanes}")
        raise _unknown(f"code {type_code}, {bits} bits, {lanes} lanes")

    def __getnewargs__(self) -> tuple[str]:
        return (str(self),)

    def with_lanes(self, lanes: int) -> "DataType":
        """The same element in a vector of another length."""
        found = self._vectors.get(lanes)
        if found is None:
            found = self._vectors[lanes] = DataType(f"{self.element}x{lanes}")
        return found

    @property
    def is_packed(self) -> bool:
        """Whether arrays of it have more than one element in a byte."""
        return self.bits < 8

    @property
    def bytes(self) -> int:
        """Bytes of one value with all its lanes."""
        return (self.bits * self.lanes + 7) // 8

    def bytes_of(self, count: int) -> int:
        """Bytes of an array of so many."""
        return (self.bits * self.lanes * count + 7) // 8


def _unknown(name: str) -> ValueError:
    return ValueError(
        f"'{name}' names no data type; expected one like float32, int8, uint4, bool, bfloat16, "
        "float8_e4m3fn or float32x4"
    )
