"""Convolutions of one pixel to few channels: threads share their sums, and make averages there."""

from typing import Any

import numpy as np
import pytest

from sterna import relay
from sterna.lowering.lower_kernel import LoweredKernel
from sterna.relay.infer import TypeInferenceError
from sterna.schedule.contraction import Contraction
from sterna.schedule.implementation import best_candidate
from sterna.schedule.kernel import Processor
from sterna.support.dtype import DataType
from tests.schedule.primitives import check_kernel, kernels

WIDE, AVX2 = Processor(512, 32, threads=2), Processor(256, 16)
NEON = Processor(128, 32, by_element_fma=True, threads=2)


def squeezed(
    pixel: Any, channels: int, block: int | None = None, bare: bool = False,
    implementation: str = "split_k",
) -> Any:
    """A convolution of one pixel, with packed weights if a block is given, and swish."""
    depth = pixel.checked_type.shape[3]
    shape: tuple[int, ...] = (1, 1, depth, channels)
    layout = "HWIO"
    if block is not None:
        shape, layout = (channels // block, 1, 1, depth, block), f"OHWI{block}o"
    w = relay.var("w", shape=shape)
    made = relay.nn.conv2d(
        pixel, w, data_layout="NHWC", kernel_layout="OHWI", channels=channels, kernel_size=(1, 1),
        implementation=f"{implementation}(weights={layout})",
    )
    if bare:
        return made
    made = relay.add(made, relay.var("b", shape=(channels,)))
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
    for body in (squeezed(pixel, 20), squeezed(pixel, 16, 16, True)):
        lowered = check(body, WIDE)
        assert lowered.choices["schedule"] == "one pixel, 640 channels in 20 parts"
        assert "parallel" in str(lowered.function)


def best(channels: int, depth: int, pixels: int = 1, dtype: str = "float32") -> str:
    """The implementation that costs least."""
    kind = DataType(dtype)
    made = Contraction(1, (1, pixels), depth, (1, pixels), channels, kind, kind, kind)
    weights = np.zeros((channels, 1, 1, depth), dtype)
    return best_candidate(made, weights, WIDE).plan.name


def test_what_it_is_for() -> None:
    assert best(8, 64) == "split_k"
    assert best(8, 64, pixels=2) == "direct"
    assert best(8, 20) == "direct", "parts of vectors"
    assert best(96, 64) == "direct", "more channels"
    assert best(1, 64) == "direct"
    assert best(16, 64, dtype="float16") == "direct"


@pytest.mark.parametrize(
    "pixel",
    [
        lambda: relay.nn.global_max_pool2d(relay.var("x", shape=(1, 5, 5, 64)), layout="NHWC"),
        lambda: average(1, 5, 64, layout="NCHW"),
    ],
    ids=["the largest", "other axes"],
)
def test_what_is_computed_apart(pixel: Any) -> None:
    image = pixel()
    one = image.checked_type.shape[:3] == (1, 1, 1)
    made = squeezed(image if one else relay.transpose(image, [0, 2, 3, 1]), 8)
    assert len(kernels(made, WIDE)) == 2


def test_a_large_image_is_averaged_apart() -> None:
    small = Processor(512, 32, threads=2, l2_bytes=1 << 17)
    assert len(kernels(squeezed(average(56, 56, 144), 6), small)) == 2
    assert len(kernels(squeezed(average(7, 7, 144), 6), small)) == 1


def test_direct_sums_take_no_average() -> None:
    made = squeezed(average(7, 7, 64), 8, implementation="direct")
    assert len(kernels(made, WIDE)) == 2


def test_more_pixels_are_refused() -> None:
    with pytest.raises(TypeInferenceError, match=r"split_k.* one pixel of float32"):
        squeezed(relay.var("x", shape=(1, 2, 1, 64)), 8).checked_type  # noqa: B018
