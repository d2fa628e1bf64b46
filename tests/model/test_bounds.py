"""How the bounds of a machine are timed."""

import itertools
import time

import pytest

from sterna.model import bounds


def test_a_clock_that_stands_still_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = itertools.count()
    monkeypatch.setattr(time, "thread_time", lambda: next(reads) // 3 * 0.25)
    assert bounds._best_seconds(1, lambda: None) == 0.25
