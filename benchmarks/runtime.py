"""What the runtime costs: calls, array exchange and parallel regions, beside their bounds.

    python benchmarks/runtime.py

Needs apache-tvm-ffi (the extra `bench`) and a C compiler; torch is timed where it is installed.
Exits with 1 when a bound is missed.
"""

import importlib.util
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm_ffi
from measure import best_of_turns
from rich.console import Console
from rich.table import Table

import sterna as tvm
from sterna.contrib import cc

HERE = Path(__file__).resolve().parent

EMPTY_FUNCTION = """
#include "sterna.h"
STERNA_FUNCTION(nothing) { (void)self, (void)args, (void)n, (void)ret; return 0; }
"""


@dataclass
class Row:
    """One measured thing and its bound."""

    what: str
    value: float
    unit: str
    bound: float
    beside: str = ""

    @property
    def holds(self) -> bool:
        """Whether the value is within its bound."""
        return self.value <= self.bound


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
    return [Row("empty call with three arrays, to tvm_ffi's time", ratio, "x", 1.2, beside)]


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
        candidates["array to torch"] = lambda: torch.from_dlpack(ours)
    times = best_of_turns(candidates, 20_000)
    return [Row(what, seconds * 1e6, "us", 2.0) for what, seconds in times.items()]


def time_regions(folder: Path) -> list[Row]:
    """Parallel regions, from C."""
    program = folder / "parallel_region"
    cc.create_executable(program, [HERE / "parallel_region.c"])
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    threads, nothing, meet = done.stdout.split()
    return [
        Row(f"parallel region that does nothing, {threads} threads", float(nothing), "us", 10.0),
        Row(f"parallel region in which {threads} threads meet", float(meet), "us", 10.0),
    ]


def main() -> int:
    """Measure everything and print the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = time_calls(folder) + time_exchange() + time_regions(folder)
    table = Table("what", "measured", "at most", "holds", "beside", title="Runtime costs")
    for row in rows:
        measured, bound = f"{row.value:.2f} {row.unit}", f"{row.bound:.1f} {row.unit}"
        table.add_row(row.what, measured, bound, "yes" if row.holds else "NO", row.beside)
    Console(width=120).print(table)
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
