"""Dense layers whose rows only the run counts, beside the kernel compiled for each number of rows.

    python benchmarks/open_rows.py [--depth 512] [--units 512]
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import sterna
from sterna.runtime.vm import VirtualMachine

SIZES = (1, 2, 7, 16, 33, 64, 128, 333, 1024, 4096)
relay: Any = sterna.relay


def main() -> None:
    """Print both times for each number of rows."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--depth", type=int, default=512)
    options.add_argument("--units", type=int, default=512)
    given = options.parse_args()
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((given.units, given.depth)).astype("float32")
    opened = _machine(relay.Any(), weight)
    print("  rows  open (us)  closed (us)  closed / open")
    for rows in SIZES:
        data = sterna.nd.array(rng.standard_normal((rows, given.depth)).astype("float32"))
        closed = _machine(rows, weight)
        np.testing.assert_allclose(
            opened.run(data).numpy(), closed.run(data).numpy(), rtol=1e-3, atol=1e-3
        )
        turns = max(8, min(300, 3000 // rows))
        ours, theirs = _in_turns(partial(opened.run, data), partial(closed.run, data), turns)
        print(f"{rows:6} {ours * 1e6:10.0f} {theirs * 1e6:12.0f} {theirs / ours:14.2f}")


def _machine(rows: Any, weight: Any) -> VirtualMachine:
    units, depth = weight.shape
    x, w = relay.var("x", shape=(rows, depth)), relay.var("w", shape=(units, depth))
    module = sterna.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
    made = relay.vm.compile(module, "llvm -mcpu=native", params={"w": weight})
    return VirtualMachine(made, sterna.cpu())


def _in_turns(
    one: Callable[[], object], other: Callable[[], object], turns: int
) -> tuple[float, float]:
    best = [float("inf")] * 2
    for _ in range(turns):
        for place, call in enumerate((one, other)):
            start = time.perf_counter()
            call()
            best[place] = min(best[place], time.perf_counter() - start)
    return best[0], best[1]


if __name__ == "__main__":
    main()
