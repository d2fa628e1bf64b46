"""Whole networks made by builders: how long they take to compile, to load and to run.

    python benchmarks/networks.py [--markdown]

Exits with 1 when a bound is missed.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rows import Row, show_rows

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor

TARGET = "llvm -mcpu=native"


def build(mod: Any, params: Any, data: Any) -> tuple[float, Any]:
    """Seconds from a graph to its first result, and what was built."""
    start = time.perf_counter()
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=TARGET, params=params)
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    m.run(data=data)
    return time.perf_counter() - start, lib


def measure_resnet50(folder: Path) -> list[Row]:
    """ResNet-50 from builders to numbers, with an empty cache and with a full one."""
    mod, params = relay.testing.resnet.get_workload(num_layers=50)
    data = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype("float32")
    os.environ["STERNA_CACHE"] = str(folder / "cache")
    cold, _ = build(mod, params, data)
    warm, lib = build(mod, params, data)
    file = folder / "resnet50.so"
    lib.export_library(file)
    start = time.perf_counter()
    loaded = tvm.runtime.load_module(file)
    m = graph_executor.GraphModule(loaded["default"](tvm.cpu(0)))
    ready = time.perf_counter() - start
    m.set_input("data", data)
    run = m.benchmark(tvm.cpu(0), repeat=10, number=3).min
    size = f"{file.stat().st_size / 1e6:.0f} MB"
    return [
        Row("ResNet-50, builders to first result, empty cache", cold, "s", 20, True),
        Row("the same, from the cache", warm, "s", 2, True),
        Row("loading its file", ready * 1e3, "ms", 100, True, size),
        Row("running it", run * 1e3, "ms", float("inf"), True,
            f"{8.2 / run:.0f} GFLOP/s, {tvm.runtime.num_threads()} threads"),
    ]  # fmt: skip


def measure() -> list[Row]:
    """Every row of the table."""
    with tempfile.TemporaryDirectory() as name:
        return measure_resnet50(Path(name))


if __name__ == "__main__":
    sys.exit(show_rows("Networks from builders", measure(), "--markdown" in sys.argv[1:]))
