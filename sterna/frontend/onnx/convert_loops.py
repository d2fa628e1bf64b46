"""Loops: in a graph every iteration becomes a part of it, in a program they stay loops.

They stay where runs decide how they go on, if what they carry has one type from round to round.
"""

from collections.abc import Sequence

import numpy as np

from sterna.frontend.calls import call, constant, extent_of, is_sequence, type_of
from sterna.frontend.kept_loops import KeptLoop, Round, kept_loop, scalar
from sterna.frontend.onnx.node import Node, converter
from sterna.frontend.open_shapes import UndecidedError
from sterna.ir.types import same_dim
from sterna.relay.expr import RelayExpr, Var
from sterna.relay.steps import Stack
from sterna.support.errors import OpNotImplemented

# More iterations than a graph is made of: the virtual machine runs such loops round by round.
MOST_ITERATIONS = 1_000
# A scan of few steps is faster as a part of the graph.
SHORT_SCAN = 16


def _slice_at(data: RelayExpr, axis: int, index: int) -> RelayExpr:
    cut = call("strided_slice", data, (index,), (index + 1,), axes=(axis,))
    return call("squeeze", cut, (axis,))


def _expect_few(count: int) -> None:
    if count > MOST_ITERATIONS:
        raise UndecidedError(
            f"it has more than {MOST_ITERATIONS} iterations, too many for a graph; sterna.compile "
            "runs it as a loop"
        )


def _stacked(parts: Sequence[RelayExpr], axis: int = 0) -> RelayExpr:
    """What iterations gave, along a new axis."""
    if not parts:
        raise OpNotImplemented("a loop that is never run, but collects results")
    return call("stack", list(parts), axis=axis)


@converter("Scan", since=9)
def scan(node: Node) -> list[RelayExpr]:
    count = node.attr("num_scan_inputs")
    given = node.operands()
    states, data = given[: len(given) - count], given[len(given) - count :]
    axes = node.attr("scan_input_axes") or [0] * count
    results = len(node.outputs) - len(states)
    backwards = node.attr("scan_output_directions") or [0] * results
    out_axes = node.attr("scan_output_axes") or [0] * results
    whole = [axis % type_of(x).ndim for x, axis in zip(data, axes, strict=True)]
    directions = node.attr("scan_input_directions") or [0] * count
    kept = _kept_scan(node, states, data, whole, directions) if node.feeds.keeps_loops else None
    if kept is not None:
        pairs = zip(kept.collected, backwards, out_axes, strict=True)
        return [*kept.states, *(_placed(x, bool(back), axis) for x, back, axis in pairs)]
    states, made = _scanned(node, states, data, whole, directions)
    for place in range(results):
        parts = [step[place] for step in made]
        states.append(_stacked(parts[::-1] if backwards[place] else parts, out_axes[place]))
    return states


def _placed(stack: RelayExpr, is_backwards: bool, axis: int) -> RelayExpr:
    """What was collected along the first axis, in its own direction along its own axis."""
    turned = call("reverse", stack, axis=0) if is_backwards else stack
    rank = type_of(stack).ndim
    order = list(range(1, rank))
    order.insert(axis % rank, 0)
    return call("transpose", turned, tuple(order)) if axis % rank else turned


def _kept_scan(
    node: Node, states: list[RelayExpr], data: list[RelayExpr], axes: Sequence[int],
    backwards: Sequence[int],
) -> KeptLoop | None:
    """A long scan as a loop of the virtual machine; None if it is short or its states change."""
    length, *others = [type_of(x).shape[axis] for x, axis in zip(data, axes, strict=True)]
    is_short = isinstance(length, int) and length <= SHORT_SCAN
    if is_short or not all(same_dim(length, other) for other in others):
        return None
    most = extent_of(data[0], axes[0])
    last = call("subtract", most, constant(1, "int64"))

    def body(number: Var, goes_on: Var, carried: list[Var]) -> Round:
        places = [call("subtract", last, number) if back else number for back in backwards]
        parts = [
            call("take", x, place, axis=axis)
            for x, place, axis in zip(data, places, axes, strict=True)
        ]
        results = node.graphs["body"](*carried, *parts)
        return Round(goes_on, results[: len(states)], results[len(states) :])

    try:
        made = kept_loop(body, states, constant(True), most)
    except UndecidedError:
        return None
    if made is None:
        return None
    stacks = [Stack(each.items, length) for each in made.collected if isinstance(each, Stack)]
    return KeptLoop(made.count, made.states, list(stacks))


def _scanned(
    node: Node, states: list[RelayExpr], data: list[RelayExpr], axes: Sequence[int],
    backwards: Sequence[int],
) -> tuple[list[RelayExpr], list[list[RelayExpr]]]:
    """The last states, and what each step gave beside them."""
    lengths = {node.extents_of(x, (axis,))[0] for x, axis in zip(data, axes, strict=True)}
    if len(lengths) != 1:
        raise ValueError(f"its sequences have lengths {sorted(lengths)}, not one")
    (length,) = lengths
    _expect_few(length)
    made = []
    for step in range(length):
        parts = [
            _slice_at(x, axis, length - 1 - step if back else step)
            for x, axis, back in zip(data, axes, backwards, strict=True)
        ]
        results = node.graphs["body"](*states, *parts)
        states, rest = results[: len(states)], results[len(states) :]
        made.append(rest)
    return states, made


@converter("Scan", until=8)
def scan_of_batches(node: Node) -> list[RelayExpr]:
    """Version 8: the first dimension counts batches, which are scanned one by one."""
    count = node.attr("num_scan_inputs")
    given = [node[place] for place in range(1, len(node.inputs))]
    states, data = given[: len(given) - count], given[len(given) - count :]
    batch, length = node.shape_of(data[0])[:2]
    _expect_few(batch * max(length, 1))
    if node.has(0) and any(own != length for own in node.ints(0, "sequence_lens")):
        raise OpNotImplemented("sequences of different lengths")
    backwards = node.attr("directions") or [0] * count
    results: list[list[RelayExpr]] = []
    for place in range(batch):
        last, made = _scanned(
            node, [_slice_at(x, 0, place) for x in states],
            [_slice_at(x, 0, place) for x in data], [0] * count, backwards,
        )
        steps = [[step[i] for step in made] for i in range(len(node.outputs) - len(states))]
        results.append([*last, *(_stacked(parts) for parts in steps)])
    return [_stacked(parts) for parts in zip(*results, strict=True)]


@converter("Loop")
def loop(node: Node) -> list[RelayExpr]:
    if node.feeds.keeps_loops:
        made = _kept_loop(node)
        if made is not None:
            return made
    return _unrolled_loop(node)


def _kept_loop(node: Node) -> list[RelayExpr] | None:
    """A loop of the virtual machine; None if what it carries changes its type."""
    states = [node[place] for place in range(2, len(node.inputs))]
    most = scalar(node[0], "int64") if node.has(0) else None
    first = scalar(node[1], "bool") if node.has(1) else constant(True)
    if any(is_sequence(state) for state in states):
        return None

    def body(number: Var, goes_on: Var, carried: list[Var]) -> Round:
        on, *results = node.graphs["body"](number, goes_on, *carried)
        return Round(scalar(on, "bool"), results[: len(states)], results[len(states) :])

    try:
        made = kept_loop(body, states, first, most)
    except UndecidedError:
        return None
    if made is None:
        return None
    if len(made.collected) == 0:
        return made.states
    return node.feeds.measured(made.count, [*made.states, *made.collected])


def _unrolled_loop(node: Node) -> list[RelayExpr]:
    most = int(node.number(0, "the trip count")) if node.has(0) else MOST_ITERATIONS + 1
    goes_on = node.get(1) or constant(True)
    states = [node[place] for place in range(2, len(node.inputs))]
    made: list[list[RelayExpr]] = []
    count = len(states)
    while len(made) < most and _holds(node, goes_on):
        _expect_few(len(made) + 1)
        number = constant(np.int64(len(made)))
        goes_on, *results = node.graphs["body"](number, goes_on, *states)
        states = results[:count]
        made.append(results[count:])
    collected = len(node.outputs) - count
    return [*states, *(_stacked([step[i] for step in made]) for i in range(collected))]


def _holds(node: Node, condition: RelayExpr) -> bool:
    known = node.feeds.value_of(condition)
    if known is None:
        raise UndecidedError(
            f"{node}: whether it goes on depends on the model's inputs; sterna.compile runs it"
        )
    return bool(known.reshape(-1)[0])
