"""A graph as one function, which calls every kernel in order.

Its parameters are the graph's inputs, its constants, its outputs, and one piece of memory in which
all intermediate results lie. What the graph gives is computed right into the outputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sterna.ir import build
from sterna.ir.expr import HANDLE, INT32, Call, Expr, StringImm
from sterna.ir.types import TensorType
from sterna.lowering.graph import Entry, Graph, Node
from sterna.lowering.storage import ALIGNMENT, StoragePlan, owners_of, plan_storage
from sterna.lowering.work import bytes_of
from sterna.support.dtype import DataType
from sterna.tir.stmt import Buffer, BufferLoad, Evaluate, PrimFunc, SeqStmt, Stmt, nothing, seq

INT64, UINT8 = DataType("int64"), DataType("uint8")


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
class Layout:
    """How the memory between the kernels is arranged."""

    algorithm: str = "auto"
    alignment: int = ALIGNMENT
    scratch: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By kernel, the sizes of the memory that it is given as its last arguments."""


@dataclass(frozen=True, slots=True)
class EntryFunction:
    """The function that runs a network, and what its parameters are."""

    function: PrimFunc
    inputs: list[Tensor]
    constants: list[Tensor]
    outputs: list[Tensor]
    plan: StoragePlan

    @property
    def workspace_bytes(self) -> int:
        """The size of the last parameter; it has that parameter even if this is 0."""
        return self.plan.arena_bytes


def make_entry(graph: Graph, name: str, layout: Layout | None = None) -> EntryFunction:
    """The function of that name which runs a graph."""
    return _Maker(graph, layout or Layout()).run(name)


def declare(entry: PrimFunc) -> list[PrimFunc]:
    """Declarations of the kernels that a function calls, for code that is apart from them."""
    found: dict[str, PrimFunc] = {}
    steps = entry.body.stmts if isinstance(entry.body, SeqStmt) else (entry.body,)
    for step in steps:
        call = step.value if isinstance(step, Evaluate) else None
        if isinstance(call, Call) and call.op == "try_call":
            kernel, *args = call.args
            assert isinstance(kernel, StringImm)
            buffers = tuple(Buffer(f"a{i}", UINT8, (build.const(1),)) for i in range(len(args)))
            params = tuple(buffer.data for buffer in buffers)
            attrs = {"external": True, "export": True}
            found[kernel.value] = PrimFunc(kernel.value, params, buffers, nothing(), attrs)
    return list(found.values())


class _Maker:
    def __init__(self, graph: Graph, layout: Layout) -> None:
        self.graph = graph
        self.layout = layout
        self.owners = owners_of(graph)
        names = _output_names(graph)
        self.results = [Tensor(n, self._type(h)) for n, h in zip(names, graph.heads, strict=True)]
        self.outputs = [tensor.memory() for tensor in self.results]
        # The first output that is an entry's own memory: there its kernel writes it.
        self.direct: dict[Entry, Buffer] = {}
        for head, buffer in zip(graph.heads, self.outputs, strict=True):
            owner = self.owners[head]
            if graph.nodes[owner[0]].op != "null":
                self.direct.setdefault(owner, buffer)
        scratch = {
            number: layout.scratch[node.attrs["func_name"]]
            for number, node in enumerate(graph.nodes)
            if node.op != "null" and layout.scratch.get(node.attrs["func_name"])
        }
        self.plan = plan_storage(
            graph, layout.algorithm, layout.alignment, set(self.direct), scratch
        )
        self.workspace = Buffer("workspace", UINT8, (build.const(max(1, self.plan.arena_bytes)),))
        self.first = [0]
        for node in graph.nodes:
            self.first.append(self.first[-1] + len(node.types))
        self.given: dict[Entry, Buffer] = {}

    def _type(self, entry: Entry) -> TensorType:
        return self.graph.nodes[entry[0]].types[entry[1]]

    def run(self, name: str) -> EntryFunction:
        graph = self.graph
        groups: tuple[list[Tensor], list[Tensor]] = ([], [])
        buffers: tuple[list[Buffer], list[Buffer]] = ([], [])
        for number in graph.inputs:
            node = graph.nodes[number]
            place = node.name in graph.params
            tensor = Tensor(node.name, node.types[0])
            groups[place].append(tensor)
            buffers[place].append(tensor.memory())
            self.given[(number, 0)] = buffers[place][-1]
        steps = [
            self._call(number, node)
            for number, node in enumerate(graph.nodes)
            if node.op != "null" and not node.is_view
        ]
        body = seq(*steps, *self._copies())
        every = (*buffers[0], *buffers[1], *self.outputs, self.workspace)
        declared = [t.declared() for t in (*groups[0], *groups[1], *self.results)]
        attrs = {"declared": (*declared, self.workspace), "noalias": False}
        function = PrimFunc(name, tuple(b.data for b in every), every, body, attrs)
        return EntryFunction(function, *groups, self.results, self.plan)

    def _call(self, number: int, node: Node) -> Stmt:
        own = [(number, index) for index in range(len(node.types))]
        places = [self._address(entry) for entry in (*node.inputs, *own)]
        places += [_element(self.workspace, at) for at in self.plan.scratch.get(number, ())]
        kernel = StringImm(node.attrs["func_name"])
        return Evaluate(Call(INT32, "try_call", (kernel, *places)))

    def _address(self, entry: Entry) -> Expr:
        owner = self.owners[entry]
        buffer = self.given.get(owner) or self.direct.get(owner)
        if buffer is not None:
            return _element(buffer, 0)
        return _element(self.workspace, self.plan.offsets[self.first[owner[0]] + owner[1]])

    def _copies(self) -> list[Stmt]:
        """Outputs that no kernel writes: those that are inputs, and those that are given twice."""
        steps: list[Stmt] = []
        for head, buffer in zip(self.graph.heads, self.outputs, strict=True):
            if self.direct.get(self.owners[head]) is buffer:
                continue
            size = build.const(bytes_of(self._type(head)), INT64)
            args = (StringImm("memcpy"), _element(buffer, 0), self._address(head), size)
            steps.append(Evaluate(Call(HANDLE, "call_extern", args)))
        return steps


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
