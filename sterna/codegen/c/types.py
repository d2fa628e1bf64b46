"""C's types, literals and names."""

import math
import re
import struct
from collections.abc import Iterable

from sterna.support.dtype import DataType
from sterna.support.float_format import FORMATS, is_small_float
from sterna.tir.intrinsics import INTRINSICS

_VALUE_TYPES = {
    "bool": "uint8_t", "float32": "float", "float64": "double", "handle": "void *",
    **dict.fromkeys(FORMATS, "float"),
}

_WIDTHS = (8, 16, 32, 64)

_KEYWORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline
    int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while asm typeof linux unix errno NULL NAN INFINITY EOF bool true false
    complex signbit main
"""

_LIBRARY = """
    memcpy memset memmove memcmp strlen strcmp isnan isinf isfinite y0 y1 yn j0 j1 jn
"""



def math_library() -> frozenset[str]:
    """The functions of <math.h> that code may call: those of intrinsics, and a few more."""
    spelled = [row.spelled.get("c", "") for row in INTRINSICS.values()]
    names = (*filter(str.isidentifier, spelled), "fmin", "fmax", "rint", "lround")
    return frozenset(name + suffix for name in names for suffix in ("", "f", "l"))


def library_functions() -> frozenset[str]:
    """Functions of the headers that generated code includes: no variable may hide them."""
    return math_library() | frozenset(_LIBRARY.split())


class CodegenError(ValueError):
    """A function says what C cannot."""


def is_small(dtype: DataType) -> bool:
    """Whether a type is a float that is computed as float and rounded."""
    return is_small_float(dtype.element)


def is_odd(dtype: DataType) -> bool:
    """Whether a type is an integer that C has no type for; its values are held in a wider one."""
    return dtype.is_integer and dtype.bits not in _WIDTHS


def storage_bits(dtype: DataType) -> int:
    """The bits of the C integer that holds a value, or its bits."""
    return next(width for width in _WIDTHS if width >= dtype.bits)


def value_type(dtype: DataType) -> str:
    """The type of a value in an expression; small floats are computed as float."""
    if dtype.is_integer:
        return f"{dtype.kind}{storage_bits(dtype)}_t"
    name = _VALUE_TYPES.get(dtype.element)
    if name is None:
        raise CodegenError(f"C has no values of type {dtype}")
    return name


def storage_type(dtype: DataType) -> str:
    """The type of an element in memory."""
    if dtype.is_packed:
        raise CodegenError(
            f"elements of {dtype} lie several to a byte; they must go through the pass PackElements"
        )
    return f"uint{storage_bits(dtype)}_t" if is_small(dtype) else value_type(dtype)


def unsigned_type(dtype: DataType) -> str:
    """The type in which integers are computed so that they wrap: at least 32 bits, unsigned."""
    return f"uint{max(storage_bits(dtype), 32)}_t"


def declare(c_type: str, name: str) -> str:
    """A declaration: int32_t n, void *p."""
    return f"{c_type}{name}" if c_type.endswith("*") else f"{c_type} {name}"


def int_range(dtype: DataType) -> tuple[int, int]:
    """The least and the greatest number of a type."""
    if dtype.is_bool:
        return 0, 1
    if dtype.is_int:
        return -1 << dtype.bits - 1, (1 << dtype.bits - 1) - 1
    return 0, (1 << dtype.bits) - 1


def int_literal(value: int, dtype: DataType) -> str:
    """An integer constant whose C type, after promotion, is the type's."""
    bits = storage_bits(dtype)
    if dtype.is_int and bits == 64 and not -(2**31) < value < 2**31:
        return "INT64_MIN" if value == -(2**63) else f"INT64_C({value})"
    if dtype.is_int and value == -(2**31):
        return "INT32_MIN"
    if dtype.is_uint and bits == 64:
        return f"UINT64_C({value})"
    return f"{value}u" if dtype.is_uint and bits == 32 else str(value)


def float_literal(value: float, dtype: DataType) -> str:
    """A floating-point constant with as few digits as name it exactly."""
    suffix = "" if dtype == "float64" else "f"
    if math.isnan(value):
        return "(double)NAN" if not suffix else "NAN"
    if math.isinf(value):
        text = "INFINITY" if suffix else "(double)INFINITY"
        return text if value > 0 else f"-{text}"
    text = repr(value)
    if suffix:
        for digits in range(1, 10):
            text = f"{value:.{digits}g}"
            try:
                if struct.unpack("<f", struct.pack("<f", float(text)))[0] == value:
                    break
            except OverflowError:  # rounded up past the largest number
                continue
    if not re.search(r"[.e]", text):
        text += ".0"
    return text + suffix


MAX_TEXT = 4000
"""Bytes in a text: about as many as C99 promises to take."""


def string_literal(text: str) -> str:
    """Text as a C string; what is too long is cut."""
    out = []
    for byte in text.encode("utf-8")[:MAX_TEXT]:
        char = chr(byte)
        if char in '"\\?':
            out.append(f"\\{char}")
        elif 32 <= byte < 127:
            out.append(char)
        else:
            out.append(f"\\{byte:03o}")
    return f'"{"".join(out)}"'


class Names:
    """C names that are each given out once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*taken, *_KEYWORDS.split(), *library_functions()}

    def make(self, wanted: str) -> str:
        """A name like the wanted one."""
        clean = re.sub(r"[^A-Za-z0-9_]", "_", wanted) or "_"
        if clean[0].isdigit():
            clean = f"v{clean}"
        # What starts like this belongs to C itself, to <stdint.h> or to the helpers.
        if re.match(r"_|sterna_|u?int\d+_t|u?int\d*_|U?INT\d", clean, re.IGNORECASE):
            clean = f"v_{clean.lstrip('_')}"
        name, count = clean, 0
        while name in self._taken:
            count += 1
            name = f"{clean}_{count}"
        self._taken.add(name)
        return name
