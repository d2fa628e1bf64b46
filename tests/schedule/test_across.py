"""Contractions across vectors (VMLADAVA): rows of weights, and plain C with the same numbers."""

import numpy as np
import pytest

from sterna import relay
from sterna.schedule.implementation import Plan, implementation_of
from sterna.schedule.implementations.across import packed as packed_rows
from sterna.schedule.implementations.quads import packed as packed_quads
from sterna.schedule.kernel import Processor
from tests.schedule.byte_layers import extremes
from tests.schedule.implemented import (
    implement,
    implemented_for,
    names_in,
    packed_conv2d,
    run_built,
)
from tests.schedule.test_halves import WINDOWS, described, layer

M55 = Processor(128, 8, has_dot_halves=True, has_dot_across=True, has_spare_memory=False)


def wanted_for(name: str) -> str:
    return "quads" if WINDOWS[name][3].get("groups", 1) > 1 else "across"


@pytest.mark.parametrize("name", WINDOWS)
def test_layers_are_exact(name: str) -> None:
    made, feeds, want = layer(name)
    mod = implement(made, M55, wanted_for(name), target="c")
    assert names_in(mod) == [wanted_for(name)]
    np.testing.assert_array_equal(run_built(relay.build(mod, target="c"), **feeds), want)


@pytest.mark.parametrize(("rows", "depth", "units"), [
    (1, 21, 8), (1, 8, 7), (7, 12, 5), (1, 512, 6), (1, 512, 3), (2, 30, 42),
])
def test_rows_are_exact(rows: int, depth: int, units: int) -> None:
    rng = np.random.default_rng(depth)
    x, w = extremes(rng, (rows, depth), "int8"), extremes(rng, (units, depth), "int8")
    data = relay.var("x", shape=x.shape, dtype="int8")
    made = relay.nn.dense(data, relay.const(w), out_dtype="int32")
    mod = implement(made, M55, "across", target="c")
    assert names_in(mod) == ["across"]
    found = run_built(relay.build(mod, target="c"), x=x)
    np.testing.assert_array_equal(found, x.astype("int32") @ w.astype("int32").T)


def test_only_processors_with_the_instructions_take_them() -> None:
    made, _, _ = layer("window")
    for cpu, wanted in (("m55", "across"), ("m85", "across"), ("m4", "halves")):
        assert implemented_for(made, f"c -mcpu=cortex-{cpu}") == [wanted], cpu


@pytest.mark.parametrize("name", ["colours", "odd depth", "depthwise", "one column", "even"])
def test_weights_come_back(name: str) -> None:
    made = described(name)
    plan = Plan.of("quads", outputs=1) if made.groups > 1 else Plan.of("across", channels=2)
    rng = np.random.default_rng(3)
    weights = extremes(rng, (made.outputs, *made.window, made.depth), "int8")
    packed = (packed_quads if made.groups > 1 else packed_rows)(made, weights)
    found = implementation_of(plan).unpack(made, plan, (packed,))
    np.testing.assert_array_equal(found, weights)


@pytest.mark.parametrize(("plan", "message"), [
    (Plan.of("across", channels=6), "a multiple of 4 channels, of at most 32 or the 6"),
    (Plan.of("across", channels=8), "a multiple of 4 channels, of at most 32 or the 6"),
])
def test_plans_that_do_not_fit(plan: Plan, message: str) -> None:
    data = relay.var("x", shape=(1, 5, 5, 8), dtype="int8")
    weights = [np.zeros((6, 8), "int8")]
    with pytest.raises(ValueError, match=message):
        packed_conv2d(data, plan, weights, 6, (1, 1), out_dtype="int32").checked_type  # noqa: B018
