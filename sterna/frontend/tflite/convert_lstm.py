"""LSTM over sequences: of floats, and of bytes with a cell of 16 bits."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of, parts
from sterna.frontend.tflite.fixed_point import SHORT
from sterna.frontend.tflite.node import Node, converter, single
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented

# Gates in the order of the file: input, forget, cell, output. Where their operands begin.
_WEIGHTS, _RECURRENT, _PEEPHOLES, _BIASES = 1, 5, 9, 12
_PROJECTION, _OUTPUT_STATE, _CELL_STATE, _NORMS = 16, 18, 19, 20
# Gates have 3 bits of whole part and 12 of fraction.
GATE_BITS = 3
# Sequences that are written out step by step are not longer.
LONGEST = 1024


@converter("UNIDIRECTIONAL_SEQUENCE_LSTM")
def unidirectional_lstm(node: Node) -> RelayExpr:
    _expect_plain(node)
    if dtype_of(node[0]) == "float32":
        return _of_floats(node)
    return _of_bytes(node)


def _expect_plain(node: Node) -> None:
    """What is not converted: gates that are one, peepholes, projections, normalised gates."""
    if not node.has(_WEIGHTS):
        raise OpNotImplemented("coupled input and forget gates")
    for name, places in (
        ("peepholes", range(_PEEPHOLES, _PEEPHOLES + 3)),
        ("a projection", range(_PROJECTION, _PROJECTION + 2)),
        ("normalised gates", range(_NORMS, _NORMS + 4)),
    ):
        if any(node.has(place) for place in places):
            raise OpNotImplemented(name)
    if int(node.attr("activation")) != 4:
        raise OpNotImplemented("another activation than tanh")


def _of_floats(node: Node) -> RelayExpr:
    if dtype_of(node[_WEIGHTS]) != "float32":
        raise OpNotImplemented("floats by weights of whole numbers")
    return _of_held_cells(node) if node.attr("cell_clip") else _of_free_cells(node)


def _of_held_cells(node: Node) -> RelayExpr:
    """Step by step: between them the cell is held within bounds."""
    axis, bound = _axis(node), float(node.attr("cell_clip"))
    output, cell = (node.variables.held(node, place) for place in (_OUTPUT_STATE, _CELL_STATE))
    results = []
    for data in _steps(node, axis):
        enters, forgets, new, leaves = (
            call("add", call("nn.bias_add", call("nn.dense", data, node[_WEIGHTS + gate]),
                             node[_BIASES + gate]),
                 call("nn.dense", output, node[_RECURRENT + gate]))
            for gate in range(4)
        )
        kept = call("multiply", call("sigmoid", forgets), cell)
        added = call("multiply", call("sigmoid", enters), call("tanh", new))
        cell = call("clip", call("add", kept, added), -bound, bound)
        output = call("multiply", call("sigmoid", leaves), call("tanh", cell))
        results.append(output)
    node.variables.assign_held(node, _OUTPUT_STATE, output)
    node.variables.assign_held(node, _CELL_STATE, cell)
    return call("stack", results, axis=axis)


def _axis(node: Node) -> int:
    return 0 if node.attr("time_major") else 1


def _of_free_cells(node: Node) -> RelayExpr:
    hidden = node.shape(_RECURRENT)[1]
    order = (0, 3, 1, 2)  # input, output, forget, cell

    def joined(first: int, axes: int) -> RelayExpr:
        made = call("concatenate", [node[first + gate] for gate in order], axis=0)
        return call("expand_dims", made, 0) if axes else made

    none = call("zeros", (4 * hidden,), "float32")
    bias = call("expand_dims", call("concatenate", [joined(_BIASES, 0), none], axis=0), 0)
    states = [
        call("expand_dims", node.variables.held(node, place), 0)
        for place in (_OUTPUT_STATE, _CELL_STATE)
    ]
    time_major = bool(node.attr("time_major"))
    data = node[0] if time_major else call("transpose", node[0], (1, 0, 2))
    made = parts(call("nn.lstm", data, joined(_WEIGHTS, 1), joined(_RECURRENT, 1), bias, None,
                      *states), 3)
    for place, state in ((_OUTPUT_STATE, made[1]), (_CELL_STATE, made[2])):
        node.variables.assign_held(node, place, call("squeeze", state, (0,)))
    steps = call("squeeze", made[0], (1,))
    return steps if time_major else call("transpose", steps, (1, 0, 2))


# ---- of bytes ----


def _of_bytes(node: Node) -> RelayExpr:
    axis = _axis(node)
    if node.dtype() != "int8" or len(node.intermediates) < 5:
        raise OpNotImplemented(f"{node.dtype()}")
    cell_scale, _ = single(node.quantization(_CELL_STATE), "its cell")
    power = round(math.log2(float(cell_scale)))
    hidden = node.intermediates[4].quantization
    if hidden is None:
        raise ValueError("its hidden state has no scale")
    output, cell = (node.variables.held(node, place) for place in (_OUTPUT_STATE, _CELL_STATE))
    results = []
    bound = min(int(float(node.attr("cell_clip")) / float(cell_scale)), 32767) or 32767
    for data in _steps(node, axis):
        gates = [_gate(node, gate, data, output) for gate in range(4)]
        enters, forgets, leaves = (_of_table(gates[gate], _logistic()) for gate in (0, 1, 3))
        new = _of_table(gates[2], _tanh(GATE_BITS))
        kept = _shifted(call("multiply", forgets, cast(cell, "int32")), 15)
        added = _shifted(call("multiply", enters, new), 30 + power)
        cell = cast(call("clip", call("add", kept, added), -bound, bound), "int16")
        shown = _of_table(cell, _tanh(15 + power))
        output = _rescaled(call("multiply", leaves, shown),
                           2.0**-30 / float(single(hidden, "its hidden state")[0]),
                           single(hidden, "its hidden state")[1], "int8")
        results.append(output)
    node.variables.assign_held(node, _OUTPUT_STATE, output)
    node.variables.assign_held(node, _CELL_STATE, cell)
    return call("stack", results, axis=axis)


def _steps(node: Node, axis: int) -> Sequence[RelayExpr]:
    """The data of every step; sequences are written out."""
    data, count = node[0], node.shape()[axis]
    if count > LONGEST:
        raise OpNotImplemented(f"sequences of {count} steps, more than {LONGEST}")
    every = parts(call("split", data, count, axis=axis), count) if count > 1 else [data]
    return [call("squeeze", part, (axis,)) for part in every]


def _gate(node: Node, gate: int, data: RelayExpr, output: RelayExpr) -> RelayExpr:
    """The sums of a gate, of the data and of the last result, each under the scale of gates."""
    made = []
    for place, operand, first in (
        (0, data, _WEIGHTS), (_OUTPUT_STATE, output, _RECURRENT),
    ):
        scale, zero = single(node.quantization(place), "its data")
        weight = node[first + gate]
        one = constant(1, "float32")
        sums = call("qnn.dense", operand, weight, constant(zero, "int32"), constant(0, "int32"),
                    one, one, units=node.shape(first + gate)[0])
        if first == _WEIGHTS:
            sums = call("add", sums, node[_BIASES + gate])
        own, _ = single(node.quantization(first + gate), "its weights")
        ratio = float(scale) * float(own) * 2.0 ** (15 - GATE_BITS)
        made.append(_rescaled(sums, ratio, 0, "int16"))
    total = call("add", *(cast(part, "int32") for part in made))
    return cast(call("clip", total, -32768, 32767), "int16")


def _rescaled(sums: RelayExpr, ratio: float, zero: int, dtype: str) -> RelayExpr:
    return call("qnn.requantize", sums, constant(np.float64(ratio)), constant(0, "int32"),
                constant(1, "float64"), constant(zero, "int32"), rounding="TWICE",
                out_dtype=dtype)


def _shifted(product: RelayExpr, power: int) -> RelayExpr:
    """A product over a power of 2, rounded away from zero, held within 16 bits."""
    return cast(_rescaled(product, 2.0**-power, 0, "int16"), "int32")


def _all_shorts() -> Array:
    return np.arange(1 << 16, dtype=np.uint16).view(np.int16).astype(np.int64)


@cache
def _logistic() -> Array:
    return SHORT.logistic(_all_shorts(), GATE_BITS).astype(np.int16)


@cache
def _tanh(whole_bits: int) -> Array:
    return SHORT.tanh(_all_shorts(), whole_bits).astype(np.int16)


def _of_table(data: RelayExpr, table: Array) -> RelayExpr:
    index = cast(call("reinterpret", data, "uint16"), "int32")
    return cast(call("take", constant(table), index, axis=0), "int32")
