"""Contractions with one extent that only the run counts, beside the kernel compiled for each size.

    python benchmarks/open_rows.py [--only dense conv_batch] [--most 4096]

Both are programs of the virtual machine, which are called in turns at one thread; the least CPU
time of the turns counts. Sizes whose closed kernel is more than a tenth faster are marked.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import sterna
from sterna.runtime import set_num_threads
from sterna.runtime.vm import VirtualMachine

SIZES = (1, 2, 3, 7, 16, 33, 64, 128, 333, 512, 1024, 4096)
relay: Any = sterna.relay
nn: Any = relay.nn
RNG = np.random.default_rng(0)
# Seconds for which a size is timed, and the least number of turns.
LONG, TURNS = 0.25, 3


@dataclass(frozen=True)
class Case:
    """A contraction; "n" is the open extent in its operands' shapes."""

    inputs: tuple[tuple[int | str, ...], ...]
    weights: tuple[tuple[int, ...], ...]
    body: Callable[..., Any]
    most: int = 4096
    dtype: str = "float32"


def _conv(size: int, *, rank: int = 2, **options: Any) -> Callable[..., Any]:
    padding, window = (size // 2,) * rank, (size,) * rank
    call = {1: nn.conv1d, 2: nn.conv2d}[rank]
    return lambda x, w: call(x, w, padding=padding, kernel_size=window, **options)


_nn = partial(nn.batch_matmul, transpose_b=False)
CASES = {
    "dense": Case((("n", 512),), ((512, 512),), nn.dense),
    "wide_dense": Case((("n", 768),), ((3072, 768),), nn.dense, 1024),
    "dense_bytes": Case((("n", 512),), ((512, 512),), partial(nn.dense, out_dtype="int32"),
                        dtype="int8"),
    "matrices": Case((("n", 64, 64), ("n", 64, 64)), (), nn.batch_matmul, 512),
    "rows_of_matrices": Case(((8, "n", 64), (8, 64, 64)), (), nn.batch_matmul),
    "scores": Case(((12, "n", 64), (12, "n", 64)), (), nn.batch_matmul, 1024),
    "weighted": Case(((12, "n", "n"), (12, "n", 64)), (), _nn, 1024),
    "scores_of_one": Case(((12, 1, 64), (12, "n", 64)), (), nn.batch_matmul),
    "weighted_of_one": Case(((12, 1, "n"), (12, "n", 64)), (), _nn),
    "conv_batch": Case((("n", 64, 28, 28),), ((64, 64, 3, 3),), _conv(3), 64),
    "pointwise_batch": Case((("n", 128, 28, 28),), ((128, 128, 1, 1),), _conv(1), 64),
    "depthwise_batch": Case((("n", 128, 28, 28),), ((128, 1, 3, 3),), _conv(3, groups=128), 64),
    "conv_bytes_batch": Case((("n", 64, 28, 28),), ((64, 64, 3, 3),),
                             _conv(3, out_dtype="int32"), 64, "int8"),
    "conv_image": Case(((1, 32, "n", "n"),), ((32, 32, 3, 3),), _conv(3), 333),
    "pointwise_image": Case(((1, 64, "n", "n"),), ((64, 64, 1, 1),), _conv(1), 333),
    "strided_image": Case(((1, 16, "n", "n"),), ((32, 16, 3, 3),), _conv(3, strides=(2, 2)), 333),
    "depthwise_image": Case(((1, 64, "n", "n"),), ((64, 1, 3, 3),), _conv(3, groups=64), 333),
    "conv_rows": Case(((1, 32, "n", 64),), ((32, 32, 3, 3),), _conv(3), 1024),
    "conv_bytes_image": Case(((1, 32, "n", "n"),), ((32, 32, 3, 3),),
                             _conv(3, out_dtype="int32"), 333, "int8"),
    "conv_steps": Case(((1, 64, "n"),), ((64, 64, 3),), _conv(3, rank=1)),
    "depthwise_steps": Case(((1, 64, "n"),), ((64, 1, 5),), _conv(5, rank=1, groups=64)),
}


def main() -> None:
    """Print the closed kernel's time as a part of the open one's, for each size."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    options.add_argument("--most", type=int, default=4096, help="the largest size")
    given = options.parse_args()
    set_num_threads(1)
    for name in given.only:
        case = CASES[name]
        weights = [_drawn(shape, case.dtype) for shape in case.weights]
        opened = _machine(case, relay.Any("n"), weights)
        told = []
        for size in (n for n in SIZES if n <= min(case.most, given.most)):
            ours, theirs = _timed(case, size, opened, _machine(case, size, weights))
            mark = "*" if theirs < 0.9 * ours else " "
            told.append(f"{size}: {theirs / ours:.2f}{mark}({ours * 1e6:.0f} us)")
        print(f"{name:18}", " ".join(told), flush=True)


def _timed(
    case: Case, size: int, opened: VirtualMachine, closed: VirtualMachine
) -> tuple[float, float]:
    data = [sterna.nd.array(_drawn(_sized(each, size), case.dtype)) for each in case.inputs]
    calls = [partial(machine.run, *data) for machine in (opened, closed)]
    found, wanted = (call().numpy() for call in calls)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-2)
    best, turns, begin = [float("inf")] * 2, 0, time.perf_counter()
    while turns < TURNS or time.perf_counter() - begin < LONG:
        turns += 1
        for place, call in enumerate(calls):
            start = time.thread_time()
            call()
            best[place] = min(best[place], time.thread_time() - start)
    return best[0], best[1]


def _sized(shape: tuple[int | str, ...], size: Any) -> tuple[Any, ...]:
    return tuple(size if extent == "n" else extent for extent in shape)


def _drawn(shape: tuple[Any, ...], dtype: str) -> Any:
    if dtype == "int8":
        return RNG.integers(-100, 100, shape).astype(dtype)
    return RNG.standard_normal(shape).astype(dtype)


def _machine(case: Case, size: Any, weights: list[Any]) -> VirtualMachine:
    inputs = [
        relay.var(f"x{place}", shape=_sized(shape, size), dtype=case.dtype)
        for place, shape in enumerate(case.inputs)
    ]
    held = [
        relay.var(f"w{place}", shape=shape, dtype=case.dtype)
        for place, shape in enumerate(case.weights)
    ]
    body = nn.relu(case.body(*inputs, *held))
    module = sterna.IRModule.from_expr(relay.Function([*inputs, *held], body))
    params = {f"w{place}": weight for place, weight in enumerate(weights)}
    return VirtualMachine(relay.vm.compile(module, "llvm -mcpu=native", params=params),
                          sterna.cpu())


if __name__ == "__main__":
    main()
