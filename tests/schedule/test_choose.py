"""The one door through which schedules decide: what it takes, what replaces that, what it keeps."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.arrays import Array
from sterna.relay.interpreter import interpret
from sterna.schedule.choose import Decision, Scope, choose, deciding
from sterna.schedule.contraction import Contraction
from sterna.schedule.implementation import (
    Candidate,
    Plan,
    best_candidate,
    implementation_of,
    implementations,
)
from sterna.schedule.kernel import Processor
from sterna.support.dtype import DataType
from tests.schedule.implemented import implement, plans_in, run_built

COSTS = {"small": 3.0, "wide": 1.0, "tall": 1.0, "large": 20_000.0}


def taken(name: str = "tile", **answers: Any) -> str:
    config = {"schedule.answers": answers.pop("answers", answers)}
    with tvm.transform.PassContext(config=config):
        return choose(name, list(COSTS), COSTS.__getitem__)


def test_the_first_of_the_cheapest_is_taken() -> None:
    assert taken() == "wide"
    assert choose("tile", [4, 2, 2], lambda size: size) == 2


def test_a_single_candidate_is_told_too() -> None:
    with deciding("kernel") as scope:
        assert choose("tile", ["only"], lambda each: 2.0) == "only"
    assert str(scope.decisions["tile"]) == "only at 2"


def test_nothing_to_choose_from() -> None:
    with pytest.raises(ValueError, match="there is nothing to choose from for 'tile'"):
        choose("tile", [], lambda each: 0.0)


def test_answers_replace_the_cheapest() -> None:
    assert taken(tile="large") == "large"
    assert taken(unroll="large") == "wide"
    own = {"dense/tile": "small", "tile": "tall"}
    with deciding("dense"):
        assert taken(answers=own) == "small"
    with deciding("conv2d"):
        assert taken(answers=own) == "tall"
    assert taken(answers=own) == "tall"
    assert taken(answers={"dense/tile": "small"}) == "wide"


@pytest.mark.parametrize("question", ["kernel/tile", "tile"])
def test_answers_that_are_not_offered_are_told(question: str) -> None:
    with deciding("kernel") as scope:
        assert taken(answers={question: "huge"}) == "wide"
    told = "wide at 1 (huge was not offered) of tall 1, small 3, large 20 k"
    assert str(scope.decisions["tile"]) == told and not scope.decisions["tile"].answered


def test_what_was_asked_is_recorded() -> None:
    with deciding("outer") as outer:
        assert taken() == "wide"
        with deciding("inner") as inner:
            assert taken("unroll", unroll="large") == "large"
        assert taken() == "wide"
    offered = tuple(COSTS.items())
    assert inner.decisions == {"unroll": Decision("unroll", offered, "large", "large")}
    assert outer.decisions == {"tile": Decision("tile", offered, "wide")}
    assert outer.of("inner") == inner.decisions and (outer.name, inner.name) == ("outer", "inner")
    assert str(outer.decisions["tile"]) == "wide at 1 of tall 1, small 3, large 20 k"
    told = "large at 20 k, as answered of tall 1, wide 1, small 3"
    assert str(inner.decisions["unroll"]) == told


def test_a_scope_ends_with_an_error() -> None:
    with pytest.raises(ValueError, match="inside"), deciding("kernel") as scope:
        raise ValueError("inside")
    taken()
    assert scope.decisions == {}


# ---- plans ----


def test_plans_are_written_and_read() -> None:
    for plan, text in (
        (Plan("direct"), "direct"),
        (Plan.of("winograd", m=4, split="blocks"), "winograd(m=4, split=blocks)"),
        (Plan.of("shift", by=-3), "shift(by=-3)"),
    ):
        assert str(plan) == text and Plan.parse(text) == plan
    for text in ("", "winograd(", "winograd(m=4))", "a b", "winograd(m)", "winograd(=4)"):
        with pytest.raises(ValueError, match=r"implementation is written as name\(choice=1, ...\)"):
            Plan.parse(text)


def test_plans_are_asked_for_what_they_have() -> None:
    plan = Plan.of("winograd", m=4, split="blocks")
    assert (plan.integer("m"), plan.text("split")) == (4, "blocks")
    with pytest.raises(ValueError, match=r"'winograd\(m=4, split=blocks\)' has no number 'split'"):
        plan.integer("split")
    with pytest.raises(ValueError, match=r"'winograd\(m=4, split=blocks\)' has no word 'm'"):
        plan.text("m")
    with pytest.raises(ValueError, match="no implementation 'fft'; there are across, amx, "):
        implementation_of(Plan("fft"))


# ---- implementations of layers ----

TILES = Processor(512, 32, l2_bytes=2 << 20, has_dot4=True, matrix_tiles=("bfloat16", "int8"))
DOTS = Processor(256, 16, has_dot4=True, threads=2)
PAIRS = Processor(256, 16, has_dot2=True)
FLOATS = Processor(256, 16, threads=3)


def layer(data: Any, weight: Any, dtypes: str, **attrs: Any) -> tuple[Any, Array]:
    """A convolution or a dense layer with channels last, and its data."""
    rng = np.random.default_rng(5)
    kinds = dtypes.split()
    given = [
        rng.integers(-9, 10, shape) if kind == "int8" else rng.integers(0, 20, shape)
        if kind == "uint8" else rng.standard_normal(shape)
        for shape, kind in zip((data, weight), kinds, strict=True)
    ]
    x, w = (each.astype(kind) for each, kind in zip(given, kinds, strict=True))
    holder = relay.var("x", shape=data, dtype=kinds[0])
    out = {} if kinds[0] == "float32" else {"out_dtype": "int32"}
    if len(weight) == 2:
        return relay.nn.dense(holder, relay.const(w), **out, **attrs), x
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    return relay.nn.conv2d(holder, relay.const(w), **layouts, **out, **attrs), x


LAYERS: dict[str, tuple[Processor, Any]] = {
    "3x3": (FLOATS, ((1, 12, 14, 16), (16, 3, 3, 16), "float32 float32", {"padding": 1})),
    "stem": (FLOATS, ((1, 20, 18, 3), (16, 5, 5, 3), "float32 float32", {"strides": 2})),
    "bytes on tiles": (TILES, ((1, 3, 4, 8), (16, 2, 1, 8), "uint8 int8", {"padding": 1})),
    "bytes in pairs": (PAIRS, ((2, 5, 6, 8), (16, 1, 1, 8), "int8 int8", {})),
    "dense in pairs": (PAIRS, ((5, 24), (16, 24), "uint8 int8", {})),
    "dense on tiles": (TILES, ((5, 24), (16, 24), "int8 int8", {})),
    "depthwise": (DOTS, (
        (1, 6, 9, 16), (16, 3, 3, 1), "uint8 int8", {"groups": 16, "padding": 1},
    )),
    "depthwise in pairs": (PAIRS, (
        (1, 6, 9, 16), (16, 3, 3, 1), "uint8 int8", {"groups": 16, "strides": 2},
    )),
}


def offered(made: Any, processor: Processor) -> list[str]:
    """What can be answered for the one layer of a graph."""
    with deciding("graph") as graph:
        implement(made, processor)
    asked = [part.decisions for part in graph.inner if "implementation" in part.decisions]
    return [text for text, _ in asked[0]["implementation"].offered]


@pytest.mark.parametrize("name", LAYERS)
def test_every_implementation_can_be_answered(name: str) -> None:
    """Whatever legal answer is given, the numbers stay right."""
    processor, (data, weight, dtypes, attrs) = LAYERS[name]
    made, x = layer(data, weight, dtypes, **attrs)
    func = relay.Function(tuple(relay.analysis.free_vars(made)), made)
    want = interpret(func, x)
    answers = offered(func, processor)
    assert len(answers) > 1 and "direct" in answers
    seen: set[str] = set()
    for answer in answers:
        mod = implement(func, processor, answer)
        (plan,) = plans_in(mod)
        assert plan == answer or Plan.parse(plan).name == answer
        short = answer.split("tiles=")[0]  # one kernel for each transform, not for each sharing
        if short in seen:
            continue
        seen.add(short)
        with tvm.transform.PassContext(opt_level=2):
            lib = relay.build(mod, target="llvm")
        if dtypes.startswith("float"):
            assert np.abs(run_built(lib, x=x) - want).max() <= 2e-5 * np.abs(want).max(), answer
        else:
            np.testing.assert_array_equal(run_built(lib, x=x), want, err_msg=answer)


def contraction() -> tuple[Contraction, Array]:
    floats = DataType("float32")
    made = Contraction(
        1, (56, 56), 64, (56, 56), 64, floats, floats, floats, window=(3, 3), before=(1, 1),
        after=(1, 1),
    )
    return made, np.zeros((64, 3, 3, 64), "float32")


def test_layers_are_answered_by_their_own_names() -> None:
    """The scope of a layer is its contraction; other layers keep the answer of theirs."""
    made, weights = contraction()
    assert str(made) == "1x56x56x64 * 64x3x3x64 -> 1x56x56x64 float32"
    free = best_candidate(made, weights, FLOATS)
    assert free.plan.name == "winograd"
    for scope, name in ((str(made), "direct"), ("1x1 * 1x1", "winograd")):
        config = {"schedule.answers": {f"{scope}/implementation": "direct"}}
        with tvm.transform.PassContext(config=config):
            assert best_candidate(made, weights, FLOATS).plan.name == name


def test_the_cheapest_is_taken_untuned() -> None:
    made, weights = contraction()
    every: list[Candidate] = [
        candidate
        for each in implementations().values()
        for candidate in each.candidates(made, weights, FLOATS)
    ]
    least = min(candidate.cycles for candidate in every)
    first = next(candidate for candidate in every if candidate.cycles == least)
    assert str(best_candidate(made, weights, FLOATS)) == str(first)
    labels = [str(candidate) for candidate in every]
    assert len(set(labels)) == len(labels), "candidates are told apart by their text"


def test_only_what_the_taken_implementation_asks_is_decided() -> None:
    x = relay.var("x", shape=(1, 64, 28, 28))
    weight = relay.const(np.ones((64, 64, 1, 1), "float32"))
    call = relay.nn.conv2d(x, weight)
    scope = "1x28x28x64 * 64x1x1x64 -> 1x28x28x64 float32"
    decided = {}
    for way in ("im2col", "direct"):
        answers = {f"{scope}/layouts": "NCHW -> NCHW", f"{scope}/implementation": way}
        config = {"schedule.answers": answers}
        with deciding("network") as asked, tvm.transform.PassContext(3, config=config):
            built = relay.build(tvm.IRModule.from_expr(call), target="llvm")
        assert built is not None
        decided[way] = [d for each in _scopes(asked) if each.name == scope
                        for d in each.decisions.values()]
        assert [d.taken for d in decided[way] if d.name == "implementation"] == [way]
    assert {d.name for d in decided["im2col"]} >= {"tile", "panel", "channels in parts"}
    assert not {d.name for d in decided["direct"]} & {"panel", "channels in parts", "copied"}


def _scopes(scope: Scope) -> list[Scope]:
    return [each for part in scope.inner for each in (part, *_scopes(part))]
