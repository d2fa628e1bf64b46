"""How large networks are as programs for microcontrollers, linked with everything they need.

    python benchmarks/firmware_sizes.py [--markdown]

Needs arm-none-eabi-gcc or ziglang; each that is there is asked. Exits with 1 when a bound is
missed.
"""

import importlib.util
import shutil
import sys
from typing import Any

import numpy as np
from rows import Row, show_rows

import sterna as tvm
from sterna import relay
from sterna.micro import sizes
from sterna.relay.backend import Executor, Runtime

TARGET = "c -keys=arm_cpu -mcpu=cortex-m4"
MOST_CODE = 12 * 1024


def keyword_network() -> tuple[Any, dict[str, Any]]:
    """A convolution, a pool and a classifier of twelve words."""
    data = relay.var("data", shape=(1, 1, 49, 10))
    conv = relay.nn.conv2d(data, relay.var("w1", shape=(16, 1, 3, 3)), padding=(1, 1), channels=16,
                           kernel_size=(3, 3))
    pooled = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(relay.nn.relu(conv)))
    out = relay.nn.softmax(relay.nn.dense(pooled, relay.var("w2", shape=(12, 16))))
    rng = np.random.default_rng(0)
    shapes = {"w1": (16, 1, 3, 3), "w2": (12, 16)}
    params = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    return tvm.IRModule.from_expr(out), params


def toolchains() -> list[str]:
    """The compilers that are there."""
    found = {"gcc": shutil.which("arm-none-eabi-gcc"), "zig": importlib.util.find_spec("ziglang")}
    return [name for name, where in found.items() if where]


def measure() -> list[Row]:
    """Every row of the table."""
    mod, params = keyword_network()
    interface = {"unpacked-api": True, "interface-api": "c"}
    with tvm.transform.PassContext(opt_level=3, config={"tir.disable_vectorize": True}):
        program = relay.build(mod, target=TARGET, params=params, runtime=Runtime("crt"),
                              executor=Executor("aot", interface))
    rows = []
    for toolchain in toolchains():
        found = sizes(program, "cortex-m4", toolchain)
        beside = f"{sum(found.libraries.values())} of libraries, weights {found.weights}"
        where = f"keyword network on Cortex-M4, {toolchain} -Os"
        rows += [
            Row(f"{where}: code", found.code, "bytes", MOST_CODE, True, beside),
            Row(f"{where}: runtime", found.runtime, "bytes", 0, True, "there is none"),
            Row(f"{where}: RAM", found.ram, "bytes", float("inf"), True, "with inputs and outputs"),
        ]
    return rows


if __name__ == "__main__":
    sys.exit(show_rows("Networks as firmware", measure(), "--markdown" in sys.argv[1:]))
