"""Where results may lie over their data: each number is still there when it is read."""

from itertools import product
from math import prod

import pytest

from sterna.schedule.contraction import Contraction
from sterna.schedule.overlap import bands_take_place, lead_of_pixels
from sterna.support.dtype import DataType

INT8, INT32 = DataType("int8"), DataType("int32")


def layer(
    image: tuple[int, int], inputs: int, outputs: int, window: int, stride: int, before: int,
    groups: int = 1, batch: int = 1,
) -> Contraction:
    after = max(0, window - stride - before)
    result = tuple((n + before + after - window) // stride + 1 for n in image)
    return Contraction(
        batch, image, inputs, result, outputs, INT8, INT8, INT32, (window, window),
        (stride, stride), before=(before, before), after=(after, after), groups=groups,
    )


def read_of(made: Contraction, pixel: int) -> set[int]:
    """The numbers of the data that the sums of a pixel read."""
    image, rest = divmod(pixel, prod(made.result))
    at = divmod(rest, made.result[1])
    found = set()
    for taps in product(*map(range, made.window)):
        y, x = (p * s + t - b for p, s, t, b
                in zip(at, made.strides, taps, made.before, strict=True))
        if 0 <= y < made.image[0] and 0 <= x < made.image[1]:
            first = ((image * made.image[0] + y) * made.image[1] + x) * made.inputs
            found |= set(range(first, first + made.inputs))
    return found


def keeps(made: Contraction, together: int, lead: int) -> bool:
    """Whether a run over pixels in their order reads nothing that was written over."""
    step, written = max(1, together), set[int]()
    for first in range(0, made.pixels, step):
        group = range(first, min(first + step, made.pixels))
        results = {p * made.outputs + c - lead for p in group for c in range(made.outputs)}
        if together == 0:
            written |= results
        if any(read_of(made, pixel) & written for pixel in group):
            return False
        written |= results
    return True


@pytest.mark.parametrize("together", [0, 1, 3])
@pytest.mark.parametrize("made", [
    layer((3, 4), 2, 4, 1, 1, 0), layer((3, 4), 4, 2, 1, 1, 0), layer((5, 5), 2, 2, 3, 1, 1),
    layer((5, 6), 3, 4, 3, 2, 1), layer((4, 4), 1, 6, 3, 2, 0, batch=2),
], ids=str)
def test_the_least_lead_of_pixels(made: Contraction, together: int) -> None:
    lead = lead_of_pixels(made, together)
    assert keeps(made, together, lead) and (lead == 0 or not keeps(made, together, lead - 1))


def test_planes_in_bands_leave_the_rows_below() -> None:
    halves = layer((8, 8), 4, 4, 3, 2, 0, groups=4)
    assert bands_take_place(halves, 1) and bands_take_place(halves, 4)
    same = layer((8, 8), 4, 4, 3, 1, 1, groups=4)
    assert bands_take_place(same, 8) and not bands_take_place(same, 4)
