"""ONNX Runtime's LSTM with weights of bytes: DynamicQuantizeLSTM.

What weights are multiplied with is quantised by its own range: the data of all steps together, and
the hidden state anew in each step, so that steps are written out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sterna.frontend.calls import call, cast, constant, parts, reshape
from sterna.frontend.onnx.convert_contrib import MICROSOFT
from sterna.frontend.onnx.convert_matrix import whole_product
from sterna.frontend.onnx.convert_quantize import scalar_of
from sterna.frontend.onnx.node import Node, converter
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented

# Sequences that are written out step by step are not longer.
LONGEST = 1024
_DATA, _WEIGHT, _RECURRENCE, _BIAS, _LENGTHS, _HIDDEN, _CELL, _PEEPHOLES = range(8)
# Where the scales of the weights stand; their zero points follow them.
_WEIGHT_SCALE, _RECURRENCE_SCALE = 8, 10
_ACTIVATIONS = ("sigmoid", "tanh", "tanh")
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@converter("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(node: Node) -> list[RelayExpr]:
    """All hidden states (time, direction, batch, unit), and the last hidden state and cell."""
    ways = _directions(node)
    _expect_plain(node, len(ways))
    made = [_run(_Direction.of(node, place), backwards) for place, backwards in enumerate(ways)]
    steps = [call("stack", hidden, axis=0) for hidden, _ in made]
    last = [hidden[0 if back else -1] for (hidden, _), back in zip(made, ways, strict=True)]
    cells = [cell for _, cell in made]
    return [call("stack", each, axis=axis) for each, axis in ((steps, 1), (last, 0), (cells, 0))]


def _directions(node: Node) -> Sequence[bool]:
    """Whether each direction runs backwards."""
    named = node.attr("direction", "forward")
    if named not in _DIRECTIONS:
        raise ValueError(f"direction is {', '.join(_DIRECTIONS)}, not {named!r}")
    return _DIRECTIONS[named]


def _expect_plain(node: Node, directions: int) -> None:
    """What is not converted is refused by name."""
    length, batch, _ = node.shape(_DATA)
    functions = [each.lower() for each in node.attr("activations") or ()]
    for name, is_there in (
        ("peepholes", node.has(_PEEPHOLES)),
        ("coupled input and forget gates", bool(node.attr("input_forget", 0))),
        ("a bound of its gates (clip)", bool(node.attr("clip"))),
        ("other activations than sigmoid, tanh, tanh",
         bool(functions) and functions != [*_ACTIVATIONS] * directions),
        (f"sequences of {length} steps, more than {LONGEST}", length > LONGEST),
        ("sequences of different lengths",
         node.has(_LENGTHS) and node.ints(_LENGTHS, "sequence_lens") != [length] * batch),
    ):
        if is_there:
            raise OpNotImplemented(name)


@dataclass(frozen=True, slots=True)
class _Factor:
    """A matrix of bytes (inputs, gates times units) of one direction."""

    node: Node
    weight: RelayExpr
    scale: RelayExpr
    zero: RelayExpr

    @staticmethod
    def of(node: Node, place: int, scales: int, direction: int) -> "_Factor":
        scale = _of_direction(node[scales], direction)
        zero = (
            _of_direction(node[scales + 1], direction) if node.has(scales + 1)
            else constant(0, "int32")
        )
        return _Factor(node, _of_direction(node[place], direction), scale, zero)

    def product(self, data: RelayExpr) -> RelayExpr:
        """Floats times the matrix, where the floats are quantised by their range."""
        whole, scale, zero = parts(call("qnn.dynamic_quantize", data), 3)
        total = whole_product(self.node, whole, self.weight, [zero, self.zero])
        return call("multiply", cast(total, "float32"), call("multiply", scale, self.scale))


@dataclass(frozen=True, slots=True)
class _Direction:
    """What one direction computes with."""

    added: RelayExpr
    """What the data and the biases add to the gates of all steps: (time, batch, gates, units)."""
    recurrence: _Factor
    hidden: RelayExpr
    cell: RelayExpr
    length: int
    batch: int
    units: int

    @staticmethod
    def of(node: Node, place: int) -> "_Direction":
        (length, batch, features), units = node.shape(_DATA), node.shape(_RECURRENCE)[1]
        data = reshape(node[_DATA], (length * batch, features))
        added = _Factor.of(node, _WEIGHT, _WEIGHT_SCALE, place).product(data)
        if node.has(_BIAS):
            both = reshape(_of_direction(node[_BIAS], place), (2, 4 * units))
            added = call("add", added, call("sum", both, axis=0))
        nothing = call("zeros", (batch, units), "float32")
        hidden, cell = (
            _of_direction(node[state], place) if node.has(state) else nothing
            for state in (_HIDDEN, _CELL)
        )
        return _Direction(
            reshape(added, (length, batch, 4, units)),
            _Factor.of(node, _RECURRENCE, _RECURRENCE_SCALE, place), hidden, cell, length, batch,
            units,
        )


def _of_direction(data: RelayExpr, place: int) -> RelayExpr:
    """The part of an operand that belongs to a direction; one number has no axes."""
    return scalar_of(_taken(data, place, 0))


def _taken(data: RelayExpr, place: int, axis: int) -> RelayExpr:
    cut = call("strided_slice", data, (place,), (place + 1,), axes=(axis,))
    return call("squeeze", cut, (axis,))


def _run(way: _Direction, backwards: bool) -> tuple[list[RelayExpr], RelayExpr]:
    """The hidden state of each step, in the order of time, and the last cell."""
    hidden, cell = way.hidden, way.cell
    made: dict[int, RelayExpr] = {}
    for step in sorted(range(way.length), reverse=backwards):
        product = reshape(way.recurrence.product(hidden), (way.batch, 4, way.units))
        gates = call("add", _taken(way.added, step, 0), product)
        enters, leaves, forgets, new = (_taken(gates, gate, 1) for gate in range(4))
        kept = call("multiply", call("sigmoid", forgets), cell)
        cell = call("add", kept, call("multiply", call("sigmoid", enters), call("tanh", new)))
        hidden = call("multiply", call("sigmoid", leaves), call("tanh", cell))
        made[step] = hidden
    return [made[step] for step in sorted(made)], cell
