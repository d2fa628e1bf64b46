"""relay.build: from a graph to a module that runs it."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, overload

from sterna.driver.aot_factory import AOTProgram, build_aot
from sterna.driver.aot_options import aot_options
from sterna.driver.factory import GraphExecutorFactoryModule
from sterna.driver.kernel import KernelNotes
from sterna.driver.kernel_code import make_kernels
from sterna.ir.module import OUTPUT_NAMES, IRModule
from sterna.ir.transform import Sequential
from sterna.lowering.graph import Graph, is_view, make_graph
from sterna.lowering.lower_kernel import scope_of
from sterna.lowering.order import order_steps
from sterna.lowering.storage import in_place_candidates
from sterna.lowering.unique_kernels import unique_kernels
from sterna.relay import pipeline
from sterna.relay.backend import Executor, Runtime
from sterna.relay.expr import Function
from sterna.relay.passes.bind_params import bind_params
from sterna.schedule.choose import Scope, deciding
from sterna.support.classic import classic_names
from sterna.support.progress import stage
from sterna.target import Target, is_gpu, processor_of
from sterna.tir.wanted_array import CPU


@overload
def build(
    ir_mod: IRModule | Function,
    target: Any = ...,
    target_host: Any = ...,
    executor: None = ...,
    runtime: Any = ...,
    workspace_memory_pools: Any = ...,
    constant_memory_pools: Any = ...,
    params: Mapping[str, Any] | None = ...,
    mod_name: str = ...,
) -> GraphExecutorFactoryModule: ...


@overload
def build(
    ir_mod: IRModule | Function,
    target: Any = ...,
    target_host: Any = ...,
    executor: Any = ...,
    runtime: Any = ...,
    workspace_memory_pools: Any = ...,
    constant_memory_pools: Any = ...,
    params: Mapping[str, Any] | None = ...,
    mod_name: str = ...,
) -> Any: ...


def build(
    ir_mod: IRModule | Function,
    target: Any = None,
    target_host: Any = None,
    executor: Any = None,
    runtime: Any = None,
    workspace_memory_pools: Any = None,
    constant_memory_pools: Any = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
) -> GraphExecutorFactoryModule | AOTProgram:
    """Compile a network for a target; the parameters become part of it."""
    chosen, around = Executor.of(executor, "graph"), Runtime.of(runtime, "cpp")
    wanted = find_target(target, target_host)
    options = aot_options(chosen, around, wanted, workspace_memory_pools, constant_memory_pools)
    if options is not None and is_gpu(wanted):
        raise ValueError(
            f"ahead-of-time code runs on processors; for the target {wanted.kind.name} build with "
            'the graph executor, Executor("graph")'
        )
    with stage("optimize the graph"), wanted, deciding("graph") as decided:
        mod, _ = optimize(ir_mod, wanted, params)
    main = mod["main"]
    prefix = f"tvmgen_{mod_name}"
    with stage("order the steps"):
        kernels = unique_kernels(main, prefix)
        graph = order_steps(make_graph(main, kernels, mod.attrs.get(OUTPUT_NAMES, ())))
    needed = {n: f for n, f in kernels.functions.items() if not is_view(f)}
    if options is not None:
        return build_aot(needed, graph, mod_name, wanted, options, mod)
    shares = {} if is_gpu(wanted) else in_place_candidates(graph)
    made = make_kernels(needed, wanted, True, shares)
    code, notes = made.code(prefix), _with_decisions(made.notes, needed, decided)
    _note_workspaces(graph, notes)
    with stage("plan memory"):
        take_over = {name: note.take_over for name, note in notes.items()}
        device = wanted.kind.device_type if is_gpu(wanted) else CPU
        graph_json = graph.to_json(take_over, processor_of(wanted).threads, device)
    return GraphExecutorFactoryModule(
        code, graph_json, graph.params, mod_name, wanted, mod, notes,
        links_params=chosen.options["link-params"],
    )


def _with_decisions(
    notes: Mapping[str, KernelNotes], functions: Mapping[str, Function], decided: Scope
) -> dict[str, KernelNotes]:
    """Notes of kernels with what was decided for their layers before they were kernels."""
    before = {name: decided.of(scope_of(functions[name])) for name in notes}
    return {
        name: replace(
            note,
            decisions={**{q: str(d) for q, d in before[name].items()}, **note.decisions},
            not_offered=[q for q, d in before[name].items() if d.is_stale] + note.not_offered,
        )
        for name, note in notes.items()
    }


def _note_workspaces(graph: Graph, notes: Mapping[str, KernelNotes]) -> None:
    """Tell those who load the graph what its kernels take for themselves."""
    for node in graph.nodes:
        if (note := notes.get(node.attrs.get("func_name", ""))) is None:
            continue
        sizes = (note.workspace_bytes, note.workspace_thread_bytes)
        for key, size in zip(("workspace", "workspace_of_thread"), sizes, strict=True):
            if size:
                node.attrs[key] = str(size)


def optimize(
    mod: IRModule | Function, target: Any = None, params: Mapping[str, Any] | None = None
) -> tuple[IRModule, dict[str, Any]]:
    """The network after all passes over graphs, as the current PassContext wants them."""
    if isinstance(mod, Function):
        warnings.warn(
            "give relay.build an IRModule: IRModule.from_expr(function)",
            DeprecationWarning,
            stacklevel=3,
        )
        mod = IRModule.from_expr(mod)
    if not isinstance(mod, IRModule):
        raise TypeError(f"a network is an IRModule, not {type(mod).__name__}")
    if "main" not in mod:
        raise ValueError(f"the module has no function main; it has {', '.join(mod) or 'none'}")
    if params:
        mod = mod.shallow_copy()
        mod["main"] = bind_params(mod["main"], params)
    wanted = find_target(target, None)
    with wanted:
        # What processors like is no concern of other devices: weights stay the model's.
        processor = processor_of(wanted) if "cpu" in wanted.kind.default_keys else None
        order = pipeline.passes(processor, wanted, is_gpu(wanted))
        return Sequential(order, name="relay.build")(mod), {}


def find_target(target: Any, host: Any) -> Target:
    """The target that a user means: what is given, else the current one, else this processor."""
    if isinstance(target, Mapping):
        if len(target) != 1:
            raise ValueError("one graph runs on one target; give a single one")
        target = next(iter(target.values()))
    wanted = Target(target) if target is not None else Target.current(allow_none=True)
    wanted = wanted or Target("llvm")
    if host is not None:
        wanted = wanted.with_host(host)
    wanted.kind.code_generator()
    return wanted


__getattr__ = classic_names(__name__)
