"""Networks as one compiled function: with the runtime around it, or as C that needs none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.codegen import c
from sterna.codegen.llvm import CompiledModule
from sterna.driver.build import llvm_options, runs_here
from sterna.driver.code import CCode, KernelsCode, LLVMCode
from sterna.driver.compile_kernels import compile_kernels
from sterna.driver.kernel import KernelNotes, kernel_functions, kernel_in_one_thread
from sterna.driver.program import ProgramCode
from sterna.ir.transform import PassContext
from sterna.ir.types import TensorType, flatten_type
from sterna.lowering.entry import EntryFunction, Layout, declare, make_entry
from sterna.lowering.graph import Graph, Node
from sterna.relay.backend import Executor, Runtime
from sterna.relay.expr import Function
from sterna.runtime import NDArray
from sterna.support.dtype import DataType
from sterna.support.recursion import deep_recursion
from sterna.target import Target
from sterna.tir.passes.make_packed import make_packed
from sterna.tir.stmt import Buffer, PrimFunc, nothing

ENTRY = "tvmgen_{}___tvm_main__"
WORKSPACE_ALIGNMENT = 16
"""Bytes, where memory is scarce; no element is larger."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a network is called, after the choices were checked."""

    runtime: str
    interface: str
    workspace_alignment: int
    constant_alignment: int
    algorithm: str

    @classmethod
    def of(cls, executor: Executor, runtime: Runtime, target: Target) -> "Options":
        """What an executor and a runtime ask for; combinations that mean nothing are refused."""
        unpacked = executor.options.get("unpacked-api", False)
        interface = executor.options.get("interface-api", "packed")
        if interface not in ("packed", "c"):
            raise ValueError(f'interface-api is "packed" or "c", not "{interface}"')
        if runtime.name == "cpp" and (unpacked or interface == "c"):
            raise ValueError(
                'Runtime("cpp") calls packed functions: it needs unpacked-api=False and '
                'interface-api="packed"; Runtime("crt") has the others'
            )
        if interface == "c" and not unpacked:
            raise ValueError(
                'Either need interface_api == "packed" or unpacked-api == True: a C interface '
                "passes plain addresses"
            )
        if runtime.name == "crt" and target.kind.name != "c":
            raise ValueError(
                f'Runtime("crt") is for programs in C: build for the target "c", not {target}'
            )
        setting = PassContext.current().get_config
        default = WORKSPACE_ALIGNMENT if runtime.name == "crt" else 64
        return cls(
            runtime.name, interface,
            _power_of_two(executor, "workspace-byte-alignment", default),
            _power_of_two(executor, "constant-byte-alignment", default),
            setting("tir.usmp.algorithm") if setting("tir.usmp.enable") else "auto",
        )  # fmt: skip


def _power_of_two(executor: Executor, key: str, default: int) -> int:
    value = int(executor.options.get(key, default))
    if value < 1 or value & (value - 1):
        raise ValueError(f'Attribute "{key}" must be a power of two, not {value}')
    return value


def aot_options(executor: Executor, runtime: Runtime, target: Target) -> Options | None:
    """How a network is called that is one function; None if it is a graph."""
    if executor.name == "aot":
        return Options.of(executor, runtime, target)
    if runtime.name != "cpp":
        raise ValueError(
            f'Runtime("{runtime.name}") runs no graphs: it needs Executor("aot")'
        )
    return None


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What memory a network takes, in bytes."""

    workspace_bytes: int
    """Intermediate results, all of them in one place."""
    workspace_bound: int
    """No order of addresses can do with less."""
    constant_bytes: int
    input_bytes: int
    output_bytes: int
    algorithm: str

    def __str__(self) -> str:
        proof = "the least possible" if self.workspace_bytes == self.workspace_bound else (
            f"at least {self.workspace_bound} in any plan"
        )
        return (
            f"workspace {self.workspace_bytes} bytes ({self.algorithm}: {proof}), constants "
            f"{self.constant_bytes}, inputs {self.input_bytes}, outputs {self.output_bytes}"
        )


def report_of(entry: EntryFunction, algorithm: str) -> MemoryReport:
    """The memory of a network."""
    return MemoryReport(
        entry.workspace_bytes,
        entry.plan.bound_bytes,
        sum(tensor.bytes for tensor in entry.constants),
        sum(tensor.bytes for tensor in entry.inputs),
        sum(tensor.bytes for tensor in entry.outputs),
        algorithm,
    )


# ---- with the runtime ----


@dataclass(frozen=True, slots=True)
class Built:
    """A network's code, and the graph whose one node is all of it."""

    code: KernelsCode | CCode
    graph: Graph
    report: MemoryReport
    notes: dict[str, KernelNotes]


def build_with_runtime(
    functions: dict[str, Function], graph: Graph, name: str, target: Target, options: Options
) -> Built:
    """A network that the runtime calls."""
    layout = Layout(options.algorithm, options.workspace_alignment)
    entry = make_entry(graph, ENTRY.format(name), layout)
    main = [entry.function, make_packed(entry.function, len(entry.function.params))]
    whole, report = _one_node(graph, entry), report_of(entry, options.algorithm)
    own = llvm_options(target)

    def loops() -> list[PrimFunc]:
        made = [kernel_functions(n, f, target, packed=False) for n, f in functions.items()]
        return [*(function for group in made for function in group), *main]

    if target.kind.name == "c":
        return Built(CCode(loops(), f"tvmgen_{name}"), whole, report, {})
    kernels = compile_kernels(functions, target, packed=False)
    objects = {kernel: made.content for kernel, made in kernels.items()}
    with deep_recursion():
        made = CompiledModule([*declare(entry.function), *main], own, entry.function.name)
        objects[entry.function.name] = made.object_bytes()

    def text(form: str) -> str:
        return LLVMCode(loops(), own, f"tvmgen_{name}", False).source(form)

    notes = {kernel: made.notes for kernel, made in kernels.items()}
    return Built(KernelsCode(objects, runs_here(target), own, text), whole, report, notes)


def _one_node(graph: Graph, entry: EntryFunction) -> Graph:
    """A graph that calls the whole network as one kernel."""
    nodes = [Node(t.name, "null", [], [t.type]) for t in (*entry.inputs, *entry.constants)]
    inputs = list(range(len(nodes)))
    workspace = TensorType((max(1, entry.workspace_bytes),), DataType("uint8"))
    kinds = [*(t.type for t in entry.outputs), workspace]
    attrs = {
        "num_outputs": str(len(kinds)),
        "num_inputs": str(len(inputs)),
        "flatten_data": "0",
        "func_name": entry.function.name,
        **{key: str(sum(int(n.attrs.get(key, 0)) for n in graph.nodes))
           for key in ("flops", "bytes")},
    }  # fmt: skip
    call = Node(entry.function.name, "tvm_op", [(i, 0) for i in inputs], kinds, attrs)
    heads = [(len(nodes), place) for place in range(len(entry.outputs))]
    return Graph([*nodes, call], inputs, heads, graph.params, graph.output_names)


# ---- without any runtime ----


@dataclass(frozen=True, slots=True)
class Program:
    """A network in C, and what is known about it."""

    code: ProgramCode
    entry: EntryFunction
    report: MemoryReport
    operator_workspaces: dict[str, int]
    """By kernel, the bytes that it works in."""


def build_program(
    functions: dict[str, Function], graph: Graph, name: str, target: Target, options: Options
) -> Program:
    """A network in C, with its constants and memory."""
    kernels = [kernel_in_one_thread(n, f, target) for n, f in functions.items()]
    scratch = {
        loops.name: _sizes(loops.buffers[_operands(functions[loops.name]) :]) for loops in kernels
    }
    layout = Layout(options.algorithm, options.workspace_alignment, scratch)
    packed = options.interface == "packed"
    entry = make_entry(graph, f"tvmgen_{name}_steps" if packed else ENTRY.format(name), layout)
    interface = c.Interface(
        name, entry.function.name,
        [c.Operand(t.name, t.bytes) for t in entry.inputs],
        [c.Operand(t.name, t.bytes) for t in entry.outputs],
        [_constant(t.name, graph.params[t.name]) for t in entry.constants],
        entry.workspace_bytes, options.workspace_alignment, options.constant_alignment,
    )  # fmt: skip
    every, tail = [*kernels, entry.function], interface.run()
    if packed:
        caller = _with_operands(entry, ENTRY.format(name))
        every += [caller, make_packed(caller, len(caller.params))]
        tail = interface.plain(caller.name)
    code = ProgramCode(every, interface, [tail])
    workspaces = {kernel: sum(sizes) for kernel, sizes in scratch.items()}
    return Program(code, entry, report_of(entry, options.algorithm), workspaces)


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
    attrs = {"external": True, "declared": declared, "noalias": False}
    params = tuple(buffer.data for buffer in buffers)
    return PrimFunc(name, params, buffers, nothing(), attrs)


def _constant(name: str, value: NDArray) -> c.ConstantData:
    """A constant's elements; those of types that C does not have as their bits."""
    kind = value.dtype
    raw = np.empty(value.nbytes, np.uint8)
    if value.nbytes:
        value._copy_to_buffer(raw)
    held = _HELD.get(str(kind))
    if held is None:
        held = f"uint{kind.bits if kind.bits in (16, 32, 64) else 8}"
        kind = type(kind)(held)
    return c.ConstantData(name, kind, raw.view(held).tolist())


_HELD: Mapping[str, Any] = {
    "bool": "uint8",
    **{name: name for name in ("float32", "float64", "int8", "int16", "int32", "int64",
                               "uint8", "uint16", "uint32", "uint64")},
}  # fmt: skip
