"""Any legal schedule of a computation gives the same numbers: a fixed choice of random ones."""

import random
import shutil

import pytest

from sterna.testing.fuzz.fuzzers.schedules import COMPUTATIONS, check_schedule


@pytest.mark.parametrize("seed", range(120))
def test_random_schedule(seed: int) -> None:
    # A C compiler takes its time: every fifth drawing is compiled by it too.
    targets = ("llvm", "c") if seed % 5 == 0 and shutil.which("cc") else ("llvm",)
    check_schedule(random.Random(seed), seed % len(COMPUTATIONS), targets)
