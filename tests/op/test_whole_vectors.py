"""Layers whose channels fill no vectors, held against their definition."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.lowering.lower_kernel import lower_kernel
from sterna.op.nn.conv import reference_conv
from sterna.relay.op import find
from sterna.schedule.kernel import Processor

AVX512 = "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512"
N1 = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"
AVX2 = "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"


def layer(name: str, shape: tuple[int, ...], weight: np.ndarray, **attrs: Any) -> tvm.IRModule:
    x = relay.var("x", shape=shape)
    call = getattr(relay.nn, name)(x, relay.const(weight), **attrs)
    return tvm.IRModule.from_expr(relay.Function((x,), relay.nn.relu(call)))


def optimized(mod: tvm.IRModule, target: str) -> str:
    with tvm.transform.PassContext(opt_level=3):
        return str(relay.optimize(mod, target)[0])


@pytest.mark.parametrize(
    ("name", "shape", "window", "attrs"),
    [
        ("conv2d", (1, 32, 20, 20), (21, 32, 3, 3), {"padding": 1}),
        ("conv2d", (2, 20, 20, 64), (1, 1, 64, 13),
         {"data_layout": "NHWC", "kernel_layout": "HWIO"}),
        ("conv2d", (1, 16, 24, 24), (3, 16, 7, 7), {"padding": 3}),
        ("conv2d", (2, 32, 10, 10), (1, 32, 3, 3), {"padding": 1}),
        ("conv2d", (1, 48, 20, 9), (2, 48, 3, 3), {"padding": 1}),
        ("conv2d", (1, 24, 12, 12), (93, 8, 3, 3), {"padding": 1, "groups": 3}),
        ("conv2d", (2, 14, 14, 62), (1, 1, 31, 62),
         {"data_layout": "NHWC", "kernel_layout": "HWIO", "groups": 2}),
        ("conv2d", (1, 37, 14, 14), (46, 37, 3, 3), {"padding": 1}),
        ("conv2d", (2, 13, 15, 33), (5, 5, 33, 16),
         {"data_layout": "NHWC", "kernel_layout": "HWIO", "padding": 2, "dilation": 2}),
        ("dense", (3, 128), (257, 128), {}),
        ("dense", (2, 5, 64), (1001, 64), {}),
        ("dense", (130, 64), (200, 64), {}),
    ],
)
def test_layers_compute_what_they_are(
    name: str, shape: tuple[int, ...], window: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    rng = np.random.default_rng(0)
    data, weight = (rng.standard_normal(s).astype("float32") for s in (shape, window))
    mod = layer(name, shape, weight, **attrs)
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="llvm -mcpu=native")
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    m.run(x=data)
    record = find(f"nn.{name}")
    assert record.attrs is not None and record.reference is not None
    want = np.maximum(record.reference(record.attrs(**attrs), data, weight), 0)
    np.testing.assert_allclose(m.get_output(0).numpy(), want, rtol=1e-3, atol=1e-3)


def test_channels_are_added_by_the_width_of_vectors() -> None:
    weight = np.ones((12, 32, 3, 3), "float32")
    mod = layer("conv2d", (1, 32, 20, 20), weight, padding=1)
    assert "strided_slice" in optimized(mod, AVX512)
    assert "strided_slice" not in optimized(mod, "c")
    pointwise = layer("conv2d", (1, 32, 20, 20), weight[:, :, :1, :1])
    assert "strided_slice" not in optimized(pointwise, AVX2)


@pytest.mark.parametrize(("window", "added"), [(3, True), (1, False)])
def test_halves_of_vectors_are_filled_where_a_transform_pays(window: int, added: bool) -> None:
    weight = np.ones((126, 256, window, window), "float32")
    mod = layer("conv2d", (1, 256, 19, 19), weight, padding=window // 2)
    text = optimized(mod, N1)
    assert (("strided_slice" in text), ("winograd" in text)) == (added, added)


@pytest.mark.parametrize("target", [N1, AVX512, AVX2])
def test_inputs_fill_vectors_where_a_transform_pays(target: str) -> None:
    weight = np.ones((126, 61, 3, 3), "float32")
    text = optimized(layer("conv2d", (1, 61, 28, 28), weight, padding=1), target)
    assert "winograd" in text and "nn.pad" in text


def test_inputs_stay_where_nothing_would_be_gained() -> None:
    pointwise = layer("conv2d", (1, 61, 28, 28), np.ones((64, 61, 1, 1), "float32"))
    assert "nn.pad" not in optimized(pointwise, N1)
    small = layer("conv2d", (1, 61, 28, 28), np.ones((64, 61, 3, 3), "float32"), padding=1)
    assert "nn.pad" not in optimized(small, "c")


@pytest.mark.parametrize(("channels", "added"), [(131, True), (68, False), (4, False)])
def test_groups_are_filled_where_no_tile_divides_them(channels: int, added: bool) -> None:
    weight = np.ones((4 * channels, 16, 3, 3), "float32")
    mod = layer("conv2d", (1, 64, 20, 20), weight, padding=1, groups=4)
    assert ("concatenate" in optimized(mod, AVX512)) is added


@pytest.mark.parametrize(
    ("rows", "units", "wide"),
    [(785, 456, 480), (785, 464, 480), (300, 40, None), (785, 448, None), (785, 24, None),
     (3, 456, None)],
)
def test_units_fill_tiles_where_many_rows_pay_for_it(
    rows: int, units: int, wide: int | None
) -> None:
    """Half a vector takes what a whole one does, and one side by side loads as much as two."""
    text = optimized(layer("dense", (rows, 152), np.ones((units, 152), "float32")), AVX512)
    assert ("strided_slice" in text) is (wide is not None)
    assert wide is None or f"units={wide}" in text


def test_small_layers_stay() -> None:
    mod = layer("conv2d", (1, 3, 4, 4), np.ones((5, 3, 3, 3), "float32"))
    assert "strided_slice" not in optimized(mod, AVX512)
    mod = layer("dense", (1, 16), np.ones((10, 16), "float32"))
    assert "strided_slice" not in optimized(mod, AVX512)


def test_few_channels_of_large_windows_are_made_by_pixels() -> None:
    mod = layer("conv2d", (1, 16, 32, 32), np.ones((3, 16, 9, 9), "float32"), padding=4)
    text = optimized(mod, AVX512)
    assert "strided_slice" not in text and "NHWC" not in text


@pytest.mark.parametrize("target", [AVX512, AVX2], ids=["avx512", "avx2"])
def test_heads_of_few_channels_are_made_by_pixels(target: str) -> None:
    """Alone; behind a convolution with its channels last they are filled up instead."""
    weight = np.ones((3, 128, 3, 3), "float32")
    alone = optimized(layer("conv2d", (1, 128, 24, 24), weight, padding=1), target)
    assert "strided_slice" not in alone and "NHWC" not in alone
    body = x = relay.var("x", shape=(1, 128, 24, 24))
    for _ in range(3):
        body = relay.nn.conv2d(body, relay.const(np.ones((128, 128, 3, 3), "float32")), padding=1)
    head = relay.nn.conv2d(body, relay.const(weight), padding=1)
    text = optimized(tvm.IRModule.from_expr(relay.Function((x,), head)), target)
    assert "strided_slice" in text and "NHWC" in text


@pytest.mark.parametrize("shape", [(1, 16, 28, 28), (2, 12, 9, 5), (1, 8, 7, 40)])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "processor", [Processor(512, 32), Processor(256, 16), Processor(128, 32)],
    ids=["avx512", "avx2", "neon"],
)
def test_lines_of_an_image_beside_each_other(
    shape: tuple[int, ...], channels: int, processor: Processor
) -> None:
    """Few sums of a line would wait for each other; those of several lines do not."""
    rng = np.random.default_rng(1)
    window = (channels, shape[1], 3, 3)
    data, weight = (rng.standard_normal(s).astype("float32") for s in (shape, window))
    x, w = relay.var("x", shape=shape), relay.var("w", shape=window)
    call = relay.nn.conv2d(x, w, padding=1)
    kernel = relay.transform.FuseOps(2)(
        tvm.IRModule.from_expr(relay.nn.relu(call)))["main"].body.op
    with tvm.transform.PassContext(config={"schedule.answers": {"free weights": "as they lie"}}):
        lowered = lower_kernel(kernel, "kernel", processor)
    out = tvm.nd.empty(kernel.body.checked_type.shape)
    tvm.build(lowered.function, target="llvm")["kernel"](
        tvm.nd.array(data), tvm.nd.array(weight), out)
    attrs: Any = call.attrs
    want = np.maximum(reference_conv(attrs, data, weight), 0)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-4)
