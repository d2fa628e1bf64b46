"""The paths by which users know things lead to them, whatever was loaded before."""

import json
import subprocess
import sys

import pytest

from sterna.support.classic import INSTEAD, MOVED, find_moved

PATHS = """
cl, convert, ir.base.assert_structural_equal, relay.dataflow_pattern.is_op,
relay.testing.run_opt_pass, relay.transform.MergeComposite, runtime.convert,
te.schedule.InferBound, te.schedule.ScheduleOps, tir.max, tir.min,
ConstantMemoryPools, ConstantPoolInfo, PoolInfoProperties, TVMError, WorkspaceMemoryPools,
WorkspacePoolInfo, _ffi.base.TVMError, _ffi.get_global_func, _ffi.register_func,
_ffi.registry.list_global_func_names, _ffi.runtime_ctypes.Device, arith.Analyzer,
contrib.cc.create_shared, contrib.cc.cross_compiler, contrib.debugger.debug_executor.create,
contrib.debugger.debug_runtime.create, contrib.graph_executor.GraphModule,
contrib.graph_runtime.create, contrib.ndk.create_shared, contrib.utils.tempdir, driver.build,
driver.build_module.OperatorModule, driver.build_module.build, driver.lower, error.OpNotImplemented,
error.RPCSessionTimeoutError, instrument.PassTimingInstrument, ir.IRModule, ir.Op, ir.Range,
ir.TensorType, ir.assert_structural_equal, ir.base.Node, ir.instrument.PassTimingInstrument,
ir.memory_pools.WorkspacePoolInfo, ir.module.IRModule, ir.op.Op, ir.save_json, ir.structural_equal,
ir.tensor_type.TensorType, ir.transform.PassContext, ir.transform.Sequential, ir.type.TupleType,
micro.GeneratedProject, micro.Transport, micro.export_model_library_format, micro.generate_project,
micro.get_microtvm_template_projects, micro.project.GeneratedProject,
micro.project.generate_project, micro.project_api.client.ProjectAPIClient,
micro.project_api.server.ProjectAPIHandler, micro.transport.TransportClosedError, nd.array,
nd.from_dlpack, relay.Call, relay.analysis.analysis.post_order_visit,
relay.analysis.post_order_visit, relay.backend.Executor, relay.backend.executor.Executor,
relay.backend.executor_factory.GraphExecutorFactoryModule, relay.backend.runtime.Runtime,
relay.build, relay.build_module.bind_params_by_name, relay.build_module.build, relay.expr.Call,
relay.expr.bind, relay.expr.const, relay.expr.var, relay.expr_functor.ExprMutator,
relay.frontend.from_onnx, relay.frontend.onnx.from_onnx, relay.function.Function,
relay.image.resize2d, relay.nn.conv2d, relay.op.Op, relay.op.add, relay.op.algorithm.argsort,
relay.op.get, relay.op.image.image.resize2d, relay.op.nn.conv2d, relay.op.nn.nn.conv2d,
relay.op.op.get, relay.op.reduce.sum, relay.op.tensor.add, relay.op.transform.reshape,
relay.op.vision.nms.non_max_suppression, relay.param_dict.save_param_dict, relay.parser.parse,
relay.qnn.op.quantize, relay.qnn.quantize, relay.scope_builder.ScopeBuilder,
relay.testing.init.create_workload, relay.testing.resnet.get_workload, relay.transform.FunctionPass,
relay.transform.InferType, relay.transform.transform.InferType, relay.ty.TensorType, rpc.RPCSession,
rpc.base.RPCError, rpc.client.connect, rpc.client.connect_tracker, rpc.connect, rpc.connect_tracker,
rpc.proxy.Proxy, rpc.server.Server, rpc.tracker.Tracker, runtime.Module, runtime.const,
runtime.executor.aot_executor.AotModule, runtime.load_module, runtime.module.BenchmarkResult,
runtime.ndarray.array, runtime.packed_func.PackedFunc, runtime.params.save_param_dict,
target.Target, target.tag.list_tags, target.target.Target, te.compute, te.create_schedule,
te.operation.placeholder, te.schedule.create_schedule, te.tensor.Tensor,
te.tensor_intrin.decl_tensor_intrin, testing.assert_allclose, testing.utils.assert_allclose,
tir.IterVar, tir.PrimFunc, tir.buffer.decl_buffer, tir.expr.Add, tir.expr.Var,
tir.function.PrimFunc, tir.ir_builder.create, tir.op.call_extern, tir.stmt.For,
tir.transform.Simplify, tir.transform.VectorizeLoop, tir.usmp.utils.PoolAllocation,
transform.PassContext
"""

LOOK_UP = """
import functools, json, sys
import sterna

failed = []
for path in json.loads(sys.argv[1]):
    try:
        functools.reduce(getattr, path.split("."), sterna)
    except AttributeError as error:
        failed.append(f"{path}: {error}")
print("\\n".join(failed))
"""


def look_up(paths: list[str]) -> str:
    """What a fresh process does not find."""
    command = [sys.executable, "-c", LOOK_UP, json.dumps(paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("backwards", [False, True])
def test_classic_paths_lead_somewhere_in_whatever_order(backwards: bool) -> None:
    paths = sorted("".join(PATHS.split()).split(","), reverse=backwards)
    assert look_up(paths) == ""


@pytest.mark.parametrize("name", sorted(MOVED))
def test_every_name_of_the_table_is_asked_for_by_its_module(name: str) -> None:
    module, _, last = name.rpartition(".")
    found = find_moved(module, last)
    assert getattr(__import__(module, fromlist=["*"]), last) is found


def test_what_is_not_in_the_table_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'sterna.ir' has no attribute 'nothing'"):
        find_moved("sterna.ir", "nothing")


@pytest.mark.parametrize(
    ("path", "instead"),
    [
        ("script", "tvm.te.hybrid.script"),
        ("tir.Schedule", "tvm.te.create_schedule"),
        ("relay.op.register_compute", "an operator is one record"),
        ("relay.transform.gradient", "torch.compile"),
        ("contrib.relay_viz", "sterna inspect MODEL --draw"),
    ],
)
def test_what_has_no_namesake_is_named_with_what_does_its_work(path: str, instead: str) -> None:
    assert instead in look_up([path])


def test_what_has_a_namesake_is_not_said_to_have_none() -> None:
    assert not set(INSTEAD) & set(MOVED)
    names = [name.removeprefix("sterna.") for name in INSTEAD]
    assert len(look_up(names).splitlines()) == len(names)
