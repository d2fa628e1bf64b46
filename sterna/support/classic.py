"""Where names of the classic API are found that lie elsewhere here.

One table serves attributes (tvm.driver.build_module.build, by the __getattr__ of the module that
the name was looked for in) and imports (sterna.as_tvm).
"""

from collections.abc import Callable
from typing import Any

from sterna.support.discovery import load_name

_BLOCKS = "loops are scheduled before they are lowered, by tvm.te.create_schedule"
_COMPILERS = (
    "no part of a graph is given to other compilers: leave partitioning out, all of it is compiled"
)
_GRADIENTS = 'torch.compile(model, backend="sterna") computes gradients of PyTorch models'
_MICRO = 'build for boards with Executor("aot"), and run session.create_aot_executor()'
_OPERATORS = "an operator is one record, relay.op.OpRecord: see CONTRIBUTING.md, Adding an operator"
_PIPELINES = "build each part by relay.build, and run it by an executor in a thread of its own"
_SPACES = (
    "a kernel's space is what its schedule asks; spaces of your own are templates of tvm.autotvm"
)

# A name as users know it: the module that it is, or the module and the attribute.
MOVED = {
    "sterna.auto_scheduler.utils": "sterna.rpc.tracker_client",
    "sterna.autotvm.measure.measure": "sterna.autotvm.measure",
    "sterna.autotvm.measure.measure_methods": "sterna.autotvm.measure",
    "sterna.autotvm.measure.request_remote": "sterna.rpc.tracker_client:request_remote",
    "sterna.autotvm.task.dispatcher": "sterna.autotvm.dispatch",
    "sterna.autotvm.task.space": "sterna.autotvm.space",
    "sterna.autotvm.task.task": "sterna.autotvm.template",
    "sterna.autotvm.task.topi_integration": "sterna.autotvm.template",
    "sterna.autotvm.tuner.callback": "sterna.autotvm.callback",
    "sterna.autotvm.tuner.tuner": "sterna.autotvm.tuner",
    "sterna.autotvm.tuner.xgboost_tuner": "sterna.autotvm.tuner",
    "sterna.contrib.cc.cross_compiler": "sterna.contrib.cc:cross_compile",
    "sterna.contrib.debugger.debug_runtime": "sterna.contrib.debugger.debug_executor",
    "sterna.contrib.graph_runtime": "sterna.contrib.graph_executor",
    "sterna.contrib.tvmc.compile_model": "sterna.contrib.tvmc.compiler:compile_model",
    "sterna.contrib.tvmc.load_model": "sterna.contrib.tvmc.frontends:load_model",
    "sterna.contrib.tvmc.run_module": "sterna.contrib.tvmc.runner:run_module",
    "sterna.contrib.tvmc.tune_model": "sterna.contrib.tvmc.autotuner:tune_model",
    "sterna.driver.build_module": "sterna.driver",
    "sterna.driver.relay_build.create_executor": "sterna.driver.create_executor:create_executor",
    "sterna.driver.relay_build.bind_params_by_name": "sterna.relay.passes.bind_params:bind_params",
    "sterna.driver.tvmc": "sterna.contrib.tvmc",
    "sterna.frontend.onnx": "sterna.frontend.onnx",
    "sterna.frontend.onnx.from_onnx": "sterna.frontend.onnx.importer:from_onnx",
    "sterna.ir.Attrs": "sterna.relay.attributes:Attrs",
    "sterna.ir.FuncType": "sterna.ir.types:FuncType",
    "sterna.ir.GlobalVar": "sterna.relay.expr:GlobalVar",
    "sterna.ir.Op": "sterna.relay.op:Op",
    "sterna.ir.PrimExpr": "sterna.ir.expr:Expr",
    "sterna.ir.Range": "sterna.te.tensor:Range",
    "sterna.ir.RelayExpr": "sterna.relay.expr:RelayExpr",
    "sterna.ir.TensorType": "sterna.ir.types:TensorType",
    "sterna.ir.TupleType": "sterna.ir.types:TupleType",
    "sterna.ir.Type": "sterna.ir.types:Type",
    "sterna.ir.attrs": "sterna.relay.attributes",
    "sterna.ir.base": "sterna.ir",
    "sterna.ir.op": "sterna.relay.op",
    "sterna.ir.register_intrin_lowering": "sterna.tir.registered:register_intrin_lowering",
    "sterna.ir.register_op_attr": "sterna.tir.registered:register_op_attr",
    "sterna.ir.tensor_type": "sterna.ir.types",
    "sterna.ir.type": "sterna.ir.types",
    "sterna.driver.schedule_to_module": "sterna.driver.build:schedule_to_module",
    "sterna.relay.analysis.analysis": "sterna.relay.analysis",
    "sterna.relay.backend.executor": "sterna.relay.backend",
    "sterna.relay.backend.executor_factory": "sterna.driver.factory",
    "sterna.relay.backend.runtime": "sterna.relay.backend",
    "sterna.relay.backend.vm": "sterna.driver.vm_build",
    "sterna.relay.build_config": "sterna.ir.transform:PassContext",
    "sterna.relay.build_module": "sterna.driver.relay_build",
    "sterna.relay.expr.bind": "sterna.relay.traverse:bind",
    "sterna.relay.expr_functor": "sterna.relay.visitor",
    "sterna.relay.function": "sterna.relay.expr",
    "sterna.relay.op.annotation": "sterna.relay.annotation",
    "sterna.relay.op.get": "sterna.relay.op:Op",
    "sterna.relay.op.op": "sterna.relay.op",
    "sterna.relay.op.register_mixed_precision_conversion":
        "sterna.relay.mixed_precision:register_mixed_precision_conversion",
    "sterna.relay.param_dict": "sterna.runtime.params",
    "sterna.relay.testing.init": "sterna.relay.testing.workload",
    "sterna.relay.transform.mixed_precision": "sterna.relay.mixed_precision",
    "sterna.relay.transform.FakeQuantizationToInteger":
        "sterna.relay.passes.integer_arithmetic:FakeQuantizationToInteger",
    "sterna.relay.transform.FunctionPass": "sterna.ir.transform:FunctionPass",
    "sterna.relay.transform.transform": "sterna.relay.transform",
    "sterna.relay.ty": "sterna.ir.types",
    "sterna.rpc.base": "sterna.rpc.errors",
    "sterna.rpc.client.TrackerSession": "sterna.rpc.tracker_client:TrackerSession",
    "sterna.rpc.client.connect_tracker": "sterna.rpc.tracker_client:connect_tracker",
    "sterna.rpc.server.Server": "sterna.rpc.server_process:Server",
    "sterna.runtime.base": "sterna.support.errors",
    "sterna.runtime.ShapeTuple": "sterna.runtime.container:ShapeTuple",
    "sterna.runtime.String": "sterna.runtime.container:String",
    "sterna.runtime.container": "sterna.runtime.container",
    "sterna.runtime.convert": "sterna.tir.convert:convert",
    "sterna.runtime.const": "sterna.ir.build:const",
    "sterna.runtime.executor": "sterna.runtime.executor",
    "sterna.runtime.packed_func": "sterna.runtime",
    "sterna.runtime.runtime_ctypes": "sterna.runtime",
    "sterna.runtime.vm": "sterna.runtime.vm",
    "sterna.target.CompilationConfig": "sterna.target.compilation_config:CompilationConfig",
    "sterna.target.make_compilation_config":
        "sterna.target.compilation_config:make_compilation_config",
    "sterna.target.tag": "sterna.target.tags",
    "sterna.target.target.micro": "sterna.target.shortcuts:micro",
    "sterna.te.schedule.AutoInlineBroadcast": "sterna.te.auto_inline:AutoInlineBroadcast",
    "sterna.te.schedule.AutoInlineElemWise": "sterna.te.auto_inline:AutoInlineElemWise",
    "sterna.te.schedule.AutoInlineInjective": "sterna.te.auto_inline:AutoInlineInjective",
    "sterna.te.schedule.InferBound": "sterna.te.lowering_steps:InferBound",
    "sterna.te.schedule.ScheduleOps": "sterna.te.lowering_steps:ScheduleOps",
    "sterna.te.tensor_intrin": "sterna.te.intrin",
    "sterna.testing.utils": "sterna.testing",
    "sterna.tir.CallEffectKind": "sterna.tir.registered:CallEffectKind",
    "sterna.tir.IterVar": "sterna.te.tensor:IterVar",
    "sterna.tir.PrimExpr": "sterna.ir.expr:Expr",
    "sterna.tir.SizeVar": "sterna.te.operation:size_var",
    "sterna.tir.expr": "sterna.ir.expr",
    "sterna.tir.function": "sterna.tir.stmt",
    "sterna.tir.comm_reducer": "sterna.te.operation:comm_reducer",
    "sterna.tir.max_value": "sterna.te.operation:max_value",
    "sterna.tir.min_value": "sterna.te.operation:min_value",
    "sterna.tir.op.comm_reducer": "sterna.te.operation:comm_reducer",
    "sterna.tir.op.max_value": "sterna.te.operation:max_value",
    "sterna.tir.op.min_value": "sterna.te.operation:min_value",
    "sterna.tir.max": "sterna.te.operation:max",
    "sterna.tir.min": "sterna.te.operation:min",
    "sterna.tir.op.call_extern": "sterna.tir.external:call_extern",
    "sterna.tir.op.call_llvm_intrin": "sterna.tir.external:call_llvm_intrin",
    "sterna.tir.op.call_llvm_pure_intrin": "sterna.tir.external:call_llvm_pure_intrin",
    "sterna.tir.op.call_packed": "sterna.tir.external:call_packed",
    "sterna.tir.op.call_pure_extern": "sterna.tir.external:call_pure_extern",
    "sterna.tir.usmp": "sterna.tir.usmp",
    "sterna.tir.usmp.utils": "sterna.tir.usmp",
    "sterna.topi.broadcast": "sterna.topi.elementwise",
    "sterna.topi.math": "sterna.topi.elementwise",
}

# Names of the classic API that nothing here stands for, and what does their work.
INSTEAD = {
    "sterna.container": "arrays and tables of the classic API are lists, tuples and dicts",
    "sterna.contrib.pipeline_executor": _PIPELINES,
    "sterna.contrib.pipeline_executor_build": _PIPELINES,
    "sterna.contrib.popen_pool": "concurrent.futures.ProcessPoolExecutor runs functions apart",
    "sterna.contrib.relay_viz": "`sterna inspect MODEL --draw graph.svg` draws graphs",
    "sterna.contrib.tedd": "tvm.lower(schedule, args, simple_mode=True) shows loops as text",
    "sterna.contrib.torch":
        'torch.compile(model, backend="sterna") and sterna.compile(model, inputs) take its modules',
    "sterna.ir.VDevice": "virtual devices belong to tvm.relax; graphs are written in tvm.relay",
    "sterna.meta_schedule.ScheduleRule": _SPACES,
    "sterna.meta_schedule.arg_info": _SPACES,
    "sterna.meta_schedule.mutator": _SPACES,
    "sterna.meta_schedule.postproc": _SPACES,
    "sterna.meta_schedule.schedule_rule": _SPACES,
    "sterna.meta_schedule.space_generator.ScheduleFn": _SPACES,
    "sterna.micro.create_local_debug_executor": _MICRO,
    "sterna.micro.create_local_graph_executor": _MICRO,
    "sterna.relax": "graphs are written in tvm.relay, or imported by sterna.compile",
    "sterna.relay.contrib": _COMPILERS,
    "sterna.relay.op.contrib": _COMPILERS,
    "sterna.relay.op.strategy": _OPERATORS,
    "sterna.relay.strategy": _OPERATORS,
    "sterna.relay.register_alter_op_layout": _OPERATORS,
    "sterna.relay.register_compute": _OPERATORS,
    "sterna.relay.register_legalize": _OPERATORS,
    "sterna.relay.register_pattern": _OPERATORS,
    "sterna.relay.register_schedule": _OPERATORS,
    "sterna.relay.register_strategy": _OPERATORS,
    "sterna.relay.transform.CollagePartition": _COMPILERS,
    "sterna.relay.transform.FirstOrderGradient": _GRADIENTS,
    "sterna.relay.transform.gradient": _GRADIENTS,
    "sterna.script":
        "TVMScript is not read; tvm.te.compute, tvm.te.hybrid.script and tvm.tir.ir_builder make "
        "loops, and tvm.tir.parse reads their text",
    "sterna.te.gradient": _GRADIENTS,
    "sterna.tir.Block": _BLOCKS,
    "sterna.tir.BlockRealize": _BLOCKS,
    "sterna.tir.Schedule": _BLOCKS,
    "sterna.tir.ScheduleError": _BLOCKS,
    "sterna.tir.While": "for_range over the most rounds there may be, with an if_scope inside",
    "sterna.tir.schedule": _BLOCKS,
    "sterna.tir.tensor_intrin": "tvm.te.decl_tensor_intrin declares intrinsics for tensorize",
}


def missing(known: str, text: str) -> AttributeError:
    """That there is no such name, and what does its work if that is known."""
    instead = INSTEAD.get(known)
    return AttributeError(f"{text}; {instead}" if instead else text)


def find_moved(module: str, name: str) -> Any:
    """What a module has under a classic name; an AttributeError if there is nothing."""
    known = f"{module}.{name}"
    if known not in MOVED:
        raise missing(known, f"module '{module}' has no attribute '{name}'")
    return load_name(MOVED[known])


def classic_names(module: str) -> Callable[[str], Any]:
    """The __getattr__ of a module that classic names of the table are looked for in."""

    def find(name: str) -> Any:
        return find_moved(module, name)

    return find
