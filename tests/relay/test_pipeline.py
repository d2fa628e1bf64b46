"""The order of the passes, what runs at each level, and the page that says so."""

import inspect
import re
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.ir.types import TensorType
from sterna.relay import pipeline, transform
from sterna.relay.describe_passes import describe
from sterna.relay.expr import Function
from sterna.relay.passes.bind_params import bind_params
from sterna.relay.testing import mobilenet
from sterna.schedule.kernel import Processor
from tests.relay.support import assert_same_values, function, run
from tests.support import ROOT, in_snake_case


def test_the_page_is_current() -> None:
    page = (ROOT / "docs" / "passes.md").read_text("utf-8")
    assert page == describe(), "run python -m sterna.relay.describe_passes > docs/passes.md"


def test_the_classic_order() -> None:
    names = [one.info.name for one in pipeline.passes()]
    classic = [
        "RemoveUnusedFunctions", "Legalize", "SimplifyInference", "EliminateCommonSubexpr",
        "CombineParallelConv2d", "CombineParallelDense", "CombineParallelBatchMatmul",
        "FoldConstant", "FoldScaleAxis", "SimplifyExpr", "CanonicalizeCast", "CanonicalizeOps",
        "Legalize", "FlattenAtrousConv", "AlterOpLayout", "CanonicalizeOps",
        "SimplifyExprPostAlterOp", "FastMath",
        "FoldConstant", "FuseOps",
    ]
    kept = [name for name in names if name in classic]
    assert kept == classic


def test_a_pass_its_function_and_its_file_have_one_name() -> None:
    """A family of passes is one file, whose name is what their names share."""
    for name in transform.__all__:
        module = inspect.getmodule(getattr(transform, name))
        assert module is not None
        if module.__name__.startswith("sterna.relay.passes."):
            file, word = module.__name__.rpartition(".")[2], in_snake_case(name)
            functions = [one for one, _ in inspect.getmembers(module, inspect.isfunction)]
            assert file in word
            assert any(file in function for function in functions if function.islower())


def _built(text: str, level: int) -> relay.Function:
    with tvm.transform.PassContext(opt_level=level):
        mod = tvm.transform.Sequential(pipeline.passes(Processor()))(
            tvm.IRModule({"main": function(text)})
        )
    made = mod["main"]
    assert isinstance(made, relay.Function)
    return made


@pytest.mark.parametrize(("level", "kernels"), [(0, 3), (1, 1), (2, 1), (3, 1), (4, 1)])
def test_levels(level: int, kernels: int) -> None:
    text = "fn (%x: Tensor[(2, 3), float32]) { exp(add(nn.relu(%x), multiply(2f, 3f))) }"
    text = text if level else text.replace("multiply(2f, 3f)", "6f")
    made = _built(text, level)
    found: list[relay.Function] = []
    relay.analysis.post_order_visit(
        made, lambda e: found.append(e) if isinstance(e, relay.Function) else None
    )
    assert len(found) - 1 == kernels
    assert ("fast_exp" in str(made)) == (level == 4)
    assert ("6.0f" in str(made)) == (level != 1)
    assert_same_values(run(made), run(function(text)), 1e-4)


IMAGES = """fn (%x: Tensor[(1, 64, 28, 28), float32], %w: Tensor[(64, 64, 3, 3), float32],
                %v: Tensor[(64, 64), float32], %b: Tensor[(64), float32]) {
    %0 = nn.bias_add(nn.conv2d(%x, %w, padding=[1, 1]), %b);
    %1 = nn.relu(%0);
    nn.conv2d(%1, reshape(transpose(%v), newshape=[64, 64, 1, 1]))
}"""


def test_levels_differ_in_what_layouts_reach() -> None:
    """Each level packs weights for the processor; alone the pointwise one stays as it lies."""
    target = tvm.target.Target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -num-cores=2")
    main, transforms = function(IMAGES), []
    given = {p.name_hint: value for p, value in zip(main.params, drawn(main), strict=True)}
    given.pop("x")
    for level in range(4):
        with tvm.transform.PassContext(opt_level=level):
            made, _ = relay.optimize(tvm.IRModule({"main": main}), target, given)
        text = str(made["main"])
        last = 2 if level > 1 else 1
        assert (text.count('data_layout="NHWC"'), text.count("nn.conv2d(")) == (last, 2)
        assert text.count("implementation=") == 2 and ("winograd" in text) == (level > 1)
        transforms.append(text.count("layout_transform("))
    assert transforms[2] == transforms[3] == min(transforms) == 2


def test_levels_have_no_cliff() -> None:
    main, times, results = function(IMAGES), [], []
    given = {p.name_hint: value for p, value in zip(main.params, drawn(main), strict=True)}
    data = given.pop("x")
    for level in range(4):
        with tvm.transform.PassContext(opt_level=level):
            built = relay.build(tvm.IRModule({"main": main}), "llvm -mcpu=native", params=given)
        runner = tvm.contrib.graph_executor.GraphModule(built["default"](tvm.cpu(0)))
        runner.set_input("x", data)
        runner.run()
        results.append(runner.get_output(0).numpy())
        times.append(min(runner.module.time_evaluator("run", tvm.cpu(0), repeat=20)().results))
    for result in results:
        np.testing.assert_allclose(result, results[0], rtol=1e-3, atol=1e-3)
    assert times[0] < 10 * times[3], times  # 13 to 29 when level 0 had kernels of its own


def drawn(main: Function) -> list[Any]:
    """Random numbers for the parameters of a function."""
    rng = np.random.default_rng(0)
    kinds = [param.checked_type for param in main.params]
    shapes = [kind.concrete_shape for kind in kinds if isinstance(kind, TensorType)]
    return [rng.standard_normal(shape, "float32") for shape in shapes]


def test_norms_are_gone_from_networks() -> None:
    mod, params = mobilenet.get_workload(image_shape=(3, 32, 32), num_classes=4)
    bound = bind_params(mod["main"], params)
    with tvm.transform.PassContext(opt_level=3):
        made = tvm.transform.Sequential(pipeline.passes(Processor()))(
            tvm.IRModule({"main": bound})
        )
    names = re.findall(r"([a-z_0-9.]+)\(", str(made["main"]))
    assert "nn.batch_norm" not in names and "multiply" not in names and "sqrt" not in names


def test_operators_run_one_by_one_without_fusion() -> None:
    x = relay.var("x", shape=(2, 4))
    mod = tvm.IRModule.from_expr(relay.Function(
        (x,), relay.nn.relu(relay.nn.dense(x, relay.const(np.eye(3, 4, dtype="float32"))))
    ))
    given = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
    for level in (0, 3):
        with tvm.transform.PassContext(level, disabled_pass=["FuseOps"]):
            lib = relay.build(mod, "llvm")
        assert "dense_nn_relu" not in lib.get_graph_json()
        module = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu()))
        module.run(x=given)
        np.testing.assert_allclose(module.get_output(0).numpy(), np.maximum(given[:, :3], 0))
