"""AOT: a graph as one function, which calls every kernel in order.

Its parameters are the graph's inputs, its constants, its outputs, and the memory in which all
intermediate results lie. What the graph gives is computed right into the outputs.
"""

import json
from dataclasses import dataclass
from itertools import chain

from sterna.ir import build
from sterna.ir.expr import HANDLE, INT32, Call, Expr, StringImm, Var
from sterna.ir.types import TensorType
from sterna.lowering.graph import Entry, Graph, Node
from sterna.lowering.storage import (
    ConstantLayout,
    Layout,
    Place,
    StoragePlan,
    owners_of,
    plan_constants,
    plan_storage,
)
from sterna.lowering.work import bytes_of
from sterna.support.dtype import DataType
from sterna.tir.stmt import (
    Buffer,
    BufferLoad,
    Evaluate,
    PrimFunc,
    Stmt,
    nothing,
    seq,
    statements_in,
)
from sterna.tir.usmp import PoolPlan

INT64, UINT8 = DataType("int64"), DataType("uint8")
# By kernels the layers of the model that each of their calls computes.
Sources = dict[str, tuple[tuple[str, ...], ...]]


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand of the whole network."""

    name: str
    type: TensorType

    @property
    def bytes(self) -> int:
        """Its size."""
        return bytes_of(self.type)

    def declared(self) -> Buffer:
        """It as those know it who check what they are given."""
        shape = tuple(build.const(extent) for extent in self.type.concrete_shape)
        return Buffer(self.name, self.type.dtype, shape)

    def memory(self) -> Buffer:
        """It as bytes, whatever they stand for."""
        return Buffer(self.name, UINT8, (build.const(self.bytes),))


@dataclass(frozen=True, slots=True)
class EntryFunction:
    """The function that runs a network, and what its parameters are.

    They are inputs, constants, pools of constants, outputs and pools for everything in between.
    Inputs and outputs that lie in the latter are no parameters.
    """

    function: PrimFunc
    inputs: list[Tensor]
    constants: list[Tensor]
    """Those that lie in no pool."""
    outputs: list[Tensor]
    plan: StoragePlan
    constant_plan: PoolPlan
    pooled_constants: dict[str, Place]
    """By name, where the others lie."""
    input_places: list[Place]
    """Where the inputs lie, if they lie in the pools."""
    output_places: list[Place]

    @property
    def workspace_bytes(self) -> int:
        """The memory for intermediate results, in all pools together."""
        return self.plan.arena_bytes

    @property
    def pool_bytes(self) -> list[int]:
        """The sizes of the last parameters, which are there even if these are 0."""
        return list(self.plan.memory.sizes.values())


def make_entry(
    graph: Graph, name: str, layout: Layout | None = None, constants: ConstantLayout | None = None
) -> EntryFunction:
    """The function of that name which runs a graph."""
    return _Maker(graph, layout or Layout(), constants or ConstantLayout()).run(name)


def kernels_called(entry: PrimFunc) -> list[tuple[str, tuple[str, ...]]]:
    """The kernels that a network's function calls, in their order, with the layers of each."""
    called: list[str] = []
    for step in statements_in(entry.body):
        call = step.value if isinstance(step, Evaluate) else None
        if isinstance(call, Call) and call.op == "try_call":
            (kernel, *_) = call.args
            assert isinstance(kernel, StringImm)
            called.append(kernel.value)
    sources: Sources = entry.attrs.get("sources", {})
    left = {name: iter(sources.get(name, ())) for name in called}
    return [(name, next(left[name], ())) for name in called]


def declare(entry: PrimFunc) -> list[PrimFunc]:
    """Declarations of the kernels that a function calls, for code that is apart from them."""
    found: dict[str, PrimFunc] = {}
    stack: list[Stmt] = [entry.body]
    while stack:
        step = stack.pop()
        stack.extend(child for child in step.children() if isinstance(child, Stmt))
        call = step.value if isinstance(step, Evaluate) else None
        if isinstance(call, Call) and call.op == "try_call":
            kernel, *args = call.args
            assert isinstance(kernel, StringImm)
            buffers = tuple(
                Buffer(f"a{i}", UINT8, (build.const(1),)) if arg.dtype == HANDLE else None
                for i, arg in enumerate(args)
            )
            params = tuple(
                Var(f"n{i}", arg.dtype) if buffer is None else buffer.data
                for i, (arg, buffer) in enumerate(zip(args, buffers, strict=True))
            )
            attrs = {"external": True, "export": True}
            found[kernel.value] = PrimFunc(kernel.value, params, buffers, nothing(), attrs)
    return list(found.values())


class _Maker:
    def __init__(self, graph: Graph, layout: Layout, held: ConstantLayout) -> None:
        self.graph = graph
        self.layout = layout
        self.owners = owners_of(graph)
        names = _output_names(graph)
        self.results = [Tensor(n, self._type(h)) for n, h in zip(names, graph.heads, strict=True)]
        self.outputs = [tensor.memory() for tensor in self.results]
        # The first output that is an entry's own memory: there its kernel writes it.
        self.direct: dict[Entry, Buffer] = {}
        if not layout.holds_operands:
            for head, buffer in zip(graph.heads, self.outputs, strict=True):
                owner = self.owners[head]
                if graph.nodes[owner[0]].op != "null":
                    self.direct.setdefault(owner, buffer)
        self.plan = plan_storage(graph, layout, set(self.direct))
        self.pools = _memory_of("workspace", self.plan.memory)
        self.constant_plan, self.pooled = plan_constants(graph, held)
        self.constant_pools = _memory_of("constants", self.constant_plan)
        self.given: dict[Entry, tuple[Buffer, int]] = {}

    def _type(self, entry: Entry) -> TensorType:
        return self.graph.nodes[entry[0]].types[entry[1]]

    def run(self, name: str) -> EntryFunction:
        graph, holds_operands = self.graph, self.layout.holds_operands
        inputs: list[Tensor] = []
        constants: list[Tensor] = []
        groups: tuple[list[Buffer], list[Buffer]] = ([], [])
        for number in graph.inputs:
            node = graph.nodes[number]
            tensor, is_constant = Tensor(node.name, node.types[0]), node.name in graph.params
            if node.name in self.pooled:
                pool, offset = self.pooled[node.name]
                self.given[number, 0] = (self.constant_pools[pool], offset)
                continue
            (constants if is_constant else inputs).append(tensor)
            if is_constant or not holds_operands:
                groups[is_constant].append(tensor.memory())
                self.given[number, 0] = (groups[is_constant][-1], 0)
        steps = [
            self._call(number, node)
            for number, node in enumerate(graph.nodes)
            if node.op != "null" and not node.is_view
        ]
        body = seq(*steps, *self._copies())
        outputs = [] if holds_operands else self.outputs
        every = (*groups[0], *groups[1], *self.constant_pools, *outputs, *self.pools)
        tensors = [*([] if holds_operands else inputs), *constants]
        results = [] if holds_operands else self.results
        declared = (
            *(t.declared() for t in tensors), *self.constant_pools,
            *(t.declared() for t in results), *self.pools,
        )
        written = {*outputs, *self.pools}
        places = tuple(place for place, buffer in enumerate(every) if buffer in written)
        attrs = {
            "declared": declared, "noalias": False, "written": places,
            "sources": sources_by_kernel(graph),
        }
        function = PrimFunc(name, tuple(b.data for b in every), every, body, attrs)
        given = [(n, 0) for n in graph.inputs if graph.nodes[n].name not in graph.params]
        return EntryFunction(
            function, inputs, constants, self.results, self.plan, self.constant_plan, self.pooled,
            [self.plan.places[entry] for entry in given] if holds_operands else [],
            [self.plan.output_places[head] for head in graph.heads] if holds_operands else [],
        )

    def _call(self, number: int, node: Node) -> Stmt:
        own = [(number, index) for index in range(len(node.types))]
        places = [self._address(entry) for entry in (*node.inputs, *own)]
        places += [self._in_pool(place) for place in self.plan.scratch.get(number, ())]
        kernel = StringImm(node.attrs["func_name"])
        return Evaluate(Call(INT32, "try_call", (kernel, *places)))

    def _address(self, entry: Entry) -> Expr:
        owner = self.owners[entry]
        if owner in self.given:
            return _element(*self.given[owner])
        if owner in self.direct:
            return _element(self.direct[owner], 0)
        return self._in_pool(self.plan.places[owner])

    def _in_pool(self, place: Place) -> Expr:
        pool, offset = place
        return _element(self.pools[pool], offset)

    def _copies(self) -> list[Stmt]:
        """Outputs that no kernel writes: those that are inputs, and those that are given twice."""
        steps: list[Stmt] = []
        for head, buffer in zip(self.graph.heads, self.outputs, strict=True):
            owner = self.owners[head]
            if self.layout.holds_operands:
                if owner in self.plan.places:
                    continue
                target = self._in_pool(self.plan.output_places[head])
            elif self.direct.get(owner) is buffer:
                continue
            else:
                target = _element(buffer, 0)
            size = build.const(bytes_of(self._type(head)), INT64)
            args = (StringImm("memcpy"), target, self._address(head), size)
            steps.append(Evaluate(Call(HANDLE, "call_extern", args)))
        return steps


def _memory_of(what: str, plan: PoolPlan) -> list[Buffer]:
    """The pools as bytes."""
    sizes = list(plan.sizes.items())
    names = [what] if len(sizes) == 1 else [f"{what}_{name}" for name, _ in sizes]
    return [
        Buffer(name, UINT8, (build.const(max(1, size)),))
        for name, (_, size) in zip(names, sizes, strict=True)
    ]


def _output_names(graph: Graph) -> list[str]:
    taken = {graph.nodes[number].name for number in graph.inputs}
    count = len(graph.heads)
    plain = ["output"] if count == 1 else [f"output{place}" for place in range(count)]
    names = list(graph.output_names) or plain
    while taken & set(names):
        names = [f"{name}_" for name in names]
    return names


def _element(buffer: Buffer, index: int) -> Expr:
    return Call(HANDLE, "address_of", (BufferLoad(buffer, (build.const(index),)),))


def layers_by_kernel(graph: Graph) -> dict[str, tuple[str, ...]]:
    """The nodes of the model that each kernel computes, in all of its calls."""
    calls = sources_by_kernel(graph)
    return {name: tuple(chain.from_iterable(each)) for name, each in calls.items()}


def sources_by_kernel(graph: Graph) -> Sources:
    """The nodes of the model that each kernel computes, in each of its calls."""
    found: Sources = {}
    for node in graph.nodes:
        if "func_name" in node.attrs:
            kernel, own = node.attrs["func_name"], json.loads(node.attrs.get("sources", "[]"))
            found[kernel] = (*found.get(kernel, ()), tuple(own))
    return found
