"""What the runtime costs: calls, array exchange and parallel regions, beside their bounds.

    python benchmarks/runtime_costs.py [--markdown]

Needs apache-tvm-ffi (the extra `bench`) and a C compiler; torch is timed where it is installed.
Exits with 1 when a bound is missed.
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tvm_ffi
from measure import best_of_turns
from rows import Row, show_rows

import sterna as tvm
from sterna.contrib import cc

HERE = Path(__file__).resolve().parent

EMPTY_FUNCTION = """
#include "sterna.h"
STERNA_FUNCTION(nothing) { (void)self, (void)args, (void)n, (void)ret; return 0; }
"""


def time_calls(folder: Path) -> list[Row]:
    """An empty function of three arrays, called by us and by tvm_ffi, from one library."""
    (folder / "nothing.c").write_text(EMPTY_FUNCTION)
    library = folder / "nothing.so"
    cc.create_shared(library, [folder / "nothing.c"])
    ours = tvm.runtime.load_module(library)["nothing"]
    theirs = tvm_ffi.load_module(str(library))["nothing"]
    x, y, z = (tvm.nd.empty((4,)) for _ in range(3))
    a, b, c = (tvm_ffi.from_dlpack(np.zeros(4, "float32")) for _ in range(3))
    times = best_of_turns(
        {"sterna": lambda: ours(x, y, z), "tvm_ffi": lambda: theirs(a, b, c)}, 50_000
    )
    ratio = times["sterna"] / times["tvm_ffi"]
    beside = f"{times['sterna'] * 1e9:.0f} ns against {times['tvm_ffi'] * 1e9:.0f} ns"
    return [Row("empty call with three arrays, to tvm_ffi's time", ratio, "x", 1.2, True, beside)]


def time_exchange() -> list[Row]:
    """DLPack with NumPy and torch, each way."""
    ours, numpys = tvm.nd.empty((64, 64)), np.zeros((64, 64), "float32")
    candidates = {
        "array from NumPy": lambda: tvm.nd.from_dlpack(numpys),
        "array to NumPy": lambda: np.from_dlpack(ours),
    }
    if importlib.util.find_spec("torch"):
        import torch

        torchs = torch.zeros(64, 64)
        candidates["array from torch"] = lambda: tvm.nd.from_dlpack(torchs)
        candidates["array to torch"] = lambda: torch.from_dlpack(ours.to_dlpack())
    times = best_of_turns(candidates, 20_000)
    rows = [Row(what, seconds * 1e6, "us", 2.0, True) for what, seconds in times.items()]
    if importlib.util.find_spec("torch"):
        rows.append(time_protocol(ours, numpys))
    return rows


def time_protocol(ours: tvm.nd.NDArray, numpys: np.ndarray) -> Row:
    """An array that torch asks for its device and capsule itself, beside one of NumPy."""
    import torch

    times = best_of_turns(
        {"ours": lambda: torch.from_dlpack(ours), "numpy": lambda: torch.from_dlpack(numpys)},
        20_000,
    )
    beside = f"{times['ours'] * 1e6:.2f} us against {times['numpy'] * 1e6:.2f} us"
    what = "array to torch by torch's own questions, to NumPy's time"
    return Row(what, times["ours"] / times["numpy"], "x", 1.1, True, beside)


def time_regions(folder: Path) -> list[Row]:
    """Parallel regions, from C."""
    program = folder / "parallel_region"
    cc.create_executable(program, [HERE / "parallel_region.c"])
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    threads, nothing, meet = done.stdout.split()
    return [
        Row(f"parallel region of {threads} threads, empty", float(nothing), "us", 10.0, True),
        Row(f"parallel region in which {threads} threads meet", float(meet), "us", 10.0, True),
    ]


def measure() -> list[Row]:
    """Every row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [*time_calls(folder), *time_exchange(), *time_regions(folder)]


if __name__ == "__main__":
    sys.exit(show_rows("Runtime costs", measure(), "--markdown" in sys.argv[1:]))
