"""Timing in turns, and how far results are apart."""

import math

import numpy as np

from sterna.model.bench import differences, largest, time_in_turns


def test_everybody_has_every_turn() -> None:
    calls: list[str] = []
    times = time_in_turns(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, turns=5, turn_seconds=0.0
    )
    assert calls[-10:] == ["a", "b"] * 5
    assert all(len(timing.turns) == 5 and timing.min <= timing.median for timing in times.values())


def test_differences_know_infinities_and_what_is_no_number() -> None:
    nan, inf = math.nan, math.inf
    a, b = np.array([1.0, nan, inf, 2.0]), np.array([1.5, nan, inf, 2.0])
    assert largest(differences([a], [b])) == 0.5 and largest([a]) == inf
    assert largest(differences([a], [b[::-1]])) == inf
    assert largest(differences([np.array([nan])], [np.array([1.0])])) == inf
    assert largest([]) == largest([np.zeros((0, 2))]) == 0
