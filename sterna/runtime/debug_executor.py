"""The graph executor with a view inside: what each node takes and gives."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from sterna.runtime import ndarray
from sterna.runtime.device import Device, cpu
from sterna.runtime.graph_executor import GraphModule, create_executor
from sterna.runtime.module import Module
from sterna.runtime.ndarray import NDArray
from sterna.runtime.node_times import Bounds, NodeTime, NodeTimes
from sterna.runtime.timing import BenchmarkResult

TRACE_FILE = "trace.json"
GRAPH_FILE = "graph.json"


def create(
    graph_json_str: str,
    libmod: Module,
    device: Device | Sequence[Device],
    dump_root: str | None = None,
) -> "GraphModuleDebug":
    """An executor of a graph whose functions are in a module."""
    module = create_executor(graph_json_str, libmod, device)
    return GraphModuleDebug(module, device, graph_json_str, dump_root)


class GraphModuleDebug(GraphModule):
    """A graph module that tells about its nodes.

    With dump_root, run writes the graph and the trace of the run into that folder.
    """

    def __init__(
        self,
        module: Module,
        device: Device | Sequence[Device],
        graph_json_str: str,
        dump_root: str | None = None,
    ) -> None:
        super().__init__(module)
        self.device = device if isinstance(device, Device) else device[0]
        self.dump_root = None if dump_root is None else Path(dump_root)
        self.graph_json = graph_json_str
        self.nodes: list[dict[str, Any]] = json.loads(graph_json_str)["nodes"]
        attrs = json.loads(graph_json_str)
        self._rows: list[int] = attrs["node_row_ptr"]
        self._shapes = [tuple(shape) for shape in attrs["attrs"]["shape"][1]]
        self._dtypes: list[str] = attrs["attrs"]["dltype"][1]
        if [node["name"] for node in self.nodes] != module["get_node_names"]():
            raise ValueError("the graph is not the one that the executor runs")

    def run(self, **input_dict: Any) -> None:
        """Run the graph once and print what each node took."""
        report = self.profile(**input_dict)
        if self.dump_root is not None:
            self.dump_root.mkdir(parents=True, exist_ok=True)
            (self.dump_root / GRAPH_FILE).write_text(self.graph_json, "utf-8")
            report.write_trace(self.dump_root / TRACE_FILE)
        print(report)

    def profile(
        self,
        repeat: int = 1,
        bounds: Bounds | None = None,
        **input_dict: Any,
    ) -> NodeTimes:
        """What each node takes: the median of some runs.

        With bounds the report says which share of what they allow each node reaches.
        """
        if repeat < 1:
            raise ValueError(f"repeat={repeat} must be at least 1")
        self.set_input(**input_dict)
        times = ndarray.empty((len(self.nodes),), "int64", self.module.home or cpu(0))
        run_timed = self.module["run_timed"]
        timings = []
        for _ in range(repeat):
            run_timed(times)
            timings.append(times.numpy())
        took = [median(int(run[i]) for run in timings) * 1e-9 for i in range(len(self.nodes))]
        calls = [self._node_time(i, took[i]) for i, n in enumerate(self.nodes) if n["op"] != "null"]
        return NodeTimes(calls, bounds)

    def _node_time(self, index: int, seconds: float) -> NodeTime:
        node = self.nodes[index]
        attrs = node.get("attrs", {})
        shapes = tuple(self._shapes[self._rows[index] : self._rows[index + 1]])
        return NodeTime(
            node["name"], attrs.get("func_name", ""), seconds, len(node["inputs"]), shapes,
            _count(attrs.get("flops")), _count(attrs.get("bytes")),
            _count(attrs.get("constant_bytes")) or 0, _count(attrs.get("written_bytes")) or 0,
            self._dtypes[self._rows[index]], _count(attrs.get("function_steps")) or 0,
            tuple(json.loads(attrs.get("sources", "[]"))),
            _count(attrs.get("spared_flops")) or 0, attrs.get("way", ""),
            _count(attrs.get("product_flops")) or 0, attrs.get("product_type", ""),
        )

    def _index_of(self, node: str | int) -> int:
        if isinstance(node, int):
            return node
        for index, each in enumerate(self.nodes):
            if each["name"] == node:
                return index
        raise RuntimeError(f"Could not find '{node}' in graph's nodes")

    def debug_get_output(self, node: str | int, out: NDArray | int | None = None) -> NDArray:
        """What a node gives, by its name or number; the graph is run up to it.

        out is an array to fill, or which of the node's outputs is meant.
        """
        index = self._index_of(node)
        for each in range(index + 1):
            self.module["run_node"](each)
        which = out if isinstance(out, int) else 0
        array: NDArray = self.module["get_node_output"](index, which)
        return array.copyto(out) if isinstance(out, NDArray) else array

    def run_individual_node(
        self,
        index: str | int,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
    ) -> BenchmarkResult:
        """Time one node alone, on what its inputs hold."""
        return self.module.time_evaluator(
            "run_node", self.device, number, repeat, min_repeat_ms,
            limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown,
        )(self._index_of(index))

    def run_individual(
        self,
        number: int,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
    ) -> list[BenchmarkResult]:
        """Time every node alone, in their order."""
        self._run()
        return [
            self.run_individual_node(
                index, number, repeat, min_repeat_ms, limit_zero_time_iterations,
                cooldown_interval_ms, repeats_to_cooldown,
            )
            for index in range(len(self.nodes))
        ]

    def exit(self) -> None:
        """Nothing is left behind; kept for programs that call it."""


def _count(text: Any) -> int | None:
    return None if text is None else int(text)
