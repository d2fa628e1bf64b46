"""Storage of graphs: live tensors never share memory, and the arena is as small as can be."""

import json
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.lowering.graph import Graph, make_graph
from sterna.lowering.storage import plan_storage
from sterna.lowering.unique_kernels import unique_kernels


def graph_of(body: Any, level: int = 0) -> Graph:
    main = relay.transform.FuseOps(level)(tvm.IRModule.from_expr(body))["main"]
    return make_graph(main, unique_kernels(main, "tvmgen_test"))


def random_graph(seed: int) -> Graph:
    """Rows of different lengths that are joined, cut, reshaped and combined."""
    rng = np.random.default_rng(seed)
    values: list[Any] = [relay.var("x", shape=(64,)), relay.var("y", shape=(96,))]
    for _ in range(25):
        a, b = (values[i] for i in rng.integers(0, len(values), 2))
        kind = rng.integers(0, 4)
        size = a.checked_type.shape[0]
        if kind == 0:
            values.append(relay.nn.relu(a))
        elif kind == 1 and size + b.checked_type.shape[0] < 2000:
            values.append(relay.concatenate([a, b], axis=0))
        elif kind == 2 and size >= 64:
            left, right = relay.split(a, [32], axis=0)
            values += [left, right]
        else:
            values.append(relay.reshape(relay.reshape(a, (-1, 4)), (size,)))
    return graph_of(relay.Tuple(tuple(values[-5:])))


@pytest.mark.parametrize("seed", range(20))
def test_live_tensors_do_not_overlap(seed: int) -> None:
    graph = random_graph(seed)
    plan = plan_storage(graph)
    lives = _lives(graph)
    for first, (a, begin_a, end_a) in enumerate(lives):
        for b, begin_b, end_b in lives[first + 1 :]:
            if begin_a < end_b and begin_b < end_a:
                low, high = plan.offsets[a], plan.offsets[b]
                assert low + _size(graph, a) <= high or high + _size(graph, b) <= low
    assert plan.arena_bytes >= plan.bound_bytes


def _entries(graph: Graph) -> list[tuple[int, int]]:
    return [(n, i) for n, node in enumerate(graph.nodes) for i in range(len(node.types))]


def _size(graph: Graph, entry: int) -> int:
    node, index = _entries(graph)[entry]
    return int(np.prod(graph.nodes[node].types[index].concrete_shape)) * 4


def _lives(graph: Graph) -> list[tuple[int, int, int]]:
    """Per entry with memory of its own: its number, and the steps in which it is alive."""
    entries = _entries(graph)
    owner: dict[tuple[int, int], tuple[int, int]] = {}
    last: dict[tuple[int, int], int] = {}
    for number, node in enumerate(graph.nodes):
        for index in range(len(node.types)):
            view = node.is_view
            owner[number, index] = owner[node.inputs[0]] if view else (number, index)
        for entry in node.inputs:
            last[owner[entry]] = number
    for entry in graph.heads:
        last[owner[entry]] = len(graph.nodes)
    return [
        (place, entry[0], last.get(entry, entry[0]) + 1)
        for place, entry in enumerate(entries)
        if owner[entry] == entry and graph.nodes[entry[0]].op != "null"
    ]


def test_reshapes_cost_nothing() -> None:
    x = relay.var("x", shape=(4, 6))
    y = relay.nn.relu(relay.reshape(relay.nn.relu(x), (24,)))
    saved = json.loads(graph_of(y).to_json())
    names = [node.get("attrs", {}).get("func_name") for node in saved["nodes"]]
    assert names == [None, "tvmgen_test_fused_nn_relu", "__nop", "tvmgen_test_fused_nn_relu_1"]
    offsets = saved["attrs"]["storage_offset"][1]
    assert offsets[1] == offsets[2] and offsets[0] == -1


def test_a_chain_needs_two_buffers() -> None:
    body: Any = relay.var("x", shape=(1024,))
    for _ in range(10):
        body = relay.nn.relu(body)
    plan = plan_storage(graph_of(body))
    assert plan.arena_bytes == plan.bound_bytes == 2 * 4096


def test_equal_kernels_are_one() -> None:
    x = relay.var("x", shape=(8,))
    graph = graph_of(relay.exp(relay.nn.relu(relay.exp(relay.nn.relu(x)))))
    assert len({node.attrs["func_name"] for node in graph.nodes if node.op != "null"}) == 2


def test_inputs_of_unknown_size_are_refused() -> None:
    x = relay.var("x", shape=(relay.Any(), 4))
    with pytest.raises(ValueError, match=r"the input x has the type Tensor\[\(\?, 4\), float32\]"):
        graph_of(relay.nn.relu(x))


def test_work_is_counted() -> None:
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    graph = graph_of(relay.nn.relu(relay.nn.conv2d(x, w, padding=1)), level=2)
    (node,) = [node for node in graph.nodes if node.op != "null"]
    assert int(node.attrs["flops"]) == 2 * 4 * 8 * 8 * 3 * 9 + 4 * 8 * 8
    assert int(node.attrs["bytes"]) == 4 * (3 * 64 + 4 * 27 + 4 * 64)
    assert "function_steps" not in node.attrs


def test_instructions_of_functions_are_counted() -> None:
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    graph = graph_of(relay.sigmoid(relay.nn.conv2d(x, w, padding=1)), level=2)
    (node,) = [node for node in graph.nodes if node.op != "null"]
    assert int(node.attrs["flops"]) == 2 * 4 * 8 * 8 * 3 * 9 + 4 * 8 * 8
    assert int(node.attrs["function_steps"]) == 13 * 4 * 8 * 8
