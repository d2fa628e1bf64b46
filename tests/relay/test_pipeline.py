"""The order of the passes, what runs at each level, and the page that says so."""

import inspect
import re

import pytest

import sterna as tvm
from sterna import relay
from sterna.relay import pipeline, transform
from sterna.relay.describe_passes import describe
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
        "Legalize", "FlattenAtrousConv", "AlterOpLayout", "SimplifyExprPostAlterOp", "FastMath",
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


def test_norms_are_gone_from_networks() -> None:
    mod, params = mobilenet.get_workload(image_shape=(3, 32, 32), num_classes=4)
    bound = bind_params(mod["main"], params)
    with tvm.transform.PassContext(opt_level=3):
        made = tvm.transform.Sequential(pipeline.passes(Processor()))(
            tvm.IRModule({"main": bound})
        )
    names = re.findall(r"([a-z_0-9.]+)\(", str(made["main"]))
    assert "nn.batch_norm" not in names and "multiply" not in names and "sqrt" not in names
