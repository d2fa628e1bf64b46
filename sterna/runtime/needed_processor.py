"""What the code in a library says of the processor that it needs."""

import ctypes
from pathlib import Path

SYMBOL = "__sterna__needs"


def needs_of(path: Path | None) -> str:
    """The name of a processor and features, with blanks between; empty: any, or no library.

    The library was loaded before, by the runtime, which has looked at the same text.
    """
    if path is None or path.suffix not in (".so", ".dylib", ".dll"):
        return ""
    try:
        found = ctypes.c_char.in_dll(ctypes.CDLL(str(path.resolve())), SYMBOL)
    except ValueError:  # it has no such symbol
        return ""
    return ctypes.string_at(ctypes.addressof(found)).decode("ascii")
