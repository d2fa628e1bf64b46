"""Contractions across vectors (VMLADAVA): rows of weights, and plain C with the same numbers."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.interpreter import interpret
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
    is_rescaled = "qnn.rescaled_quads" in mod.astext()
    assert names_in(mod) == ([] if is_rescaled else [wanted_for(name)])
    np.testing.assert_array_equal(run_built(relay.build(mod, target="c"), **feeds), want)


@pytest.mark.parametrize(("rows", "depth", "units"), [
    (1, 21, 8), (1, 8, 7), (7, 12, 5), (1, 512, 6), (1, 512, 3), (2, 30, 42),
    (1, 384, 1), (3, 96, 2),
])
def test_rows_are_exact(rows: int, depth: int, units: int) -> None:
    rng = np.random.default_rng(depth)
    x, w = extremes(rng, (rows, depth), "int8"), extremes(rng, (units, depth), "int8")
    data = relay.var("x", shape=x.shape, dtype="int8")
    made = relay.nn.dense(data, relay.const(w), out_dtype="int32")
    mod = implement(made, M55, "across", target="c")
    assert names_in(mod) == ["across"]
    built = relay.build(mod, target="c")
    few = f"sterna_dots_across_{units}("  # sums of the channels that there are
    assert (few in built.lib.get_source()) == (units < 4)
    found = run_built(built, x=x)
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


@pytest.mark.parametrize("channels", [16, 17])
def test_a_layer_is_added_to_what_it_reads(channels: int) -> None:
    """The last channels of 17 are those of two turns: the second must not read sums."""
    rng = np.random.default_rng(channels)
    x = extremes(rng, (40, channels), "int8")
    weight = relay.const(rng.integers(-3, 4, (channels, channels)).astype("int8"))

    def dense(read: Any) -> Any:
        sums = relay.nn.dense(read, weight, out_dtype="int32")
        return relay.cast(relay.clip(relay.right_shift(sums, relay.const(3)), -99, 99), "int8")

    made = dense(relay.var("x", shape=x.shape, dtype="int8"))
    for _ in range(2):
        both = relay.add(relay.cast(dense(made), "int32"), relay.cast(made, "int32"))
        made = relay.cast(relay.clip(both, -128, 127), "int8")
    graph = tvm.IRModule.from_expr(dense(made))
    mod = implement(dense(made), M55, "across", target="c")
    assert names_in(mod) == ["across"] * 4
    found = run_built(relay.build(mod, target="c"), x=x)
    np.testing.assert_array_equal(found, interpret(graph["main"], x))
