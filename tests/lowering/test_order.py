"""The order of steps: what it may change, and what it gains."""

import numpy as np
import pytest

from sterna.ir.types import TensorType
from sterna.lowering.graph import Graph, Node
from sterna.lowering.order import READY, order_steps
from sterna.lowering.storage import Layout, plan_storage
from sterna.support.dtype import DataType


def tensor(size: int) -> TensorType:
    return TensorType((size,), DataType("uint8"))


def step(name: str, size: int, *inputs: int) -> Node:
    attrs = {"func_name": name}
    return Node(name, "tvm_op", [(number, 0) for number in inputs], [tensor(size)], attrs)


def bound(graph: Graph) -> int:
    return plan_storage(graph, Layout(alignment=1)).bound_bytes


def test_branches_are_finished_before_others_begin() -> None:
    nodes = [Node("x", "null", [], [tensor(8)])]
    nodes += [step(f"grow{i}", 1000, 0) for i in range(4)]
    nodes += [step(f"shrink{i}", 10, 1 + i) for i in range(4)]
    nodes += [step("join", 40, 5, 6, 7, 8)]
    graph = Graph(nodes, [0], [(9, 0)], {})
    assert bound(graph) == 4010
    better = order_steps(graph)
    assert bound(better) == 1040
    assert [node.name for node in better.nodes][:3] == ["x", "grow0", "shrink0"]
    assert better.heads == [(9, 0)] and better.inputs == [0]


def test_an_order_that_is_best_stays() -> None:
    nodes = [Node("x", "null", [], [tensor(8)]), step("a", 100, 0), step("b", 50, 1),
             step("c", 20, 2)]
    graph = Graph(nodes, [0], [(3, 0)], {})
    assert order_steps(graph) is graph


def random_graph(seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    nodes = [Node(f"x{i}", "null", [], [tensor(16)]) for i in range(2)]
    for i in range(int(rng.integers(3, 14))):
        known = rng.integers(0, len(nodes), rng.integers(1, 3))
        made = step(f"s{i}", int(rng.integers(1, 400)), *map(int, known))
        if rng.random() < 0.2:
            made = Node(f"v{i}", "tvm_op", made.inputs[:1], nodes[made.inputs[0][0]].types,
                        {"func_name": "__nop"})
        nodes.append(made)
    used = {number for node in nodes for number, _ in node.inputs}
    heads = [(n, 0) for n in range(2, len(nodes)) if n not in used]
    return Graph(nodes, [0, 1], heads, {})


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed: int) -> None:
    graph = random_graph(seed)
    made = order_steps(graph)
    assert bound(made) <= bound(graph)
    assert sorted(node.name for node in made.nodes) == sorted(node.name for node in graph.nodes)
    names = [node.name for node in made.nodes]
    before = {node.name: node for node in graph.nodes}
    for number, node in enumerate(made.nodes):
        assert all(source < number for source, _ in node.inputs)
        want = [graph.nodes[source].name for source, _ in before[node.name].inputs]
        assert [names[source] for source, _ in node.inputs] == want
    assert [names[n] for n, _ in made.heads] == [graph.nodes[n].name for n, _ in graph.heads]


def test_a_fan_of_many_branches_keeps_them_whole() -> None:
    """What can come next is more than what is looked at; branches still end before others begin."""
    count = 3 * READY
    nodes = [Node("x", "null", [], [tensor(8)])]
    nodes += [step(f"grow{i}", 1000, 0) for i in range(count)]
    nodes += [step(f"shrink{i}", 10, 1 + i) for i in range(count)]
    nodes += [step("join", 40, *range(count + 1, 2 * count + 1))]
    graph = Graph(nodes, [0], [(2 * count + 1, 0)], {})
    assert bound(order_steps(graph)) == 1000 + 10 * count
