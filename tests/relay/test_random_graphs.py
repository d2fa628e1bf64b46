"""Every pass, and all of them in their order, keep the values of graphs drawn at random."""

from typing import Any

import pytest

import sterna as tvm
from sterna import relay
from sterna.relay import pipeline, transform
from sterna.schedule.kernel import Processor
from tests.relay.agreement import hold, tolerance_of, value
from tests.relay.random_graphs import Drawn, draw_cases, draw_network

NHWC = {"nn.conv2d": ["NHWC", "default"]}
NCHW = {"nn.conv2d": ["NCHW", "default"]}

FOLDED = tvm.transform.Sequential([
    transform.SimplifyInference(), transform.FoldConstant(), transform.FoldScaleAxis(),
])

# Passes that leave every bit of a result, and those that may round differently.
EXACT = [
    transform.InferType(), transform.FoldConstant(), transform.EliminateCommonSubexpr(),
    transform.ToANormalForm(), transform.ToBasicBlockNormalForm(), transform.ToGraphNormalForm(),
    transform.DeadCodeElimination(), transform.DynamicToStatic(), transform.FuseOps(0),
    transform.FuseOps(4),
    transform.CanonicalizeOps(), transform.RemoveUnusedFunctions(), transform.CanonicalizeCast(),
    transform.Inline(), transform.FoldExplicitPadding(), transform.FlattenAtrousConv(),
    tvm.transform.Sequential([transform.FuseOps(4), transform.DefuseOps()]),
]
CLOSE = [
    transform.SimplifyInference(), transform.SimplifyExpr(), FOLDED,
    transform.AlterOpLayout(Processor()), transform.ConvertLayout(NHWC),
    transform.ConvertLayout(NCHW), transform.Legalize(), transform.CombineParallelConv2D(2),
    transform.CombineParallelDense(2), transform.CombineParallelBatchMatmul(2),
]


def _check(drawn: Drawn, transforms: list[Any], tolerance: float) -> None:
    mod = tvm.IRModule({"main": drawn.function})
    want = value(drawn, drawn.function)
    near = value(drawn, drawn.function, 1e-5)
    for transform_ in transforms:
        before = str(mod)
        with tvm.transform.PassContext(opt_level=3):
            made = transform_(mod)["main"]
        assert str(mod) == before, "a pass leaves what it is given as it is"
        made.checked_type  # noqa: B018
        try:
            hold(value(drawn, made), want, near, tolerance)
        except Exception as error:
            error.add_note(f"after {transform_}:\n{made}\nof\n{drawn.function}")
            raise


def _whole(level: int) -> Any:
    passes = pipeline.passes(Processor())

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        with tvm.transform.PassContext(opt_level=level):
            return tvm.transform.Sequential(passes)(mod)

    return run


@pytest.mark.parametrize("seed", range(25))
def test_cases(seed: int) -> None:
    drawn = draw_cases(seed)
    _check(drawn, EXACT, 0)
    _check(drawn, CLOSE, tolerance_of(drawn))
    _check(drawn, [_whole(level) for level in range(4)], tolerance_of(drawn))


@pytest.mark.parametrize("seed", range(40))
def test_networks(seed: int) -> None:
    drawn = draw_network(seed)
    _check(drawn, EXACT, 0)
    _check(drawn, CLOSE, 1e-3)
    _check(drawn, [_whole(level) for level in range(5)], 1e-3)
    with tvm.transform.PassContext(
        config={"relay.ToMixedPrecision.keep_orig_output_dtype": True}
    ):
        made = transform.ToMixedPrecision()(tvm.IRModule({"main": drawn.function}))["main"]
    near = value(drawn, drawn.function, 1e-3)
    hold(value(drawn, made), value(drawn, drawn.function), near, 5e-2)


def test_graphs_differ() -> None:
    texts = {str(draw_network(seed).function) for seed in range(5)}
    assert len(texts) == 5 and all(isinstance(draw_cases(s).function, relay.Function) for s in (1,))
