"""Winograd's way to convolve: its matrices, its choice, its numbers."""

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
from sterna.contrib import graph_executor
from sterna.lowering.lower_kernel import lower_kernel
from sterna.relay.op import is_call_of
from sterna.schedule.kernel import Processor
from sterna.schedule.linear_steps import linear_steps
from sterna.schedule.winograd_plan import (
    SIZES,
    WINDOWS,
    Sum,
    as_array,
    matrices,
    transform_weights,
    winograd_plan,
)
from tests.op.harness import reference

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
    w = rng.standard_normal((8, 6, r, r))
    border = (1, 0, 1, 2)
    packed = transform_weights(w, m, 4)
    got = reference("nn.conv2d_winograd", x, packed, tile_size=m, window=r, padding=border)
    want = reference(
        "nn.conv2d", x, w, data_layout="NHWC", kernel_layout="OIHW", padding=border
    )
    np.testing.assert_allclose(got, want, atol=1e-11)


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
    weight = rng.standard_normal((16, 32, r, r)).astype("float32")
    x, w = relay.var("x", shape=data.shape), relay.const(transform_weights(weight, m, 16))
    body = relay.nn.conv2d_winograd(
        x, w, tile_size=m, window=r, padding=border, block_tiles=5, lanes=8, registers=16,
        split=split, together=together,
    )
    got, _ = result(tvm.IRModule.from_expr(relay.Function((x,), body)), data)
    want = reference(
        "nn.conv2d", data.astype("float64"), weight.astype("float64"), data_layout="NHWC",
        kernel_layout="OIHW", padding=border,
    )
    assert np.abs(got - want).max() <= 2e-5 * np.abs(want).max()


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
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    m.run(x=x)
    return m.get_output(0).numpy(), lib


@pytest.mark.parametrize(
    "shape, channels, padding",
    [((1, 16, 56, 56), 16, 1), ((2, 64, 13, 11), 32, (0, 1, 2, 1)), ((1, 32, 20, 20), 48, 0)],
)
def test_it_runs_where_it_costs_less(shape: Any, channels: int, padding: Any) -> None:
    mod = network(shape, channels, padding)
    x = np.random.default_rng(2).standard_normal(shape).astype("float32")
    got, lib = result(mod, x)
    assert "winograd" in lib.get_graph_json()
    want, plain = result(mod, x, **{"relay.Winograd.max_growth": 0})
    assert "winograd" not in plain.get_graph_json()
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
    assert "winograd" in lib.get_graph_json()
    want, _ = result(mod, x, **{"relay.Winograd.max_growth": 0})
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


ALONE = replace(MACHINE, threads=1)


def plan(
    size: int, inputs: int, outputs: int, machine: Processor = ALONE, growth: float = 8
) -> Any:
    return winograd_plan(windows_of_3(size, inputs, outputs), 32, machine, 16, growth)


def windows_of_3(size: int, inputs: int, outputs: int) -> Sum:
    return Sum((1, size, size), inputs, outputs, window=3, plain=9 * inputs)


@pytest.mark.parametrize(
    "size, inputs, outputs, m",
    [(56, 64, 64, 4), (28, 128, 128, 4), (14, 256, 256, 2), (56, 128, 32, 4), (14, 128, 32, 5),
     (55, 16, 64, 5), (27, 32, 128, 4), (13, 48, 192, 2)],
)
def test_the_tile_is_what_was_fastest(size: int, inputs: int, outputs: int, m: int) -> None:
    """As measured on a processor with vectors of 512 bits and 2 MiB for each core."""
    assert plan(size, inputs, outputs).m == m


def test_small_sums_and_growing_weights_stay_direct() -> None:
    assert plan(56, 64, 64, growth=2).m == 2
    assert plan(56, 64, 64, growth=1) is None
    assert plan(55, 16, 64, growth=4).m == 4
    assert plan(7, 512, 512) is None and plan(7, 512, 512, MACHINE) is None
    assert winograd_plan(windows_of_3(9, 3, 32), 32, MACHINE, 16, 8) is None
    small = Processor(vector_bits=32, vector_registers=8)
    assert winograd_plan(windows_of_3(56, 64, 64), 4, small, 1, 8) is None


def test_threads_find_enough_pieces_of_work() -> None:
    def split(size: int, inputs: int, outputs: int, threads: int) -> str | None:
        found = plan(size, inputs, outputs, replace(MACHINE, threads=threads))
        return None if found is None else found.split

    assert split(56, 64, 64, threads=16) == "blocks"
    assert split(28, 128, 128, threads=2) == "blocks"
    # all weights for each of few tiles cost more than transforms that another core made
    assert split(14, 256, 256, threads=2) == "positions"


def test_the_choice_is_explained() -> None:
    why = plan(56, 64, 64).why
    assert re.fullmatch(
        r"[\d,]+ k cycles expected, F\(2, 3\) [\d,]+ k, F\(5, 3\) [\d,]+ k, F\(6, 3\) [\d,]+ k, "
        r"direct [\d,]+ k", why,
    )
    _, lib = result(network((1, 16, 56, 56), 16), np.ones((1, 16, 56, 56), "float32"))
    shown = [notes.choices["schedule"] for notes in lib.kernel_notes.values() if notes.choices]
    assert any("cycles expected" in text and "times as large" in text for text in shown)


@pytest.mark.parametrize(
    "attrs, message",
    [({"tile_size": 7}, "tile_size is 7: it should be 2 to 6"),
     ({"tile_size": 7, "window": 4}, "tile_size is 7: it should be 2 to 5"),
     ({"window": 6}, "window is 6: it should be 2 to 5")],
)
def test_tiles_have_a_largest_size(attrs: Any, message: str) -> None:
    x, w = relay.var("x", shape=(1, 9, 9, 4)), relay.var("w", shape=(81, 1, 4, 4))
    with pytest.raises(Exception, match=message):
        relay.transform.InferType()(
            tvm.IRModule.from_expr(relay.nn.conv2d_winograd(x, w, **attrs))
        )


@pytest.mark.parametrize("split", ["blocks", "channels", "positions"])
@pytest.mark.parametrize("block_tiles, fetched", [(30, [1]), (14, [2]), (3, [2])])
def test_the_next_weights_are_fetched(split: str, block_tiles: int, fetched: list[int]) -> None:
    """Whole tiles fetch the lines of the next weights in turns, a single tile all of them."""
    x, w = relay.var("x", shape=(1, 24, 20, 16)), relay.var("w", shape=(36, 2, 16, 32))
    body = relay.nn.conv2d_winograd(
        x, w, padding=(1, 1, 1, 1), block_tiles=block_tiles, lanes=16, registers=32, split=split
    )
    func = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"].body.op
    loops = str(lower_kernel(func, "kernel", MACHINE).function)
    steps = loops.split("for lane in")[1:]
    counts = [step.count("prefetch(") for step in steps]
    assert [count for count in counts if count] == fetched


def test_only_what_it_can_do_is_changed() -> None:
    x = relay.var("x", shape=(1, 64, 56, 56))
    w = relay.const(np.ones((64, 64, 3, 3), "float32"))
    halves = relay.const(np.ones((64, 32, 3, 3), "float32"))
    image = relay.var("image", shape=(1, 3, 57, 56))
    stem = relay.const(np.ones((64, 3, 7, 7), "float32"))
    even = relay.const(np.ones((64, 3, 8, 8), "float32"))
    for body in (
        relay.nn.conv2d(x, w, strides=2, padding=1),
        relay.nn.conv2d(image, stem, strides=(2, 1), padding=3),
        relay.nn.conv2d(image, stem, padding=3),
        relay.nn.conv2d(image, even, strides=2),  # no window reads the last row
        relay.nn.conv2d(x, w, dilation=2, padding=2),
        relay.nn.conv2d(x, halves, groups=2, padding=1),
        relay.nn.conv2d(x, relay.var("w", shape=(64, 64, 3, 3)), padding=1),
    ):
        mod = tvm.IRModule.from_expr(body)
        order = [relay.transform.AlterOpLayout(MACHINE), relay.transform.FoldConstant(),
                 relay.transform.Winograd(MACHINE)]
        with tvm.transform.PassContext(opt_level=3):
            made = tvm.transform.Sequential(order)(mod)["main"]
        found: list[Any] = []
        relay.analysis.post_order_visit(made, found.append)
        assert not any(is_call_of(expr, "nn.conv2d_winograd") for expr in found)
