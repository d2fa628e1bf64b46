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
from measure import best_of_turns
from rows import Row, show_rows

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.relay.backend import Executor
from sterna.runtime.executor import AotModule

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
    ]


def measure_one_function(folder: Path) -> list[Row]:
    """A network of small kernels as a graph and as one function, both loaded from their files."""
    mod, params = relay.testing.mobilenet.get_workload(image_shape=(3, 32, 32))
    data = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype("float32")
    modules: dict[str, Any] = {"graph": graph_executor.GraphModule, "aot": AotModule}
    runs = {}
    for name, module in modules.items():
        with tvm.transform.PassContext(opt_level=3):
            lib = relay.build(mod, target=TARGET, params=params, executor=Executor(name))
        lib.export_library(folder / f"{name}.so")
        loaded = tvm.runtime.load_module(folder / f"{name}.so")
        m = module(loaded["default"](tvm.cpu(0)))
        m.set_input("data", data)
        runs[name] = m.run
    times = best_of_turns(runs, 20, 40)
    beside = f"{times['aot'] * 1e6:.0f} us against {times['graph'] * 1e6:.0f} us"
    ratio = times["aot"] / times["graph"]
    return [Row("MobileNet of 32 x 32 as one function, to the graph's time", ratio, "x", 1.02, True,
                beside)]


def measure() -> list[Row]:
    """Every row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [*measure_resnet50(folder), *measure_one_function(folder)]


if __name__ == "__main__":
    sys.exit(show_rows("Networks from builders", measure(), "--markdown" in sys.argv[1:]))
