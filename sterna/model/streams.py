"""How fast threads copy and read memory, by how much of it they go over."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from sterna import te
from sterna.driver import build
from sterna.ir.expr import Broadcast
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

Rates = list[tuple[float, float]]
Timer = Callable[[Callable[[], object]], float]


def copy_rates(threads: int, seconds_of: Timer) -> Rates:
    """(bytes read and written, such bytes per second) of copies, from few bytes to many."""
    return _rates(threads, seconds_of, 2, ["copy"])


def read_rates(threads: int, seconds_of: Timer) -> Rates:
    """(bytes, bytes per second) of sums, by the faster of one stream and several in each thread."""
    return _rates(threads, seconds_of, 1, ["read", "read_apart"])


def _rates(threads: int, seconds_of: Timer, arrays: int, ways: Sequence[str]) -> Rates:
    """Each is at least that of more bytes, since those could be gone over in parts."""
    step = CHAINS * _lanes()
    functions = [_build(threads, way) for way in ways]
    found: Rates = []
    best = 0.0
    for size in reversed(SIZES):
        count = size // (4 * arrays * threads) // step * step
        if not count:
            break
        x = np.ones((threads, count), "float32")
        y = np.zeros((threads, count if arrays == 2 else step), "float32")
        rounds = max(1, MOVED // size)
        took = min(seconds_of(partial(run, x, y, rounds)) for run in functions)
        best = max(best, 4 * arrays * threads * count * rounds / took)
        found.append((float(size), best))
    return found[::-1]


def _lanes() -> int:
    return machine_of(Target(NATIVE)).lanes(32)


def _build(threads: int, way: str) -> Callable[..., object]:
    """f(x, y, rounds): each thread copies its row of x, or adds its vectors to CHAINS sums."""
    lanes = _lanes()
    vector = f"float32x{lanes}"
    step = CHAINS * lanes
    n, rounds = te.size_var("n"), te.var("rounds")
    x = te.placeholder((threads, n), name="x")

    def copy(ib: Any, given: Any, out: Any, thread: Any) -> None:
        with ib.for_range(0, rounds, name="round"), ib.for_range(0, n // step, name="i") as i:
            for chain in range(CHAINS):
                at = (thread, i * step + chain * lanes)
                ib.emit(out.vstore(at, given.vload(at, vector)))

    def read(ib: Any, given: Any, out: Any, thread: Any) -> None:
        sums = ib.allocate("float32", (CHAINS, lanes), name="sums", scope="local").buffer
        for chain in range(CHAINS):
            ib.emit(sums.vstore((chain, 0), Broadcast(te.const(0, "float32"), lanes)))
        with ib.for_range(0, rounds, name="round"), ib.for_range(0, n // step, name="i") as i:
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
