"""The functions of one module, where a file of code holds those of several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sterna.codegen.symbols import LIBRARY_CONTEXT, PACKED_PREFIX
from sterna.ir.expr import Call
from sterna.ir.node import Node, post_order
from sterna.tir.stmt import PrimFunc


@dataclass(frozen=True, slots=True)
class Part:
    """Functions that see each other, and the symbols under which others find them."""

    functions: Sequence[PrimFunc]
    symbols: Mapping[str, str] = field(default_factory=dict)
    """Those of packed functions, by name, where they are not __tvm_ffi_<name>.

    Under the name _library_ctx: the variable of the module itself.
    """

    def packed_symbol(self, function: PrimFunc) -> str:
        """The symbol of a packed function."""
        return self.symbols.get(function.name, PACKED_PREFIX + function.name)

    @property
    def context(self) -> str:
        """The variable through which the functions find their module."""
        return self.symbols.get("_library_ctx", LIBRARY_CONTEXT)

    def calls_by_name(self) -> bool:
        """Whether a function looks others up, and so needs its module."""
        found: list[Node] = []

        def look(node: Node) -> None:
            if isinstance(node, Call) and node.op == "call_packed":
                found.append(node)

        for function in self.functions:
            post_order(function, look)
        return bool(found)


Functions = Sequence[PrimFunc] | Sequence[Part]
"""What code is made from: the functions of one module, or those of several."""


def as_parts(functions: Functions) -> list[Part]:
    """The parts; the functions of one module are one."""
    parts = [item for item in functions if isinstance(item, Part)]
    return parts or [Part([item for item in functions if isinstance(item, PrimFunc)])]
