"""What remote execution costs on one machine: calls, copies, timing, beside their bounds.

    python benchmarks/rpc.py [--markdown]

Needs a C compiler. Exits with 1 when a bound is missed.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rows import Row, show_rows

import sterna as tvm
from sterna import rpc, te

COPIED = 64 << 20


def median_of(call: Callable[[], object], count: int) -> float:
    """The median of what one call takes."""
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def time_calls(remote: rpc.RPCSession) -> list[Row]:
    """An empty function, without arguments and with three arrays; the best of some medians."""
    nothing = remote.get_function("benchmark.nothing")
    x, y, z = (tvm.nd.empty((4,), device=remote.cpu(0)) for _ in range(3))
    empty = min(median_of(nothing, 500) for _ in range(10))
    arrays = min(median_of(lambda: nothing(x, y, z), 500) for _ in range(10))
    return [
        Row("empty call", empty * 1e6, "us", 100.0, True),
        Row("empty call with three arrays", arrays * 1e6, "us", 150.0, True),
    ]


def time_copies(remote: rpc.RPCSession) -> list[Row]:
    """64 MiB there and back."""
    values = np.zeros(COPIED, "uint8")
    here = tvm.nd.empty(values.shape, "uint8")
    there = tvm.nd.empty(values.shape, "uint8", remote.cpu(0))
    to = min(median_of(lambda: there.copyfrom(values), 1) for _ in range(20))
    back = min(median_of(lambda: there.copyto(here), 1) for _ in range(20))
    return [
        Row("copy to the server", COPIED / to * 1e-9, "GB/s", 1.0),
        Row("copy from the server", COPIED / back * 1e-9, "GB/s", 1.0),
    ]


def time_timing(remote: rpc.RPCSession, folder: Path) -> list[Row]:
    """The same kernel timed here and there, in turns."""
    n = te.size_var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: te.exp(a[i]), name="B")
    tvm.build(te.create_schedule(b.op), [a, b], name="exp").export_library(folder / "exp.so")
    remote.upload(folder / "exp.so")
    values = np.random.default_rng(0).random(1 << 14, dtype="float32")
    timers = []
    for module, device in (
        (tvm.runtime.load_module(folder / "exp.so"), tvm.cpu(0)),
        (remote.load_module("exp.so"), remote.cpu(0)),
    ):
        arrays = [tvm.nd.array(values, device) for _ in range(2)]
        timers.append((module.time_evaluator("exp", device, number=10, repeat=10), arrays))
    best = [float("inf")] * 2
    for _ in range(60):
        for number, (timer, arrays) in enumerate(timers):
            best[number] = min(best[number], timer(*arrays).min)
    apart = abs(best[1] / best[0] - 1) * 100
    beside = f"{best[1] * 1e6:.1f} us there, {best[0] * 1e6:.1f} us here"
    return [Row("a kernel's time there, apart from here", apart, "%", 2.0, True, beside)]


def measure() -> list[Row]:
    """Every row of the table."""

    def prepare() -> None:
        tvm.register_func("benchmark.nothing", lambda *args: None)

    server = rpc.Server(port=0, silent=True, server_init_callback=prepare)
    try:
        with (
            rpc.connect("127.0.0.1", server.port) as remote,
            tempfile.TemporaryDirectory() as name,
        ):
            rows = [*time_calls(remote), *time_copies(remote)]
            return rows + time_timing(remote, Path(name))
    finally:
        server.terminate()


if __name__ == "__main__":
    sys.exit(show_rows("Remote execution", measure(), "--markdown" in sys.argv[1:]))
