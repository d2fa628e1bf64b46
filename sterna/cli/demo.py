"""sterna demo: what the installed version can do, shown by doing it."""

import argparse
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from sterna import runtime
from sterna.runtime import ndarray as nd
from sterna.support import toolchain
from sterna.version import __version__

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

# y = a * x + y over all threads: each task takes its share of the elements.
SOURCE = r"""
#include "sterna.h"

typedef struct { float a; const float *x; float *y; int64_t n; } work;

static int part(int32_t task, int32_t tasks, void *data) {
  work *w = data;
  int64_t begin = w->n * task / tasks, end = w->n * (task + 1) / tasks;
  for (int64_t i = begin; i < end; i++) w->y[i] += w->a * w->x[i];
  return 0;
}

STERNA_FUNCTION(saxpy) {
  double a;
  DLTensor *x, *y;
  int32_t threads;
  (void)self, (void)ret;
  if (n != 3 || sterna_as_float(&args[0], &a) || sterna_as_tensor(&args[1], &x) ||
      sterna_as_tensor(&args[2], &y) || x->shape[0] != y->shape[0])
    return sterna_set_error("TypeError", "saxpy takes a number and two arrays of equal length");
  work w = {(float)a, x->data, y->data, x->shape[0]};
  return sterna_num_threads(&threads) || sterna_parallel(part, &w, threads);
}
"""


def add_to(commands: "Subparsers") -> None:
    """Add this command to the command line."""
    parser = commands.add_parser("demo", help="show what this version can do")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show the machine, functions as values, arrays without copies, and compiled code."""
    console = Console()
    console.print(
        f"[bold]Sterna {__version__}[/bold] on {platform.machine()}, "
        f"{runtime.num_threads()} threads\n"
    )
    show_functions(console)
    show_arrays(console)
    show_compiled_code(console)
    return 0


def show_functions(console: Console) -> None:
    """A Python function, registered by name and called through the runtime."""

    def scale(array: nd.NDArray, factor: int) -> nd.NDArray:
        return nd.array(array.numpy() * factor)

    runtime.register_func("demo.scale", scale, override=True)
    result = runtime.get_global_func("demo.scale")(np.arange(4, dtype="float32"), 10)
    console.print(f"1. A Python function called through the runtime: {result.numpy()}")


def show_arrays(console: Console) -> None:
    """NumPy's memory seen by the runtime."""
    values = np.zeros(4, "float32")
    shared = nd.from_dlpack(values)
    values[:] = 7
    same = shared.data_ptr() == values.ctypes.data
    console.print(f"2. NumPy's memory, shared without a copy ({same}): {shared.numpy()}")


def show_compiled_code(console: Console) -> None:
    """A C function, compiled, loaded and timed beside NumPy."""
    compiler = toolchain.find_c_compiler()
    if compiler is None:
        console.print("3. No C compiler is here; get one with: pip install ziglang")
        return
    console.print(f"3. This C function, compiled by {compiler[0]} and loaded as a module:")
    console.print(Syntax(SOURCE[SOURCE.index("STERNA_FUNCTION") :].strip(), "c", word_wrap=True))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "saxpy.c").write_text(SOURCE)
        toolchain.link_shared(folder / "saxpy.so", [folder / "saxpy.c"], ["-O3"])
        saxpy = runtime.load_module(folder / "saxpy.so")["saxpy"]
    x = np.random.default_rng(0).standard_normal(1 << 20, dtype="float32")
    y, expected = np.zeros_like(x), np.zeros_like(x)
    saxpy(2.0, x, y)
    expected += np.float32(2) * x
    agrees = bool(np.allclose(y, expected, rtol=1e-6))
    console.print(f"   it agrees with NumPy: {agrees}")
    console.print(timing_table(lambda: saxpy(2.0, x, y), lambda: np.add(y, 2 * x, out=y), x.nbytes))


def best_time(call: Callable[[], object]) -> float:
    """Seconds of the fastest of several calls."""
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def timing_table(
    ours: Callable[[], object], numpys: Callable[[], object], nbytes: int
) -> Table:
    """Both times, and the memory traffic that ours amounts to."""
    table = Table("saxpy over 1 Mi floats", "time", "GB/s")
    for name, call in (("compiled C, all threads", ours), ("NumPy", numpys)):
        seconds = best_time(call)
        table.add_row(name, f"{seconds * 1e6:.0f} us", f"{3 * nbytes / seconds / 1e9:.1f}")
    return table
