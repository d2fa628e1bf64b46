"""Straight-line functions with symbolic shapes: one host function for all extents, one for the run.

    NAME_extents(inputs..., vector)            vector: the workspace's bytes, every output's shape
    NAME(inputs..., constants..., outputs..., workspace)

Memory is planned symbolically: results of equal size whose lives do not meet share a place, and
places lie one behind the other, at offsets that are sums of sizes. Kernels are given the extents
that their tensors' shapes consist of as scalars.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sterna.arith import Analyzer
from sterna.ir import build
from sterna.ir.expr import HANDLE, INT32, Call, Expr, StringImm, Var
from sterna.ir.structural import structural_equal
from sterna.ir.types import TensorType, flatten_type
from sterna.lowering.graph import Entry, Graph, Node
from sterna.lowering.kernel_scalars import scalars_of
from sterna.lowering.storage import ALIGNMENT, last_uses, owners_of
from sterna.relay.expr import Function
from sterna.relay.requirements import Requirement
from sterna.relay.symbols import symbols_in
from sterna.support.dtype import DataType
from sterna.tir.stmt import (
    AssertStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    LetStmt,
    PrimFunc,
    Stmt,
    seq,
)
from sterna.tir.threads import ON_HOST

INT64, UINT8 = DataType("int64"), DataType("uint8")
MOST_ELEMENTS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class OpenEntry:
    """Both functions, and what their parameters are."""

    function: PrimFunc
    extents: PrimFunc
    inputs: int
    constants: list[str]
    outputs: list[TensorType]


@dataclass(frozen=True, eq=False, slots=True)
class Operand:
    """A parameter as those know it who check what they are given, and as bytes."""

    declared: Buffer
    memory: Buffer

    @classmethod
    def of(cls, name: str, dtype: DataType, shape: Sequence[Expr]) -> "Operand":
        """An operand of a shape."""
        memory = Buffer(name, UINT8, (build.const(1),))
        return cls(Buffer(name, dtype, tuple(shape)), memory)

    @classmethod
    def of_type(cls, name: str, kind: TensorType) -> "Operand":
        """A tensor."""
        return cls.of(name, kind.dtype, [build.as_expr(dim) for dim in kind.shape])

    @classmethod
    def workspace(cls, size: Expr) -> "Operand":
        """The memory between the kernels, of so many bytes."""
        return cls.of("workspace", UINT8, (size,))


@dataclass(eq=False, slots=True)
class _Place:
    """Memory of a symbolic size, and the step that last reads it."""

    size: Expr
    busy: int
    offset: Var = field(default_factory=lambda: Var("offset", INT64))


def is_open(graph: Graph) -> bool:
    """Whether some extents of a graph are symbols."""
    return any(not kind.is_static for node in graph.nodes for kind in node.types)


def make_open_entry(
    graph: Graph, name: str, kernels: Mapping[str, Function],
    take_over: Mapping[str, Sequence[tuple[int, int]]], requirements: Sequence[Requirement],
) -> OpenEntry:
    """The functions of a graph, whose kernels' functions are known by name.

    take_over: by kernel, inputs whose memory an output may lie in, both by their places.
    """
    return _Maker(graph, kernels, take_over, requirements).run(name)


class _Maker:
    def __init__(
        self, graph: Graph, kernels: Mapping[str, Function],
        take_over: Mapping[str, Sequence[tuple[int, int]]], requirements: Sequence[Requirement],
    ) -> None:
        self.graph, self.kernels, self.requirements = graph, kernels, requirements
        self.owners = owners_of(graph)
        self.given: dict[Entry, Buffer] = {}
        self.places: list[_Place] = []
        self.lies: dict[Entry, _Place] = {}
        inputs = [n for n in graph.inputs if graph.nodes[n].name not in graph.params]
        held = [n for n in graph.inputs if graph.nodes[n].name in graph.params]
        self.inputs, self.constants = map(self._operands, (inputs, held))
        self.symbols = symbols_in([graph.nodes[n].types[0] for n in inputs])
        self.outputs = [
            Operand.of_type(f"output{place}", self._type(head))
            for place, head in enumerate(graph.heads)
        ]
        for head, operand in zip(graph.heads, self.outputs, strict=True):
            owner = self.owners[head]
            if graph.nodes[owner[0]].op != "null":
                self.given.setdefault(owner, operand.memory)
        self._plan(take_over)

    def _type(self, entry: Entry) -> TensorType:
        return self.graph.nodes[entry[0]].types[entry[1]]

    def _operands(self, numbers: list[int]) -> list[Operand]:
        made = []
        for number in numbers:
            node = self.graph.nodes[number]
            made.append(Operand.of_type(node.name, node.types[0]))
            self.given[number, 0] = made[-1].memory
        return made

    # ---- memory ----

    def _plan(self, take_over: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        last = last_uses(self.graph, self.owners)
        for number, node in enumerate(self.graph.nodes):
            if node.op == "null" or node.is_view:
                continue
            pairs = take_over.get(node.attrs["func_name"], ())
            heirs = {index: place for place, index in pairs}
            for index, kind in enumerate(node.types):
                entry = (number, index)
                if entry in self.given:
                    continue
                size, end = _rounded(_bytes(kind)), last.get(entry, number)
                found = self._inherited(node, number, heirs.get(index), size, last)
                if found is None:
                    found = self._free(size, number)
                found.busy = end
                self.lies[entry] = found

    def _inherited(
        self, node: Node, number: int, source: int | None, size: Expr, last: Mapping[Entry, int]
    ) -> _Place | None:
        """The memory of an operand that ends here, where the kernel can work in place."""
        if source is None:
            return None
        owners = [self.owners[entry] for entry in node.inputs]
        owner = owners[source]
        place = self.lies.get(owner)
        fits = place is not None and last[owner] == number and owners.count(owner) == 1
        is_free = place is not None and place.busy == number
        if not fits or not is_free or not structural_equal(place.size, size):  # type: ignore[union-attr]
            return None
        return place

    def _free(self, size: Expr, number: int) -> _Place:
        for place in self.places:
            if place.busy < number and structural_equal(place.size, size):
                return place
        self.places.append(_Place(size, number))
        return self.places[-1]

    # ---- functions ----

    def run(self, name: str) -> OpenEntry:
        total = _constant(0)
        offsets: list[tuple[Var, Expr]] = []
        for place in self.places:
            offsets.append((place.offset, total))
            total = Analyzer().simplify(total + place.size)
        workspace = Operand.workspace(build.maximum(total, _constant(1)))
        steps = [
            self._call(number, node, workspace.memory)
            for number, node in enumerate(self.graph.nodes)
            if node.op != "null" and not node.is_view
        ]
        body = seq(*steps, *self._copies(workspace.memory))
        for var, value in reversed(offsets):
            body = LetStmt(var, value, body)
        operands = (*self.inputs, *self.constants, *self.outputs, workspace)
        scalars = [None] * len(self.symbols)
        first = len(self.inputs) + len(self.constants)
        attrs = {
            "declared": (*(each.declared for each in operands), *scalars), "noalias": False,
            "written": tuple(range(first, len(operands))),
        }
        params = (*(each.memory.data for each in operands), *self.symbols)
        buffers = (*(each.memory for each in operands), *scalars)
        function = PrimFunc(name, params, buffers, body, attrs)
        held = [self.graph.nodes[n].name for n in self.graph.inputs]
        return OpenEntry(
            function,
            extents_function(
                f"{name}_extents", [each.declared for each in self.inputs], self.symbols,
                workspace.declared.shape[0], [self._type(head) for head in self.graph.heads],
                self.requirements, self._sizes(),
            ),
            len(self.inputs),
            [each for each in held if each in self.graph.params],
            [self._type(head) for head in self.graph.heads],
        )

    def _sizes(self) -> list[Stmt]:
        """Kernels count elements in 32 bits."""
        kinds: list[TensorType] = []
        for node in self.graph.nodes:
            kinds += [k for k in node.types if not k.is_static and k not in kinds]
        return [
            AssertStmt(
                _elements(kind) <= _constant(MOST_ELEMENTS), "ValueError",
                f"a tensor of shape {kind!r} has more than {MOST_ELEMENTS} elements in this call",
            )
            for kind in kinds
        ]

    def _call(self, number: int, node: Node, workspace: Buffer) -> Stmt:
        own = [(number, index) for index in range(len(node.types))]
        places = [self._address(entry, workspace) for entry in (*node.inputs, *own)]
        kernel = node.attrs["func_name"]
        return Evaluate(Call(INT32, "try_call", (
            StringImm(kernel), *places, *self._scalars(self.kernels[kernel], node)
        )))

    def _scalars(self, kernel: Function, node: Node) -> list[Expr]:
        """What a call passes for a kernel's symbols: the extents of its own operands."""
        kinds = [leaf for param in kernel.params for leaf in flatten_type(param.checked_type)]
        given: dict[Var, Expr] = {}
        for kind, entry in zip(kinds, node.inputs, strict=True):
            for dim, extent in zip(kind.shape, self._type(entry).shape, strict=True):
                if isinstance(dim, Var):
                    given.setdefault(dim, build.as_expr(extent))
        return [given.get(symbol, symbol) for symbol in scalars_of(kernel)]

    def _address(self, entry: Entry, workspace: Buffer) -> Expr:
        owner = self.owners[entry]
        if owner in self.given:
            return element(self.given[owner], build.const(0))
        return element(workspace, self.lies[owner].offset)

    def _copies(self, workspace: Buffer) -> list[Stmt]:
        """Outputs that no kernel writes: those that are inputs, and those that are given twice."""
        steps: list[Stmt] = []
        for head, operand in zip(self.graph.heads, self.outputs, strict=True):
            if self.given[self.owners[head]] is not operand.memory:
                args = (
                    StringImm("memcpy"), element(operand.memory, build.const(0)),
                    self._address(head, workspace), _bytes(self._type(head)),
                )
                steps.append(Evaluate(Call(HANDLE, "call_extern", args)))
        return steps


def extents_function(
    name: str, inputs: Sequence[Buffer], symbols: Sequence[Var], workspace: Expr,
    results: Sequence[TensorType], requirements: Sequence[Requirement], sizes: Sequence[Stmt] = (),
) -> PrimFunc:
    """What tells the bytes of the workspace and every result's shape, after it has checked.

    sizes: further checks.
    """
    shapes = [dim for kind in results for dim in kind.shape]
    values = [workspace, *map(_wide, shapes)]
    vector = Buffer("extents", INT64, (build.const(len(values)),))
    checks = [
        AssertStmt(each.condition(), "ValueError", f"{each} in a call of this model")
        for each in requirements
    ]
    stores = [
        BufferStore(vector, value, (build.const(place),)) for place, value in enumerate(values)
    ]
    declared = (*inputs, vector)
    params = (*(b.data for b in declared), *symbols)
    buffers = (*declared, *[None] * len(symbols))
    body = seq(*checks, *sizes, *stores)
    return PrimFunc(name, params, buffers, body, {ON_HOST: (vector.name,)})


def element(buffer: Buffer, index: Expr) -> Expr:
    """An element's address."""
    return Call(HANDLE, "address_of", (BufferLoad(buffer, (index,)),))


def _constant(value: int) -> Expr:
    return build.const(value, INT64)


def _wide(dim: object) -> Expr:
    """A dimension in 64 bits, in which products do not overflow."""
    value = build.as_expr(dim)
    number = build.int_value(value)
    if number is not None:
        return _constant(number)
    return value if value.dtype == INT64 else build.cast(INT64, value)


def _elements(kind: TensorType) -> Expr:
    many = _constant(1)
    for dim in kind.shape:
        many = many * _wide(dim)
    return many


def _bytes(kind: TensorType) -> Expr:
    bits = kind.dtype.bits * kind.dtype.lanes
    if bits % 8 == 0:
        return Analyzer().simplify(_elements(kind) * _constant(bits // 8))
    return Analyzer().simplify((_elements(kind) * _constant(bits) + _constant(7)) // _constant(8))


def _rounded(size: Expr) -> Expr:
    many = (size + _constant(ALIGNMENT - 1)) // _constant(ALIGNMENT) * _constant(ALIGNMENT)
    return Analyzer().simplify(many)
