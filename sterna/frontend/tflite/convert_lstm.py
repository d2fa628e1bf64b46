"""Recurrent layers over sequences: of floats, by weights of floats or bytes, and LSTM of bytes with
a cell of 16 bits."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of, parts
from sterna.frontend.tflite.arithmetic import activated
from sterna.frontend.tflite.dynamic_range import as_floats, dense_of_state
from sterna.frontend.tflite.fixed_point import SHORT
from sterna.frontend.tflite.node import TFLM, Node, converter, single
from sterna.frontend.tflite.sigmoids import on_lines_of_shorts
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented

# Gates in the order of the file: input, forget, cell, output. Where their operands begin.
_WEIGHTS, _RECURRENT, _PEEPHOLES, _BIASES = 1, 5, 9, 12
_PROJECTION, _OUTPUT_STATE, _CELL_STATE, _NORMS = 16, 18, 19, 20
# Gates have 3 bits of whole part and 12 of fraction.
GATE_BITS = 3
# What gates are multiplied by to be places on lines.
LINE_FACTOR = 3
# Sequences that are written out step by step are not longer.
LONGEST = 1024
# What is added to the variance of gates that are normalised.
NORM_EPSILON = 1e-8


@converter("UNIDIRECTIONAL_SEQUENCE_LSTM")
def unidirectional_lstm(node: Node) -> RelayExpr:
    if int(node.attr("activation")) != 4:
        raise OpNotImplemented("another activation than tanh")
    if dtype_of(node[0]) == "float32":
        return _of_floats(node)
    for name, is_there in _additions(node).items():
        if is_there:
            raise OpNotImplemented(f"{name} of whole numbers")
    return _of_bytes(node)


def _additions(node: Node) -> dict[str, bool]:
    """What a layer has beyond four gates of two products each."""
    def has(first: int, count: int) -> bool:
        return any(node.has(place) for place in range(first, first + count))

    return {
        "coupled input and forget gates": not node.has(_WEIGHTS),
        "peepholes": has(_PEEPHOLES, 3), "a projection": has(_PROJECTION, 2),
        "normalised gates": has(_NORMS, 4),
    }


def _of_floats(node: Node) -> RelayExpr:
    some = 0 if node.has(_WEIGHTS) else 1
    is_plain = not node.attr("cell_clip") and not any(_additions(node).values())
    is_plain = is_plain and node.dtype(_WEIGHTS + some) == "float32"
    return _of_free_cells(node) if is_plain else _of_single_steps(node)


def _of_single_steps(node: Node) -> RelayExpr:
    """Step by step, with what a layer may have beyond plain gates."""
    axis = _axis(node)
    output, cell = (node.variables.held(node, place) for place in (_OUTPUT_STATE, _CELL_STATE))
    results = []
    for data in _steps(node, axis):
        forgets = call("sigmoid", _gate_of_floats(node, 1, data, output, cell))
        if node.has(_WEIGHTS):
            enters = call("sigmoid", _gate_of_floats(node, 0, data, output, cell))
        else:
            enters = call("subtract", constant(1, "float32"), forgets)
        new = call("tanh", _gate_of_floats(node, 2, data, output, None))
        cell = _clipped(node, "cell_clip", call(
            "add", call("multiply", forgets, cell), call("multiply", enters, new)))
        leaves = call("sigmoid", _gate_of_floats(node, 3, data, output, cell))
        output = call("multiply", leaves, call("tanh", cell))
        if node.has(_PROJECTION):
            output = dense_of_state(node, output, _PROJECTION)
            if node.has(_PROJECTION + 1):
                output = call("nn.bias_add", output, node[_PROJECTION + 1])
            output = _clipped(node, "proj_clip", output)
        results.append(output)
    node.variables.assign_held(node, _OUTPUT_STATE, output)
    node.variables.assign_held(node, _CELL_STATE, cell)
    return call("stack", results, axis=axis)


def _clipped(node: Node, name: str, data: RelayExpr) -> RelayExpr:
    bound = float(node.attr(name))
    return call("clip", data, -bound, bound) if bound else data


def _gate_of_floats(
    node: Node, gate: int, data: RelayExpr, output: RelayExpr, cell: RelayExpr | None
) -> RelayExpr:
    """The sums of a gate; normalised ones have their bias behind the normalisation."""
    made = call("add", dense_of_state(node, data, _WEIGHTS + gate),
                dense_of_state(node, output, _RECURRENT + gate))
    peephole = _PEEPHOLES + (gate if gate < 2 else 2)
    if cell is not None and node.has(peephole):
        made = call("add", made, call("multiply", cell, as_floats(node, peephole)))
    if node.has(_NORMS + gate):
        return call("nn.layer_norm", made, node[_NORMS + gate], node[_BIASES + gate],
                    axis=-1, epsilon=NORM_EPSILON)
    return call("nn.bias_add", made, node[_BIASES + gate])


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


# ---- plain recurrent layers ----


@converter("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN")
def recurrent(node: Node) -> RelayExpr:
    """Data, weights, those of the last result, a bias and that result."""
    if dtype_of(node[0]) != "float32":
        raise OpNotImplemented(node.dtype())
    output = node.variables.held(node, 4)
    is_single = node.kind == "RNN"
    axis = 0 if is_single else _axis(node)
    results = []
    for data in [node[0]] if is_single else _steps(node, axis):
        own = call("nn.bias_add", dense_of_state(node, data, 1), node[3])
        output = activated(node, call("add", own, dense_of_state(node, output, 2)))
        results.append(output)
    node.variables.assign_held(node, 4, output)
    return results[0] if is_single else call("stack", results, axis=axis)


# ---- in both directions ----


@converter("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_lstm(node: Node) -> list[RelayExpr]:
    """Data, 17 operands of each direction, two states of each, and what a second input has."""
    ways = [[0, *range(first, first + 17), state, state + 1]
            for first, state in ((1, 35), (18, 37))]
    return _both_ways(node, ways, 39, unidirectional_lstm)


@converter("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_rnn(node: Node) -> list[RelayExpr]:
    """Data, weights, those of the last result, a bias and that result of each direction."""
    return _both_ways(node, [[0, 1, 2, 3, 4], [0, 5, 6, 7, 8]], 9, recurrent)


def _both_ways(
    node: Node, ways: Sequence[Sequence[int]], second: int, convert: Callable[[Node], RelayExpr]
) -> list[RelayExpr]:
    """A layer forwards, and one that begins with the last step; by their operands."""
    if node.has(second):
        raise OpNotImplemented("a second input")
    axis, found = _axis(node), []
    for is_backward, places in enumerate(ways):
        made = replace(
            node, inputs=[node.get(place) for place in places],
            operands_as=[node.operands_as[place] if place < len(node.operands_as) else None
                         for place in places])
        if is_backward:
            made = replace(made, inputs=[call("reverse", node[0], axis), *made.inputs[1:]])
        result = convert(made)
        found.append(call("reverse", result, axis) if is_backward else result)
    return [call("concatenate", found, axis=-1)] if node.attr("merge_outputs") else found


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
    clip = min(int(float(node.attr("cell_clip")) / float(cell_scale)), 32767)
    lowest, highest = (-clip, clip) if clip else (-32768, 32767)
    for data in _steps(node, axis):
        gates = [_gate(node, gate, data, output) for gate in range(4)]
        enters, forgets, leaves = (
            _curve(node, "LOGISTIC", gates[gate], GATE_BITS) for gate in (0, 1, 3))
        new = _curve(node, "TANH", gates[2], GATE_BITS)
        kept = _shifted(call("multiply", forgets, cast(cell, "int32")), 15)
        added = _shifted(call("multiply", enters, new), 30 + power)
        cell = cast(call("clip", call("add", kept, added), lowest, highest), "int16")
        shown = _curve(node, "TANH", cell, 15 + power)
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
def _table(kind: str, whole_bits: int) -> Array:
    function = SHORT.logistic if kind == "LOGISTIC" else SHORT.tanh
    return function(_all_shorts(), whole_bits).astype(np.int16)


def _curve(node: Node, kind: str, data: RelayExpr, whole_bits: int) -> RelayExpr:
    """A function of numbers of 16 bits, some of them a whole part: by lines, as TFLite Micro has
    it, or by series."""
    if node.rounding == TFLM:
        left = whole_bits - GATE_BITS
        factor, shift = (LINE_FACTOR << left, 0) if left >= 0 else (LINE_FACTOR, -left)
        return cast(on_lines_of_shorts(kind, data, factor, shift), "int32")
    index = cast(call("reinterpret", data, "uint16"), "int32")
    return cast(call("take", constant(_table(kind, whole_bits)), index, axis=0), "int32")
