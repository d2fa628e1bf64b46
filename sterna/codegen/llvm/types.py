"""How values are written in LLVM's IR."""

import re
import struct

from sterna.ir.build import round_float
from sterna.support.dtype import DataType
from sterna.support.errors import InternalError
from sterna.support.float_format import format_of

_FLOATS = {16: "half", 32: "float", 64: "double"}
_MEMORY_BITS = (8, 16, 32, 64)


def element_type(dtype: DataType) -> str:
    """The LLVM type of one lane of a value.

    bfloat16 and smaller floats are held as their bits: every operation on them converts to float
    and back, so that no target needs to know the types.
    """
    if dtype.kind == "float":
        return _FLOATS[dtype.bits]
    if dtype.is_integer:
        return f"i{dtype.bits}"
    if dtype.is_bool:
        return "i1"
    if dtype.kind == "handle":
        return "ptr"
    if dtype.is_float:
        return f"i{dtype.bits}"
    raise ValueError(f"the LLVM code generator has no values of type {dtype}")


def value_type(dtype: DataType) -> str:
    """The LLVM type of a value."""
    return vector_type(element_type(dtype), dtype.lanes)


def vector_type(element: str, lanes: int) -> str:
    """A vector of some lanes, or the element itself."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def memory_type(dtype: DataType) -> str:
    """The LLVM type of one element of a buffer."""
    if dtype.lanes != 1:
        raise ValueError(f"a buffer of {dtype}: give its elements a scalar type")
    if dtype.is_bool:
        return "i8"
    if dtype.bits not in _MEMORY_BITS:
        raise ValueError(
            f"a buffer of {dtype}: elements of {dtype.bits} bits cannot be addressed; those of "
            "less than a byte must go through the pass PackElements, others need another type"
        )
    return element_type(dtype)


def mangled(dtype: DataType) -> str:
    """The suffix of an overloaded intrinsic: f32, v16f32, i1, ..."""
    element = element_type(dtype)
    short = {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}.get(element, element)
    return short if dtype.lanes == 1 else f"v{dtype.lanes}{short}"


def float_literal(value: float, dtype: DataType) -> str:
    """A floating-point constant of a scalar type."""
    rounded = round_float(value, dtype)
    if dtype.kind != "float":
        return str(format_of(dtype.element).encode(rounded))
    if dtype.bits == 16:
        (bits,) = struct.unpack("<H", struct.pack("<e", rounded))
        return f"0xH{bits:04X}"
    (bits,) = struct.unpack("<Q", struct.pack("<d", rounded))
    return f"0x{bits:016X}"


def int_literal(value: int, dtype: DataType) -> str:
    """An integer or bool constant of a scalar type."""
    if dtype.is_bool:
        return "true" if value else "false"
    return str(value)


def splat_literal(element: str, literal: str, lanes: int) -> str:
    """A vector constant with one literal in every lane."""
    return literal if lanes == 1 else f"splat ({element} {literal})"


_SPECIAL = re.compile(r"[^ !#-\[\]-~]")


def quoted(text: bytes) -> str:
    """Bytes as the inside of LLVM's c"..." string."""
    return _SPECIAL.sub(lambda found: f"\\{ord(found[0]):02X}", text.decode("latin-1"))


def hex_quoted(data: bytes) -> str:
    """The same with every byte by its number: quick where there are many."""
    return "\\" + data.hex("\\").upper() if data else ""


def symbol(name: str) -> str:
    """A global name, quoted."""
    if "\0" in name:
        raise InternalError(f"the symbol {name!r} holds a zero")
    return f'@"{quoted(name.encode())}"'
