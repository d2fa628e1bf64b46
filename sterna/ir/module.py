"""A set of functions by name."""

from collections.abc import Iterator, Mapping
from typing import Any

from sterna.ir.node import Node


class IRModule:
    """Functions by name, and attributes of the whole."""

    def __init__(
        self, functions: Mapping[str, Node] | None = None, attrs: Mapping[str, Any] | None = None
    ) -> None:
        self.functions: dict[str, Node] = dict(functions or {})
        self.attrs: dict[str, Any] = dict(attrs or {})

    def __getitem__(self, name: str) -> Node:
        if name not in self.functions:
            known = ", ".join(self.functions) or "none"
            raise ValueError(f"the module has no function '{name}'; it has {known}")
        return self.functions[name]

    def __contains__(self, name: object) -> bool:
        return name in self.functions

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __repr__(self) -> str:
        return "\n\n".join(repr(function) for function in self.functions.values())
