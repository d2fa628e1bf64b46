"""Every pass, and all of them in their order, keep the values of graphs drawn at random."""

import re
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.op.kernel import Processor
from sterna.relay import pipeline, transform
from sterna.relay.interpreter import interpret
from tests.relay.random_graphs import Drawn, draw_cases, draw_network

NHWC = {"nn.conv2d": ["NHWC", "default"]}
NCHW = {"nn.conv2d": ["NCHW", "default"]}

FOLDED = tvm.transform.Sequential([
    transform.SimplifyInference(), transform.FoldConstant(), transform.FoldScaleAxis(),
])  # fmt: skip

# Passes that leave every bit of a result, and those that may round differently.
EXACT = [
    transform.InferType(), transform.FoldConstant(), transform.EliminateCommonSubexpr(),
    transform.ToANormalForm(), transform.ToBasicBlockNormalForm(), transform.ToGraphNormalForm(),
    transform.DeadCodeElimination(), transform.DynamicToStatic(), transform.FuseOps(0),
    transform.FuseOps(4),
    transform.CanonicalizeOps(), transform.RemoveUnusedFunctions(), transform.CanonicalizeCast(),
    transform.Inline(), transform.FoldExplicitPadding(), transform.FlattenAtrousConv(),
    tvm.transform.Sequential([transform.FuseOps(4), transform.DefuseOps()]),
]  # fmt: skip
CLOSE = [
    transform.SimplifyInference(), transform.SimplifyExpr(), FOLDED,
    transform.AlterOpLayout(Processor()), transform.ConvertLayout(NHWC),
    transform.ConvertLayout(NCHW), transform.Legalize(), transform.CombineParallelConv2D(2),
    transform.CombineParallelDense(2), transform.CombineParallelBatchMatmul(2),
]  # fmt: skip


def _value(drawn: Drawn, function: Any, shift: float = 0.0) -> Any:
    rng = np.random.default_rng(1)
    given = [_shifted(value, shift, rng) for value in drawn.values]
    with np.errstate(all="ignore"):
        return interpret(function, *given)


def _shifted(value: Any, shift: float, rng: np.random.Generator) -> Any:
    if not shift or value.dtype.kind != "f":
        return value
    return (value * (1 + shift * rng.choice([-1.0, 1.0], value.shape))).astype(value.dtype)


def _flat(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in _flat(part)] if isinstance(value, tuple) else [value]


def _hold(drawn: Drawn, made: Any, want: Any, near: Any, tolerance: float) -> None:
    """Equal values; where a result jumps for nearly equal parameters, nothing is asked."""
    got = _value(drawn, made)
    for a, b, c in zip(_flat(got), _flat(want), _flat(near), strict=True):
        assert a.dtype == b.dtype
        if not tolerance:
            np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))
            continue
        if b.shape != c.shape:
            continue  # a shape that depends on numbers
        assert a.shape == b.shape
        x, y, z = (part.astype(np.float64) for part in (a, b, c))
        with np.errstate(invalid="ignore"):
            steep = np.abs(y - z)
            scale = max(1.0, float(np.max(np.abs(y)[np.isfinite(y)], initial=0.0)))
            bad = np.abs(x - y) > tolerance * scale + 100 * steep
        bad |= np.isnan(x) != np.isnan(y)
        bad &= np.isnan(y) == np.isnan(z)
        assert not bad.any(), (x[bad], y[bad], z[bad])


def _check(drawn: Drawn, transforms: list[Any], tolerance: float) -> None:
    mod = tvm.IRModule({"main": drawn.function})
    want = _value(drawn, drawn.function)
    near = _value(drawn, drawn.function, 1e-5)
    for transform_ in transforms:
        before = str(mod)
        with tvm.transform.PassContext(opt_level=3):
            made = transform_(mod)["main"]
        assert str(mod) == before, "a pass leaves what it is given as it is"
        made.checked_type  # noqa: B018
        try:
            _hold(drawn, made, want, near, tolerance)
        except Exception as error:
            error.add_note(f"after {transform_}:\n{made}\nof\n{drawn.function}")
            raise


def _tolerance(drawn: Drawn) -> float:
    """Narrow floats anywhere leave few digits, and an operator by others rounds more often."""
    return 5e-2 if re.search(r"float16|float8|float4", str(drawn.function)) else 1e-3


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
    _check(drawn, CLOSE, _tolerance(drawn))
    _check(drawn, [_whole(level) for level in range(4)], _tolerance(drawn))


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
    near = _value(drawn, drawn.function, 1e-3)
    _hold(drawn, made, _value(drawn, drawn.function), near, 5e-2)


def test_graphs_differ() -> None:
    texts = {str(draw_network(seed).function) for seed in range(5)}
    assert len(texts) == 5 and all(isinstance(draw_cases(s).function, relay.Function) for s in (1,))
