"""What this machine can do at most, measured: multiply-adds, and copies of several sizes."""

import time
from collections.abc import Callable
from functools import cache

import numpy as np

from sterna import te
from sterna.driver import OperatorModule, build
from sterna.runtime.node_times import Bounds
from sterna.target import Target, machine_of

NATIVE = "llvm -mcpu=native"

# Chains of dependent multiply-adds, each in a register: enough to fill the pipes.
CHAINS = 12
ROUNDS = 20_000
# Bytes that a copy moves in all, from what the caches next to the cores hold to what none does.
COPY_BYTES = (1 << 15, 1 << 18, 1 << 21, 1 << 24, 1 << 27)
PIECE = 4096
REPEATS = 5


@cache
def measure_bounds(threads: int) -> Bounds:
    """The operations and the bytes per second that the runtime's threads reach together.

    It takes about a second, once. The rate of small copies is at least that of larger ones.
    """
    rates, best = [], 0.0
    copy = _copy()
    for size in reversed(COPY_BYTES):
        best = max(best, _copy_rate(copy, size))
        rates.append((float(size), best * 1e-9))
    half = machine_of(Target(NATIVE)).computes_half
    return Bounds(
        _multiply_add_rate(threads, "float32") * 1e-9, rates[::-1],
        _multiply_add_rate(threads, "float16") * 1e-9 if half else None,
    )  # fmt: skip


def _best_seconds(call: Callable[[], object]) -> float:
    call()
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def _multiply_add_rate(threads: int, dtype: str) -> float:
    lanes = machine_of(Target(NATIVE)).lanes(np.dtype(dtype).itemsize * 8)
    x = te.placeholder((lanes,), dtype, name="x")
    step = te.reduce_axis((0, ROUNDS), name="step")
    decay = te.comm_reducer(
        lambda held, new: held * te.const(0.999, dtype) + new,
        lambda dtype: te.const(0, dtype),
    )
    y = te.compute(
        (threads, CHAINS, lanes), lambda t, c, i: decay(x[i], axis=step), name="y"
    )
    s = te.create_schedule(y.op)
    held = s.cache_write(y, "local")
    thread, chain, lane = s[y].op.axis
    s[y].parallel(thread)
    s[y].unroll(chain)
    s[y].vectorize(lane)
    s[held].compute_at(s[y], thread)
    own, chain, lane = s[held].op.axis
    s[held].reorder(own, s[held].op.reduce_axis[0], chain, lane)
    s[held].unroll(chain)
    s[held].vectorize(lane)
    run = build(s, [x, y], target=NATIVE, name="multiply_add")["multiply_add"]
    numbers, results = np.ones(lanes, dtype), np.empty((threads, CHAINS, lanes), dtype)
    operations = 2 * ROUNDS * CHAINS * lanes * threads
    return operations / _best_seconds(lambda: run(numbers, results))


def _copy() -> OperatorModule:
    n = te.size_var("n")
    x = te.placeholder((n,), name="x")
    y = te.compute((n,), lambda i: x[i], name="y")
    s = te.create_schedule(y.op)
    piece, within = s[y].split(y.op.axis[0], factor=PIECE)
    _, lane = s[y].split(within, factor=machine_of(Target(NATIVE)).lanes(32))
    s[y].vectorize(lane)
    s[y].parallel(piece)
    return build(s, [x, y], target=NATIVE, name="copy")


def _copy_rate(copy: OperatorModule, size: int) -> float:
    count = size // 8
    x, y = np.ones(count, "float32"), np.zeros(count, "float32")
    run = copy["copy"]
    number = max(1, COPY_BYTES[-1] // size // 16)

    def several() -> None:
        for _ in range(number):
            run(x, y)

    return size * number / _best_seconds(several)
