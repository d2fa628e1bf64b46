"""Graphs written by hand: a builder of graph JSON, and kernels for its nodes."""

import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

import sterna as tvm
from sterna import te
from sterna.driver import OperatorModule

SHAPE = (3, 5)
Array = npt.NDArray[Any]

# What the kernels compute, on arrays of SHAPE or on their elements in a row.
MEANING: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "halve": lambda a: a * np.float32(0.5),
    "halve_row": lambda a: a * np.float32(0.5),
    "both": lambda a: (a + np.float32(1), a - np.float32(1)),
}


def _lowered(name: str, shape: tuple[int, ...]) -> tvm.IRModule:
    a = te.placeholder(shape, name="A")
    b = te.placeholder(shape, name="B")
    if name in ("add", "subtract"):
        sign = 1.0 if name == "add" else -1.0
        out = te.compute(shape, lambda *i: a[i] + b[i] * te.const(sign, "float32"), name="C")
        return tvm.lower(te.create_schedule(out.op), [a, b, out], name)
    if name == "both":
        up = te.compute(shape, lambda *i: a[i] + 1.0, name="up")
        down = te.compute(shape, lambda *i: a[i] - 1.0, name="down")
        return tvm.lower(te.create_schedule([up.op, down.op]), [a, up, down], name)
    out = te.compute(shape, lambda *i: a[i] * 0.5, name="C")
    return tvm.lower(te.create_schedule(out.op), [a, out], name)


@cache
def kernels(target: str = "llvm") -> OperatorModule:
    """A module with all kernels."""
    functions: dict[Any, Any] = {}
    for name in MEANING:
        shape = (SHAPE[0] * SHAPE[1],) if name == "halve_row" else SHAPE
        functions.update(_lowered(name, shape).functions)
    return tvm.build(tvm.IRModule(functions), target=target)


@dataclass
class Graph:
    """A graph that grows node by node. Entries are named by their place in the list of entries."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=lambda: [0])
    places: list[tuple[int, int]] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)

    def _add(self, node: dict[str, Any], shapes: list[tuple[int, ...]], dtype: str) -> list[int]:
        first = len(self.places)
        self.places += [(len(self.nodes), i) for i in range(len(shapes))]
        self.shapes += shapes
        self.dtypes += [dtype] * len(shapes)
        self.nodes.append(node)
        self.rows.append(len(self.places))
        return list(range(first, len(self.places)))

    def input(self, name: str, shape: tuple[int, ...] = SHAPE, dtype: str = "float32") -> int:
        """An input."""
        self.inputs.append(len(self.nodes))
        return self._add({"op": "null", "name": name, "inputs": []}, [shape], dtype)[0]

    def call(
        self, function: str, *arguments: int, outputs: list[tuple[int, ...]] | None = None,
        **attrs: str,
    ) -> list[int]:
        """A node that calls a function; its outputs."""
        shapes = outputs or [self.shapes[arguments[0]]]
        node = {
            "op": "tvm_op",
            "name": f"{function}{len(self.nodes)}",
            "attrs": {
                "func_name": function, "num_inputs": str(len(arguments)),
                "num_outputs": str(len(shapes)), "flatten_data": "0", **attrs,
            },
            "inputs": [[*self.places[a], 0] for a in arguments],
        }
        return self._add(node, shapes, self.dtypes[arguments[0]])

    def json(self, storage_ids: list[int] | None = None, **attrs: Any) -> str:
        """The graph as text; without ids every entry has storage of its own."""
        return json.dumps({
            "nodes": self.nodes,
            "arg_nodes": self.inputs,
            "heads": [[*self.places[head], 0] for head in self.heads],
            "attrs": {
                "dltype": ["list_str", self.dtypes],
                "shape": ["list_shape", [list(shape) for shape in self.shapes]],
                "storage_id": ["list_int", storage_ids or list(range(len(self.places)))],
                **attrs,
            },
            "node_row_ptr": self.rows,
        })

    def planned_json(self) -> str:
        """The graph with its intermediate entries in one arena, packed by their live ranges."""
        owner = list(range(len(self.places)))
        last = [self.places[entry][0] for entry in owner]
        for number, node in enumerate(self.nodes):
            read = [self.rows[n] + i for n, i, _ in node["inputs"]]
            if node.get("attrs", {}).get("func_name") == "__nop":
                owner[self.rows[number]] = owner[read[0]]
            for entry in read:
                last[owner[entry]] = number
        for head in self.heads:
            last[owner[head]] = len(self.nodes)
        offsets, arena = [-1] * len(owner), 0
        for entry, (number, _) in enumerate(self.places):
            if owner[entry] != entry or self.nodes[number]["op"] == "null":
                continue
            alive = sorted(
                offsets[e] for e in range(entry)
                if offsets[e] >= 0 and last[e] >= number
            )
            offsets[entry] = next(o for o in range(0, 64 * len(owner), 64) if o not in alive)
            arena = max(arena, offsets[entry] + 64)
        return self.json(storage_offset=["list_int", offsets], arena_bytes=["int", arena])

    def evaluate(self, values: dict[str, Array]) -> list[Array]:
        """What the outputs are, by NumPy."""
        known: list[Array] = []
        for number, node in enumerate(self.nodes):
            read = [known[self.rows[n] + i] for n, i, _ in node["inputs"]]
            if node["op"] == "null":
                known.append(values[node["name"]])
            elif node["attrs"]["func_name"] in ("__nop", "__copy"):
                known.append(read[0].reshape(self.shapes[self.rows[number]]))
            else:
                made = MEANING[node["attrs"]["func_name"]](*read)
                known += made if isinstance(made, tuple) else [made]
        return [known[head] for head in self.heads]


def small_graph() -> Graph:
    """y = (x + w) / 2 as a row, and x + w."""
    graph = Graph()
    x, w = graph.input("x"), graph.input("w")
    (total,) = graph.call("add", x, w)
    (row,) = graph.call("__nop", total, outputs=[(SHAPE[0] * SHAPE[1],)])
    (half,) = graph.call("halve_row", row, flops="15", bytes="120")
    graph.heads = [half, total]
    return graph


def sample(seed: int = 0, shape: tuple[int, ...] = SHAPE) -> Array:
    """Numbers to put in."""
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")
