"""dot2, products of bytes in pairs of 16 bits: exact for every weight and every byte."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sterna as tvm
from sterna import relay, te, tir
from sterna.relay.arrays import Array
from sterna.schedule.byte_pair_steps import fits_pairs, steps_of
from sterna.schedule.contraction import Contraction
from sterna.schedule.depthwise_bytes_kernel import pack_rows
from sterna.schedule.implementation import Plan
from sterna.schedule.implementations.depthwise_dot2 import halved
from sterna.schedule.kernel import Processor
from sterna.support.dtype import DataType
from sterna.tir import interpreter
from tests.schedule.byte_layers import MACHINES, convolved, extremes, here
from tests.schedule.implemented import (
    implement,
    implemented_for,
    names_in,
    packed_conv2d,
    packed_dense,
    run_built,
)

HASWELL = "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"
PAIRS = here([
    "llvm -mtriple=x86_64-linux-gnu -mattr=+avx2,+fma",
    "llvm -mtriple=x86_64-linux-gnu -mattr=+avx512bw,+avx512vl",
])
# What those have; its kernels run on every machine.
NARROW = Processor(256, 16, has_dot2=True)
WIDE = Processor(512, 32, has_dot2=True, threads=2)


# ---- the instructions ----


def called(signs: tuple[str, str], lanes: int, shared: bool) -> Any:
    """add_pairs of dot2, and dot2 alone."""
    a = tir.decl_buffer((4 if shared else 4 * lanes,), signs[0], "a")
    b = tir.decl_buffer((4 * lanes,), signs[1], "b")
    words = tir.decl_buffer((2 * lanes,), "int16", "words")
    out = tir.decl_buffer((lanes,), "int32", "out")
    made = tir.dot2(a.vload(0, f"{a.dtype}x{a.shape[0]}"), b.vload(0, f"{b.dtype}x{4 * lanes}"))
    total = out.vload(0, f"int32x{lanes}")
    body = tir.SeqStmt((words.vstore(0, made), out.vstore(0, tir.add_pairs(total, made))))
    args = (a, b, words, out)
    return tir.PrimFunc("f", tuple(each.data for each in args), args, body)


@pytest.mark.parametrize(("signs", "lanes", "shared"), [
    (("uint8", "int8"), 1, False), (("uint8", "int8"), 8, True), (("uint8", "int8"), 16, False),
    (("int8", "uint8"), 4, True), (("uint8", "uint8"), 8, False),
])
def test_two_products_in_16_bits_and_two_of_them_in_32(
    signs: tuple[str, str], lanes: int, shared: bool
) -> None:
    rng = np.random.default_rng(lanes)
    func = called(signs, lanes, shared)
    a = extremes(rng, (4 if shared else 4 * lanes,), signs[0])
    b = extremes(rng, (4 * lanes,), signs[1])
    every = np.tile(a, lanes) if shared else a
    products = every.astype("int32") * b.astype("int32")
    words = np.clip(products.reshape(-1, 2).sum(1), -(1 << 15), (1 << 15) - 1)
    before = rng.integers(-(1 << 31), 1 << 31, lanes).astype("int32")
    want = (before.astype("int64") + words.reshape(-1, 2).sum(1)).astype("int32")  # wraps
    for target in [*MACHINES, "c", None]:
        found, total = np.empty(2 * lanes, "int16"), before.copy()
        run = interpreter.run if target is None else _built(target)
        run(func, a, b, found, total)
        np.testing.assert_array_equal(found, words, err_msg=str(target))
        np.testing.assert_array_equal(total, want, err_msg=str(target))


def _built(target: str) -> Any:
    return lambda func, *arrays: tvm.build(func, target=target)(*arrays)


def test_what_they_take() -> None:
    four = te.var("a", "uint8x4")
    with pytest.raises(TypeError, match="as many bytes twice, not uint8x4 and int16x8"):
        tir.dot2(four, te.var("b", "int16x8"))
    with pytest.raises(TypeError, match="as many bytes twice, not uint8x8 and int8x16"):
        tir.dot2(te.var("a", "uint8x8"), te.var("b", "int8x16"))
    with pytest.raises(TypeError, match="in groups of four, not int8x6"):
        tir.dot2(te.var("a", "uint8x6"), te.var("b", "int8x6"))
    with pytest.raises(TypeError, match="adds to int32, not to int16x4"):
        tir.add_pairs(te.var("x", "int16x4"), te.var("a", "int16x8"))
    with pytest.raises(TypeError, match="takes int16x8 to add to int32x4, not int16x4"):
        tir.add_pairs(te.var("x", "int32x4"), te.var("a", "int16x4"))


# ---- weights ----


@settings(max_examples=60)
@given(st.integers(1, 5), st.integers(0, 9), st.integers(1, 128), st.integers(0, 2**32 - 1))
def test_no_sum_of_a_step_leaves_16_bits(panels: int, groups: int, most: int, seed: int) -> None:
    """Whatever the weights are, and the steps add up to them."""
    rng = np.random.default_rng(seed)
    shape = (panels * 3, groups + 1, 4)
    weights = rng.integers(-most, min(most, 127) + 1, shape)
    weights = np.where(rng.random(shape) < 0.1, rng.choice([-128, 127], shape), weights)
    steps = steps_of(weights.astype("int8"), 3)
    found = np.zeros(shape, int)
    for panel in range(panels):
        (begin, alone), (end, _) = steps.starts[panel], steps.starts[panel + 1]
        for group in range(begin, end):
            own = found[3 * panel : 3 * panel + 3]
            own[:, steps.places[group]] += steps.weight[group]
        summed = [[n, n + 1] for n in range(begin, alone, 2)] + [[n] for n in range(alone, end)]
        for step in summed:
            pairs = steps.weight[step].astype(int).reshape(len(step), 3, 2, 2)
            assert np.maximum(pairs, 0).sum(axis=(0, 3)).max(initial=0) * 255 <= 32767
            assert np.minimum(pairs, 0).sum(axis=(0, 3)).min(initial=0) * 255 >= -32768
    np.testing.assert_array_equal(found, weights)


def depthwise(channels: int, rows: int) -> Contraction:
    bytes_, sums = DataType("uint8"), DataType("int32")
    return Contraction(
        1, (9, 9), channels, (10 - rows, 10 - rows), channels, bytes_, DataType("int8"), sums,
        window=(rows, rows), groups=channels,
    )


def test_depthwise_weights_have_one_part_or_two() -> None:
    plain = np.full((16, 3, 3), 64, "int8")
    plain[11, 1, 2] = 65
    made = depthwise(16, 3)
    packed = pack_rows(made, plain, 8)
    weight, parts = halved(packed)
    assert parts.tolist() == [1, 2]
    np.testing.assert_array_equal(weight.astype(int).sum(axis=0), packed)
    assert not weight[1, :, :, 0].any() and fits_pairs(weight.reshape(-1, 2).astype(int)).all()
    assert len(halved(pack_rows(made, np.minimum(plain, 64), 8))[0]) == 1


def test_small_weights_are_summed_two_by_two() -> None:
    steps = steps_of(np.full((16, 6, 4), 32, "int8"), 16)
    assert steps.starts.tolist() == [[0, 6], [6, 6]] and steps.cost(16) == 15
    assert steps_of(np.full((16, 6, 4), 64, "int8"), 16).cost(8) == 36
    assert steps_of(np.full((16, 6, 4), 66, "int8"), 16).cost(16) == 36


# ---- layers ----

LAYERS: dict[str, Any] = {
    "pointwise": ((2, 44, 3, 9), (32, 44, 1, 1), {}),
    "strided": ((1, 36, 5, 7), (24, 36, 1, 1), {"strides": (2, 2)}),
    "window": ((1, 8, 9, 11), (16, 8, 3, 3), {"strides": (2, 1), "padding": (1, 0, 2, 1)}),
    "picture": ((1, 3, 12, 13), (32, 3, 3, 3), {"strides": (2, 2), "padding": 1}),
    "wide": ((1, 44, 6, 6), (48, 44, 2, 3), {"padding": 2, "dilation": 2}),
    "single": ((1, 32, 1, 1), (80, 32, 1, 1), {}),
    "depthwise": ((1, 32, 5, 101), (32, 1, 3, 3), {"groups": 32, "padding": 1}),
    "steps": ((2, 48, 8, 9), (48, 1, 3, 5), {"groups": 48, "strides": (2, 2), "padding": 1}),
}


def layer(kind: str, sign: str, seed: int) -> tuple[Any, Array, Array]:
    """A convolution of quantised data: weights of which few are large, and bytes of which many."""
    rng = np.random.default_rng(seed)
    shape, kernel, attrs = LAYERS[kind]
    rare = rng.random(kernel) < 0.004
    w = np.where(rare, rng.choice([-128, 127], kernel), rng.integers(-40, 41, kernel))
    x, w = extremes(rng, shape, sign), w.astype("int8")
    zero = int(rng.choice([np.iinfo(sign).min, np.iinfo(sign).max, 77]))
    one = relay.const(1.0)
    made = relay.qnn.conv2d(
        relay.var("x", shape=shape, dtype=sign), relay.const(w), relay.const(zero), relay.const(0),
        one, one, kernel_size=kernel[2:], channels=kernel[0], **attrs,
    )
    return made, x, convolved(x.astype("int64") - zero, w.astype("int64"), attrs)


def built(made: Any, target: str) -> Any:
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(tvm.IRModule.from_expr(made), target=target)


def built_for(made: Any, processor: Processor, name: str) -> Any:
    """The same kernels on whatever machine this is."""
    mod = implement(made, processor, target=HASWELL)
    assert names_in(mod) == [name]
    with tvm.transform.PassContext(opt_level=2):
        return relay.build(mod, target="llvm")


@pytest.mark.parametrize("kind", LAYERS)
def test_layers(kind: str) -> None:
    signs = {"pointwise": ["uint8", "int8"], "window": ["int8"], "wide": ["int8"]}
    several = kind in ("pointwise", "window", "depthwise")
    name = "depthwise_dot2" if "groups" in LAYERS[kind][2] else "byte_pairs"
    for sign in signs.get(kind, ["uint8"]):
        made, x, want = layer(kind, sign, len(sign))
        some = [NARROW, WIDE] if several else [NARROW]
        libs = [built_for(made, processor, name) for processor in some]
        for target in PAIRS if several else PAIRS[:1]:
            assert implemented_for(made, target) == [name]
            libs.append(built(made, target))
        for lib in libs:
            np.testing.assert_array_equal(run_built(lib, x=x), want)


@settings(max_examples=6)
@given(st.data())
def test_any_layer(data: Any) -> None:
    """Shapes, strides, borders and how many weights are large, drawn at random."""

    def draw(low: int, high: int) -> int:
        return int(data.draw(st.integers(low, high)))

    shape = (draw(1, 2), 4 * draw(1, 5), draw(3, 6), draw(3, 14))
    kernel = (8 * draw(1, 5), shape[1], draw(1, 3), draw(1, 3))
    attrs = {"strides": (draw(1, 2), draw(1, 2)), "padding": (draw(0, 2),) * 4}
    rng = np.random.default_rng(draw(0, 2**32 - 1))
    sign, most = data.draw(st.sampled_from(["uint8", "int8"])), draw(1, 60)
    w = np.where(rng.random(kernel) < 0.001, -128, rng.integers(-most, most + 1, kernel))
    x, w = extremes(rng, shape, sign), w.astype("int8")
    made = relay.nn.conv2d(
        relay.var("x", shape=shape, dtype=sign), relay.const(w), kernel_size=kernel[2:],
        channels=kernel[0], out_dtype="int32", **attrs,
    )
    want = convolved(x.astype("int64"), w.astype("int64"), attrs)
    with tvm.transform.PassContext(opt_level=2):
        libs = [relay.build(implement(made, NARROW, "byte_pairs"), target="llvm")]
    for lib in (*libs, *(built(made, target) for target in PAIRS[:1])):
        np.testing.assert_array_equal(run_built(lib, x=x), want)


@pytest.mark.parametrize(("shape", "units", "sign"), [
    ((1, 44), 24, "uint8"), ((2, 35, 1024), 32, "int8"), ((2, 35, 1024), 80, "uint8"),
    ((7, 12), 8, "int8"),
])
def test_dense_layers(shape: tuple[int, ...], units: int, sign: str) -> None:
    """In one band or several, with what follows in the same kernel."""
    rng = np.random.default_rng(units)
    weights = (units, shape[-1])
    rare = rng.random(weights) < 0.004
    w = np.where(rare, rng.choice([-128, 127], weights), rng.integers(-40, 41, weights))
    x, w = extremes(rng, shape, sign), w.astype("int8")
    other = rng.integers(-99, 99, (*shape[:-1], units)).astype("int32")
    data = relay.var("x", shape=shape, dtype=sign)
    made = relay.nn.dense(data, relay.const(w), out_dtype="int32")
    made = relay.add(made, relay.var("other", shape=other.shape, dtype="int32"))
    want = x.astype("int64") @ w.astype("int64").T + other
    libs = [built_for(made, NARROW, "byte_pairs")]
    for target in PAIRS[:1]:
        assert implemented_for(made, target) == ["byte_pairs"]
        libs.append(built(made, target))
    for lib in libs:
        np.testing.assert_array_equal(run_built(lib, x=x, other=other), want)


@pytest.mark.parametrize(("target", "kind", "expected"), [
    (HASWELL, "pointwise", ["byte_pairs"]),
    (HASWELL, "depthwise", ["depthwise_dot2"]),
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512", "pointwise", ["byte_pairs"]),
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server", "depthwise", ["depthwise_dot4"]),
    ("llvm -mtriple=x86_64-linux-gnu", "pointwise", []),
])
def test_where_it_is_chosen(target: str, kind: str, expected: list[str]) -> None:
    made = layer(kind, "uint8", 0)[0]
    assert implemented_for(made, target) == expected
    pairs = expected in (["byte_pairs"], ["depthwise_dot2"])
    assert ("pmaddubsw" in built(made, target).get_lib().get_source("asm")) is pairs


def test_large_weights_are_multiplied_as_words() -> None:
    """Where most groups would become two, steps cost more than words do."""
    w = extremes(np.random.default_rng(0), (32, 64, 1, 1), "int8")
    x = relay.var("x", shape=(1, 64, 4, 4), dtype="uint8")
    made = relay.nn.conv2d(x, relay.const(w), out_dtype="int32")
    assert implemented_for(made, HASWELL) == []


def test_what_is_refused() -> None:
    def zeros(*shape: int, dtype: str = "int32") -> Array:
        return np.zeros(shape, dtype)

    pairs, x = Plan("byte_pairs"), relay.var("x", shape=(1, 2, 2, 4), dtype="uint8")
    weight, places, starts = zeros(1, 2, 8, 4, dtype="int8"), zeros(2), zeros(2, 2)
    wrong = r"implementation 'byte_pairs' does not fit: packed weights are .*\(1,\).* not .*\(2,\)"
    with pytest.raises(ValueError, match=wrong):
        packed_conv2d(x, pairs, [weight, places, starts], 16, 1, out_dtype="int32")
    row = relay.var("x", shape=(3, 4), dtype="uint8")
    with pytest.raises(ValueError, match=wrong):
        packed_dense(row, pairs, [weight, places, starts], 16, out_dtype="int32")
    with pytest.raises(ValueError, match="panels of 16 channels do not hold 24"):
        packed_dense(row, pairs, [weight, zeros(1), starts], 24, out_dtype="int32")
    with pytest.raises(ValueError, match="places, starts and what is subtracted are int32"):
        packed_dense(row, pairs, [weight, zeros(1, dtype="int64"), starts], 16, out_dtype="int32")
    floats = relay.var("x", shape=(3, 4))
    with pytest.raises(ValueError, match=r"whole groups of four is needed, not .* float3"):
        packed_dense(floats, pairs, [weight, places, starts], 16, out_dtype="int32")

    rows = relay.var("x", shape=(1, 3, 3, 16), dtype="uint8")
    parts, weight = zeros(1), zeros(1, 2, 3, 2, 8, 4, dtype="int8")
    attrs: dict[str, Any] = {"groups": 16, "out_dtype": "int32"}
    dot2 = Plan("depthwise_dot2")
    with pytest.raises(ValueError, match=(
        r"implementation 'depthwise_dot2' does not fit: packed weights are .*\(2,\)\], not .*\(1,\)"
    )):
        packed_conv2d(rows, dot2, [weight, parts], 16, 3, **attrs)
    with pytest.raises(ValueError, match="how many parts channels have is int32, not float32"):
        packed_conv2d(rows, dot2, [weight, zeros(2, dtype="float32")], 16, 3, **attrs)
    with pytest.raises(ValueError, match="vectors of 12 channels do not hold 16"):
        wide = zeros(1, 2, 3, 2, 12, 4, dtype="int8")
        packed_conv2d(rows, dot2, [wide, zeros(2)], 16, 3, **attrs)
    signed = relay.var("x", shape=(1, 3, 3, 16), dtype="int8")
    with pytest.raises(ValueError, match=r"uint8 by int8 is needed, not .* int8 int32"):
        packed_conv2d(signed, dot2, [weight, zeros(2)], 16, 3, **attrs)
    with pytest.raises(ValueError, match="depthwise convolution of bytes is needed, not 1x3x3x16"):
        packed_conv2d(rows, Plan("depthwise_dot4"), [weight[0]], 16, 3, out_dtype="int32")


def test_places_outside_of_the_data_are_refused() -> None:
    """A graph in text can name any place; loops would read there."""
    x = relay.var("x", shape=(1, 2, 2, 4), dtype="uint8")
    weight = np.zeros((2, 2, 8, 4), "int8")
    places, starts = np.zeros(2, "int32"), np.array([[0, 2], [2, 2]], "int32")

    def refused(match: str, places: Any, starts: Any) -> None:
        made = packed_conv2d(
            x, Plan("byte_pairs"), [weight, places, starts], 16, 1, out_dtype="int32"
        )
        for level in (0, 3):
            at_level = tvm.transform.PassContext(opt_level=level)
            with at_level, pytest.raises(ValueError, match=match):
                relay.build(tvm.IRModule.from_expr(made), target="llvm")

    wrong = "nn.conv2d: the implementation 'byte_pairs' does not fit: "
    outside = wrong + r"places\[1\] is 4096, where no group of the window lies"
    refused(outside, np.array([0, 4096], "int32"), starts)
    refused(wrong + "places", np.array([-4, 0], "int32"), starts)
    for bad in ([[0, 2], [3, 3]], [[-2, 0], [2, 2]], [[2, 0], [2, 2]]):
        refused(wrong + "starts rise from 0 to the 2 groups", places, np.array(bad, "int32"))
    refused(wrong + "groups are summed two by two", places, np.array([[0, 1], [2, 2]], "int32"))
    refused(wrong + "weights, places and starts are constants", relay.var(
        "places", shape=(2,), dtype="int32"), starts)

    rows = relay.var("x", shape=(1, 3, 3, 16), dtype="uint8")
    parts, many = np.zeros((1, 2, 3, 2, 8, 4), "int8"), np.array([1, 2], "int32")
    made = packed_conv2d(
        rows, Plan("depthwise_dot2"), [parts, many], 16, 3, groups=16, out_dtype="int32"
    )
    with pytest.raises(ValueError, match=r"weights have 1 parts, channels \[1, 2\] of them"):
        relay.build(tvm.IRModule.from_expr(made), target="llvm")
