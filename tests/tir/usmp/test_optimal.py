"""The search finds the smallest plans, proves that they are, and packs hard real graphs."""

import csv
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.testing import require
from sterna.tir.usmp import BufferInfo, live_bound, plan_memory
from tests.support import SHARED
from tests.tir.usmp.test_plan import check, some_buffers


def smallest(buffers: Sequence[BufferInfo]) -> int:
    """The least size over all orders, each buffer on top of the earlier ones that it meets."""
    best = sum(b.size for b in buffers)
    for order in permutations(buffers):
        ends: list[tuple[BufferInfo, int]] = []
        for buffer in order:
            rests = max((end for other, end in ends if other.meets(buffer)), default=0)
            ends.append((buffer, rests + buffer.size))
        best = min(best, max((end for _, end in ends), default=0))
    return best


@given(some_buffers(most=6))
@settings(max_examples=150)
def test_no_order_of_placing_gives_less(buffers: list[BufferInfo]) -> None:
    made = plan_memory(buffers, "optimal")
    check(made)
    assert made.proven
    assert made.size == smallest(buffers)


# At most 9 are alive together, but these need 10.
SIZES = [3, 4, 2, 3, 3, 2, 3, 2, 2, 2, 3, 4, 1, 1, 2, 1]
FIRSTS = [6, 0, 6, 7, 0, 7, 1, 4, 3, 4, 2, 5, 0, 0, 1, 3]
LASTS = [7, 1, 7, 8, 3, 8, 2, 8, 5, 8, 4, 6, 6, 1, 5, 4]
GAP = [BufferInfo(f"g{n}", *its) for n, its in enumerate(zip(SIZES, FIRSTS, LASTS, strict=True))]


@given(st.permutations(GAP))
@settings(max_examples=20)
def test_a_plan_above_the_live_bound_is_proven_in_any_order(buffers: list[BufferInfo]) -> None:
    made = plan_memory(buffers, "optimal")
    check(made)
    assert live_bound(buffers) == 9
    assert made.size == made.lower_bound == 10


def test_sizes_of_many_gigabytes_are_exact() -> None:
    big = [BufferInfo(b.name, b.size * (2**40 + 1), b.first, b.last) for b in GAP]
    made = plan_memory(big, "optimal")
    check(made)
    assert made.size == 10 * (2**40 + 1)


def hard_instances() -> list[Path]:
    """Lives of real graphs' buffers; the name of a file says in what size they fit."""
    return sorted((SHARED / "memory_plans").glob("*.csv"))


@pytest.mark.parametrize("path", hard_instances() or [None], ids=lambda path: path and path.stem)
def test_hard_graphs_fit(path: Path | None) -> None:
    require(None if path else "the lives of buffers are not there: the checkout stands alone")
    assert path is not None
    with path.open(newline="") as rows:
        buffers = [
            BufferInfo(row["id"], int(row["size"]), int(row["lower"]), int(row["upper"]))
            for row in csv.DictReader(rows)
        ]
    capacity = int(path.suffixes[-2][1:])
    made = plan_memory(buffers, "optimal", enough=capacity)
    check(made)
    assert made.size <= capacity
