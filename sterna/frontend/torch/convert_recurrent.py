"""Recurrent networks of several layers and directions, each layer one operator."""

from collections.abc import Sequence

import numpy as np

from sterna.frontend.calls import call, constant, parts, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.convert_control import scan
from sterna.frontend.torch.convert_matrix import linear
from sterna.frontend.torch.convert_shape import (
    cat,
    extent_of,
    shape_of,
    slice_,
    split,
    transpose,
    unsqueeze,
)
from sterna.frontend.torch.extents import dims_of
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented

# The order of the gates here, by their places in PyTorch's: LSTM has input, forget, cell, output,
# and here input, output, forget, cell; GRU has reset, update, new, and here update, reset, new.
_ORDER = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}


def _recurrent(
    kind: str, data: RelayExpr, states: Sequence[RelayExpr], params: Sequence[RelayExpr],
    has_biases: bool, layers: int, train_dropout: float, bidirectional: bool, batch_first: bool,
    **attrs: object,
) -> list[RelayExpr]:
    """The sequence of the last layer, and the last state of every layer and direction."""
    if train_dropout:
        raise OpNotImplemented(
            "dropping elements between layers; call eval() of the model before it is exported"
        )
    sides = 2 if bidirectional else 1
    per_cell = len(params) // (layers * sides)
    is_projected = per_cell > (4 if has_biases else 2)
    alone = rank_of(data) == 2
    if alone:
        data, states = unsqueeze(data, 1), [unsqueeze(state, 1) for state in states]
    elif batch_first:
        data = transpose(data, 0, 1)
    ends: list[list[RelayExpr]] = [[] for _ in states]
    for layer in range(layers):
        cells = [
            params[(layer * sides + side) * per_cell : (layer * sides + side + 1) * per_cell]
            for side in range(sides)
        ]
        first = [slice_(state, 0, layer * sides, (layer + 1) * sides) for state in states]
        data, *last = (
            _projected_layer(data, first, cells) if is_projected
            else _layer(kind, data, first, cells, **attrs)
        )
        for found, each in zip(ends, last, strict=True):
            found.append(each)
    whole = [cat(found, 0) for found in ends]
    if alone:
        return [_without_batch(each) for each in (data, *whole)]
    return [transpose(data, 0, 1) if batch_first else data, *whole]


def _without_batch(x: RelayExpr) -> RelayExpr:
    length, _, width = dims_of(x)
    return reshaped(x, (length, width))


def _layer(
    kind: str, data: RelayExpr, states: Sequence[RelayExpr],
    cells: Sequence[Sequence[RelayExpr]], **attrs: object,
) -> list[RelayExpr]:
    """One layer: its sequence (length, batch, sides x units), and its last states."""
    units = shape_of(cells[0][1])[1]
    weights = [
        cat([unsqueeze(_ordered(cell[place], kind, units), 0) for cell in cells], 0)
        for place in (0, 1)
    ]
    bias = None
    if len(cells[0]) == 4:
        both = [
            cat([_ordered(cell[2], kind, units), _ordered(cell[3], kind, units)], 0)
            for cell in cells
        ]
        bias = cat([unsqueeze(each, 0) for each in both], 0)
    direction = "bidirectional" if len(cells) == 2 else "forward"
    made = call(
        f"nn.{kind}", data, *weights, bias, None, *states, direction=direction, layout=0, **attrs
    )
    sequence, *last = parts(made, 3 if kind == "lstm" else 2)
    length, batch = dims_of(data)[:2]
    sequence = call("transpose", sequence, (0, 2, 1, 3))
    return [reshaped(sequence, (length, batch, len(cells) * units)), *last]


def _projected_layer(
    data: RelayExpr, states: Sequence[RelayExpr], cells: Sequence[Sequence[RelayExpr]]
) -> list[RelayExpr]:
    """A layer of LSTM whose state is made smaller behind each step: a scan of cells."""
    sequences: list[RelayExpr] = []
    ends: list[list[RelayExpr]] = [[], []]
    for side, cell in enumerate(cells):
        own, other, *biases, smaller = cell
        rows = linear(data, own, call("add", *biases) if biases else None)
        first = [reshaped(slice_(each, 0, side, side + 1), shape_of(each)[1:]) for each in states]

        def step(
            state: RelayExpr, memory: RelayExpr, row: RelayExpr, other: RelayExpr,
            smaller: RelayExpr,
        ) -> list[RelayExpr]:
            gates = call("add", row, linear(state, other))
            found, memory = _lstm_step(split(gates, extent_of(gates, 1) // 4, 1), memory)
            state = linear(found, smaller)
            return [state, memory, state]

        rows = call("flip", rows, axis=[0]) if side else rows
        *last, sequence = scan(step, first, [rows], [other, smaller])
        sequences.append(call("flip", sequence, axis=[0]) if side else sequence)
        for found, each in zip(ends, last, strict=True):
            found.append(unsqueeze(each, 0))
    return [cat(sequences, 2), *(cat(found, 0) for found in ends)]


def _ordered(rows: RelayExpr, kind: str, units: int) -> RelayExpr:
    """The gates' rows in the order that operators here have them."""
    order = _ORDER[kind]
    if order == tuple(range(len(order))):
        return rows
    places = np.concatenate([np.arange(gate * units, (gate + 1) * units) for gate in order])
    return call("take", rows, constant(places, "int64"), axis=0)


@aten("lstm.input")
def lstm(
    input: RelayExpr, hx: Sequence[RelayExpr], params: Sequence[RelayExpr], has_biases: bool,
    num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> list[RelayExpr]:
    return _recurrent(
        "lstm", input, hx, params, has_biases, num_layers, dropout if train else 0,
        bidirectional, batch_first,
    )


@aten("gru.input")
def gru(
    input: RelayExpr, hx: RelayExpr, params: Sequence[RelayExpr], has_biases: bool,
    num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> list[RelayExpr]:
    return _recurrent(
        "gru", input, [hx], params, has_biases, num_layers, dropout if train else 0,
        bidirectional, batch_first, linear_before_reset=True,
    )


def _rnn(name: str, activation: str) -> None:
    def convert(
        input: RelayExpr, hx: RelayExpr, params: Sequence[RelayExpr], has_biases: bool,
        num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> list[RelayExpr]:
        return _recurrent(
            "rnn", input, [hx], params, has_biases, num_layers, dropout if train else 0,
            bidirectional, batch_first,
            activations=(activation,) * (2 if bidirectional else 1),
        )

    aten(name)(convert)


_rnn("rnn_tanh.input", "Tanh")
_rnn("rnn_relu.input", "Relu")


# ---- one step of a layer ----


def _gates(
    input: RelayExpr, hx: RelayExpr, weights: Sequence[RelayExpr | None], count: int
) -> tuple[list[RelayExpr], list[RelayExpr]]:
    """What a cell's gates get of its input, and of its state."""
    own, other, own_bias, other_bias = weights
    assert own is not None and other is not None
    rows = [linear(input, own, own_bias), linear(hx, other, other_bias)]
    first, second = (split(each, extent_of(each, -1) // count, rank_of(each) - 1) for each in rows)
    return first, second


@aten("gru_cell")
def gru_cell(
    input: RelayExpr, hx: RelayExpr, w_ih: RelayExpr, w_hh: RelayExpr,
    b_ih: RelayExpr | None = None, b_hh: RelayExpr | None = None,
) -> RelayExpr:
    own, other = _gates(input, hx, (w_ih, w_hh, b_ih, b_hh), 3)
    reset, update = (call("sigmoid", call("add", own[at], other[at])) for at in (0, 1))
    new = call("tanh", call("add", own[2], call("multiply", reset, other[2])))
    return call("add", new, call("multiply", update, call("subtract", hx, new)))


@aten("lstm_cell")
def lstm_cell(
    input: RelayExpr, hx: Sequence[RelayExpr], w_ih: RelayExpr, w_hh: RelayExpr,
    b_ih: RelayExpr | None = None, b_hh: RelayExpr | None = None,
) -> list[RelayExpr]:
    state, cell = hx
    own, other = _gates(input, state, (w_ih, w_hh, b_ih, b_hh), 4)
    return _lstm_step([call("add", a, b) for a, b in zip(own, other, strict=True)], cell)


def _lstm_step(gates: Sequence[RelayExpr], cell: RelayExpr) -> list[RelayExpr]:
    """The state and the cell behind a step."""
    into, forget, new, out = gates
    kept = call("multiply", call("sigmoid", forget), cell)
    cell = call("add", kept, call("multiply", call("sigmoid", into), call("tanh", new)))
    return [call("multiply", call("sigmoid", out), call("tanh", cell)), cell]


def _rnn_cell(name: str, activation: str) -> None:
    def convert(
        input: RelayExpr, hx: RelayExpr, w_ih: RelayExpr, w_hh: RelayExpr,
        b_ih: RelayExpr | None = None, b_hh: RelayExpr | None = None,
    ) -> RelayExpr:
        own, other = _gates(input, hx, (w_ih, w_hh, b_ih, b_hh), 1)
        return call(activation, call("add", own[0], other[0]))

    aten(name)(convert)


_rnn_cell("rnn_tanh_cell", "tanh")
_rnn_cell("rnn_relu_cell", "nn.relu")
