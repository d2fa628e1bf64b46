"""The kernels of a graph, each compiled for the device that it is planned on.

What a device cannot run is left to the processor: the graph gets copies around it, and its nodes
say why.
"""

from dataclasses import dataclass

from sterna.codegen.code import Code
from sterna.driver.kernel import KernelNotes
from sterna.driver.kernel_code import Kernels, joined_code, make_kernels
from sterna.ir.module import OUTPUT_NAMES, IRModule
from sterna.lowering.entry import layers_by_kernel
from sterna.lowering.graph import Graph, is_view, make_graph
from sterna.lowering.order import order_steps
from sterna.lowering.storage import in_place_candidates
from sterna.lowering.unique_kernels import unique_kernels
from sterna.relay.expr import Function
from sterna.relay.passes.infer_type import infer_type
from sterna.relay.passes.run_on_host import run_on_host
from sterna.relay.placed import DEVICE
from sterna.support.progress import stage
from sterna.target.compilation_config import CPU, CompilationConfig

HOST_ONLY = "host_only"
"""The attribute of nodes that say why the processor runs them in a graph of a GPU."""


@dataclass(frozen=True, slots=True)
class GraphKernels:
    """A graph with its kernels before they become code."""

    module: IRModule
    graph: Graph
    functions: dict[str, Function]
    """The kernels that are more than views."""
    names: dict[int, str]
    """The kernels' names by the identities of functions that are called."""

    @classmethod
    def of(cls, module: IRModule, prefix: str, device: int) -> "GraphKernels":
        """Those of a network; device: that of kernels that are not marked with another."""
        main = module["main"]
        with stage("order the steps"):
            kernels = unique_kernels(main, prefix)
            names = module.attrs.get(OUTPUT_NAMES, ())
            graph = order_steps(make_graph(main, kernels, names, device=device))
        needed = {n: f for n, f in kernels.functions.items() if not is_view(f)}
        return cls(module, graph, needed, kernels.names)

    def on(self, device: int, main: int) -> dict[str, Function]:
        """The kernels of a device, as all devices have them."""
        return {
            name: _unmarked(function) for name, function in self.functions.items()
            if (function.attrs or {}).get(DEVICE, main) == device
        }


def _unmarked(function: Function) -> Function:
    attrs = {key: value for key, value in (function.attrs or {}).items() if key != DEVICE}
    if len(attrs) == len(function.attrs or {}):
        return function
    return Function(
        function.params, function.body, function.ret_type, function.type_params, attrs
    )


@dataclass(frozen=True, slots=True)
class CompiledParts:
    """A graph, and its kernels compiled for each device."""

    of: GraphKernels
    made: dict[int, Kernels]

    @property
    def notes(self) -> dict[str, KernelNotes]:
        """What is told about the kernels."""
        found = {name: note for each in self.made.values() for name, note in each.notes.items()}
        return {name: found[name] for name in self.of.functions}

    def code(self, prefix: str) -> Code:
        """All kernels as one module."""
        on_devices = [each for device, each in self.made.items() if device != CPU]
        if CPU not in self.made or not on_devices:
            (only,) = self.made.values()
            return only.code(prefix)
        (on_device,) = on_devices
        return joined_code(on_device, self.made[CPU], prefix)


def compile_parts(module: IRModule, prefix: str, config: CompilationConfig) -> CompiledParts:
    """The kernels of a network that is planned, each for its device."""
    found = GraphKernels.of(module, prefix, config.fallback)
    made = _compiled(found, config)
    refused = {name: why for each in made.values() for name, why in each.refused.items()}
    if not refused:
        return CompiledParts(found, made)
    hosted = {key for key, name in found.names.items() if name in refused}
    planned = module.shallow_copy()
    planned["main"] = run_on_host(module["main"], hosted, config.fallback)
    found = GraphKernels.of(infer_type(planned), prefix, config.fallback)
    for node in found.graph.nodes:
        if why := refused.get(node.attrs.get("func_name", "")):
            node.attrs[HOST_ONLY] = why
    return CompiledParts(found, _compiled(found, config))


def _compiled(found: GraphKernels, config: CompilationConfig) -> dict[int, Kernels]:
    """The kernels by device; those of the processor may share memory with their operands."""
    main = config.fallback
    devices = dict.fromkeys([main, *(node.device for node in found.graph.nodes)])
    shares, sources = in_place_candidates(found.graph), layers_by_kernel(found.graph)
    made: dict[int, Kernels] = {}
    for device in devices:
        functions = found.on(device, main)
        if functions or device == main:
            own = {n: pairs for n, pairs in shares.items() if device == CPU and n in functions}
            target = config.by_device[device]
            made[device] = make_kernels(functions, target, True, own, sources)
    return made
