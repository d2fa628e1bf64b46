"""Parts of graphs that other compilers make: marks, regions, functions, and code that is called."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, te, topi
from sterna.contrib import graph_executor
from sterna.relay.op import record_of
from sterna.relay.traverse import post_order

OWN = {"add": topi.add, "nn.relu": topi.nn.relu, "negative": topi.negative}
A, B = np.linspace(-2, 2, 8, dtype="float32").reshape(2, 4)


def codegen(func: relay.Function) -> Any:
    """Each operator by topi, and then 100 more, so that it shows whose code ran."""
    values: dict[relay.Expr, Any] = {
        param: te.placeholder((4,), "float32", param.name_hint) for param in func.params
    }
    inputs = list(values.values())
    for expr in post_order(func.body):
        if isinstance(expr, relay.Call):
            record = record_of(expr)
            assert record is not None
            values[expr] = OWN[record.name](*[values[arg] for arg in expr.args])
        elif isinstance(expr, relay.Tuple):
            values[expr] = [values[field] for field in expr.fields]
    made = values[func.body] if isinstance(values[func.body], list) else [values[func.body]]
    outputs = [topi.add(each, te.const(100.0)) for each in made]
    assert func.attrs is not None
    schedule = te.create_schedule([each.op for each in outputs])
    return tvm.build(schedule, [*inputs, *outputs], "llvm", name=func.attrs["global_symbol"])


@pytest.fixture(autouse=True)
def own_compiler() -> None:
    tvm.register_func("relay.ext.own", codegen, override=True)
    for name in OWN:
        tvm.ir.register_op_attr(name, "target.own", lambda call: True)


def parted(*results: relay.Expr, merged: bool = True) -> tvm.IRModule:
    body = results[0] if len(results) == 1 else relay.Tuple(results)
    mod = tvm.IRModule.from_expr(relay.Function(tuple(relay.analysis.free_vars(body)), body))
    passes = [relay.transform.AnnotateTarget("own"), relay.transform.PartitionGraph()]
    if merged:
        passes.insert(1, relay.transform.MergeCompilerRegions())
    made: tvm.IRModule = tvm.transform.Sequential(passes)(mod)
    return made


def symbols(mod: tvm.IRModule) -> list[str]:
    return [name for name in mod.functions if name != "main"]


def run(built: Any) -> list[Any]:
    module = graph_executor.GraphModule(built["default"](tvm.cpu()))
    module.run(x=A, y=B)
    return [module.get_output(place).numpy() for place in range(module.get_num_outputs())]


def inputs() -> tuple[relay.Var, relay.Var]:
    return relay.var("x", shape=(4,)), relay.var("y", shape=(4,))


def test_a_region_is_called_here_and_from_a_file(tmp_path: Path) -> None:
    x, y = inputs()
    body = relay.nn.relu(relay.add(relay.tanh(x), y)) * relay.const(2.0)
    relay.build(tvm.IRModule.from_expr(body), "llvm")  # the same kernels by our own compiler
    mod = parted(body)
    assert symbols(mod) == ["tvmgen_default_own_main_0"]
    built, want = relay.build(mod, "llvm"), (np.maximum(np.tanh(A) + B, 0) + 100) * 2
    np.testing.assert_allclose(run(built)[0], want, rtol=1e-5)
    built.export_library(tmp_path / "net.so")
    loaded = tvm.runtime.load_module(tmp_path / "net.so")
    np.testing.assert_allclose(run(loaded)[0], want, rtol=1e-5)


def test_regions_grow_unless_a_value_leaves_and_comes_back() -> None:
    x, y = inputs()
    first = relay.add(x, y)
    assert len(symbols(parted(relay.nn.relu(first), merged=False))) == 2
    back = parted(relay.add(relay.nn.relu(first), relay.tanh(first)))
    assert len(symbols(back)) == 2  # add and relu, then the add that waits for tanh
    first_sum = A + B + 100
    want = np.maximum(A + B, 0) + 100 + np.tanh(first_sum) + 100
    np.testing.assert_allclose(run(relay.build(back, "llvm"))[0], want, rtol=1e-5)


def test_a_region_gives_several_values() -> None:
    x, y = inputs()
    first = relay.add(x, y)
    mod = parted(relay.tanh(relay.nn.relu(first)), relay.exp(first * relay.const(0.01)))
    assert len(symbols(mod)) == 1
    made = run(relay.build(mod, "llvm"))
    np.testing.assert_allclose(made[0], np.tanh(np.maximum(A + B, 0) + 100), rtol=1e-5)
    np.testing.assert_allclose(made[1], np.exp((A + B + 100) * 0.01), rtol=1e-5)


def test_marks_are_written_by_hand_too() -> None:
    x, _ = inputs()
    begun = relay.op.annotation.compiler_begin(x, "own")
    body = relay.op.annotation.compiler_end(relay.negative(begun), "own")
    mod = relay.transform.PartitionGraph(mod_name="net")(tvm.IRModule.from_expr(body))
    assert symbols(mod) == ["tvmgen_net_own_main_0"]
    unparted = relay.create_executor("graph", mod=tvm.IRModule.from_expr(body)).evaluate()
    np.testing.assert_array_equal(unparted(A).numpy(), -A)


def test_what_a_pattern_made_goes_as_a_whole() -> None:
    x, y = inputs()
    pattern = relay.dataflow_pattern.is_op("tanh")(relay.dataflow_pattern.wildcard())
    mod = tvm.IRModule.from_expr(relay.Function((x, y), relay.tanh(x) + y))
    mod = relay.transform.MergeComposite([("own.tanh", pattern)])(mod)
    mod = relay.transform.AnnotateTarget(["own"])(mod)
    mod = relay.transform.PartitionGraph()(relay.transform.MergeCompilerRegions()(mod))
    (name,) = symbols(mod)
    assert 'Composite="own.tanh"' in str(mod[name])


def test_what_cannot_be_called_is_refused() -> None:
    x, y = inputs()
    mod = parted(relay.add(x, y))
    with pytest.raises(ValueError, match=r"whose code the virtual machine does not call; build it"):
        relay.vm.compile(mod, "llvm")
    with pytest.raises(ValueError, match=r"whose code ahead-of-time code does not call"):
        relay.build(mod, "llvm", executor=relay.backend.Executor("aot"))
    tvm.register_func("relay.ext.own", lambda func: 3, override=True)
    with pytest.raises(TypeError, match=r"relay\.ext\.own gave 3, no module with a"):
        relay.build(mod, "llvm")
    tvm._ffi.registry.remove_global_func("relay.ext.own")
    with pytest.raises(ValueError, match="for the compiler own, which is not there: register_func"):
        relay.build(mod, "llvm")
    with pytest.raises(TypeError, match=r"target\.own of add is a function of a call, not 1"):
        tvm.ir.register_op_attr("add", "target.own", 1)
