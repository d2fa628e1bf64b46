"""Plans in which threads write over what they wrote: never larger, nothing overlaps."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.ir.memory_pools import WorkspacePoolInfo
from sterna.tir.usmp import BufferInfo, PoolPlan, plan_memory, plan_pools
from sterna.tir.usmp.settle import foreign_bytes, settle

LINE = 64


@st.composite
def lives(draw: st.DrawFn) -> list[BufferInfo]:
    made = []
    for number in range(draw(st.integers(1, 24))):
        first = draw(st.integers(0, 30))
        last = first + draw(st.integers(1, 6))
        made.append(BufferInfo(str(number), LINE * draw(st.integers(1, 40)), first, last, LINE))
    return made


def counted(buffers: list[BufferInfo], offsets: list[int], threads: int) -> int:
    """The foreign bytes by a table of who wrote each line's bytes last."""
    owner: dict[int, int] = {}
    found = 0
    for number in sorted(range(len(buffers)), key=lambda n: (buffers[n].first, n)):
        at, size = offsets[number], buffers[number].size
        ends = [size * (thread + 1) // threads for thread in range(threads)]
        thread = 0
        for byte in range(size):
            while byte >= ends[thread]:
                thread += 1
            found += owner.get(at + byte, thread) != thread
            owner[at + byte] = thread
    return found


@settings(max_examples=40)
@given(lives(), st.integers(1, 5))
def test_settled_plans_are_plans(buffers: list[BufferInfo], threads: int) -> None:
    made = plan_memory(buffers)
    before = [made.offsets[b.name] for b in buffers]
    after = settle(buffers, before, threads)
    assert max(at + b.size for at, b in zip(after, buffers, strict=True)) <= made.size
    for n, (one, low) in enumerate(zip(buffers, after, strict=True)):
        assert low % LINE == 0
        for other, high in zip(buffers[n + 1 :], after[n + 1 :], strict=True):
            apart = low + one.size <= high or high + other.size <= low
            assert apart or not one.meets(other)
    assert foreign_bytes(buffers, after, threads) == counted(buffers, after, threads)
    assert counted(buffers, after, threads) <= counted(buffers, before, threads)


def test_buffers_of_a_network_lie_where_such_lay_before() -> None:
    """Residual blocks behind an image: small tensors live on while two large ones come and go."""
    small, large = 10 * LINE, 60 * LINE
    buffers = [BufferInfo("image", 3 * large, 0, 1, LINE), BufferInfo("data", small, 0, 4, LINE)]
    for block in range(6):
        start = 1 + 3 * block
        buffers += [
            BufferInfo(f"wide {block}", large, start, start + 2, LINE),
            BufferInfo(f"deep {block}", large, start + 1, start + 3, LINE),
            BufferInfo(f"sum {block}", small, start + 2, start + 6, LINE),
        ]
    one = plan_pools(buffers, [WorkspacePoolInfo("arena", [])])
    two = plan_pools(buffers, [WorkspacePoolInfo("arena", [])], threads=2)
    assert two.size == one.size

    def foreign(plan: PoolPlan) -> int:
        return foreign_bytes(buffers, [plan.places[b.name].byte_offset for b in buffers], 2)

    assert foreign(two) < foreign(one) // 3
