"""Winograd F(m, r): its matrices, when it is chosen, its numbers."""

import json
import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import sterna as tvm
from sterna import relay
from sterna.ir.types import TensorType
from sterna.lowering.lower_kernel import lower_kernel
from sterna.relay.op import call as call_of
from sterna.relay.passes.choose_implementations import choose_implementations
from sterna.relay.traverse import post_order
from sterna.schedule.choose import Decision
from sterna.schedule.contraction import Contraction
from sterna.schedule.implementation import (
    Candidate,
    Plan,
    best_candidate,
    implementations,
)
from sterna.schedule.kernel import Processor
from sterna.schedule.linear_steps import linear_steps
from sterna.schedule.winograd_plan import (
    SIZES,
    SPLITS,
    WINDOWS,
    as_array,
    matrices,
    restore_weights,
    transform_weights,
    winograd_plans,
)
from sterna.support.dtype import DataType
from sterna.target import Target
from sterna.target.for_schedules import processor_of
from tests.op.harness import reference
from tests.schedule.implemented import implement, names_in, packed_conv2d, plans_in, run_built

MACHINE = Processor(512, 32, l1_bytes=48 << 10, l2_bytes=2 << 20, threads=2)


# Results and window: the sizes of tiles that are tried.
TILES = [(size - window + 1, window) for window in WINDOWS for size in SIZES if size > window]


@pytest.mark.parametrize("m, r", TILES)
def test_matrices_convolve_a_line(m: int, r: int) -> None:
    of = matrices(m, r)
    line, window = np.arange(1.0, m + r) ** 2, np.array([1.0, -2.0, 0.5, 3.0, 0.25])[:r]
    products = (as_array(of.window) @ window) * (as_array(of.data) @ line)
    want = np.correlate(line, window, "valid")
    np.testing.assert_allclose(as_array(of.result) @ products, want, rtol=1e-12)


@pytest.mark.parametrize("m, r", TILES)
def test_the_reference_is_the_convolution(m: int, r: int) -> None:
    rng = np.random.default_rng(m)
    x = rng.standard_normal((2, 7, 10, 6))
    w = rng.standard_normal((8, r, r, 6))
    packed = transform_weights(w, m, 4)
    np.testing.assert_allclose(restore_weights(packed, m, r), w, atol=1e-11)
    attrs: dict[str, Any] = {
        "data_layout": "NHWC", "kernel_layout": "OHWI", "padding": (1, 0, 1, 2)
    }
    got = reference(
        "nn.conv2d", x, packed, channels=8, kernel_size=r, implementation=f"winograd(m={m})",
        **attrs,
    )
    np.testing.assert_allclose(got, reference("nn.conv2d", x, w, **attrs), atol=1e-11)
    np.testing.assert_allclose(by_tiles(x, packed, m, r, (1, 0, 1, 2)), got, atol=1e-10)


def by_tiles(x: Any, packed: Any, m: int, r: int, border: Any) -> Any:
    """Y = A'[(G g G') * (B' d B)]A, tile by tile, of weights that are transformed."""
    of, size = matrices(m, r), m + r - 1
    before, after = as_array(of.data), as_array(of.result)
    outputs = packed.shape[1] * packed.shape[3]
    window = packed.transpose(0, 2, 1, 3).reshape(size, size, -1, outputs)
    top, left, bottom, right = border
    high, wide = x.shape[1] + top + bottom - r + 1, x.shape[2] + left + right - r + 1
    down, across = -(-high // m), -(-wide // m)
    whole = np.zeros((len(x), down * m + r - 1, across * m + r - 1, x.shape[3]))
    whole[:, top : top + x.shape[1], left : left + x.shape[2]] = x
    made = np.zeros((len(x), down * m, across * m, outputs))
    for row, column in np.ndindex(down, across):
        rows, columns = (slice(at * m, at * m + size) for at in (row, column))
        seen = np.einsum("xr,nrsi,ys->nxyi", before, whole[:, rows, columns], before)
        products = np.einsum("nxyi,xyio->nxyo", seen, window)
        tile = np.einsum("ax,nxyo,by->nabo", after, products, after)
        made[:, row * m : row * m + m, column * m : column * m + m] = tile
    return made[:, :high, :wide]


@pytest.mark.parametrize("m, before, after", [(2, 4, 4), (4, 16, 12), (5, 21, 16), (6, 24, 20)])
def test_transforms_share_their_sums(m: int, before: int, after: int) -> None:
    """Instructions for a line: without sharing F(6, 3) takes 36 and 32."""
    of = matrices(m, 3)
    assert (linear_steps(of.data).cost, linear_steps(of.result).cost) == (before, after)


_FRACTIONS = st.sampled_from([Fraction(n, d) for n in (-3, -1, 0, 1, 2) for d in (1, 2, 4)])


@given(st.lists(st.lists(_FRACTIONS, min_size=4, max_size=4), min_size=1, max_size=6))
def test_steps_make_the_product(rows: list[list[Fraction]]) -> None:
    assume(all(any(row) for row in rows))
    made = linear_steps(tuple(map(tuple, rows)))
    values = [Fraction(n) for n in (3, -7, 11, 101)]
    for step in made.steps:
        values.append(values[step.left] + step.factor * values[step.right])
    want = [sum(x * y for x, y in zip(row, values, strict=False)) for row in rows]
    assert [values[place] * factor for place, factor in made.results] == want
    assert made.cost <= sum(len(row) for row in rows)


def winograd(m: int, products: int, **choices: int | str) -> Plan:
    """A plan for vectors of 8 lanes and 16 registers, unless choices say something else."""
    own: dict[str, int | str] = {
        "m": m, "tiles": 16, "split": "blocks", "lanes": 8, "registers": 16,
        "together": 1,
    }
    return Plan.of("winograd", **{**own, "products": products, **choices})


@pytest.mark.parametrize(
    "m, r, together",
    [(2, 3, 1), (4, 3, 1), (4, 3, 4), (5, 3, 1), (6, 3, 8), (5, 4, 1), (4, 5, 1), (7, 2, 8)],
)
@pytest.mark.parametrize(
    "split, image, border",
    [
        ("blocks", (13, 9), (1, 1, 1, 1)),
        ("channels", (14, 8), (0, 0, 0, 0)),
        ("positions", (11, 7), (0, 2, 1, 0)),
    ],
)
def test_kernels_convolve(
    m: int, r: int, together: int, split: str, image: Any, border: Any
) -> None:
    """Edges of all kinds, and errors of rounding that leave room below 2e-3."""
    rng = np.random.default_rng(3)
    data = np.maximum(rng.standard_normal((2, *image, 32)), 0).astype("float32")
    weight = rng.standard_normal((16, r, r, 32)).astype("float32")
    x = relay.var("x", shape=data.shape)
    plan = winograd(m, r * r * 32, tiles=5, split=split, together=together)
    packed = [transform_weights(weight, m, 16)]
    body = packed_conv2d(x, plan, packed, 16, r, padding=border)
    got, _ = result(tvm.IRModule.from_expr(relay.Function((x,), body)), data)
    want = reference(
        "nn.conv2d", data.astype("float64"), weight.astype("float64"), data_layout="NHWC",
        kernel_layout="OHWI", padding=border,
    )
    assert np.abs(got - want).max() <= 2e-5 * np.abs(want).max()


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("dilation", [1, 2])
def test_groups_read_channels_of_their_own(split: str, dilation: int) -> None:
    rng = np.random.default_rng(7)
    data = rng.standard_normal((2, 13, 10, 48)).astype("float32")
    weight = rng.standard_normal((96, 3, 3, 16)).astype("float32")
    x = relay.var("x", shape=data.shape)
    plan = winograd(4, 9 * 16, tiles=5, split=split)
    wanted = {"groups": 3, "padding": dilation, "dilation": dilation}
    body = packed_conv2d(x, plan, [transform_weights(weight, 4, 16)], 96, 3, **wanted)
    got, _ = result(tvm.IRModule.from_expr(relay.Function((x,), body)), data)
    want = reference(
        "nn.conv2d", data.astype("float64"), weight.astype("float64"), data_layout="NHWC",
        kernel_layout="OHWI", **wanted,
    )
    assert np.abs(got - want).max() <= 2e-5 * np.abs(want).max()


@pytest.mark.parametrize(
    "channels, outputs, window, groups", [(64, 64, 3, 1), (64, 64, 4, 1), (96, 192, 5, 2)]
)
def test_the_run_transforms_weights_that_it_is_given(
    channels: int, outputs: int, window: int, groups: int
) -> None:
    rng = np.random.default_rng(5)
    data = rng.standard_normal((1, channels, 40, 37)).astype("float32")
    shape = (outputs, channels // groups, window, window)
    weight = rng.standard_normal(shape).astype("float32")
    x, w = relay.var("x", shape=data.shape), relay.var("w", shape=weight.shape)
    body = relay.nn.conv2d(x, w, padding=window // 2, groups=groups)
    made = implement(relay.Function((x, w), body), MACHINE)
    assert names_in(made) == ["winograd"]
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function((x, w), body)), target="llvm")
    want = reference(
        "nn.conv2d", data.astype("float64"), weight.astype("float64"), padding=window // 2,
        groups=groups,
    )
    assert np.abs(run_built(lib, x=data, w=weight) - want).max() <= 4e-5 * np.abs(want).max()
    small = implement(relay.Function((x, w), body), MACHINE, growth=0)
    assert names_in(small) == []  # memory for transformed weights is limited


def network(
    shape: tuple[int, ...], channels: int, padding: Any = 1, window: int = 3, layout: str = "NCHW",
    **attrs: Any,
) -> Any:
    """A convolution with a bias and a relu."""
    rng = np.random.default_rng(1)
    x = relay.var("x", shape=shape)
    inputs = shape[layout.index("C")]
    w = relay.const(rng.standard_normal((channels, inputs, window, window)).astype("float32"))
    made = relay.nn.conv2d(
        x, w, padding=padding, data_layout=layout, kernel_layout="OIHW", **attrs
    )
    spread = (channels, 1, 1) if layout == "NCHW" else (channels,)
    bias = relay.const(rng.standard_normal(spread).astype("float32"))
    return tvm.IRModule.from_expr(relay.Function((x,), relay.nn.relu(relay.add(made, bias))))


def result(mod: Any, x: Any, **config: Any) -> Any:
    with tvm.transform.PassContext(opt_level=3, config=config):
        lib = relay.build(mod, target="llvm")
    return run_built(lib, x=x), lib


def told(lib: Any) -> str:
    """What the report tells about the schedules of all kernels."""
    notes = lib.kernel_notes.values()
    return "; ".join(str(each.choices["schedule"]) for each in notes if each.choices)


@pytest.mark.parametrize(
    "shape, channels, padding",
    [((1, 16, 56, 56), 16, 1), ((2, 64, 13, 11), 32, (0, 1, 2, 1)), ((1, 32, 20, 20), 48, 0)],
)
def test_it_runs_where_it_costs_less(shape: Any, channels: int, padding: Any) -> None:
    mod = network(shape, channels, padding)
    x = np.random.default_rng(2).standard_normal(shape).astype("float32")
    got, lib = result(mod, x)
    assert "Winograd F(" in told(lib)
    want, plain = result(mod, x, **{"relay.Winograd.max_growth": 0})
    assert "Winograd" not in told(plain)
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


@pytest.mark.parametrize(
    "shape, window, step, padding, layout",
    [
        ((2, 3, 61, 54), 7, 2, 3, "NCHW"),
        ((1, 61, 54, 3), 7, 2, (3, 2, 1, 0), "NHWC"),
        ((1, 1, 60, 64), 11, 4, 2, "NCHW"),
        ((1, 32, 30, 28), 5, 1, 2, "NCHW"),
    ],
)
def test_larger_windows_and_steps_over_few_channels(
    shape: Any, window: int, step: int, padding: Any, layout: str
) -> None:
    """A step over pixels is one over blocks of them, with a window that touches few blocks."""
    mod = network(shape, 32, padding, window, layout, strides=step)
    x = np.random.default_rng(2).standard_normal(shape).astype("float32")
    got, lib = result(mod, x)
    assert "Winograd F(" in told(lib)
    want, _ = result(mod, x, **{"relay.Winograd.max_growth": 0})
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


def test_its_own_products_are_counted() -> None:
    """The model's operations stay those of the network; profiles know which of them are spared."""
    lib = result(network((1, 16, 56, 56), 16, 1), np.zeros((1, 16, 56, 56), "float32"))[1]
    (attrs,) = [
        node["attrs"] for node in json.loads(lib.graph_json)["nodes"]
        if "way" in node.get("attrs", {})
    ]
    found = re.fullmatch(r"Winograd F\((\d), 3\)", attrs["way"])
    assert found is not None
    m = int(found[1])
    products = 16 * 16 * (-(-56 // m) * (m + 2)) ** 2
    bias_and_relu = 2 * 16 * 56 * 56
    assert int(attrs["flops"]) == 2 * 16 * 16 * 9 * 56 * 56 + bias_and_relu
    assert int(attrs["flops"]) - int(attrs["spared_flops"]) == 2 * products + bias_and_relu


ALONE = replace(MACHINE, threads=1)


def decided(
    size: int, inputs: int, outputs: int, machine: Processor = ALONE, growth: float = 8
) -> Candidate:
    """The cheapest way of a window of 3 x 3 with a border of zeros."""
    made = windows_of_3(size, inputs, outputs)
    weights = np.zeros((outputs, 3, 3, inputs), "float32")
    return best_candidate(made, weights, machine, growth)


def windows_of_3(size: int, inputs: int, outputs: int) -> Contraction:
    floats = DataType("float32")
    return Contraction(
        batch=1, image=(size, size), inputs=inputs, result=(size, size), outputs=outputs,
        data=floats, weight=floats, out=floats, window=(3, 3), before=(1, 1), after=(1, 1),
    )


@pytest.mark.parametrize(
    "size, inputs, outputs, m",
    [(56, 64, 64, 4), (28, 128, 128, 4), (14, 256, 256, 2), (56, 128, 32, 4), (14, 128, 32, 5),
     (55, 16, 64, 5), (27, 32, 128, 4), (13, 48, 192, 2)],
)
def test_the_tile_is_what_was_fastest(size: int, inputs: int, outputs: int, m: int) -> None:
    """As measured on a processor with vectors of 512 bits and 2 MiB for each core."""
    plan = decided(size, inputs, outputs).plan
    assert (plan.name, plan.integer("m"), plan.integer("lanes")) == ("winograd", m, 16)


@pytest.mark.parametrize(
    "size, inputs, outputs, threads, m, split",
    [(28, 128, 128, 1, 6, "positions"), (28, 128, 128, 2, 6, "positions"),
     (56, 64, 64, 1, 6, "positions"), (56, 64, 64, 2, 6, "blocks"),
     (14, 256, 256, 1, 5, "positions"), (14, 256, 256, 2, 5, "positions"),
     (14, 512, 512, 1, 5, "positions"), (14, 512, 512, 2, 5, "positions"),
     (56, 128, 32, 1, 6, "positions"), (7, 512, 512, 2, 4, "positions")],
)
def test_weights_are_streamed_past_tiles_where_that_was_fastest(
    size: int, inputs: int, outputs: int, threads: int, m: int, split: str
) -> None:
    """As measured on a Neoverse N1; F(4, 3) in blocks or channels took 1.07 to 1.47 times as long.

    Weights of a position lie together and come while products are made; of the transforms, the
    second cache loses some as soon as they fill more than half of it.
    """
    core = Target(f"llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -num-cores={threads}")
    plan = decided(size, inputs, outputs, processor_of(core)).plan
    assert (plan.integer("m"), plan.text("split")) == (m, split)


@pytest.mark.parametrize(
    "size, inputs, outputs, m, splits",
    [(14, 256, 256, 5, "positions"), (20, 256, 256, 5, "positions"),
     (56, 128, 128, 6, "positions"), (7, 512, 512, 2, "positions"), (56, 64, 64, 4, "blocks"),
     (13, 48, 192, 5, "channels positions"), (13, 64, 256, 5, "channels positions")],
)
def test_a_server_streams_weights_too(
    size: int, inputs: int, outputs: int, m: int, splits: str
) -> None:
    """One thread on a server with AVX-512: these plans took at most 1.03 times the best of all.

    F(2, 3), which has the smallest weights and the most products, took 1.4 to 1.6 times as long in
    images of 13 and 14 rows.
    """
    core = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids -num-cores=1")
    plan = decided(size, inputs, outputs, processor_of(core)).plan
    assert (plan.name, plan.integer("m")) == ("winograd", m)
    assert plan.text("split") in splits.split()


def test_small_sums_and_growing_weights_stay_direct() -> None:
    assert decided(56, 64, 64, growth=2).plan.integer("m") == 2
    assert decided(55, 16, 64, growth=4).plan.integer("m") == 4
    small = Processor(vector_bits=32, vector_registers=8)
    for direct in (
        decided(56, 64, 64, growth=1), decided(7, 512, 512), decided(7, 512, 512, MACHINE),
        decided(9, 3, 32, MACHINE), decided(56, 64, 64, small),
    ):
        assert direct.plan.name == "direct"


def test_threads_find_enough_pieces_of_work() -> None:
    def split(size: int, inputs: int, outputs: int, threads: int) -> str:
        return decided(size, inputs, outputs, replace(MACHINE, threads=threads)).plan.text("split")

    assert split(56, 64, 64, threads=16) == "blocks"
    assert split(28, 128, 128, threads=2) == "blocks"
    # all weights for each of few tiles cost more than transforms that another core made
    assert split(14, 256, 256, threads=2) == "positions"


def test_blocks_have_another_size_where_that_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere other sizes are offered to tuners alone."""
    made, plans = windows_of_3(56, 64, 64), winograd_plans.__wrapped__
    offered = plans(made, 8, ALONE)
    core = processor_of(Target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -num-cores=2"))
    of_core = plans(made, 8, core)
    monkeypatch.setattr("sterna.schedule.winograd_plan.ROOMS", (1.0,))
    plain = plans(made, 8, ALONE)
    assert len(offered) > 2 * len(plain) and {*plain} < {*offered}
    assert min(offered, key=lambda plan: plan.cycles) == min(plain, key=lambda plan: plan.cycles)
    plain_of_core = plans(made, 8, core)
    assert min(plan.cycles for plan in of_core) < min(plan.cycles for plan in plain_of_core)


def test_the_choice_is_explained() -> None:
    made, weights = windows_of_3(56, 64, 64), np.zeros((64, 3, 3, 64), "float32")
    offered = tuple(
        (str(each), each.cycles)
        for one in implementations().values()
        for each in one.candidates(made, weights, ALONE)
    )
    taken = str(best_candidate(made, weights, ALONE))
    shown = str(Decision("implementation", offered, taken))
    cost = r"\([^)]*\) [\d,]+ k"
    assert re.match(rf"winograd\([^)]*\) at [\d,]+ k of winograd{cost}, winograd{cost}, ", shown)
    assert shown.endswith(" more") and "direct" in dict(offered)
    _, lib = result(network((1, 16, 56, 56), 16), np.ones((1, 16, 56, 56), "float32"))
    assert "threads share" in told(lib) and "times as large" in told(lib)


@pytest.mark.parametrize(
    "m, window, message",
    [(7, 3, r"the implementation 'winograd\(m=7, .*' does not fit: m should be 2 to 6"),
     (7, 4, r"the implementation 'winograd\(m=7, .*' does not fit: m should be 2 to 5"),
     (1, 3, r"the implementation 'winograd\(m=1, .*' does not fit: m should be 2 to 6"),
     (2, 6, "a convolution of float32 with channels last, stride 1, borders of 0 and a "
            "square window of 2 to 5 rows is needed, not 1x9x9x4 [*] 4x6x6x4 -> 1x4x4x4 float32")],
)
def test_tiles_have_a_largest_size(m: int, window: int, message: str) -> None:
    x, w = relay.var("x", shape=(1, 9, 9, 4)), relay.var("w", shape=(81, 1, 4, 4))
    with pytest.raises(ValueError, match=message):
        packed_conv2d(x, winograd(m, 36), [w], 4, window)


def test_weights_are_transformed_for_the_plan() -> None:
    x, plan = relay.var("x", shape=(1, 9, 9, 4)), winograd(2, 36, lanes=2)
    for shape in ((36, 1, 4, 4), (16, 1, 5, 4), (16, 2, 4, 4), (16, 4, 4)):
        with pytest.raises(ValueError, match=(
            "should have 16 positions, 4 input channels and 4 output channels in blocks"
        )):
            packed_conv2d(x, plan, [relay.var("w", shape=shape)], 4, 3)
    w = relay.var("w", shape=(16, 2, 4, 2))
    assert packed_conv2d(x, plan, [w], 4, 3).checked_type == TensorType(
        (1, 7, 7, 4), DataType("float32")
    )
    wrong: list[tuple[dict[str, int | str], str]] = [
        ({"lanes": 4}, "lanes should divide blocks of 2 channels"),
        ({"together": 8}, "lanes and together the 4 input channels"),
        ({"tiles": 0}, "tiles should be at least 1"),
        ({"split": "rows"}, "split should be one of blocks, channels, positions"),
        ({"registers": "many"}, "has no number 'registers'"),
    ]
    for choices, message in wrong:
        with pytest.raises(ValueError, match=message):
            packed_conv2d(x, winograd(2, 36, **{"lanes": 2} | choices), [w], 4, 3)
    with pytest.raises(ValueError, match="borders of 0"):
        packed_conv2d(x, plan, [w], 4, 3, padding=1, border=3)
    with pytest.raises(ValueError, match="channels and kernel_size are needed too"):
        call_of("nn.conv2d", x, w, implementation=str(plan), data_layout="NHWC")


@pytest.mark.parametrize("split", ["blocks", "channels", "positions"])
@pytest.mark.parametrize("block_tiles, fetched", [(30, [1]), (14, [2]), (3, [2])])
def test_the_next_weights_are_fetched(split: str, block_tiles: int, fetched: list[int]) -> None:
    """Whole tiles fetch the lines of the next weights in turns, a single tile all of them."""
    x, w = relay.var("x", shape=(1, 24, 20, 16)), relay.var("w", shape=(36, 2, 16, 32))
    plan = winograd(4, 144, tiles=block_tiles, lanes=16, registers=32, split=split)
    body = packed_conv2d(x, plan, [w], 64, 3, padding=(1, 1, 1, 1))
    func = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"].body.op
    loops = str(lower_kernel(func, "kernel", MACHINE).function)
    steps = loops.split("for lane in")[1:]
    counts = [step.count("prefetch(") for step in steps]
    assert [count for count in counts if count] == fetched


def test_only_what_it_can_do_is_changed() -> None:
    x = relay.var("x", shape=(1, 64, 56, 56))
    w = relay.const(np.ones((64, 64, 3, 3), "float32"))
    deep = relay.var("deep", shape=(1, 512, 7, 7))  # for whose few pixels the run transforms much
    fourths = relay.const(np.ones((64, 4, 3, 3), "float32"))
    image = relay.var("image", shape=(1, 3, 57, 56))
    stem = relay.const(np.ones((64, 3, 7, 7), "float32"))
    even = relay.const(np.ones((64, 3, 8, 8), "float32"))
    for body in (
        relay.nn.conv2d(x, w, strides=2, padding=1),
        relay.nn.conv2d(image, stem, strides=(2, 1), padding=3),
        relay.nn.conv2d(image, stem, padding=3),
        relay.nn.conv2d(image, even, strides=2),  # no window reads the last row
        relay.nn.conv2d(x, w, strides=2, dilation=2, padding=2),
        relay.nn.conv2d(x, fourths, groups=16, padding=1),
        relay.nn.conv2d(deep, relay.var("w", shape=(512, 512, 3, 3)), padding=1),
    ):
        assert "winograd" not in names_in(implement(body, MACHINE))
    for layout, shape in (("HWNC", (56, 56, 1, 64)), ("NWHC", (1, 56, 56, 64))):
        image = relay.var("image", shape=shape)
        body = relay.nn.conv2d(image, w, padding=1, data_layout=layout, kernel_layout="OIHW")
        assert names_in(implement(body, MACHINE)) == []
    (plan,) = plans_in(implement(relay.nn.conv2d(x, w, padding=1), MACHINE))
    assert plan.startswith("winograd(")


@pytest.mark.parametrize("in_all", [1.0, 1.2, 1.5, 2.0])
def test_all_weights_together_keep_to_a_limit(in_all: float) -> None:
    """Those grow that save most for a byte: where images are large, weights are small."""
    body: relay.RelayExpr = relay.var("x", shape=(1, 56, 56, 64))
    for channels in (64, 64, 128, 128):
        kind = body.checked_type
        assert isinstance(kind, TensorType)
        weight = relay.const(np.ones((channels, kind.concrete_shape[-1], 3, 3), "float32"))
        body = relay.nn.conv2d(body, weight, padding=1, data_layout="NHWC", kernel_layout="OIHW")
        body = relay.nn.max_pool2d(body, (2, 2), (2, 2), layout="NHWC")
    func = relay.Function(tuple(relay.analysis.free_vars(body)), body)
    func = relay.transform.InferType()(tvm.IRModule({"main": func}))["main"]

    def size(made: relay.Function) -> int:
        found = [e for e in post_order(made) if isinstance(e, relay.Constant)]
        return sum(constant.data.nbytes for constant in found)

    made = choose_implementations(func, MACHINE, 8, in_all)
    grown, plans = size(made) / size(func), plans_in(tvm.IRModule({"main": made}))
    assert grown <= in_all
    assert ("winograd" in str(plans)) == (in_all > 1)
    if in_all > 1:
        assert plans[0].startswith("winograd(") and grown > 1
