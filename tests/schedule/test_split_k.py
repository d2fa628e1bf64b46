"""Convolutions of one pixel to few channels: threads share their sums, and make averages there."""

from typing import Any

import pytest

from sterna import relay
from sterna.lowering.lower_kernel import LoweredKernel
from sterna.schedule.kernel import Processor
from tests.schedule.primitives import check_kernel, kernels

WIDE, AVX2 = Processor(512, 32, threads=2), Processor(256, 16)
NEON = Processor(128, 32, by_element_fma=True, threads=2)


def squeezed(
    pixel: Any, channels: int, block: int | None = None, dtype: str = "float32", bare: bool = False
) -> Any:
    """A convolution of one pixel, with packed weights if a block is given, and swish."""
    depth = pixel.checked_type.shape[3]
    shape: tuple[int, ...] = (1, 1, depth, channels)
    layout = "HWIO"
    if block is not None:
        shape, layout = (channels // block, 1, 1, depth, block), f"OHWI{block}o"
    w = relay.var("w", shape=shape, dtype=dtype)
    made = relay.nn.conv2d(pixel, w, data_layout="NHWC", kernel_layout=layout)
    if bare:
        return made
    made = relay.add(made, relay.var("b", shape=(channels,), dtype=dtype))
    return relay.multiply(made, relay.sigmoid(made))


def average(height: int, width: int, channels: int, batch: int = 1, layout: str = "NHWC") -> Any:
    image = relay.var("x", shape=(batch, height, width, channels))
    return relay.nn.global_avg_pool2d(image, layout=layout)


def check(body: Any, processor: Processor, tolerance: float = 1e-4) -> LoweredKernel:
    """An expression is one kernel, which gives what the interpreter gives."""
    (kernel,) = kernels(body, processor)
    return check_kernel(kernel, processor, tolerance)


@pytest.mark.parametrize("processor", [WIDE, AVX2, NEON], ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize(
    "case",
    [(7, 7, 672, 28, None), (14, 1, 1152, 48, 48), (3, 5, 32, 8, 8), (1, 1, 144, 6, None)],
    ids=["an image", "sums of rows", "small", "one pixel"],
)
def test_averages_are_made_in_the_parts_that_read_them(case: Any, processor: Processor) -> None:
    height, width, depth, channels, block = case
    lowered = check(squeezed(average(height, width, depth), channels, block), processor)
    assert lowered.choices["schedule"].startswith("one pixel")
    threads = 1 if depth * (channels + height * width) >= 8192 else 0
    assert str(lowered.function).count("parallel") == threads


def test_the_sum_alone_is_shared() -> None:
    pixel = relay.var("x", shape=(1, 1, 1, 640))
    for body in (squeezed(pixel, 20), squeezed(pixel, 16, 16, bare=True)):
        lowered = check(body, WIDE)
        assert lowered.choices["schedule"] == "one pixel, 640 channels in 20 parts"
        assert "parallel" in str(lowered.function)


@pytest.mark.parametrize(
    "body",
    [
        lambda: squeezed(average(7, 7, 64, batch=2), 8),
        lambda: squeezed(average(7, 7, 20), 8),
        lambda: squeezed(average(7, 7, 64), 96),
        lambda: squeezed(relay.nn.global_max_pool2d(relay.var("x", shape=(1, 5, 5, 64)),
                                                    layout="NHWC"), 8),
        lambda: squeezed(average(1, 5, 64, layout="NCHW"), 8),
        lambda: squeezed(average(7, 7, 64), 1),
    ],
    ids=["two images", "parts of vectors", "more channels", "the largest", "other axes", "one"],
)
def test_what_is_computed_apart(body: Any) -> None:
    assert len(kernels(body(), WIDE)) == 2


def test_narrow_floats_are_summed_as_before() -> None:
    pixel = relay.var("x", shape=(1, 1, 1, 64), dtype="float16")
    lowered = check(squeezed(pixel, 16, 16, "float16"), WIDE, 4e-3)
    assert not lowered.choices["schedule"].startswith("one pixel")
