"""How fast threads copy and read memory, by how much of it they go over."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from sterna import te
from sterna.driver import build
from sterna.ir.expr import Broadcast
from sterna.runtime import ndarray
from sterna.runtime.ndarray import NDArray
from sterna.target import Target, machine_of
from sterna.tir import ir_builder

NATIVE = "llvm -mcpu=native"
# Bytes that are gone over, from what the caches next to the cores hold to what none does.
SIZES = tuple(1 << bits for bits in range(15, 28))
# What one measurement moves at the least, going over the same bytes again: far more than what it
# costs to start the threads.
MOVED = 1 << 25
# Vectors that one step moves; the places that a read in several streams goes on from.
CHAINS = 8
# A single pass counts where it takes so many times as long as a call that does nothing.
CALLS_PER_PASS = 5

Rates = list[tuple[float, float]]
Call = Callable[[], object]
# Seconds of a call, each time after another one that is not timed.
Timer = Callable[[Call, Call], float]


def copy_rates(threads: int, seconds_of: Timer) -> Rates:
    """(bytes read and written, such bytes per second) of copies, from few bytes to many.

    A kernel may find in the caches what the one before it touched last, also of arrays that are
    larger than a cache: the faster counts of copies again and again and of a copy that goes
    backwards over what was read forwards just before it.
    """
    copy, read = _build(threads, "copy"), _build(threads, "read")
    sums = _ones(threads, CHAINS * _lanes())
    call = seconds_of(partial(copy, sums, sums, 0), _nothing)

    def seconds(x: NDArray, rounds: int) -> float:
        y = _ones(*x.shape)
        again = seconds_of(partial(copy, x, y, rounds), _nothing) / rounds
        if again < CALLS_PER_PASS * call:
            return again
        return min(again, seconds_of(partial(copy, x, y, 1), partial(read, x, sums, 1)) - call)

    return _rates(threads, 2, seconds)


def read_rates(threads: int, seconds_of: Timer) -> Rates:
    """(bytes, bytes per second) of sums, by the faster of one stream and several in each thread.

    They go forwards and backwards in turns, so that each begins with what is still in the caches.
    """
    ways = [_build(threads, way) for way in ("read", "read_apart")]

    def seconds(x: NDArray, rounds: int) -> float:
        sums = _ones(threads, CHAINS * _lanes())
        calls = [partial(run, x, sums, rounds) for run in ways]
        return min(seconds_of(call, _nothing) for call in calls) / rounds

    return _rates(threads, 1, seconds)


def _rates(threads: int, arrays: int, seconds: Callable[[NDArray, int], float]) -> Rates:
    """Each is at least that of more bytes, since those could be gone over in parts."""
    step = CHAINS * _lanes()
    found: Rates = []
    best = 0.0
    for size in reversed(SIZES):
        count = size // (4 * arrays * threads) // step * step
        if not count:
            break
        took = seconds(_ones(threads, count), max(2, MOVED // size // 2 * 2))
        best = max(best, 4 * arrays * threads * count / took)
        found.append((float(size), best))
    return found[::-1]


def _ones(rows: int, columns: int) -> NDArray:
    """Where a model's arrays lie, at the beginning of a line: stores over two lines are slower."""
    return ndarray.array(np.ones((rows, columns), "float32"))


def _nothing() -> None:
    pass


def _lanes() -> int:
    return machine_of(Target(NATIVE)).lanes(32)


def _build(threads: int, way: str) -> Callable[..., object]:
    """f(x, y, rounds): each thread copies its row of x, or adds its vectors to CHAINS sums.

    Copies go backwards; the first read and every second one after it go forwards.
    """
    lanes = _lanes()
    vector = f"float32x{lanes}"
    step = CHAINS * lanes
    n, rounds = te.size_var("n"), te.var("rounds")
    x = te.placeholder((threads, n), name="x")

    def copy(ib: Any, given: Any, out: Any, thread: Any) -> None:
        steps = n // step
        with ib.for_range(0, rounds, name="round"), ib.for_range(0, steps, name="i") as i:
            for chain in range(CHAINS):
                at = (thread, (steps - 1 - i) * step + chain * lanes)
                ib.emit(out.vstore(at, given.vload(at, vector)))

    def read(ib: Any, given: Any, out: Any, thread: Any) -> None:
        sums = ib.allocate("float32", (CHAINS, lanes), name="sums", scope="local").buffer
        for chain in range(CHAINS):
            ib.emit(sums.vstore((chain, 0), Broadcast(te.const(0, "float32"), lanes)))
        steps = n // step
        with ib.for_range(0, rounds, name="round") as r, ib.for_range(0, steps, name="k") as k:
            i = te.if_then_else(r % 2 == 0, k, steps - 1 - k)
            for chain in range(CHAINS):
                near = i * step + chain * lanes
                at = near if way == "read" else chain * (n // CHAINS) + i * lanes
                more = sums.vload((chain, 0), vector) + given.vload((thread, at), vector)
                ib.emit(sums.vstore((chain, 0), more))
        for chain in range(CHAINS):
            ib.emit(out.vstore((thread, chain * lanes), sums.vload((chain, 0), vector)))

    def body(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        with ib.for_range(0, threads, name="thread", kind="parallel") as thread:
            (copy if way == "copy" else read)(ib, ins[0], outs[0], thread)
        return ib.get()

    shape = (threads, n if way == "copy" else step)
    y = te.extern(shape, [x], body, name="y", dtype="float32")
    return build(te.create_schedule(y.op), [x, y, rounds], target=NATIVE, name=way)[way]
