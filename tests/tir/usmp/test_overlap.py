"""Plans in which buffers lie over those that they are computed from: lives and leads are kept."""

from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.tir.usmp import BufferInfo, Link, OverlappingPlan, live_bound, plan_overlapping

ALIGNMENT = 16


def check(buffers: list[BufferInfo], links: list[Link], plan: OverlappingPlan) -> None:
    """No two buffers that meet have a byte in common, but by a link, and then by its lead."""
    allowed = {(link.source.name, link.target.name): link.lead for link in links}
    used = 0
    for one, other in combinations(sorted(buffers, key=lambda b: b.first), 2):
        low, high = plan.offsets[one.name], plan.offsets[other.name]
        apart = low + one.size <= high or high + other.size <= low
        if one.meets(other) and not apart:
            assert low - high == allowed[one.name, other.name]
            used += 1
    assert used <= plan.linked
    assert all(0 <= plan.offsets[b.name] <= plan.size - b.size for b in buffers)
    assert plan.lower_bound <= plan.size


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[BufferInfo], list[Link]]:
    """Layers one after the other, some with memory to work in, and results that live longer."""
    sizes = draw(st.lists(st.integers(1, 40), min_size=2, max_size=9))
    chain = [
        BufferInfo(f"layer {n}", size * ALIGNMENT, n, n + 2 + draw(st.sampled_from((0, 0, 0, 2))))
        for n, size in enumerate(sizes)
    ]
    works = [BufferInfo(f"work {n}", draw(st.integers(1, 8)) * ALIGNMENT, n, n + 1)
             for n in range(len(sizes)) if draw(st.booleans())]
    links = [
        Link(source, target, draw(st.integers(0, 12)) * ALIGNMENT)
        for source, target in pairwise(chain)
        if source.last == target.first + 1 and draw(st.booleans())
    ]
    return [*chain, *works], links


@settings(max_examples=150)
@given(networks())
def test_what_lives_is_kept(made: tuple[list[BufferInfo], list[Link]]) -> None:
    buffers, links = made
    check(buffers, links, plan_overlapping(buffers, links))


def test_a_layer_that_grows_ends_where_its_data_ends() -> None:
    small, large = BufferInfo("small", 1600, 0, 2), BufferInfo("large", 3200, 1, 3)
    end = BufferInfo("end", 800, 2, 4)
    links = [Link(small, large, 1600), Link(large, end, 0)]
    plan = plan_overlapping([small, large, end], links)
    check([small, large, end], links, plan)
    assert plan.size == 3200 < live_bound([small, large, end])


def test_links_that_are_not_needed_are_not_used() -> None:
    buffers = [BufferInfo("a", 160, 0, 2), BufferInfo("b", 16, 1, 3), BufferInfo("c", 16, 2, 4)]
    plan = plan_overlapping(buffers, [Link(buffers[1], buffers[2], 0)])
    assert plan.linked == 0 and plan.size == 176


def test_of_two_operands_the_one_that_spares_more_is_written_over() -> None:
    data, beside = BufferInfo("data", 1600, 0, 3), BufferInfo("beside", 1600, 1, 3)
    result = BufferInfo("result", 1600, 2, 4)
    links = [Link(data, result, 160), Link(beside, result, 0)]
    plan = plan_overlapping([data, beside, result], links)
    check([data, beside, result], links, plan)
    assert plan.size == 3200
