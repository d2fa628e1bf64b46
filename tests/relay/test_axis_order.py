"""Transposes and reshapes that together move nothing: tokens and images, and norms between."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sterna as tvm
from sterna import relay
from sterna.relay import transform
from sterna.relay.axis_order import in_order_of
from sterna.relay.op import is_call_of
from tests.relay.support import apply, assert_same_values, run

TARGETS = (
    "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=emeraldrapids -num-cores=1",
    "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1 -num-cores=1",
)


def array(*shape: int, seed: int = 0) -> Any:
    return relay.const(np.random.default_rng(seed).standard_normal(shape).astype("float32"))


def calls_of(function: Any, *names: str) -> list[str]:
    found: list[str] = []
    relay.analysis.post_order_visit(
        function, lambda e: found.extend(name for name in names if is_call_of(e, name))
    )
    return found


def optimized(function: Any, target: str) -> Any:
    with tvm.transform.PassContext(opt_level=3):
        return relay.optimize(tvm.IRModule.from_expr(function), target=target)[0]["main"]


def test_tokens_are_an_image_with_its_channels_last() -> None:
    x = relay.var("x", shape=(2, 12, 5))
    body = relay.reshape(relay.transpose(x, [0, 2, 1]), (2, 5, 4, 3))
    body = relay.layout_transform(body, "NCHW", "NHWC")
    before = relay.Function((x,), body)
    after = apply(transform.SimplifyExpr(), before)
    assert not calls_of(after, "transpose", "layout_transform")
    assert_same_values(run(after), run(before))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_chains_that_move_something_stay(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.sampled_from((1, 2, 3, 4)), min_size=2, max_size=4))
    value = np.arange(np.prod(shape)).reshape(shape)
    made: Any = relay.const(value)
    for _ in range(data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            axes = data.draw(st.permutations(range(value.ndim)))
            value, made = value.transpose(axes), relay.transpose(made, axes)
        else:
            value = value.reshape(data.draw(st.permutations([2, *value.shape[1:]]))
                                  if value.shape[0] == 2 else (-1, 2)
                                  if value.size % 2 == 0 else (-1,))
            made = relay.reshape(made, value.shape)
    apply(transform.InferType(), relay.Function((), made))
    source = in_order_of(made)
    if source is not None:
        ordered = relay.Function((), source)
        assert np.array_equal(np.ravel(run(ordered)), np.ravel(value))


@pytest.mark.parametrize("target", TARGETS)
def test_convolutions_of_tokens_move_nothing(target: str) -> None:
    x = relay.var("x", shape=(1, 196, 64))
    body = relay.nn.dense(x, array(128, 64))
    body = relay.reshape(relay.transpose(body, [0, 2, 1]), (1, 128, 14, 14))
    body = relay.nn.conv2d(body, array(128, 1, 3, 3), padding=1, groups=128)
    body = relay.transpose(relay.reshape(body, (1, 128, 196)), [0, 2, 1])
    body = relay.multiply(body, relay.sigmoid(relay.multiply(body, relay.const(1.5))))
    function = relay.Function((x,), body)
    made = optimized(function, target)
    assert not calls_of(made, "transpose", "layout_transform")
    kernels: list[Any] = []
    relay.analysis.post_order_visit(
        made, lambda e: kernels.append(e) if isinstance(e, relay.Function) else None)
    fused = [k for k in kernels if calls_of(k.body, "nn.conv2d") and k.attrs]
    assert any(calls_of(kernel.body, "sigmoid") for kernel in fused)


def test_values_of_convolutions_of_tokens() -> None:
    x = relay.var("x", shape=(1, 30, 8))
    body = relay.reshape(relay.transpose(x, [0, 2, 1]), (1, 8, 5, 6))
    body = relay.nn.conv2d(body, array(16, 8, 3, 3), padding=1)
    body = relay.transpose(relay.reshape(body, (1, 16, 30)), [0, 2, 1])
    body = relay.add(relay.nn.relu(body), array(16, seed=1))
    function = relay.Function((x,), body)
    value = np.random.default_rng(0).standard_normal((1, 30, 8)).astype("float32")
    with tvm.transform.PassContext(opt_level=3):
        graph = relay.create_executor("graph", tvm.IRModule.from_expr(function))
        got = graph.evaluate()(value).numpy()
    np.testing.assert_allclose(got, run(function), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "shape, bias, fits",
    [
        ((1, 16, 30), (16, 1), True), ((16, 5, 6), (16, 1, 1), True), ((1, 16, 30), (30,), False),
        ((1, 16, 30), (1, 1, 1), True), ((8, 2, 30), (2, 1), False), ((1, 16, 30), (16, 30), False),
        ((2, 8, 30), (2, 1, 1), False), ((1, 16, 1, 5, 6), (5, 1), True),
    ],
)
def test_numbers_along_an_axis_that_a_view_keeps_go_with_it(
    shape: tuple[int, ...], bias: tuple[int, ...], fits: bool
) -> None:
    x = relay.var("x", shape=(1, 8, 5, 6))
    body = relay.reshape(relay.nn.conv2d(x, array(16, 8, 1, 1)), shape)
    added = relay.expand_dims(array(*bias[1:], seed=1), 0) if bias[0] == 1 else array(*bias, seed=1)
    before = relay.Function((x,), relay.add(body, added))
    after = apply(transform.DelayViews(), before)
    assert is_call_of(after.body, "reshape" if fits else "add")
    np.testing.assert_allclose(run(after), run(before), rtol=1e-6)


@pytest.mark.parametrize(
    "shape, axis, moved",
    [((4, 5, 6), 0, 1), ((1, 4, 30), -2, 1), ((1, 4, 1, 5, 6), 4, 3), ((2, 2, 30), 1, None)],
)
def test_parameters_of_channels_go_with_a_view(
    shape: tuple[int, ...], axis: int, moved: int | None
) -> None:
    x = relay.var("x", shape=(1, 4, 5, 6))
    image = relay.cast(relay.nn.conv2d(x, array(4, 4, 1, 1)) * relay.const(40.0), "int32")
    scales = np.random.default_rng(1).uniform(0.3, 2, shape[axis]).astype("float32")
    body = relay.qnn.requantize(
        relay.reshape(image, shape), relay.const(scales), relay.const(0, "int32"),
        relay.const(1.0), relay.const(3, "int32"), axis=axis, compute_dtype="float32",
        rounding="TONEAREST_EVEN", out_dtype="uint8",
    )
    before = relay.Function((x,), relay.clip(body, 5, 200))
    after = apply(transform.DelayViews(), before)
    assert is_call_of(after.body, "clip" if moved is None else "reshape")
    if moved is not None:
        assert after.body.args[0].args[0].attrs.axis == moved
    assert_same_values(run(after), run(before))


def test_what_depends_on_places_stays_behind_a_view() -> None:
    x = relay.var("x", shape=(1, 4, 4, 4))
    body = relay.nn.conv2d(x, array(4, 4, 1, 1))
    before = relay.Function((x,), relay.nn.softmax(relay.reshape(body, (4, 4, 4)), axis=0))
    after = apply(transform.DelayViews(), before)
    assert is_call_of(after.body, "nn.softmax")


@pytest.mark.parametrize("target", TARGETS)
def test_norms_of_one_group_have_the_layout_around(target: str) -> None:
    x = relay.var("x", shape=(1, 64, 14, 14))
    body = relay.nn.conv2d(x, array(64, 64, 3, 3), padding=1)
    norm = relay.nn.instance_norm(relay.reshape(body, (1, 1, -1)), array(1), array(1, seed=1))
    norm = relay.reshape(norm, (1, 64, 14, 14))
    pooled = relay.nn.avg_pool2d(norm, (3, 3), (1, 1), padding=1)
    body = relay.nn.conv2d(relay.subtract(pooled, norm), array(64, 64, 3, 3), padding=1)
    made = optimized(relay.Function((x,), body), target)
    assert len(calls_of(made, "layout_transform")) <= 2
    assert calls_of(made, "nn.group_norm") == ["nn.group_norm"]


@pytest.mark.parametrize("batch", [1, 3])
def test_values_of_norms_of_one_group(batch: int) -> None:
    x = relay.var("x", shape=(batch, 6, 5, 7))
    norm = relay.nn.instance_norm(relay.reshape(x, (0, 1, -1)), array(1), array(1, seed=1))
    before = relay.Function((x,), relay.reshape(norm, (batch, 6, 5, 7)))
    after = apply(transform.SimplifyExpr(), before)
    assert calls_of(after, "nn.group_norm") and not calls_of(after, "reshape")
    assert_same_values(run(after), run(before))
