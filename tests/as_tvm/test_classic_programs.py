"""Lines of classic programs that name things in their own way."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import autotvm, relay, te
from sterna.contrib.debugger.debug_executor import GraphModuleDebug
from sterna.support.errors import RPCError
from sterna.tir.stmt import PrimFunc


@pytest.fixture
def module() -> Any:
    x = relay.var("x", shape=(2, 3))
    return tvm.IRModule.from_expr(relay.Function((x,), relay.nn.relu(relay.nn.softmax(x))))


def test_a_module_is_timed_by_its_entry() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1, name="B")
    fadd = tvm.build(te.create_schedule(b.op), [a, b], "llvm", name="myadd")
    x, y = tvm.nd.array(np.ones(8, "float32")), tvm.nd.array(np.zeros(8, "float32"))
    assert fadd.time_evaluator(fadd.entry_name, tvm.cpu(), number=3)(x, y).mean > 0
    np.testing.assert_array_equal(y.numpy(), 2)


def test_code_is_shown(module: Any, capsys: pytest.CaptureFixture[str]) -> None:
    module.show()
    assert capsys.readouterr().out == f"{module}\n"
    module["main"].show(style="light")
    assert "nn.softmax(%x)" in capsys.readouterr().out
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1, name="B")
    tvm.lower(te.create_schedule(b.op), [a, b]).show()
    assert "for i in range(8)" in capsys.readouterr().out


def test_a_workload_takes_its_batch_size_first() -> None:
    mod, params = relay.testing.mlp.get_workload(2, 5)
    assert mod["main"].checked_type.ret_type.concrete_shape == (2, 5) and "fc1_weight" in params


def test_a_function_knows_its_result_after_inference(module: Any) -> None:
    assert module["main"].ret_type is None
    inferred = relay.transform.InferType()(module)
    assert str(inferred["main"].ret_type) == "Tensor[(2, 3), float32]"
    half = relay.transform.ToMixedPrecision("float16")(inferred)
    relay.transform.InferType()(half)


def test_variables_are_bound_to_ranges_and_values() -> None:
    analyzer = tvm.arith.Analyzer()
    x, y, z = (te.var(name) for name in "xyz")
    analyzer.bind(x, tvm.ir.Range(2, 10))
    assert analyzer.can_prove(x >= 2) and analyzer.can_prove(x < 10)
    assert not analyzer.can_prove(x < 9)
    analyzer.bind(y, tvm.ir.Range.from_min_extent(2, 10))
    assert analyzer.can_prove(y < 12) and not analyzer.can_prove(y < 11)
    assert str(tvm.ir.Range(7)) == "range(min=0, extent=7)"
    analyzer.bind(z, x + 1)
    assert str(analyzer.simplify(z - x)) == "1"


def test_statements_read_what_a_caller_has() -> None:
    builder = tvm.tir.ir_builder.create()
    memory = builder.pointer("float32", name="A")
    with builder.for_range(0, 4) as i:
        memory[i] = memory[i] + 1.0
    body = builder.get()
    function = PrimFunc("main", (memory.asobject(),), (memory.buffer,), body)
    array = np.zeros(6, "float32")
    tvm.build(tvm.IRModule({"main": function}), target="llvm")(array)
    np.testing.assert_array_equal(array, [1, 1, 1, 1, 0, 0])


def test_numbers_are_drawn() -> None:
    key = relay.random.threefry_key(1)
    drawn = relay.random.uniform(key, (2, 3), low=1.0, high=2.0)
    built = relay.build(tvm.IRModule.from_expr(relay.Function((), drawn[1])), "llvm")
    executor = tvm.contrib.graph_executor.GraphModule(built["default"](tvm.cpu()))
    executor.run()
    values = executor.get_output(0).numpy()
    assert values.shape == (2, 3) and 1 <= values.min() <= values.max() < 2


def test_a_sketch_is_made_with_the_texts_options(module: Any, tmp_path: Path) -> None:
    executor = relay.backend.Executor("aot", {
        "unpacked-api": True, "interface-api": "c", "workspace-byte-alignment": 4,
    })
    with tvm.transform.PassContext(opt_level=3, config={"tir.disable_vectorize": True}):
        program = relay.build(
            module, tvm.target.target.micro("nrf52840"), executor=executor,
            runtime=relay.backend.Runtime("crt"),
        )
    options = {"board": "nano33ble", "project_type": "example_project", "verbose": False}
    tvm.micro.generate_project("arduino", program, tmp_path / "sketch", options)
    assert (tmp_path / "sketch" / "sketch.ino").exists()
    with pytest.raises(ValueError, match="nrf5284"):
        tvm.target.target.micro("nrf5284")


def test_types_of_expressions_as_text() -> None:
    tir: Any = tvm.tir
    number, real = tir.IntImm("int32", 3), tir.FloatImm("float32", 2.5)
    n, size = tir.Var("n", "int64"), tir.SizeVar("size", "int32")
    assert str(tir.Cast("int64", size) + n + number) == "int64(size) + n + 3"
    assert str(real * 2) == "5.0" and size.is_size


def test_names_around_tuning() -> None:
    with tvm.autotvm.tophub.context("llvm"), tvm.relay.build_config(opt_level=3):
        assert tvm.transform.PassContext.current().opt_level == 3
    ask = tvm.auto_scheduler.utils.request_remote
    assert ask is tvm.autotvm.measure.request_remote
    with pytest.raises(RPCError, match="cannot connect to 127"):
        ask("board", "127.0.0.1", 9)


def test_a_mutator_hands_on_type_arguments_and_the_span(module: Any) -> None:
    class Renaming(relay.ExprMutator):
        def visit_call(self, call: Any) -> Any:
            args: Any = [self.visit(arg) for arg in call.args]
            return relay.Call(call.op, args, call.attrs, call.type_args, "mine")

    made = Renaming().visit(module["main"]).body
    assert made.span == made.args[0].span == "mine" and len(made.type_args) == 0
    assert relay.Call(made.op, made.args, span="other").span == "other"
    assert tvm.ir.structural_equal(made, module["main"].body, map_free_vars=True)


def test_a_built_graph_knows_its_executor_and_its_profile(module: Any) -> None:
    built = relay.build(module, "llvm")
    assert built.executor == relay.backend.Executor("graph")
    timed = GraphModuleDebug(
        built["debug_create"]("default", tvm.cpu()), [tvm.cpu()], built.get_graph_json(), None)
    timed.set_input("x", np.ones((2, 3), "float32"))
    report = timed.profile()
    assert json.loads(report.json())["nodes"][0]["function"] == report.calls[0]["function"]
    rows = list(csv.DictReader(io.StringIO(report.csv())))
    assert [row["name"] for row in rows] == [call["name"] for call in report.calls]


def test_squeezenet_has_two_versions() -> None:
    for version, weight in (("1.0", (96, 3, 7, 7)), ("1.1", (64, 3, 3, 3))):
        _, params = relay.testing.squeezenet.get_workload(version=version)
        assert params["conv1_weight"].shape == weight
    with pytest.raises(ValueError, match=r"no SqueezeNet '2'; there are 1\.0, 1\.1"):
        relay.testing.squeezenet.get_workload(version="2")


def test_the_best_of_a_log_is_asked_for() -> None:
    assert autotvm.apply_history_best([]).query(tvm.target.Target("llvm"), ("none",)) is None
    with autotvm.apply_history_best(None) as best, best:
        assert best.query(None, ("none",)) is None
