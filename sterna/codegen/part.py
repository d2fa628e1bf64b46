"""The functions of one module, where a file of code holds those of several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sterna.tir.stmt import PrimFunc

PACKED_PREFIX = "__tvm_ffi_"
LIBRARY_TABLE = "__tvm_ffi__library_bin"
"""The symbol of the bytes that say which modules a file holds; see runtime/src/blob.c."""


@dataclass(frozen=True, slots=True)
class Part:
    """Functions that see each other, and the symbols under which others find them."""

    functions: Sequence[PrimFunc]
    symbols: Mapping[str, str] = field(default_factory=dict)
    """Those of packed functions, by name, where they are not __tvm_ffi_<name>."""

    def packed_symbol(self, function: PrimFunc) -> str:
        """The symbol of a packed function."""
        return self.symbols.get(function.name, PACKED_PREFIX + function.name)


Functions = Sequence[PrimFunc] | Sequence[Part]
"""What code is made from: the functions of one module, or those of several."""


def as_parts(functions: Functions) -> list[Part]:
    """The parts; the functions of one module are one."""
    parts = [item for item in functions if isinstance(item, Part)]
    return parts or [Part([item for item in functions if isinstance(item, PrimFunc)])]
