"""What this machine can do at most, measured: multiply-adds, copies and reads of memory."""

import sys
import time
from functools import cache, partial
from typing import Any

import numpy as np

from sterna import te
from sterna.driver import build
from sterna.ir.expr import Broadcast
from sterna.model.streams import NATIVE, Call, Rates, copy_rates, read_rates
from sterna.runtime.node_times import Bounds
from sterna.target import Machine, Target, machine_of
from sterna.tir import (
    dot4,
    ir_builder,
    tile_configure,
    tile_dot,
    tile_load,
    tile_release,
    tile_store,
)
from sterna.tir.tiles import ROW_BYTES, ROWS, TILES

# Chains of dependent multiply-adds, each in a register: enough to fill the pipes.
CHAINS = 12
# So many that a call costs nothing beside them: about a millisecond.
ROUNDS = 400_000
TILE_ROUNDS = 20_000
# So small that no chain comes near zero, where some machines are slow.
DECAY = -(2.0**-14)
# Other programs run beside: the best is sought for so long, and so often at the least.
REPEATS = 5
SECONDS = 0.02
TILE_BYTES = ROWS * ROW_BYTES


@cache
def measure_bounds(threads: int) -> Bounds:
    """The operations and the bytes per second that the runtime's threads reach together.

    It takes some seconds, once.
    """
    machine = machine_of(Target(NATIVE))
    has_fp16 = machine.provides("fp16_arithmetic")
    timer = partial(_best_seconds, threads)
    return Bounds(
        _multiply_add_rate(threads, "float32") * 1e-9,
        _giga(copy_rates(threads, timer)),
        _giga(read_rates(threads, timer)),
        _multiply_add_rate(threads, "float16") * 1e-9 if has_fp16 else None,
        _byte_rate(threads, machine) * 1e-9 if machine.provides("dot4") else None,
    )


def _giga(rates: Rates) -> Rates:
    return [(size, rate * 1e-9) for size, rate in rates]


def _best_seconds(threads: int, call: Call, before: Call = lambda: None) -> float:
    """Of one thread those that it had a processor for, which other programs do not lengthen.

    A clock that has not moved, as those of some virtual machines at times, tells nothing.
    """
    counts_own_time = threads == 1 and sys.platform != "win32"  # where it counts milliseconds
    clock = time.thread_time if counts_own_time else time.perf_counter
    call()
    times: list[float] = []
    until = clock() + SECONDS
    while len(times) < REPEATS or clock() < until:
        before()
        start = clock()
        call()
        took = clock() - start
        if took > 0:
            times.append(took)
    return min(times)


def _multiply_add_rate(threads: int, dtype: str) -> float:
    lanes = machine_of(Target(NATIVE)).lanes(np.dtype(dtype).itemsize * 8)
    x = te.placeholder((lanes,), dtype, name="x")
    step = te.reduce_axis((0, ROUNDS), name="step")
    # What is added to is what is multiplied: instructions that overwrite their addend, as fmla
    # does, need no move beside them.
    decay = te.comm_reducer(
        lambda held, rate: held + held * rate,
        lambda dtype: te.const(1, dtype),
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
    rates, results = np.full(lanes, DECAY, dtype), np.empty((threads, CHAINS, lanes), dtype)
    operations = 2 * ROUNDS * CHAINS * lanes * threads
    return operations / _best_seconds(threads, lambda: run(rates, results))


def _byte_rate(threads: int, machine: Machine) -> float:
    """Of the fastest way to multiply and add bytes."""
    rates = [_dot_rate(threads)]
    if "int8" in machine.matrix_tiles:
        rates.append(_tile_rate(threads))
    return max(rates)


def _tile_rate(threads: int) -> float:
    """Of the instruction that multiplies tiles of bytes, by two times two of them."""
    x = te.placeholder((TILE_BYTES,), "uint8", name="x")

    def body(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        given, out = (ib.buffer_ptr(buffer) for buffer in (*ins, *outs))
        with ib.for_range(0, threads, name="thread", kind="parallel") as thread:
            ib.emit(tile_configure([(ROWS, ROW_BYTES)] * TILES))
            for tile in range(4, TILES):
                ib.emit(tile_load(tile, given[0], ROW_BYTES))
            with ib.for_range(0, TILE_ROUNDS, name="step"):
                for total in range(4):
                    ib.emit(tile_dot(total, 4 + total // 2, 6 + total % 2, "uint8", "uint8"))
            ib.emit(tile_store(0, out[thread, 0, 0], ROW_BYTES // 4))
            ib.emit(tile_release())
        return ib.get()

    y = te.extern((threads, ROWS, ROW_BYTES // 4), [x], body, name="y", dtype="int32")
    run = build(te.create_schedule(y.op), [x, y], target=NATIVE, name="tiles")["tiles"]
    results = np.empty((threads, ROWS, ROW_BYTES // 4), "int32")
    operations = 2 * 4 * TILE_ROUNDS * ROWS * ROW_BYTES // 4 * ROW_BYTES * threads
    given = np.ones(TILE_BYTES, "uint8")
    return operations / _best_seconds(threads, lambda: run(given, results))


def _dot_rate(threads: int) -> float:
    """Of the instruction that adds four products of bytes to each lane."""
    machine = machine_of(Target(NATIVE))
    row, lanes = machine.instructions.dot4, machine.lanes(32)
    assert row is not None
    data, weight = row.data_types[0], "int8"
    x = te.placeholder((4 * lanes,), data, name="x")
    w = te.placeholder((4 * lanes,), weight, name="w")
    kind = f"int32x{lanes}"

    def body(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        given, factors, out = (ib.buffer_ptr(buffer) for buffer in (*ins, *outs))
        zero = Broadcast(te.const(0, "int32"), lanes)
        with ib.for_range(0, threads, name="thread", kind="parallel") as thread:
            held = ib.allocate("int32", (CHAINS, lanes), name="held", scope="local")
            for chain in range(CHAINS):
                ib.emit(held.buffer.vstore((chain, 0), zero))
            with ib.for_range(0, ROUNDS, name="step"):
                a = given.buffer.vload((0,), f"{data}x{4 * lanes}")
                b = factors.buffer.vload((0,), f"{weight}x{4 * lanes}")
                for chain in range(CHAINS):
                    before = held.buffer.vload((chain, 0), kind)
                    ib.emit(held.buffer.vstore((chain, 0), dot4(before, a, b)))
            for chain in range(CHAINS):
                value = held.buffer.vload((chain, 0), kind)
                ib.emit(out.buffer.vstore((thread, chain, 0), value))
        return ib.get()

    y = te.extern((threads, CHAINS, lanes), [x, w], body, name="y", dtype="int32")
    run = build(te.create_schedule(y.op), [x, w, y], target=NATIVE, name="dots")["dots"]
    numbers = np.ones(4 * lanes, data), np.ones(4 * lanes, weight)
    results = np.empty((threads, CHAINS, lanes), "int32")
    operations = 8 * ROUNDS * CHAINS * lanes * threads
    return operations / _best_seconds(threads, lambda: run(*numbers, results))
