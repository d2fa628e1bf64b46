"""Convolutions of single pixels in one kernel with the depthwise ones behind them."""

from typing import Any

import pytest

from sterna import relay
from sterna.lowering.work import work_of
from sterna.schedule.conv_chain import rows_of_a_band
from sterna.schedule.kernel import Processor
from tests.schedule.primitives import check_kernel, kernels

# A cache that holds ten rows of what lies between, and one that holds all of it.
SMALL, LARGE = Processor(512, 32, l2_bytes=40960, threads=2), Processor(512, 32)
AVX2 = Processor(256, 16, l2_bytes=40960, threads=1)
NEON = Processor(128, 32, by_element_fma=True, l2_bytes=40960)


def block(
    size: int,
    window: int = 3,
    stride: int = 2,
    batch: int = 1,
    plain: bool = False,
    border: int = 0,
) -> Any:
    """8 channels become 32, of which a depthwise convolution makes fewer pixels."""
    x, w = relay.var("x", shape=(batch, size, 16, 8)), relay.var("w", shape=(2, 1, 1, 8, 16))
    wide = relay.nn.conv2d(
        x, w, data_layout="NHWC", kernel_layout="OHWI16o", channels=32, kernel_size=1
    )
    if not plain:
        wide = relay.add(wide, relay.var("b", shape=(32,)))
        wide = relay.multiply(wide, relay.sigmoid(wide))
    deep = relay.nn.conv2d(
        wide, relay.var("v", shape=(window, window, 32, 1)), data_layout="NHWC",
        kernel_layout="HWOI", groups=32, channels=32, kernel_size=window, strides=stride,
        padding=window // 2, border=border,
    )
    return deep if plain else relay.clip(relay.add(deep, relay.var("c", shape=(32,))), 0.0, 6.0)


@pytest.mark.parametrize("processor", [SMALL, AVX2, NEON], ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize(
    "shape",
    [(64,), (61, 5, 2, 2), (63, 3, 1), (64, 3, 2, 1, True)],
    ids=["3x3 by 2", "5x5 by 2, two images", "3x3", "without epilogues"],
)
def test_one_kernel_gives_what_two_do(
    shape: Any, processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sterna.schedule.conv_chain.MOST_TWICE", 1.0)
    (kernel,) = kernels(block(*shape), processor)
    assert "in a chain" in check_kernel(kernel, processor).choices["schedule"]


def test_what_lies_between_is_not_moved() -> None:
    """It is written and read if it stays in the cache, and never if it does not."""
    between = 2 * 64 * 16 * 32 * 4
    one, two = kernels(block(64), SMALL), kernels(block(64), LARGE)
    assert (len(one), len(two)) == (1, 2)
    moved = [sum(work_of(kernel).bytes for kernel in each) for each in (one, two)]
    assert moved[1] - moved[0] == between


def test_not_with_a_border_that_is_read() -> None:
    assert len(kernels(block(64, border=1), SMALL)) == 2


def test_only_where_little_is_computed_twice() -> None:
    assert len(kernels(block(64, 3, 1), SMALL)) == 2  # two rows of eight
    assert len(kernels(block(64, 5, 2), SMALL)) == 2


def test_results_that_others_read_are_kept() -> None:
    x, w = relay.var("x", shape=(1, 64, 16, 8)), relay.var("w", shape=(2, 1, 1, 8, 16))
    wide = relay.nn.conv2d(
        x, w, data_layout="NHWC", kernel_layout="OHWI16o", channels=32, kernel_size=1
    )
    deep = relay.nn.conv2d(
        wide, relay.var("v", shape=(3, 3, 32, 1)), data_layout="NHWC", kernel_layout="HWOI",
        groups=32, channels=32, kernel_size=3, strides=2, padding=1,
    )
    assert len(kernels(relay.Tuple((wide, deep)), SMALL)) == 2


@pytest.mark.parametrize("threads, rows", [(1, 10), (2, 10), (8, 7), (16, 4)])
def test_bands_are_even(threads: int, rows: int) -> None:
    """56 rows, of which the cache holds 11."""
    processor = Processor(512, 32, l2_bytes=2 << 20, threads=threads)
    assert rows_of_a_band(56, 112 * 96 * 4, 3, 2, processor) == rows
