"""What is learned from measurements: least squares, and trees where LightGBM is installed."""

import itertools
import random

import pytest

from sterna.testing import requires_package
from sterna.tune.correction import Correction

WIDTHS, TILES = (16, 32, 64, 128, 256, 512), (2, 4, 6, 8, 12, 16, 24, 32)


def truth(width: int, tile: int) -> float:
    """A wide tile does well in a wide layer, and badly in a narrow one."""
    return -0.2 if (tile > 8) == (width > 64) else 0.2


def question(width: int) -> str:
    return f"1x8x8x{width} * {width}x1x1x{width} -> 1x8x8x{width} float32/tile"


def taught(leave_out: set[tuple[int, int]]) -> Correction:
    made, order = Correction(), random.Random(0)
    for width, tile in itertools.product(WIDTHS, TILES):
        if (width, tile) not in leave_out:
            for _ in range(2):
                made.note(question(width), f"4 x {tile}", 0.1,
                          truth(width, tile) + order.gauss(0, 0.02), 0.02)
    return made


UNSEEN = {(128, 12), (32, 4), (256, 4), (16, 24)}


@requires_package("lightgbm")
def test_trees_learn_what_depends_on_the_layer() -> None:
    made = taught(UNSEEN)
    for width, tile in UNSEEN:
        expected = made.expected(question(width), f"4 x {tile}", 0.1)
        assert expected.mean == pytest.approx(truth(width, tile), abs=0.1)
    again = taught(UNSEEN).expected(question(128), "4 x 12", 0.1)
    assert again == made.expected(question(128), "4 x 12", 0.1), "the same in every run"


def test_least_squares_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna.tune.correction.is_installed", lambda: False)
    made = Correction()
    for _ in range(60):
        made.note("layer/tile", "4 x 12", 0.1, -0.3, 0.02)
        made.note("layer/tile", "4 x 2", 0.1, 0.3, 0.02)
    good, bad = (made.expected("another layer/tile", text, 0.1) for text in ("4 x 12", "4 x 2"))
    assert good.mean < 0 < bad.mean and good.gain > bad.gain
