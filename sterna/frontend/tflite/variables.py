"""The variables of a model while it is imported: their names, and what they hold so far."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sterna.frontend.tflite.schema import TensorInfo
from sterna.relay.expr import RelayExpr

if TYPE_CHECKING:
    from sterna.frontend.tflite.node import Node

# make(name, shape, dtype): an input of the graph.
Make = Callable[[str, Sequence[int], str], RelayExpr]


class Variables:
    """What variables hold; one that is read before it is written is an input of the graph."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self.values: dict[str, RelayExpr] = {}
        self.handles: dict[str, str] = {}
        """The names of variables by the tensors that stand for them."""
        self._written: dict[str, None] = {}
        self._inputs: dict[str, RelayExpr] = {}

    def read(self, name: str, shape: Sequence[int], dtype: str) -> RelayExpr:
        """What a variable holds."""
        if name not in self.values:
            self.values[name] = self._inputs[name] = self._make(name, shape, dtype)
        return self.values[name]

    def assign(self, name: str, value: RelayExpr) -> None:
        """Let a variable hold something else."""
        self.values[name] = value
        self._written[name] = None

    def held(self, node: "Node", place: int) -> RelayExpr:
        """What an operand holds that is a variable itself."""
        info = self._variable(node, place)
        return self.read(info.key, info.shape, info.dtype)

    def assign_held(self, node: "Node", place: int, value: RelayExpr) -> None:
        """Let an operand that is a variable itself hold something else."""
        self.assign(self._variable(node, place).key, value)

    def _variable(self, node: "Node", place: int) -> TensorInfo:
        info = node.operand_info(place)
        if not info.is_variable:
            raise ValueError(f"{node}: operand {place} is no variable")
        return info

    def written(self) -> dict[str, RelayExpr]:
        """What variables hold at the end that were written."""
        return {name: self.values[name] for name in self._written}

    @contextmanager
    def branch(self, holding: Mapping[str, RelayExpr]) -> Iterator[dict[str, RelayExpr]]:
        """A part of the model that may run or not, in which some variables hold other values.

        What it writes is in what is given, at its end, and variables hold what they did. Handles
        are those of the part.
        """
        values, written, handles = self.values, self._written, self.handles
        self.values, self._written, self.handles = {**values, **holding}, {}, {}
        made: dict[str, RelayExpr] = {}
        try:
            yield made
            made |= self.written()
        finally:
            self.values = {**self._inputs, **values}
            self._written, self.handles = written, handles
