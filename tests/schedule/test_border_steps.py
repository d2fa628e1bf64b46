"""Steps of convolutions that see the border alone: counted, and left out of tiles of any kind."""

from dataclasses import replace
from typing import Any

import pytest

from sterna.schedule.border_steps import counted, may_skip
from sterna.schedule.choose import answering
from sterna.schedule.contraction import Contraction
from sterna.support.dtype import DataType
from tests.schedule.test_direct_conv import AVX2, NEON, PARTS, WIDE, check, convolution

F = DataType("float32")
SMALL = replace(WIDE, l1_bytes=4096, l2_bytes=131072)
FAR = [
    ((1, 9, 9, 64), {"kernel_size": (3, 3), "padding": 6, "dilation": 6}),
    ((2, 5, 7, 64), {"kernel_size": (7, 5), "padding": (6, 2, 3, 9), "strides": (2, 1)}),
    ((1, 1, 20, 64), {"kernel_size": (1, 32), "padding": (0, 16)}),
]
NEAR = [
    FAR[0], ((2, 5, 7, 64), {"kernel_size": (7, 3), "padding": (6, 2, 3, 4), "strides": (2, 1)}),
]
WAYS = {
    "wide": (WIDE, "bands"), "avx2": (AVX2, "bands"), "neon": (NEON, "bands"),
    "parts": (PARTS, "parts"), "chunks": (SMALL, "chunks"),
}


@pytest.mark.parametrize("processor, weights", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("case", FAR, ids=lambda case: str(case[0]))
def test_steps_left_out_add_nothing(case: Any, processor: Any, weights: str) -> None:
    shape, attrs = case
    with answering({"weights": weights, "steps of the border": "left out"}):
        made = check(convolution(shape, 32, 32, **attrs), processor)
    assert made.decisions["steps of the border"].taken == "left out"


@pytest.mark.parametrize("processor, weights", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("case", NEAR, ids=lambda case: str(case[0]))
def test_products_of_each_pixel_left_out_add_nothing(
    case: Any, processor: Any, weights: str
) -> None:
    shape, attrs = case
    with answering({"weights": weights}):
        made = check(convolution(shape, 32, 32, **attrs), processor)
    assert made.decisions["steps of the border"].taken == "left out by pixels"


def of(image: int, window: int, before: int, **more: Any) -> Contraction:
    """A contraction along one axis, the same before and after."""
    dilation, stride = more.get("dilation", 1), more.get("stride", 1)
    result = (image + 2 * before - dilation * (window - 1) - 1) // stride + 1
    return Contraction(
        1, (1, image), 64, (1, result), 64, F, F, F, window=(1, window), strides=(1, stride),
        dilation=(1, dilation), before=(0, before), after=(0, before),
    )


def test_the_share_of_steps_that_count() -> None:
    assert counted(of(9, 3, 6, dilation=6), 1, 1) == pytest.approx((9 + 3 + 3) / 27)
    assert counted(of(9, 3, 6, dilation=6), 1, 9) == 1.0  # some pixel of the row sees each tap
    assert counted(of(9, 3, 0), 1, 1) == 1.0
    assert counted(of(400, 3, 1), 1, 1) == 1.0  # too few to ask
    assert counted(of(7, 3, 1), 0, 1) == 1.0  # the other axis has no border
    assert counted(of(8, 4, 2, stride=2), 1, 1) == pytest.approx((5 * 4 - 4) / 20)


@pytest.mark.parametrize("change", [{"border": 3}, {"transposed": True}, {"is_open": True}])
def test_what_may_not_be_skipped(change: dict[str, Any]) -> None:
    """A border of other numbers than zero counts; extents of the run are not known."""
    made = replace(of(9, 3, 6, dilation=6), **change)
    assert not may_skip(made) and counted(made, 1, 1) == 1.0
