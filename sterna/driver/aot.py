"""Networks as one compiled function: with the runtime around it, or as C that needs none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sterna.codegen import c
from sterna.codegen.code import Code
from sterna.driver.aot_options import Options
from sterna.driver.kernel import KernelNotes, Pairs, kernel_in_one_thread
from sterna.driver.kernel_code import make_kernels
from sterna.ir.types import TensorType, flatten_type
from sterna.lowering.entry import EntryFunction, make_entry
from sterna.lowering.graph import Graph, Node
from sterna.lowering.share_kernels import share_kernels
from sterna.lowering.storage import (
    ConstantLayout,
    Layout,
    in_place_candidates,
    repeated_operands,
)
from sterna.lowering.work import bytes_of
from sterna.relay.expr import Function
from sterna.runtime import NDArray
from sterna.support.dtype import DataType
from sterna.target import Target, is_microcontroller, processor_of
from sterna.target.code_generator import ProgramCodeGenerator
from sterna.tir.in_place import Overlap, sharing
from sterna.tir.passes.make_packed import make_packed
from sterna.tir.stmt import Buffer, PrimFunc, nothing
from sterna.tir.usmp import MemoryPlan

ENTRY = "tvmgen_{}___tvm_main__"


@dataclass(frozen=True, slots=True)
class PoolUse:
    """What a network uses of a memory pool."""

    name: str
    bytes: int
    limit: int | None
    """How large the pool is, if that is known."""


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What memory a network takes, in bytes."""

    workspace_bytes: int
    """Intermediate results, in all pools together."""
    workspace_bound: int
    """No order of addresses can do with less."""
    constant_bytes: int
    input_bytes: int
    output_bytes: int
    algorithm: str
    pools: tuple[PoolUse, ...] = ()
    """The pools that the network was given, those for constants last."""
    in_place: int = 0
    """How many tensors are written over what they are computed from."""

    def __str__(self) -> str:
        proof = "the least possible" if self.workspace_bytes == self.workspace_bound else (
            f"at least {self.workspace_bound} in any plan"
        )
        text = (
            f"workspace {self.workspace_bytes} bytes ({self.algorithm}: {proof}), constants "
            f"{self.constant_bytes}, inputs {self.input_bytes}, outputs {self.output_bytes}"
        )
        uses = [
            f"{use.name} {use.bytes}" + (f" of {use.limit}" if use.limit is not None else "")
            for use in self.pools
        ]
        return f"{text}; pools: {', '.join(uses)}" if uses else text


def report_of(entry: EntryFunction, graph: Graph, options: Options) -> MemoryReport:
    """The memory of a network."""
    plans = [*([entry.plan.memory] if options.has_pools else []), entry.constant_plan]
    return MemoryReport(
        entry.workspace_bytes,
        entry.plan.bound_bytes,
        sum(bytes_of(node.types[0]) for node in graph.nodes if node.name in graph.params),
        sum(tensor.bytes for tensor in entry.inputs),
        sum(tensor.bytes for tensor in entry.outputs),
        options.custom_algorithm or options.algorithm,
        tuple(PoolUse(pool.pool_name, plan.sizes[pool.pool_name], pool.limit)
              for plan in plans for pool in plan.pools),
        entry.plan.in_place,
    )


def layout_of(
    options: Options, take_over: Mapping[str, Pairs], scratch: Mapping[str, Sequence[int]]
) -> Layout:
    """How the memory between the kernels is to be arranged."""
    return Layout(
        options.algorithm, options.workspace_alignment, scratch, take_over, options.pools,
        options.custom_algorithm, options.holds_operands,
    )


# ---- with the runtime ----


@dataclass(frozen=True, slots=True)
class Built:
    """A network's code, and the graph whose one node is all of it."""

    code: Code
    graph: Graph
    report: MemoryReport
    notes: dict[str, KernelNotes]


def build_with_runtime(
    functions: dict[str, Function], graph: Graph, name: str, target: Target, options: Options
) -> Built:
    """A network that the runtime calls."""
    shares = in_place_candidates(graph)
    made = make_kernels(functions, target, False, shares)
    take_over = {kernel: note.take_over for kernel, note in made.notes.items()}
    layout = replace(layout_of(options, take_over, {}), threads=processor_of(target).threads)
    entry = make_entry(graph, ENTRY.format(name), layout)
    main = [entry.function, make_packed(entry.function, len(entry.function.params))]
    code = made.code(f"tvmgen_{name}", main)
    return Built(code, _one_node(graph, entry), report_of(entry, graph, options), made.notes)


def _one_node(graph: Graph, entry: EntryFunction) -> Graph:
    """A graph that calls the whole network as one kernel."""
    nodes = [Node(t.name, "null", [], [t.type]) for t in (*entry.inputs, *entry.constants)]
    inputs = list(range(len(nodes)))
    pools = [TensorType((max(1, size),), DataType("uint8")) for size in entry.pool_bytes]
    kinds = [*(t.type for t in entry.outputs), *pools]
    attrs = {
        "num_outputs": str(len(kinds)),
        "num_inputs": str(len(inputs)),
        "flatten_data": "0",
        "func_name": entry.function.name,
        **{key: str(sum(int(n.attrs.get(key, 0)) for n in graph.nodes))
           for key in ("flops", "bytes", "constant_bytes", "function_steps", "spared_flops")},
    }
    call = Node(entry.function.name, "tvm_op", [(i, 0) for i in inputs], kinds, attrs)
    heads = [(len(nodes), place) for place in range(len(entry.outputs))]
    return Graph([*nodes, call], inputs, heads, graph.params, graph.output_names)


# ---- without any runtime ----


@dataclass(frozen=True, slots=True)
class Program:
    """A network in C, and what is known about it."""

    code: c.ProgramCode
    entry: EntryFunction
    report: MemoryReport
    operator_workspaces: dict[str, int]
    """By kernel, the bytes that it works in."""
    memory_map: MemoryPlan
    """What lies where in the arena while which kernels run."""


def build_program(
    functions: dict[str, Function], graph: Graph, name: str, target: Target, options: Options
) -> Program:
    """A network in C, with its constants and memory."""
    generator = target.kind.code_generator()
    assert isinstance(generator, ProgramCodeGenerator)  # aot_options.py has seen to that
    shares = in_place_candidates(graph, options.holds_operands, any_size=True)
    repeated = repeated_operands(graph)
    kernels: list[PrimFunc] = []
    overlaps: dict[str, list[Overlap]] = {}
    for kernel, function in functions.items():
        loops, overlaps[kernel] = kernel_in_one_thread(
            kernel, function, target, shares.get(kernel, ())
        )
        kernels.append(sharing(loops, repeated.get(kernel, ())))
    take_over = {
        kernel: [(pair.source, pair.target) for pair in pairs if pair.lead == 0]
        for kernel, pairs in overlaps.items()
    }
    scratch = {
        loops.name: _sizes(loops.buffers[_operands(functions[loops.name]) :]) for loops in kernels
    }
    packed = options.interface == "packed"
    entry = make_entry(
        graph, f"tvmgen_{name}_steps" if packed else ENTRY.format(name),
        replace(layout_of(options, take_over, scratch), overlaps=overlaps),
        ConstantLayout(options.constant_pools, options.constant_alignment),
    )
    interface = c.Interface(
        name, entry.function.name,
        [c.Operand(t.name, t.bytes) for t in entry.inputs],
        [c.Operand(t.name, t.bytes) for t in entry.outputs],
        [_constant(t.name, graph.params[t.name]) for t in entry.constants],
        [c.PoolMemory(pool, size) for pool, size in entry.plan.memory.sizes.items()],
        _constant_pools(entry, graph),
        options.workspace_alignment, options.constant_alignment, options.has_pools,
        entry.input_places, entry.output_places,
    )
    if is_microcontroller(target):
        kernels, main = share_kernels(kernels, entry.function)
        entry = replace(entry, function=main)
    every, tail = [*kernels, entry.function], interface.run()
    if packed:
        caller = _with_operands(entry, ENTRY.format(name))
        every += [caller, make_packed(caller, len(caller.params))]
        tail = interface.plain(caller.name)
    code = generator.program(every, target, interface, [tail])
    workspaces = {kernel: sum(sizes) for kernel, sizes in scratch.items()}
    report, lies = report_of(entry, graph, options), entry.plan.over_kernels(graph)
    return Program(code, entry, report, workspaces, lies)


def _constant_pools(entry: EntryFunction, graph: Graph) -> list[c.PoolMemory]:
    """The pools of constants, and what is in them."""
    sizes = entry.constant_plan.sizes
    filled = [bytearray(size) for size in sizes.values()]
    for name, (pool, offset) in entry.pooled_constants.items():
        raw = _raw(graph.params[name]).tobytes()
        filled[pool][offset : offset + len(raw)] = raw
    pairs = zip(sizes.items(), filled, strict=True)
    return [c.PoolMemory(name, size, bytes(data)) for (name, size), data in pairs]


def _sizes(lifted: Sequence[Buffer | None]) -> list[int]:
    """The bytes of the memory that a kernel is given behind its operands."""
    return [buffer.known_bytes or 0 for buffer in lifted if buffer is not None]


def _operands(function: Function) -> int:
    return len(function.params) + len(flatten_type(function.body.checked_type))


def _with_operands(entry: EntryFunction, name: str) -> PrimFunc:
    """A declaration of the function that is given inputs and outputs, and knows the rest."""
    tensors = [*entry.inputs, *entry.outputs]
    buffers = tuple(tensor.memory() for tensor in tensors)
    declared = tuple(tensor.declared() for tensor in tensors)
    written = tuple(range(len(entry.inputs), len(tensors)))
    attrs = {"external": True, "declared": declared, "noalias": False, "written": written}
    params = tuple(buffer.data for buffer in buffers)
    return PrimFunc(name, params, buffers, nothing(), attrs)


def _constant(name: str, value: NDArray) -> c.ConstantData:
    """A constant's elements; those of types that C does not have as their bits."""
    kind, raw = value.dtype, _raw(value)
    held = _HELD.get(str(kind))
    if held is None:
        held = f"uint{kind.bits if kind.bits in (16, 32, 64) else 8}"
        kind = type(kind)(held)
    return c.ConstantData(name, kind, raw.view(held).tolist())


def _raw(value: NDArray) -> Any:
    """An array's bytes."""
    raw = np.empty(value.nbytes, np.uint8)
    if value.nbytes:
        value._copy_to_buffer(raw)
    return raw


_HELD: Mapping[str, Any] = {
    "bool": "uint8",
    **{name: name for name in ("float32", "float64", "int8", "int16", "int32", "int64",
                               "uint8", "uint16", "uint32", "uint64")},
}
