"""The graph executor's JSON: nodes in order of execution, their entries, shapes and storage.

The form is the classic graph JSON: "null" nodes are inputs and parameters, "tvm_op" nodes call
kernels or copy to another device, and an entry is a node's output. Three attributes are our own:
storage_offset says where an entry lies in one arena of arena_bytes, or in a storage that is the
arena of another device, so that storage is planned at its live ranges' bound, and output_names says
what the model calls its outputs.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sterna.ir.module import OUTPUT_NAMES
from sterna.ir.types import TensorType, TupleType, flatten_type
from sterna.lowering.check_packed import check_packed
from sterna.lowering.device_storage import plan_devices_storage
from sterna.lowering.storage import Layout
from sterna.lowering.unique_kernels import Kernels
from sterna.lowering.work import bytes_of_all, is_picked_from, work_of
from sterna.relay.arrays import raw_bytes, same_elements
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, TupleGetItem, Var
from sterna.relay.op import is_call_of, record_of
from sterna.relay.placed import DEVICE, source
from sterna.relay.traverse import not_primitive, post_order
from sterna.runtime import NDArray

CPU = 1
# Constants are compared as wholes where so many of their first bytes are the same.
ALIKE = 256

# An output of a node, by the numbers of both.
Entry = tuple[int, int]


@dataclass(slots=True)
class Node:
    """A step of the executor."""

    name: str
    op: str
    inputs: list[Entry]
    types: list[TensorType]
    attrs: dict[str, str] = field(default_factory=dict)
    device: int = CPU
    """DLPack's number of the kind of device that its outputs lie on."""

    @property
    def is_view(self) -> bool:
        """Whether the output is the input's memory under another shape."""
        return self.attrs.get("func_name") == "__nop"


@dataclass(slots=True)
class Graph:
    """A network as the executor runs it."""

    nodes: list[Node]
    inputs: list[int]
    """The nodes of the inputs and parameters."""
    heads: list[Entry]
    params: dict[str, NDArray]
    output_names: Sequence[str] = ()
    """What the model calls its outputs; empty if it has no names for them."""
    arena_bytes: int = 0
    """What lies between the kernels, on all devices together."""

    def to_json(
        self, take_over: Mapping[str, Sequence[tuple[int, int]]] | None = None, threads: int = 1,
    ) -> str:
        """The graph in the form that executors read; take_over and threads: see Layout."""
        first = [0]
        for node in self.nodes:
            first.append(first[-1] + len(node.types))
        kinds = [kind for node in self.nodes for kind in node.types]
        devices = [node.device for node in self.nodes for _ in node.types]
        plan = plan_devices_storage(self, Layout(take_over=take_over or {}, threads=threads))
        self.arena_bytes = sum(plan.arenas.values())
        names = {OUTPUT_NAMES: ["list_str", list(self.output_names)]} if self.output_names else {}
        return json.dumps({
            "nodes": [_node_json(node) for node in self.nodes],
            "arg_nodes": self.inputs,
            "heads": [[node, index, 0] for node, index in self.heads],
            "attrs": {
                "dltype": ["list_str", [str(kind.dtype) for kind in kinds]],
                "device_index": ["list_int", devices],
                "storage_id": ["list_int", plan.storage_ids],
                "storage_offset": ["list_int", plan.offsets],
                "arena_bytes": ["int", plan.first_arena],
                "shape": ["list_shape", [list(kind.concrete_shape) for kind in kinds]],
                **names,
            },
            "node_row_ptr": first,
        })


def _node_json(node: Node) -> dict[str, Any]:
    made: dict[str, Any] = {"op": node.op, "name": node.name, "inputs": []}
    if node.op != "null":
        made["inputs"] = [[source, index, 0] for source, index in node.inputs]
        made["attrs"] = node.attrs
    return made


def make_graph(
    main: Function, kernels: Kernels, output_names: Sequence[str] = (), symbolic: bool = False,
    device: int = CPU,
) -> Graph:
    """The graph of a fused function, whose packed weights are what its kernels can trust.

    symbolic: whether extents may be symbols, which a compiled function is told; the executor of
    graphs knows all extents. device: that of kernels that are not marked with another.
    """
    check_packed(main)
    graph = _Maker(kernels, symbolic, device).run(main)
    if len(output_names) == len(graph.heads):
        graph.output_names = output_names
    return graph


class _Maker:
    def __init__(self, kernels: Kernels, symbolic: bool, device: int) -> None:
        self.kernels, self.symbolic, self.device = kernels, symbolic, device
        self.graph = Graph([], [], [], {})
        self.entries: dict[int, list[Entry]] = {}
        self.homes: dict[int, int] = {}
        """The devices of inputs and constants: those that read them."""
        self.params: dict[tuple[int, int], list[Entry]] = {}
        self.alike: dict[tuple[Any, ...], list[Constant]] = {}
        """Constants that begin with the same bytes."""
        self.used: dict[str, int] = {}

    def run(self, main: Function) -> Graph:
        order = post_order(main.body, not_primitive)
        for expr in order:
            if isinstance(expr, Call):
                self.homes.update({id(source(arg)): self._reads_on(expr) for arg in expr.args})
        for param in main.params:
            self.entries[id(param)] = self._input(param.name_hint, param)
        for expr in order:
            if id(expr) not in self.entries:
                self.entries[id(expr)] = self._make(expr)
        self.graph.heads = self.entries[id(main.body)]
        return self.graph

    def _make(self, expr: RelayExpr) -> list[Entry]:
        if isinstance(expr, Function):
            return []
        if isinstance(expr, Constant):
            return self._constant(expr)
        if isinstance(expr, Tuple):
            return [entry for part in expr.fields for entry in self.entries[id(part)]]
        if isinstance(expr, TupleGetItem):
            return self._item(expr)
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            return self._call(expr, expr.op)
        if isinstance(expr, Call) and is_call_of(expr, "device_copy"):
            return self._copy(expr)
        what = f"the variable {expr.name_hint}" if isinstance(expr, Var) else type(expr).__name__
        raise ValueError(
            f"the graph executor runs calls of kernels only; the graph holds {what}"
        )

    def _reads_on(self, call: Call) -> int:
        """The device that a call's operands lie on."""
        if is_call_of(call, "device_copy"):
            return int(call.attrs.src_device)  # type: ignore[union-attr]
        attrs = call.op.attrs if isinstance(call.op, Function) else None
        return int((attrs or {}).get(DEVICE, self.device))

    def _input(self, name: str, expr: RelayExpr) -> list[Entry]:
        entries = []
        device = self.homes.get(id(expr), self.device)
        kinds = flatten_type(expr.checked_type)
        for place, kind in enumerate(kinds):
            if not kind.is_static and not self.symbolic:
                raise ValueError(
                    f"the input {name} has the type {kind!r}; the graph executor needs every "
                    "dimension: say which sizes to compile for with shape="
                )
            own = name if len(kinds) == 1 else f"{name}.{place}"
            entries.append(self._add(Node(own, "null", [], [kind], device=device)))
            self.graph.inputs.append(entries[-1][0])
        return entries

    def _first_alike(self, expr: Constant) -> Constant:
        """The first constant of the same elements and name, or this one."""
        device, kind = self.homes.get(id(expr), self.device), expr.checked_type
        begin = raw_bytes(expr.data)[:ALIKE].tobytes()
        known = self.alike.setdefault((device, expr.span, str(kind), begin), [])
        for other in known:
            if same_elements(other.data, expr.data):
                return other
        known.append(expr)
        return expr

    def _constant(self, expr: Constant) -> list[Entry]:
        expr = self._first_alike(expr)
        key = id(expr.data), self.homes.get(id(expr), self.device)
        if key not in self.params:
            name = f"p{len(self.params)}"
            while name in self.used:
                name = f"{name}_"
            self.graph.params[name] = expr.data
            self.params[key] = self._input(name, expr)
            if expr.span:
                self.graph.nodes[self.params[key][0][0]].attrs["parameter"] = expr.span
        return self.params[key]

    def _item(self, expr: TupleGetItem) -> list[Entry]:
        entries = self.entries[id(expr.tuple_value)]
        kind = expr.tuple_value.checked_type
        assert isinstance(kind, TupleType)
        begin = sum(len(flatten_type(part)) for part in kind.fields[: expr.index])
        return entries[begin : begin + len(flatten_type(kind.fields[expr.index]))]

    def _call(self, call: Call, function: Function) -> list[Entry]:
        name = self.kernels.names[id(function)]
        inputs = [entry for arg in call.args for entry in self.entries[id(arg)]]
        kinds = flatten_type(call.checked_type)
        work = work_of(function)
        constants = {
            id(arg.data): bytes_of_all(arg.checked_type)
            for arg, param in zip(call.args, function.params, strict=True)
            if isinstance(arg, Constant) and not is_picked_from(function, param)
        }
        constant_bytes = sum(constants.values())
        attrs = {
            "num_outputs": str(len(kinds)),
            "num_inputs": str(len(inputs)),
            "flatten_data": "0",
            "func_name": "__nop" if is_view(function) else name,
            "flops": str(work.flops),
            "bytes": str(work.bytes),
            "written_bytes": str(work.written_bytes),
            **({"constant_bytes": str(constant_bytes)} if constant_bytes else {}),
            **({"packing_overhead": str(work.packing_overhead)} if work.packing_overhead else {}),
            **({"function_steps": str(work.function_steps)} if work.function_steps else {}),
            **({"spared_flops": str(work.spared_flops), "way": work.way} if work.way else {}),
            **({"product_flops": str(work.product_flops), "product_type": work.product_type}
               if work.product_type not in ("", str(kinds[0].dtype)) else {}),
            **_sources(function),
        }
        node, _ = self._add(Node(name, "tvm_op", inputs, kinds, attrs, self._reads_on(call)))
        return [(node, place) for place in range(len(kinds))]

    def _copy(self, call: Call) -> list[Entry]:
        """A node that takes a value to another device."""
        (inputs,) = (self.entries[id(arg)] for arg in call.args)
        size = bytes_of_all(call.checked_type)
        attrs = {
            "num_outputs": "1", "num_inputs": "1", "flatten_data": "0", "func_name": "__copy",
            "bytes": str(2 * size), "written_bytes": str(size),
            **({"sources": json.dumps([call.span])} if call.span else {}),
        }
        device = int(call.attrs.dst_device)  # type: ignore[union-attr]
        kinds = flatten_type(call.checked_type)
        return [self._add(Node("device_copy", "tvm_op", inputs, kinds, attrs, device))]

    def _add(self, node: Node) -> Entry:
        base = node.name
        while node.name in self.used:
            self.used[base] += 1
            node.name = f"{base}_{self.used[base]}"
        self.used[node.name] = 0
        self.graph.nodes.append(node)
        return len(self.graph.nodes) - 1, 0


def _sources(function: Function) -> dict[str, str]:
    """What a kernel computes, by the names of the nodes in the model that was imported."""
    parts = [part for part in post_order(function.body) if not isinstance(part, Constant)]
    names = dict.fromkeys(name for part in parts if part.span for name in part.span.splitlines())
    return {"sources": json.dumps(list(names))} if names else {}


def is_view(function: Function) -> bool:
    """Whether a kernel only gives its one operand another shape."""
    calls = [expr for expr in post_order(function.body) if isinstance(expr, Call)]
    known = [record_of(call) for call in calls]
    return len(function.params) == 1 and all(r is not None and r.is_view for r in known)
