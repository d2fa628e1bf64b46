"""Lines of classic programs that name things in their own way."""

import csv
import io
import json
import tarfile
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


def test_loops_are_shown_without_their_output() -> None:
    a = te.placeholder((4, 8), name="A")
    total = tvm.topi.sum(a, axis=1)
    schedule = te.create_schedule(total.op)
    assert "for" in str(tvm.lower(schedule, [a], simple_mode=True))
    with pytest.raises(ValueError, match=r"the output A_red of main is not among its arguments"):
        tvm.build(schedule, [a], "llvm", name="main")
    assert schedule[total].origin_op is total.op
    module = tvm.driver.build_module.schedule_to_module(schedule, [a, total], "sum")
    flat = tvm.tir.transform.StorageFlatten(64)(module)
    assert list(flat.functions) == ["sum"] and flat.script() == str(flat)


def test_functions_of_loops_have_attributes() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1, name="B")
    made = te.create_prim_func([a, b]).with_attr({"global_symbol": "inc", "note": 1})
    assert made.attrs["note"] == 1 and "note" not in made.without_attr("note").attrs
    assert "inc" in made.script()
    x, y = tvm.nd.array(np.ones(4, "float32")), tvm.nd.empty((4,))
    tvm.build(tvm.IRModule({"inc": made}), "llvm")["inc"](x, y)
    np.testing.assert_array_equal(y.numpy(), 2)


def test_modules_give_what_calls_their_functions(module: Any) -> None:
    (main,) = module.get_global_vars()
    assert main.name_hint == "main" and module[main] is module["main"]
    with pytest.raises(ValueError, match="the module has no function 'other'; it has main"):
        module.get_global_var("other")
    assert module.get_attr("none") is None


def test_the_analyzer_answers_by_its_classic_names() -> None:
    analyzer = tvm.arith.Analyzer()
    x, y = te.var("x"), te.var("y")
    analyzer.bind(x, tvm.ir.Range(0, 10))
    bound = analyzer.const_int_bound(x + 1)
    assert (bound.min_value, bound.max_value) == (1, 10)
    assert analyzer.modular_set(x * 4 + 1) == (4, 1)
    assert str(analyzer.canonical_simplify(x + y - x)) == "y"
    with analyzer.constraint_scope(y > 3):
        assert analyzer.can_prove(y > 2)
    assert str(analyzer.rewrite_simplify((x * 4 + 3) // 4)) == "x"


def test_errors_of_operators_have_one_base() -> None:
    for kind in (tvm.error.OpNotImplemented, tvm.error.OpAttributeRequired):
        with pytest.raises(tvm.error.OpError):
            raise kind("x")


def test_a_gpu_computes_what_the_others_do() -> None:
    data, kernel = te.placeholder((1, 3, 8, 8)), te.placeholder((4, 3, 3, 3))
    with tvm.target.Target("cuda -arch=sm_70"):
        result = tvm.topi.nn.relu(tvm.topi.cuda.conv2d_nchw(data, kernel, 1, 1, 1))
        schedule = tvm.topi.cuda.schedule_conv2d_nchw([result])
        assert "threadIdx.x" in str(tvm.lower(schedule, [data, kernel], simple_mode=True))
    with pytest.raises(AttributeError, match=r"no function of topi\.nn is named swim"):
        _ = tvm.topi.cuda.swim


def test_functions_depend_on_the_target() -> None:
    @tvm.target.generic_func
    def lanes(data: int) -> int:
        return data

    @lanes.register(["cuda", "gpu"])  # type: ignore[untyped-decorator]
    def of_gpus(data: int) -> int:
        return data * 32

    assert lanes(1) == 1 and of_gpus(1) == 32
    with tvm.target.Target("cuda -arch=sm_70"):
        assert lanes(1) == 32
    with pytest.raises(ValueError, match="lanes has a function for gpu already"):
        lanes.register("gpu", of_gpus)
    tvm.target.override_native_generic_func("test.lanes")(of_gpus)
    assert tvm.target.get_native_generic_func("test.lanes")(2) == 64
    with pytest.raises(ValueError, match="no generic function is named 'test"):
        tvm.target.get_native_generic_func("test.none")


def test_products_by_numpys_library() -> None:
    n, k, m = 6, 5, 4
    a, b = te.placeholder((k, n), name="A"), te.placeholder((k, m), name="B")
    bias = te.var("bias", dtype="float32")
    c = tvm.contrib.cblas.matmul(a, b, transa=True)
    d = te.compute(c.shape, lambda i, j: c[i, j] + bias, name="D")
    built = tvm.build(te.create_schedule(d.op), [a, b, d, bias], "llvm")
    x, y = (np.random.default_rng(1).random((k, size), "float32") for size in (n, m))
    out = tvm.nd.empty((n, m))
    built(tvm.nd.array(x), tvm.nd.array(y), out, 10.0)
    np.testing.assert_allclose(out.numpy(), x.T @ y + 10, rtol=1e-5)
    with pytest.raises(ValueError, match="batch_matmul takes tensors of 3 dimensions"):
        tvm.contrib.cblas.batch_matmul(a, b)


def test_random_tensors() -> None:
    drawn = tvm.contrib.random.randint(3, 9, (50,))
    out = tvm.nd.empty((50,), "int32")
    tvm.build(te.create_schedule(drawn.op), [drawn], "llvm")(out)
    assert set(out.numpy()) == set(range(3, 9))
    tvm.get_global_func("tvm.contrib.random.random_fill")(out)


def test_archives_of_files(tmp_path: Any) -> None:
    (tmp_path / "a.txt").write_text("a")
    tvm.contrib.tar.tar(tmp_path / "x.tar", [tmp_path / "a.txt"])
    tvm.contrib.tar.untar(tmp_path / "x.tar", tmp_path / "out")
    assert (tmp_path / "out" / "a.txt").read_text() == "a"
    with pytest.raises(ValueError, match=r"two of the files of .*y\.tar are named a\.txt"):
        tvm.contrib.tar.tar(tmp_path / "y.tar", [tmp_path / "a.txt", tmp_path / "out" / "a.txt"])
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        archive.add(tmp_path / "a.txt", arcname="../b.txt")
    with pytest.raises(ValueError, match=r"a file '\.\./b\.txt', which lies outside"):
        tvm.contrib.tar.untar(tmp_path / "bad.tar", tmp_path / "out")
    assert not (tmp_path / "b.txt").exists()


def test_containers_are_pythons_own() -> None:
    shape = tvm.runtime.ShapeTuple([np.int64(1), 2, 3])
    assert shape == (1, 2, 3) and shape[1] == 2 and tvm.runtime.container.ShapeTuple is type(shape)
    with pytest.raises(TypeError):
        tvm.runtime.ShapeTuple([1.5])
    assert tvm.runtime.container.tuple_object([1]) == (1,)


@pytest.mark.parametrize("executor", ["graph", "aot"])
def test_functions_of_a_module_call_each_other(executor: str) -> None:
    x = relay.var("x", shape=(3,))
    twice, both = relay.GlobalVar("twice"), relay.GlobalVar("both")
    module = tvm.IRModule({
        twice: relay.Function((x,), x + x),
        both: relay.Function((y := relay.var("y", shape=(3,)),), twice(twice(y)) * y),
    })
    module["main"] = relay.Function((z := relay.var("z", shape=(3,)),), both(z) + twice(z))
    built = relay.build(module, "llvm", executor=relay.backend.Executor(executor))
    make = (tvm.runtime.executor.AotModule if executor == "aot"
            else tvm.contrib.graph_executor.GraphModule)
    network = make(built["default"](tvm.cpu()))
    network.set_input("z", np.array([1, 2, 3], "float32"))
    network.run()
    np.testing.assert_array_equal(network.get_output(0).numpy(), [6, 20, 42])
    module["twice"] = relay.Function((x,), both(x))
    with pytest.raises(ValueError, match=r"calls itself; the virtual machine runs such functions"):
        relay.build(module, "llvm", executor=relay.backend.Executor(executor))


def test_a_pass_requires_others_by_their_names(module: Any) -> None:
    ran = []

    @tvm.transform.module_pass(opt_level=0, required=["InferType", "FoldConstant"])
    def after(mod: Any, ctx: Any) -> Any:
        return mod

    class Names(tvm.instrument.PassInstrument):
        def run_before_pass(self, mod: Any, info: Any) -> None:
            ran.append(info.name)

    named = Names()
    with tvm.transform.PassContext(instruments=[named]):
        tvm.transform.Sequential([after])(module)
    assert [name for name in ran if name in ("InferType", "FoldConstant", "after")][-1] == "after"
    assert {"InferType", "FoldConstant"} <= set(ran)


def test_a_value_of_a_constructor_is_made_from_its_fields() -> None:
    x = relay.var("x", relay.TupleType((relay.TensorType((2,)), relay.TensorType((2,)))))
    total = relay.Function((x,), relay.TupleGetItem(x, 0) + relay.TupleGetItem(x, 1))
    machine = tvm.runtime.vm.VirtualMachine(
        relay.vm.compile(tvm.IRModule.from_expr(total), "llvm"), tvm.cpu()
    )
    given = tvm.runtime.container.ADT(0, [np.ones(2, "float32"), np.ones(2, "float32")])
    assert len(given) == 2 and given.tag == 0
    np.testing.assert_array_equal(machine.run(given).numpy(), [2, 2])


def test_references_of_pools_and_of_products_by_notation() -> None:
    x = np.arange(16, dtype="float32").reshape(1, 1, 4, 4)
    found = tvm.topi.testing.poolnd_python(
        x, [2, 2], [2, 2], [1, 1], [0, 0], [0, 0], "max")
    np.testing.assert_array_equal(found[0, 0], [[5, 7], [13, 15]])
    a, b = tvm.te.placeholder((2, 3)), tvm.te.placeholder((3, 4))
    product = tvm.topi.einsum("ij,jk->ik", a, b)
    assert tvm.topi.utils.get_const_tuple(product.shape) == (2, 4)


def test_an_open_extent_is_taken_from_a_shape() -> None:
    x = relay.var("x", shape=(relay.Any(), relay.Any()))
    rows = relay.take(relay.shape_of(x), relay.const(0))
    counted = relay.arange(relay.const(0), rows, relay.const(1), "int32")
    mod = tvm.IRModule.from_expr(relay.Function((x,), counted))
    run = relay.create_executor("vm", mod=mod).evaluate()
    np.testing.assert_array_equal(run(np.zeros((3, 4), "float32")).numpy(), [0, 1, 2])


def test_passes_over_quantised_operators_have_their_classic_path(module: Any) -> None:
    for make in (relay.qnn.transform.CanonicalizeOps, relay.qnn.transform.Legalize):
        assert tvm.ir.structural_equal(make()(relay.transform.InferType()(module))["main"],
                                       relay.transform.InferType()(module)["main"])
