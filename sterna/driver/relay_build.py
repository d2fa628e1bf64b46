"""relay.build: from a graph to a module that runs it."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, overload

from sterna.driver.aot_factory import AOTProgram, build_aot
from sterna.driver.aot_options import aot_options
from sterna.driver.device_kernels import GraphKernels, compile_parts
from sterna.driver.device_parts import is_planned, optimize_parts, passes_for
from sterna.driver.external_compilers import compiled_elsewhere, refuse_other_parts
from sterna.driver.factory import GraphExecutorFactoryModule
from sterna.driver.kernel import KernelNotes
from sterna.driver.workers_ahead import workers_ahead
from sterna.ir.module import IRModule
from sterna.lowering.graph import Graph
from sterna.lowering.lower_kernel import scope_of
from sterna.relay.backend import Executor, Runtime
from sterna.relay.expr import Call, Function
from sterna.relay.op import record_of
from sterna.relay.passes.bind_params import bind_params
from sterna.relay.passes.inline import mark_called
from sterna.relay.traverse import post_order
from sterna.schedule.choose import Scope, deciding
from sterna.support.classic import classic_names
from sterna.support.collection import without_collection
from sterna.support.progress import stage
from sterna.target import Target, is_gpu, processor_of
from sterna.target.compilation_config import CompilationConfig, make_compilation_config


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
    config = find_config(target, target_host)
    wanted = config.main
    options = aot_options(chosen, around, wanted, workspace_memory_pools, constant_memory_pools)
    if options is not None and (is_gpu(wanted) or not config.is_one):
        raise ValueError(
            f"ahead-of-time code runs on processors; for the target {wanted.kind.name} build with "
            'the graph executor, Executor("graph")'
        )
    if isinstance(ir_mod, IRModule):
        ir_mod = mark_called(ir_mod)
        if options is not None:
            refuse_other_parts(ir_mod, "ahead-of-time code")
        if is_gpu(wanted) or not config.is_one:
            refuse_other_parts(ir_mod, "a graph on a GPU")
    ir_mod, others = compiled_elsewhere(ir_mod)
    with workers_ahead(wanted, _contractions_in(ir_mod)):
        with without_collection(), stage("optimize the graph"), wanted, deciding("graph") as asked:
            mod, _ = optimize(ir_mod, config, params)
        prefix = f"tvmgen_{mod_name}"
        if options is not None:
            found = GraphKernels.of(mod, prefix, config.fallback)
            return build_aot(found.functions, found.graph, mod_name, wanted, options, mod)
        parts = compile_parts(mod, prefix, config)
    graph = parts.of.graph
    notes = _with_decisions(parts.notes, parts.of.functions, asked)
    _note_workspaces(graph, notes)
    with stage("plan memory"):
        take_over = {name: note.take_over for name, note in notes.items()}
        graph_json = graph.to_json(take_over, processor_of(wanted).threads)
    made = GraphExecutorFactoryModule(
        parts.code(prefix), graph_json, graph.params, mod_name, wanted, parts.of.module, notes,
        links_params=chosen.options["link-params"],
    )
    for other in others:
        made.lib.import_module(other)
    return made


def _contractions_in(mod: IRModule | Function) -> int:
    """How many different contractions a network has, before any pass."""
    main = mod if isinstance(mod, Function) else mod.functions.get("main")
    inside = post_order(main) if isinstance(main, Function) else []
    calls = [each for each in inside if isinstance(each, Call)]
    found = [each for each in calls if (r := record_of(each)) is not None and r.macs is not None]
    return len({(c.op, repr(c.attrs), *[repr(arg._type) for arg in c.args]) for c in found})


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
    config = target if isinstance(target, CompilationConfig) else find_config(target, None)
    with config.main:
        if is_planned(mod, config):
            return optimize_parts(mod, config), {}
        return passes_for(config.main)(mod), {}


def find_config(target: Any, host: Any) -> CompilationConfig:
    """The targets that a user means: what is given, else the current one, else this processor."""
    given = target if target is not None else Target.current(allow_none=True)
    config = make_compilation_config(None, "llvm" if given is None else given, host)
    for each in config.by_device.values():
        each.kind.code_generator()
    return config


def find_target(target: Any, host: Any) -> Target:
    """The one target that a user means."""
    config = find_config(target, host)
    if not config.is_one:
        raise ValueError("this runs on one target; give a single one")
    return config.main


__getattr__ = classic_names(__name__)
