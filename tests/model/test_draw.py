"""Drawings of graphs: places of boxes, and pictures that hold all of them."""

import random
import time
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import sterna
from sterna import relay
from sterna.model.draw import to_html, to_svg
from sterna.model.import_model import import_model
from sterna.model.layered_layout import GAP_X, Layout, lay_out_graph
from sterna.model.stages import Stages, statistics_of
from sterna.target import Target
from tests.model.networks import made

SVG = "{http://www.w3.org/2000/svg}"

Sizes = list[tuple[float, float]]
Edges = list[tuple[int, int]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Sizes, Edges]:
    """Boxes of some sizes, and edges from earlier to later ones."""
    count = draw(st.integers(1, 12))
    size = st.tuples(st.floats(1, 80), st.floats(1, 40))
    sizes = draw(st.lists(size, min_size=count, max_size=count))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = [(min(p), max(p)) for p in draw(st.lists(pairs, max_size=30)) if p[0] != p[1]]
    return sizes, edges


def check(sizes: Sizes, edges: Edges, layout: Layout) -> None:
    """Boxes lie apart and inside, and every edge leads down from its source to its sink."""
    boxes = [
        (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
        for (x, y), (w, h) in zip(layout.centres, sizes, strict=True)
    ]
    for left, top, right, bottom in boxes:
        assert left >= -1e-6 and top >= -1e-6
        assert right <= layout.width + 1e-6 and bottom <= layout.height + 1e-6
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            apart = a[0] >= b[2] + GAP_X - 1e-6 or b[0] >= a[2] + GAP_X - 1e-6
            assert apart or a[1] >= b[3] or b[1] >= a[3]
    assert set(layout.paths) == set(edges)
    for (source, sink), path in layout.paths.items():
        assert path[0] == pytest.approx((layout.centres[source][0], boxes[source][3]))
        assert path[-1] == pytest.approx((layout.centres[sink][0], boxes[sink][1]))
        assert all(a[1] <= b[1] for a, b in pairwise(path))


@settings(max_examples=60)
@given(graphs())
def test_boxes_lie_apart_and_edges_lead_down(graph: tuple[Sizes, Edges]) -> None:
    check(*graph, lay_out_graph(*graph))


def test_a_chain_is_straight_and_an_edge_up_is_refused() -> None:
    layout = lay_out_graph([(10.0, 5.0), (30.0, 5.0), (20.0, 5.0)], [(0, 1), (1, 2)])
    assert len({round(x, 6) for x, _ in layout.centres}) == 1
    with pytest.raises(ValueError, match="2 -> 1 does not lead to a later box"):
        lay_out_graph([(1.0, 1.0)] * 3, [(2, 1)])


def test_five_hundred_boxes_take_moments() -> None:
    draw = random.Random(0)
    sizes = [(draw.uniform(40, 200), draw.uniform(30, 60)) for _ in range(500)]
    edges = [(i - 1, i) for i in range(1, 500)]
    edges += [(draw.randrange(max(0, i - 40), i), i) for i in range(1, 500)]
    start = time.perf_counter()
    layout = lay_out_graph(sizes, sorted(set(edges)))
    assert time.perf_counter() - start < 20  # on a machine that does much else; a second otherwise
    check(sizes, sorted(set(edges)), layout)


def network() -> sterna.IRModule:
    """Two convolutions, a sum and a softmax."""
    x = relay.var("x", shape=(1, 4, 8, 8))
    w = relay.const(np.ones((4, 4, 3, 3), "float32"))
    first = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1)))
    second = relay.nn.conv2d(first, w, padding=(1, 1))
    body = relay.nn.softmax(relay.nn.batch_flatten(relay.add(first, second)))
    return sterna.IRModule.from_expr(relay.Function((x,), relay.Tuple((body, first))))


def test_pictures_hold_every_kernel_with_what_was_fused() -> None:
    graph = Stages.of(network(), {}, Target("llvm"), 3).boxes()
    kinds = [box.kind for box in graph.boxes]
    assert kinds[0] == "input" and kinds[-2:] == ["output", "output"] and "product" in kinds
    assert any({"nn.conv2d", "nn.relu"} <= set(box.lines) for box in graph.boxes)
    root = ElementTree.fromstring(to_svg(graph, "a < b"))
    assert len(root.findall(f".//{SVG}rect")) == len(graph.boxes)
    assert len(root.findall(f".//{SVG}path")) == len(set(graph.edges))
    shown = [text.text for text in root.iter(f"{SVG}text")]
    assert "nn.softmax" in shown and "float32(1, 4, 8, 8)" in shown
    page = to_html(graph, "a < b")
    assert page.startswith("<!DOCTYPE html>") and "a &lt; b" in page
    assert "src=" not in page and "href=" not in page


def test_kernels_know_the_nodes_that_they_come_from() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", *"gbmv"], ["n"], name="norm"),
        helper.make_node("Relu", ["n"], ["y"], name="relu"),
    ]
    weights = {"w": np.ones((4, 4, 3, 3), "float32")}
    weights |= {name: np.linspace(1, 2, 4, dtype="float32") for name in "gbmv"}
    model = made(nodes, {"x": [1, 4, 8, 8]}, {"y": [1, 4, 8, 8]}, weights)
    graph = Stages.of(*import_model(model, None, None), Target("llvm"), 3).boxes()
    (conv,) = [box for box in graph.boxes if box.kind == "product"]
    (sources,) = [line for line in conv.details if line.startswith("from ")]
    assert {"conv", "norm", "relu"} == set(sources.removeprefix("from ").split(", "))


def test_statistics_and_stages() -> None:
    found = statistics_of(network())
    assert found.operators["nn.conv2d"] == 2 and found.macs == 2 * 8 * 8 * 4 * 4 * 9
    assert found.outputs == ("output0: float32(1, 256)", "output1: float32(1, 4, 8, 8)")
    model = Stages.of(network(), {}, Target("llvm"), 0)
    assert "nn.softmax" in model.text("relay") and "fn (" in model.text("optimized")
    assert model.text("tir", "softmax").startswith("def tvmgen_default_fused_nn_softmax")
    assert "define" in model.text("llvm", "softmax") and "softmax" in model.text("asm", "softmax")
    assert "int32_t" in model.text("c", "softmax")
    with pytest.raises(ValueError, match="no stage 'wings'; they are relay"):
        model.text("wings")
    with pytest.raises(ValueError, match="no kernel's name has 'wings' in it; they are tvmgen"):
        model.text("tir", "wings")
