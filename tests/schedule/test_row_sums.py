"""Depthwise convolutions that give the sums of their images' rows as well."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.interpreter import interpret
from sterna.schedule.kernel import Processor
from tests.schedule.primitives import check_kernel, kernels

WIDE, NEON = Processor(512, 32, threads=2), Processor(128, 32, by_element_fma=True)
# Caches that no image fits into.
BY_ROWS, AVX2 = Processor(512, 32, l2_bytes=512, threads=3), Processor(256, 16, l2_bytes=512)


def image(shape: tuple[int, ...], window: int, stride: int = 1, dtype: str = "float32") -> Any:
    """A depthwise convolution with a bias and swish."""
    x, channels = relay.var("x", shape=shape, dtype=dtype), shape[3]
    made = relay.nn.conv2d(
        x, relay.var("w", shape=(window, window, channels, 1), dtype=dtype), data_layout="NHWC",
        kernel_layout="HWOI", groups=channels, channels=channels, kernel_size=window,
        strides=stride, padding=window // 2,
    )
    made = relay.add(made, relay.var("b", shape=(channels,), dtype=dtype))
    return relay.multiply(made, relay.sigmoid(made))


def pooled(made: Any) -> Any:
    """An image times its channels' averages."""
    mean = relay.nn.global_avg_pool2d(made, layout="NHWC")
    return relay.multiply(made, relay.sigmoid(mean))


def summed(body: Any, processor: Processor) -> list[Any]:
    """Its kernels, with the sums of rows where they pay."""
    return kernels(body, processor, relay.transform.SumRows(processor))


@pytest.mark.parametrize(
    "processor", [WIDE, NEON, BY_ROWS, AVX2], ids=["avx512", "neon", "by rows", "avx2 by rows"]
)
@pytest.mark.parametrize(
    "shape",
    [((1, 9, 14, 32), 3), ((2, 13, 13, 16), 5, 2), ((1, 5, 1, 48), 3)],
    ids=["3x3", "5x5 by 2, two images", "one column"],
)
def test_sums_are_made_with_the_image(shape: Any, processor: Processor) -> None:
    first, *_ = summed(pooled(image(*shape)), processor)
    batch, height, _, channels = first.body.checked_type.fields[0].shape
    assert first.body.checked_type.fields[1].shape == (batch, height, 1, channels)
    lowered = check_kernel(first, processor)
    assert lowered.choices["schedule"].startswith("depthwise")
    assert str(lowered.function).count("parallel") == 1


def test_sums_are_made_in_chains() -> None:
    x, w = relay.var("x", shape=(1, 64, 16, 8)), relay.var("w", shape=(2, 1, 1, 8, 16))
    wide = relay.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="OHWI16o")
    made = relay.nn.conv2d(
        wide, relay.var("v", shape=(3, 3, 32, 1)), data_layout="NHWC", kernel_layout="HWOI",
        groups=32, channels=32, kernel_size=3, strides=2, padding=1,
    )
    processor = Processor(512, 32, l2_bytes=40960, threads=2)
    first, *_ = summed(pooled(made), processor)
    assert "in a chain" in check_kernel(first, processor).choices["schedule"]


@pytest.mark.parametrize("fp16_arithmetic", [False, True])
def test_sums_of_narrow_floats_are_wide(fp16_arithmetic: bool) -> None:
    processor = Processor(512, 32, threads=2, fp16_arithmetic=fp16_arithmetic)
    first, second, _ = summed(pooled(image((1, 4, 4, 32), 3, dtype="float16")), processor)
    assert first.body.checked_type.fields[1].dtype == "float32"
    assert second.body.checked_type.dtype == "float16"
    check_kernel(first, processor, 4e-3)


def test_a_convolution_in_other_loops_sums_afterwards() -> None:
    x, w = relay.var("x", shape=(1, 6, 6, 16)), relay.var("w", shape=(3, 3, 16, 16))
    made = relay.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO", padding=1)
    both = relay.Tuple((made, relay.sum(made, axis=[2], keepdims=True)))
    check_kernel(relay.Function((x, w), both).with_attr("Primitive", 1), WIDE)


def given_for(function: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(p.checked_type.shape).astype("float32") for p in function.params]


def test_averages_of_sums_are_those_of_the_image() -> None:
    module = tvm.IRModule.from_expr(pooled(image((2, 7, 9, 16), 3)))
    given = given_for(module["main"])
    passes = [relay.transform.FuseOps(2, WIDE), relay.transform.SumRows(WIDE)]
    with tvm.transform.PassContext(opt_level=3):
        changed = tvm.transform.Sequential(passes)(module)
    assert "sum(" in str(changed)
    want = interpret(module["main"], *given)
    np.testing.assert_allclose(interpret(changed["main"], *given), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [[2, 3], [-3, 2]])
def test_a_mean_over_an_image_is_a_pool(axis: list[int], keepdims: bool) -> None:
    x = relay.var("x", shape=(2, 5, 7, 6))
    module = tvm.IRModule.from_expr(relay.mean(x, axis=axis, keepdims=keepdims))
    with tvm.transform.PassContext(opt_level=3):
        changed = relay.transform.CanonicalizeOps()(module)
    assert "nn.global_avg_pool2d(" in str(changed)
    given = given_for(module["main"])
    want = interpret(module["main"], *given)
    np.testing.assert_allclose(interpret(changed["main"], *given), want, rtol=1e-5, atol=1e-6)


def first_channels(made: Any) -> Any:
    return relay.nn.global_avg_pool2d(made, layout="NCHW")


def double(made: Any) -> Any:
    return relay.nn.global_avg_pool2d(relay.cast(made, "float64"), layout="NHWC")


@pytest.mark.parametrize(
    "body",
    [
        lambda: pooled(relay.nn.relu(relay.var("x", shape=(1, 8, 8, 16)))),
        lambda: pooled(image((1, 8, 8, 20), 3)),
        lambda: pooled(image((1, 8, 8, 16), 3, dtype="float64")),
        lambda: first_channels(image((1, 8, 8, 16), 3)),
        lambda: double(image((1, 8, 8, 16), 3)),
        lambda: relay.nn.global_max_pool2d(image((1, 8, 8, 16), 3), layout="NHWC"),
    ],
    ids=["no convolution", "parts of vectors", "doubles", "other axes", "cast first", "largest"],
)
def test_what_stays_as_it_is(body: Any) -> None:
    assert not any(" sum(" in str(kernel) for kernel in summed(body(), WIDE))


def test_a_network_with_sums_gives_what_the_interpreter_gives() -> None:
    body = relay.nn.conv2d(
        pooled(pooled(image((1, 12, 12, 32), 3))), relay.var("v", shape=(1, 1, 32, 8)),
        data_layout="NHWC", kernel_layout="HWIO",
    )
    module = tvm.IRModule.from_expr(body)
    given = given_for(module["main"])
    names = [p.name_hint for p in module["main"].params]
    params = dict(zip(names[1:], given[1:], strict=True))
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(module, target="llvm -mcpu=native", params=params)
    run = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    run.run(x=given[0])
    want = interpret(module["main"], *given)
    np.testing.assert_allclose(run.get_output(0).numpy(), want, rtol=1e-4, atol=1e-5)
