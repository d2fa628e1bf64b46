"""Every algorithm gives plans without overlaps, and says how good they are."""

import time
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.tir.usmp import (
    ALGORITHMS,
    BufferInfo,
    MemoryPlan,
    draw_plan,
    live_bound,
    plan,
    plan_memory,
)
from sterna.tir.usmp.greedy import crowded

KB = 1024
LARGE = 20_000

LIVES = [(0, 4), (2, 6), (4, 8), (4, 12), (10, 14), (12, 16), (14, 18)]
TURNS = [BufferInfo(f"T{i}", 16 * KB, first, last) for i, (first, last) in enumerate(LIVES)]


@st.composite
def some_buffers(draw: st.DrawFn, most: int = 24) -> list[BufferInfo]:
    """Buffers with small sizes, so that equal ones and exact fits are common."""
    found = []
    for number in range(draw(st.integers(0, most))):
        first = draw(st.integers(0, 12))
        life = draw(st.integers(1, 8))
        found.append(BufferInfo(f"b{number}", draw(st.integers(0, 9)), first, first + life))
    return found


def check(made: MemoryPlan) -> None:
    """Nothing overlaps, and the numbers of the plan are true."""
    buffers, offsets = made.buffers, made.offsets
    assert offsets.keys() == {b.name for b in buffers}
    assert all(at >= 0 for at in offsets.values())
    for i, one in enumerate(buffers):
        for other in buffers[:i]:
            apart = (
                offsets[one.name] + one.size <= offsets[other.name]
                or offsets[other.name] + other.size <= offsets[one.name]
            )
            assert apart or not one.meets(other), (one, other)
    assert made.size == max((offsets[b.name] + b.size for b in buffers), default=0)
    assert live_bound(buffers) <= made.lower_bound <= made.size
    assert made.proven == (made.size == made.lower_bound)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(buffers=some_buffers())
@settings(max_examples=60)
def test_plans_of_random_buffers_hold(algorithm: str, buffers: list[BufferInfo]) -> None:
    made = plan_memory(buffers, algorithm)
    check(made)
    assert plan_memory(buffers, algorithm) == made
    assert plan(buffers, algorithm) == (made.offsets, made.size)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_tensors_that_take_turns_fit_in_three_places(algorithm: str) -> None:
    made = plan_memory(TURNS, algorithm)
    check(made)
    assert made.size == 48 * KB
    assert made.proven


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_plan_of_nothing_is_empty(algorithm: str) -> None:
    assert plan([], algorithm) == ({}, 0)


def test_the_bound_counts_what_is_alive_together() -> None:
    assert live_bound(TURNS) == 48 * KB
    assert live_bound([BufferInfo("a", 3, 0, 2), BufferInfo("b", 5, 2, 4)]) == 5
    assert live_bound([]) == 0


def test_an_unknown_algorithm_is_named_with_the_known() -> None:
    with pytest.raises(ValueError, match=r"'tetris'; known are: auto, .*, hill_climb"):
        plan(TURNS, "tetris")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (BufferInfo("bad", -1, 0, 1), "'bad' has a negative size: -1"),
        (BufferInfo("bad", 1, 3, 3), "'bad' lives from step 3 up to, not including, 3"),
        (BufferInfo("bad", 1, 3, 2), "'bad' lives from step 3 up to, not including, 2"),
        (BufferInfo("T0", 1, 0, 1), "two buffers are named 'T0'"),
    ],
)
def test_a_bad_buffer_is_named(bad: BufferInfo, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan([*TURNS, bad])


def test_the_drawing_shows_every_buffer() -> None:
    odd = BufferInfo("a<b> & c", 8 * KB, 0, 18)
    drawing = ElementTree.fromstring(draw_plan(plan_memory([*TURNS, odd])))
    titles = [t.text or "" for t in drawing.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 8
    assert any(t.startswith("a<b> & c: 8192 bytes at ") for t in titles)
    for box in drawing.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(box.attrib["y"]) >= 47.9
        assert float(box.attrib["y"]) + float(box.attrib["height"]) <= 528.1


def test_an_empty_drawing_is_a_drawing() -> None:
    assert ElementTree.fromstring(draw_plan(plan_memory([]))).tag.endswith("svg")


@pytest.mark.parametrize("life", [1, 2, 5, LARGE])
def test_large_graphs_are_planned_at_once(life: int) -> None:
    buffers = [BufferInfo(f"b{i}", 1 + i % 7, i, min(i + life, LARGE)) for i in range(LARGE)]
    start = time.process_time()
    made = plan_memory(buffers)
    assert time.process_time() - start < 8
    assert made.size <= 1.2 * made.lower_bound


def test_crowds_are_planned_without_looking_at_pairs() -> None:
    buffers = [
        BufferInfo(f"b{i}", 1 + i % 7, i, i + 2 if i % 2 else LARGE) for i in range(LARGE)
    ]
    made = plan_memory(buffers, time_limit=0.01)
    assert crowded(buffers) and made.size < 1.01 * made.lower_bound
