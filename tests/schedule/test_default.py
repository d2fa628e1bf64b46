"""The generic schedule, over shapes that nobody tuned for: odd extents, borders, any axis."""

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, te
from sterna.ir import build
from sterna.ir.expr import Expr, Ramp, Var
from sterna.lowering.lower_kernel import lower_kernel
from sterna.relay.expr import RelayExpr, Tuple
from sterna.schedule.axes_in_order import axes_in_order
from sterna.schedule.kernel import Processor
from sterna.schedule.moved_elements import all_read_across, repeated_rows
from sterna.schedule.reads import reads_of
from sterna.tir import pipeline
from sterna.tir.stmt import BufferStore, For, statements_in
from tests.schedule.test_schedules import PROCESSORS, check


def extents(rng: np.random.Generator, rank: int, most: int = 24) -> tuple[int, ...]:
    """A random shape."""
    return tuple(int(size) for size in rng.integers(1, most, rank))


@pytest.mark.parametrize("shape", [(4, 19, 103), (1, 37, 131), (5, 16, 67), (2, 23, 200)])
def test_reductions_across_rows_of_odd_lengths(shape: tuple[int, ...]) -> None:
    for processor in PROCESSORS[:2]:
        check(relay.sum(relay.var("x", shape=shape), axis=1), processor)


@pytest.mark.parametrize("seed", range(6))
def test_elements_of_any_shape(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(3, 9)), *extents(rng, 2, 60))
    x, y = relay.var("x", shape=shape), relay.var("y", shape=shape)
    check(relay.add(relay.tanh(x), y), PROCESSORS[seed % len(PROCESSORS)])


@pytest.mark.parametrize(
    "factor, together",
    [((5, 1, 1), 2), ((5, 7, 6), 3), ((5, 1, 6), 1), ((1, 7, 6), 2), ((5, 7, 1), 1), ((), 4)],
)
def test_axes_along_which_all_lies_in_order_are_one(factor: tuple[int, ...], together: int) -> None:
    x, y = relay.var("x", shape=(3, 5, 7, 6)), relay.var("y", shape=factor)
    for processor in PROCESSORS[:3]:
        check(relay.nn.relu(relay.multiply(relay.add(x, x), y)), processor)
    data, other = te.placeholder((3, 5, 7, 6), name="data"), te.placeholder(factor, name="other")
    offset = 4 - len(factor)

    def product(*at: Var) -> Expr:
        own = [0 if size == 1 else i for i, size in zip(at[offset:], factor, strict=True)]
        made: Expr = twice[at] * other[tuple(own)]
        return made

    twice = te.compute(data.shape, lambda *at: data[at] + data[at], name="twice")
    made = te.compute(data.shape, product, name="made")
    schedule = te.create_schedule(made.op)
    schedule[twice].compute_inline()
    assert axes_in_order(schedule[made]) == together


def test_axes_whose_numbers_are_computed_with_stay_apart() -> None:
    data = te.placeholder((5, 7, 6), name="data")
    made = te.compute(data.shape, lambda i, j, k: data[i, j, k] + k, name="made")
    assert axes_in_order(te.create_schedule(made.op)[made]) == 1


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
def test_borders(mode: str) -> None:
    rng = np.random.default_rng(len(mode))
    for processor in PROCESSORS[:3]:
        shape = tuple(int(size) for size in rng.integers(5, 40, 3))
        width = [(0, 0), *(tuple(map(int, rng.integers(0, 5, 2))) for _ in range(2))]
        x = relay.var("x", shape=shape)
        check(relay.nn.relu(relay.nn.pad(x, pad_width=width, pad_mode=mode)), processor)


@pytest.mark.parametrize("seed", range(12))
def test_windows_along_the_last_axis(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = 1 + seed % 3
    window = [int(size) for size in rng.integers(1, 6, rank)]
    shape = (1, 3, *(int(rng.integers(6, 40 if rank < 3 else 12)) for _ in range(rank)))
    padding = [int(rng.integers(0, (size + 1) // 2)) for size in window] * 2
    options = {"pool_size": window, "strides": [int(s) for s in rng.integers(1, 4, rank)],
               "padding": padding, "layout": "NC" + "DHW"[3 - rank:]}
    kind = "max" if seed % 2 else "avg"
    pool = getattr(relay.nn, f"{kind}_pool{rank}d")
    check(relay.tanh(pool(relay.var("x", shape=shape), **options)), PROCESSORS[seed % 5])


@pytest.mark.parametrize("seed", range(10))
def test_reductions_over_any_axes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(size) for size in rng.integers(3, 45, 3))
    axes = sorted(int(a) for a in rng.choice(3, int(rng.integers(1, 4)), replace=False))
    reduction = (relay.sum, relay.max, relay.mean)[seed % 3]
    check(reduction(relay.abs(relay.var("x", shape=shape)), axis=axes), PROCESSORS[seed % 5])


@pytest.mark.parametrize("seed", range(10))
def test_transposes_of_any_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(2, 5))
    shape = (*extents(rng, rank - 1), int(rng.choice([2, 3, 5, 16, 21])))
    order = [int(axis) for axis in rng.permutation(rank)]
    moved = relay.transpose(relay.var("x", shape=shape), axes=order)
    check(relay.tanh(moved) if seed % 2 else moved, PROCESSORS[seed % 5])


def joined(axis: int, *shapes: tuple[int, ...]) -> RelayExpr:
    """Arrays laid end to end along an axis."""
    parts = [relay.var(f"x{place}", shape=shape) for place, shape in enumerate(shapes)]
    made: RelayExpr = relay.concatenate(Tuple(tuple(parts)), axis=axis)
    return made


def beside(*shapes: tuple[int, ...]) -> RelayExpr:
    """The sum of arrays, stretched to a common shape."""
    first, second = (relay.var(f"x{place}", shape=shape) for place, shape in enumerate(shapes))
    made: RelayExpr = relay.add(first, second)
    return made


ODD = [
    joined(0, (1, 27, 145, 8), (1, 27, 145, 8)), joined(1, (19, 365), (19, 365), (19, 365)),
    joined(1, (3, 5, 37), (3, 4, 37)), beside((2, 27, 29), (2, 1, 1)), beside((3, 41, 7), (41, 7)),
    relay.nn.softmax(relay.var("x", shape=(7, 317))),
]


@pytest.mark.parametrize("body", ODD)
def test_lengths_that_no_vector_divides(body: RelayExpr) -> None:
    for processor in PROCESSORS[:3]:
        check(body, processor)


@pytest.mark.parametrize("threads", [1, 16])
@pytest.mark.parametrize("body", ODD[:5])
def test_hardly_a_number_of_an_odd_length_is_stored_alone(body: RelayExpr, threads: int) -> None:
    main = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"]
    processor = Processor(512, 32, threads=threads)
    loops = pipeline.run(lower_kernel(main.body.op, "kernel", processor).function)

    def alone(stmt: object, times: int) -> int:
        if isinstance(stmt, For):
            return alone(stmt.body, times * (build.int_value(stmt.extent) or 1))
        if isinstance(stmt, BufferStore):
            return 0 if any(isinstance(at, Ramp) for at in stmt.indices) else times
        return sum(alone(child, times) for child in getattr(stmt, "children", tuple)())

    assert any(isinstance(stmt, BufferStore) for stmt in statements_in(loops.body))
    count = int(np.prod(main.body.checked_type.shape))
    assert alone(loops.body, 1) <= count // 64


@pytest.mark.parametrize("shape, grid", [((2, 11, 9, 7), (5, 7)), ((1, 3, 6, 40), (16, 8))])
def test_places_are_looked_up_once_for_several_channels(
    shape: tuple[int, ...], grid: tuple[int, ...]
) -> None:
    data, places = relay.var("data", shape=shape), relay.var("grid", shape=(shape[0], 2, *grid))
    for processor in PROCESSORS[:3]:
        check(relay.nn.relu(relay.image.grid_sample(data, places)), processor)
    stretched = relay.image.resize2d(data, (31, 57), layout="NCHW", method="linear")
    for made in (relay.image.grid_sample(data, places), stretched):
        module = tvm.IRModule.from_expr(made)
        built = relay.build(module, target="llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake")
        text = built.lib.get_source("asm")
        assert "vgatherdps" in text and "vgatherqps" not in text, "indices of 32 bits"


@pytest.mark.parametrize("size", [(13, 37), (7, 5), (40, 16)])
def test_rows_that_are_stretched_are_gathered(size: tuple[int, int]) -> None:
    data = relay.var("data", shape=(2, 3, 9, 11))
    made = relay.image.resize2d(data, size, layout="NCHW", method="nearest_neighbor")
    for gathers in (False, True):
        check(relay.nn.relu(made), Processor(512, 32, gathers=gathers))


@pytest.mark.parametrize("bias", [(20, 1, 1), (1, 1), (20, 7, 9)])
def test_what_follows_a_transpose_is_computed_along_what_is_read(bias: tuple[int, ...]) -> None:
    x, other = relay.var("x", shape=(2, 63, 20)), relay.var("bias", shape=bias)
    first = relay.transpose(relay.reshape(x, newshape=(2, 7, 9, 20)), axes=(0, 3, 1, 2))
    for processor in PROCESSORS[:3]:
        check(relay.nn.relu(relay.add(first, other)), processor)


def test_reads_are_found_behind_inlined_stages() -> None:
    data, bias = te.placeholder((4, 8), name="data"), te.placeholder((8, 1), name="bias")
    turned = te.compute((8, 4), lambda i, j: data[j, i], name="turned")
    made = te.compute((8, 4), lambda i, j: turned[i, j] + bias[i, 0], name="made")
    schedule = te.create_schedule(made.op)
    schedule[turned].compute_inline()
    stage = schedule[made]
    assert all_read_across(stage) is stage.op.axis[0]
    assert {str(read.index_of_neighbours) for read in reads_of(stage)} == {"i"}
    spread = te.compute((8, 4), lambda i, j: bias[i, 0], name="spread")
    assert all_read_across(te.create_schedule(spread.op)[spread]) is None


@pytest.mark.parametrize("repeats", [(1, 3), (2, 2), (1, 1, 5)])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_rows_that_repeat_are_copied_whole(repeats: tuple[int, ...], dtype: str) -> None:
    for length in (56, 64):
        made = relay.tile(relay.var("x", shape=(3, length), dtype=dtype), reps=repeats)
        for processor in PROCESSORS[:3]:
            check(made, processor)
    data = te.placeholder((3, 56), name="data")
    last = te.create_schedule(
        te.compute((3, 168), lambda i, j: data[i, j % 56], name="made").op).stages[-1]
    assert repeated_rows(last, 16) == 56
    assert repeated_rows(last, 64) is None, "rows shorter than a vector"
    uneven = te.compute((3, 100), lambda i, j: data[i, j % 56], name="uneven")
    assert repeated_rows(te.create_schedule(uneven.op).stages[-1], 16) is None


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_three_planes_become_pixels_of_three_channels(dtype: str) -> None:
    made = relay.transpose(relay.var("x", shape=(1, 3, 9, 64), dtype=dtype), axes=(0, 2, 3, 1))
    for processor in PROCESSORS[:3]:
        check(made, processor)
    built = relay.build(tvm.IRModule.from_expr(made),
                        target="llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake")
    assert "gather" not in built.lib.get_source("ll")
