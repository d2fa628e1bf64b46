"""A node of an ONNX model, and the converters of ONNX's operators.

A converter is registered for an operator and the versions of its operator set from which and to
which it holds.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from sterna.frontend import node as shared
from sterna.frontend.converters import Converter, Converters
from sterna.relay.expr import RelayExpr


@dataclass(slots=True, kw_only=True)
class Node(shared.Node):
    """A node with the version of its operator set and the graphs in its attributes."""

    opset: int
    graphs: dict[str, Callable[..., list[RelayExpr]]] = field(default_factory=dict)
    """What the graphs in it give for their inputs, by the names of the attributes."""

    def ints_of(self, place: int, name: str, since: int) -> list[int] | None:
        """Whole numbers that are an attribute up to a version and an operand from it on."""
        if self.opset < since:
            given = self.attr(name)
            return None if given is None else [int(v) for v in np.atleast_1d(given)]
        return self.ints(place, name) if self.has(place) else None


converter: Converters[Node] = Converters()


def find_converter(domain: str, kind: str, opset: int) -> Converter[Node] | None:
    """The converter of an operator at a version of its operator set."""
    return converter.find("" if domain == "ai.onnx" else domain, kind, opset)
