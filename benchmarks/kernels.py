"""Kernels written as schedules, beside the machine's limits and NumPy, all in one run.

    python benchmarks/kernels.py [--markdown]

Needs a C compiler. Exits with 1 when a bound is missed.
"""

import ctypes
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# NumPy on one thread: its worker threads spin after a call and would disturb ours. Set before NumPy
# is loaded, which reads it then.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from measure import best_of_turns, ratio, seconds_of, turns_of
from rows import Row, show_rows

import sterna as tvm
from sterna import te
from sterna.contrib import cc

HERE = Path(__file__).resolve().parent
NATIVE = "llvm -mcpu=native"


def load_gemm() -> Any:
    """The example, as a module."""
    spec = importlib.util.spec_from_file_location("gemm", HERE.parent / "examples" / "gemm.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_peak(folder: Path) -> Any:
    """The C functions that show what the machine can do."""
    options = ["-O3", "-march=native", "-ffp-contract=fast"]
    cc.create_shared(folder / "peak.so", HERE / "peak.c", options)
    library = ctypes.CDLL(str(folder / "peak.so"))
    library.multiply_add_rate.restype = ctypes.c_double
    return library


def multiply_add_rate(peak: Any) -> float:
    """Multiply-adds a second of one core, each counted as two operations."""
    kept = ctypes.c_float()
    rate: float = peak.multiply_add_rate(ctypes.byref(kept))
    return rate


def time_gemm(peak: Any) -> list[Row]:
    """SGEMM 1024^3 on one thread and on all."""
    example, n = load_gemm(), 1024
    numbers = np.random.default_rng(0)
    a, b = (numbers.standard_normal((n, n), dtype="float32") for _ in range(2))
    inputs, c = [tvm.nd.array(a), tvm.nd.array(b)], tvm.nd.empty((n, n))
    start = time.perf_counter()
    schedule, args = example.gemm(n, NATIVE)
    single = tvm.build(schedule, args, target=NATIVE, name="gemm")["gemm"]
    ready = time.perf_counter() - start
    schedule, args = example.gemm(n, NATIVE, tvm.runtime.num_threads())
    shared = tvm.build(schedule, args, target=NATIVE, name="gemm")["gemm"]
    single(*inputs, c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-3, atol=1e-3)
    operations, threads = 2 * n**3, tvm.runtime.num_threads()
    turns = turns_of(
        {
            # as long, and the best of as many, as what it is compared with
            "peak": lambda: operations / max(multiply_add_rate(peak) for _ in range(3)),
            "one": lambda: seconds_of(lambda: single(*inputs, c)),
            "all": lambda: seconds_of(lambda: shared(*inputs, c)),
            "numpy": lambda: seconds_of(lambda: np.matmul(a, b)),
        }
    )
    rates = {name: operations / statistics.median(times) for name, times in turns.items()}
    limit = rates["peak"]
    note = f"{rates['one'] / 1e9:.1f} of {limit / 1e9:.1f} GFLOP/s"
    numpy_note = f"NumPy: {rates['numpy'] / 1e9:.1f} GFLOP/s"
    all_note = f"{rates['all'] / 1e9:.1f} GFLOP/s"
    return [
        Row(
            "SGEMM 1024, one thread, share of the peak", ratio(turns, "peak", "one"), "x", 0.9,
            beside=note,
        ),
        Row(
            "SGEMM 1024, one thread, to NumPy's rate", ratio(turns, "numpy", "one"), "x", 0.95,
            beside=numpy_note,
        ),
        Row(
            f"SGEMM 1024, {threads} threads, to {threads} times one thread",
            ratio(turns, "one", "all") / threads, "x", 0.9, beside=all_note,
        ),
        Row("schedule to callable for that SGEMM", ready, "s", 1.0, True),
    ]


def time_vector_add(peak: Any) -> list[Row]:
    """64 Mi floats, beside a loop in C."""
    n = 64 << 20
    x, y = te.placeholder((n,), name="x"), te.placeholder((n,), name="y")
    z = te.compute((n,), lambda i: x[i] + y[i], name="z")
    s = te.create_schedule(z.op)
    _, inner = s[z].split(z.op.axis[0], factor=16)
    s[z].vectorize(inner)
    function = tvm.build(s, [x, y, z], target=NATIVE, name="add")["add"]
    a, b, c = (np.ones(n, "float32") for _ in range(3))
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (c, a, b)]
    times = best_of_turns(
        {
            "ours": lambda: function(a, b, c),
            "c": lambda: peak.add(*pointers, ctypes.c_int64(n)),
        },
        number=1,
        turns=7,
    )
    note = f"{12 * n / times['ours'] / 1e9:.1f} GB/s"
    return [Row("vector add, to a C loop", times["c"] / times["ours"], "x", 0.9, False, note)]


def softmax(n: int, m: int) -> tuple[Any, list[Any]]:
    """Softmax over rows; all stages of a row run one after the other, in the cache."""
    x = te.placeholder((n, m), name="x")
    k = te.reduce_axis((0, m), name="k")
    top = te.compute((n,), lambda i: te.max(x[i, k], axis=k), name="top")
    power = te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]), name="power")
    k2 = te.reduce_axis((0, m), name="k")
    total = te.compute((n,), lambda i: te.sum(power[i, k2], axis=k2), name="total")
    inverse = te.compute((n,), lambda i: 1.0 / total[i], name="inverse")
    out = te.compute((n, m), lambda i, j: power[i, j] * inverse[i], name="out")
    s = te.create_schedule(out.op)
    lanes = 64
    for tensor in (top, total):
        _, inner = s[tensor].split(s[tensor].op.reduce_axis[0], factor=lanes)
        partial = s.rfactor(tensor, inner, 1)
        lane = s[partial].op.axis[1]
        s[partial].reorder(s[partial].op.reduce_axis[0], lane)
        s[partial].vectorize(lane)
        s[partial].compute_at(s[out], out.op.axis[0])
    for tensor in (power, out):
        _, inner = s[tensor].split(s[tensor].op.axis[1], factor=lanes)
        s[tensor].vectorize(inner)
    for tensor in (top, power, total, inverse):
        s[tensor].compute_at(s[out], out.op.axis[0])
    s[out].parallel(out.op.axis[0])
    return s, [x, out]


def time_softmax() -> list[Row]:
    """Softmax over 1024 x 1024, beside NumPy."""
    n = 1024
    schedule, args = softmax(n, n)
    function = tvm.build(schedule, args, target=NATIVE, name="softmax")["softmax"]
    x = np.random.default_rng(0).standard_normal((n, n), dtype="float32")
    out = np.empty_like(x)

    def with_numpy() -> Any:
        power = np.exp(x - x.max(axis=1, keepdims=True))
        return power / power.sum(axis=1, keepdims=True)

    function(x, out)
    np.testing.assert_allclose(out, with_numpy(), rtol=1e-5)
    times = best_of_turns({"ours": lambda: function(x, out), "numpy": with_numpy}, number=5)
    note = f"{times['ours'] * 1e6:.0f} us against {times['numpy'] * 1e6:.0f} us"
    ratio = times["numpy"] / times["ours"]
    return [Row("softmax 1024 x 1024, to NumPy's time", ratio, "x", 5, beside=note)]


def measure() -> list[Row]:
    """Every row of the table."""
    with tempfile.TemporaryDirectory() as name:
        peak = load_peak(Path(name))
        return [*time_gemm(peak), *time_vector_add(peak), *time_softmax()]


if __name__ == "__main__":
    sys.exit(show_rows("Kernels", measure(), "--markdown" in sys.argv[1:]))
