"""Looking into the graph executor: times of nodes, what they give, tables and traces."""

import json
from pathlib import Path

import numpy as np
import pytest

import sterna as tvm
from sterna.contrib.debugger import debug_executor
from sterna.runtime.node_times import Bounds, NodeTime, NodeTimes
from tests.runtime.graphs import kernels, sample, small_graph

CPU = tvm.cpu(0)


def make(dump_root: str | None = None) -> debug_executor.GraphModuleDebug:
    return debug_executor.create(small_graph().planned_json(), kernels(), CPU, dump_root)


def test_run_prints_and_dumps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    m = make(str(tmp_path / "dump"))
    m.run(x=sample(1), w=sample(2))
    np.testing.assert_array_equal(m.get_output(1).numpy(), sample(1) + sample(2))
    printed = capsys.readouterr().out
    for word in ("Node Name", "add2", "halve_row4", "__nop", "Total", "GFLOP/s"):
        assert word in printed
    graph = json.loads((tmp_path / "dump" / "graph.json").read_text())
    assert len(graph["nodes"]) == 5
    events = json.loads((tmp_path / "dump" / "trace.json").read_text())["traceEvents"]
    assert [event["name"] for event in events] == ["add2", "__nop3", "halve_row4"]


def test_profile_gives_times_and_work() -> None:
    m = make()
    report = m.profile(repeat=3, bounds=Bounds(10, [(1e9, 1)]), x=sample(1))
    assert [node.name for node in report.nodes] == ["add2", "__nop3", "halve_row4"]
    last = report.nodes[-1]
    assert (last.flops, last.bytes, last.inputs, last.shapes) == (15, 120, 1, ((15,),))
    assert last.seconds > 0 and report.seconds >= last.seconds
    assert report.nodes[1].seconds == 0
    assert "Bound(%)" in str(report)
    with pytest.raises(ValueError, match="repeat=0"):
        m.profile(repeat=0)


def test_any_node_is_looked_at() -> None:
    m = make()
    m.set_input(x=sample(1), w=sample(2))
    total = sample(1) + sample(2)
    np.testing.assert_array_equal(m.debug_get_output("add2").numpy(), total)
    np.testing.assert_array_equal(m.debug_get_output(3).numpy(), total.ravel())
    np.testing.assert_array_equal(m.debug_get_output("w", 0).numpy(), sample(2))
    out = tvm.nd.empty((15,))
    m.debug_get_output("halve_row4", out)
    np.testing.assert_array_equal(out.numpy(), total.ravel() * np.float32(0.5))
    with pytest.raises(RuntimeError, match="Could not find 'nothing' in graph's nodes"):
        m.debug_get_output("nothing")
    with pytest.raises(IndexError, match="no node 2 with an output 1"):
        m.debug_get_output("add2", 1)


def test_nodes_are_timed_alone() -> None:
    m = make()
    assert m.run_individual_node("add2", number=2, repeat=3).min > 0
    assert len(m.run_individual(2)) == 5
    m.exit()


def test_another_graph_is_refused() -> None:
    m = make()
    text = small_graph().json().replace('"add2"', '"sum"')
    with pytest.raises(ValueError, match="not the one that the executor runs"):
        debug_executor.GraphModuleDebug(m.module, CPU, text)


@pytest.mark.parametrize(("dtype", "share"), [
    ("float32", 0.5), ("uint8", 0.125), ("int8", 0.125), ("int32", 0.125), ("float64", None),
])
def test_a_bound_is_that_of_the_type_that_is_computed(dtype: str, share: float | None) -> None:
    node = NodeTime("conv", "f", 2e-3, 2, ((1, 8),), flops=4_000_000, dtype=dtype)
    times = NodeTimes([node], Bounds(gflops=4, byte_gflops=16))
    assert times.share_of_bound(node) == share


@pytest.mark.parametrize(("products", "kind", "spared", "share"), [
    (3_000_000, "int8", 0, (1 / 4 + 3 / 16) / 2), (3_000_000, "int16", 0, 1 / 4 / 2),
    (3_000_000, "float16", 1_000_000, (1 / 4 + 2 / 8) / 2), (0, "", 1_000_000, 3 / 4 / 2),
])
def test_products_of_another_type_than_the_output_have_its_bound(
    products: int, kind: str, spared: int, share: float
) -> None:
    node = NodeTime("conv", "f", 2e-3, 2, ((1, 8),), flops=4_000_000, spared_flops=spared,
                    product_flops=products, product_type=kind)
    times = NodeTimes([node], Bounds(gflops=4, half_gflops=8, byte_gflops=16))
    assert times.share_of_bound(node) == pytest.approx(share)


def test_instructions_of_functions_take_the_place_of_multiply_adds() -> None:
    node = NodeTime("exp", "f", 2e-3, 1, ((8,),), flops=1_000_000, function_steps=500_000)
    assert NodeTimes([node], Bounds(gflops=2)).share_of_bound(node) == 0.5
    assert node.gflops() == 0.5


@pytest.mark.parametrize(("seconds", "far"), [(7e-3, True), (5e-3, False)])
def test_a_node_over_three_times_its_bound_is_marked(seconds: float, far: bool) -> None:
    node = NodeTime("conv", "f", seconds, 2, ((1, 8),), flops=4_000_000)
    short = NodeTime("relu", "g", 4e-6, 1, ((1, 8),), flops=10)
    times = NodeTimes([node, short], Bounds(gflops=2))
    assert times.is_far(node) == far
    assert not times.is_far(short), "the call takes most of it"
    assert not NodeTimes([node]).is_far(node), "nothing is known of the machine"
    assert [n["over_three_times_bound"] for n in times.to_dict()["nodes"]] == [far, False]


READS = [(1_000, 16), (1_000_000, 8), (10_000_000, 2)]


@pytest.mark.parametrize(("moved", "constant", "written", "least"), [
    (500_000, 0, 0, 500_000 / 16),  # reads alone, near
    (3_000_000, 0, 0, 3_000_000 / 8),
    (3_000_000, 0, 1_000_000, 2_000_000 / 4),  # a copy of what it writes, the rest beside it
    (1_600_000, 0, 1_500_000, 100_000 / 8 * 2),  # what it fills counts as far as it is a copy
    (500_000, 400_000, 0, 400_000 / 2),  # a parameter is as far away as all of them
], ids=["near reads", "reads", "copies", "fills", "parameters"])
def test_bytes_count_by_where_they_come_from(
    moved: int, constant: int, written: int, least: float
) -> None:
    node = NodeTime("f", "f", 1e-3, 1, ((8,),), bytes=moved, constant_bytes=constant,
                    written_bytes=written)
    others = NodeTime("g", "g", 1e-3, 1, ((8,),), bytes=10_000_000, constant_bytes=10_000_000)
    bounds = Bounds(gbytes=[(1_000, 8), (1_000_000, 4)], read_gbytes=READS)
    share = NodeTimes([node, others], bounds).share_of_bound(node)
    assert share == pytest.approx(least * 1e-9 / 1e-3)


def test_tables_and_traces_say_what_was_measured() -> None:
    times = NodeTimes(
        [
            NodeTime("conv", "f", 2e-3, 2, ((1, 8),), flops=4_000_000, bytes=1_000_000),
            NodeTime("copy", "g", 1e-3, 1, ((1, 8), (3,)), None, 2_000_000, 0, 1_000_000),
        ],
        Bounds(gflops=4, gbytes=[(1_000, 8), (1_500_000, 4), (3_000_000, 1)]),
    )
    assert times.seconds == pytest.approx(3e-3)
    assert times.table().splitlines() == [
        "Node Name  Ops  Time(us)  Time(%)  Shape         Inputs  Outputs  GFLOP/s  GB/s  Bound(%)",
        "---------  ---  --------  -------  -----         ------  -------  -------  ----  --------",
        "conv       f    2000.000  66.7     (1, 8)        2       1        2.00     0.50  50.0",
        "copy       g    1000.000  33.3     (1, 8), (3,)  1       2                 2.00  50.0",
        "Total           3000.000",
    ]
    first, second = json.loads(times.trace())["traceEvents"]
    assert (first["ts"], first["dur"], second["ts"], second["dur"]) == (0, 2000, 2000, 1000)
    assert second["args"] == {"function": "g", "shapes": [[1, 8], [3]], "bytes": 2_000_000}
    plain = NodeTimes([NodeTime("a", "f", 0.0, 1, ((2,),))])
    assert "GFLOP/s" not in plain.table() and plain.table(sort=False)
