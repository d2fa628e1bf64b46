"""Networks of PyTorch beside eager mode and Inductor: torch.compile(backend="sterna").

    python benchmarks/torch_networks.py [--only resnet18] [--threads 1 2] [--turns 5] [--eight]

Thirteen networks with random weights are run by PyTorch as they are, by torch.compile with Inductor
and with Sterna, in turns in one process; the least time of the turns counts, at one thread that of
the processor, which other programs do not lengthen. --eight runs those eight that are compiled
soonest, in some minutes on two cores. The networks are written in torch alone.

The time of compiling is the CPU time that the first call took, with the compilers that it started.
Nothing comes from a cache: those of both are off, and Inductor starts its compilers itself and not
by helpers that go on, whose time nobody would count. Dynamo hands recurrent layers to compilers
only when it is told to, as here. Exits with 1 when a result differs by more than 1e-4 of the
largest, or a network is slower than the best of the others.
"""

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch._inductor.config as inductor
from torch_modules import NETWORKS

from sterna.contrib.torch_compile import sterna
from sterna.runtime import set_num_threads

BACKENDS = ("eager", "inductor", "sterna")
EIGHT = ("resnet18", "mobilenet_v2", "efficientnet_b0", "densenet_blocks", "gpt2_blocks",
         "convnext_tiny", "unet", "lstm")
# How far results may be from those of eager mode, of the largest of them.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Row:
    """What came of a network: seconds of a run, and CPU seconds of compiling, by backend."""

    name: str
    threads: int
    seconds: dict[str, float]
    compiling: dict[str, float]
    error: float

    @property
    def gain(self) -> float:
        """How many times faster it is than the faster of the others."""
        others = [self.seconds[name] for name in BACKENDS[:2]]
        return min(others) / self.seconds["sterna"]

    def told(self) -> str:
        """A line for people."""
        times = "  ".join(f"{name} {self.seconds[name] * 1e3:8.2f} ms" for name in BACKENDS)
        return (
            f"{self.name:16} {self.threads} threads  {times}  {self.gain:5.2f} x  compiling "
            f"{self.compiling['sterna']:.1f} s, {self.share:.2f} of Inductor's, "
            f"error {self.error:.0e}"
        )

    @property
    def share(self) -> float:
        """The time of compiling, of Inductor's."""
        return self.compiling["sterna"] / max(self.compiling["inductor"], 1e-9)


def run_network(name: str, threads: int, turns: int) -> Row:
    """One network by all backends in turns."""
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    set_num_threads(threads)
    torch._dynamo.reset()
    torch._dynamo.config.allow_rnn = True
    clock = time.process_time if threads == 1 else time.perf_counter
    make, draw = NETWORKS[name]
    model, x = make().eval(), draw()
    runs: dict[str, Callable[..., Any]] = {
        "eager": model,
        "inductor": torch.compile(model, backend="inductor"),
        "sterna": torch.compile(model, backend=sterna),
    }
    compiling, results = {}, {}
    with torch.no_grad():
        for each, call in runs.items():
            start = time.process_time() + _children()
            results[each] = call(x)
            compiling[each] = time.process_time() + _children() - start
        seconds = {each: float("inf") for each in runs}
        for _ in range(turns):
            for each, call in runs.items():
                start = clock()
                call(x)
                seconds[each] = min(seconds[each], clock() - start)
    wanted = results["eager"]
    error = float((results["sterna"] - wanted).abs().max() / wanted.abs().max())
    return Row(name, threads, seconds, compiling, error)


def _children() -> float:
    """CPU seconds of the processes that compilers start."""
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(words: Sequence[str] | None = None) -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--eight", action="store_true", help="the eight that are compiled soonest")
    given = parser.parse_args(words)
    warnings.simplefilter("ignore")
    os.environ["STERNA_CACHE"] = "off"
    inductor.force_disable_caches = True
    inductor.compile_threads = 1
    rows = []
    for threads in given.threads:
        own = []
        for name in EIGHT if given.eight else given.only:
            own.append(run_network(name, threads, given.turns))
            print(own[-1].told(), flush=True)
        gains = [row.gain for row in own]
        print(
            f"{threads} threads: median {statistics.median(gains):.2f} x, least {min(gains):.2f} x,"
            f" compiling {statistics.median(row.share for row in own):.2f} of Inductor's",
            flush=True,
        )
        rows += own
    return 1 if any(row.gain < 1 or row.error > TOLERANCE for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
