"""On a machine with an NVIDIA GPU: single layers beside a CUDA graph of eager PyTorch, in turns.

    python benchmarks/gpu_layers.py [PART OF A NAME ...] [--precision KIND] [--workers N]

A ratio above 1 says that Sterna leads. All numbers are random. Workers compile the layers first.
"""

import argparse
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import torch
from gpu_contest import Run, graphed, microseconds
from gpu_contest_layers import Layer
from gpu_uncommon_layers import UNCOMMON
from gpu_usual_layers import USUAL

import sterna

LAYERS = {**USUAL, **UNCOMMON}
TIMES = 7


def compiled(made: Layer) -> Run:
    """A layer, called on tensors of the GPU."""
    module, inputs = made
    model = sterna.compile(module, inputs, target="cuda")
    there = [each.cuda() for each in inputs]
    return lambda: model(*there)


def built(name: str, precision: str) -> Layer:
    """A layer of numbers of one width."""
    torch.manual_seed(0)
    module, inputs = LAYERS[name]()
    narrow = getattr(torch, precision)
    given = tuple(x.to(narrow) if x.is_floating_point() else x for x in inputs)
    return module.eval().to(narrow), given


def difference(ours: Run, theirs: Run) -> float:
    """How far two results are apart, beside the size of one."""
    found, wanted = torch.from_dlpack(ours()).double(), theirs().double()
    return float((found - wanted).norm() / wanted.norm().clamp(min=1e-30))


def race(name: str, precision: str) -> float:
    """Print how long a layer takes and how far Sterna leads; 0 where it does not run."""
    made = built(name, precision)
    began = time.perf_counter()
    try:
        ours = compiled(made)
        ours()
    except Exception as error:
        print(f"{name:44} failed: {type(error).__name__}: {str(error)[:200]}", flush=True)
        return 0
    took = time.perf_counter() - began
    module, there = made[0].cuda(), [each.cuda() for each in made[1]]
    theirs = graphed(lambda: module(*there))
    apart = difference(ours, lambda: module(*there))
    for run in (ours, theirs):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    pairs = [[microseconds(run, 20) for run in (ours, theirs)] for _ in range(TIMES)]
    own, other = (float(statistics.median(each)) for each in zip(*pairs, strict=True))
    print(f"{name:44} {other / own:5.2f}  sterna {own:8.1f} us  torch {other:8.1f} us  "
          f"apart {apart:.0e}  compiled in {took:.1f} s", flush=True)
    return other / own


def compile_some(names: Sequence[str], precision: str, part: int, parts: int) -> None:
    """What a worker does: every so many-th layer goes into the cache of kernels."""
    for name in names[part::parts]:
        try:
            module, inputs = built(name, precision)
            sterna.compile(module, inputs, target="cuda")
        except Exception as error:
            print(f"{name}: {type(error).__name__}", flush=True)


def main() -> None:
    """Race what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="PART OF A NAME")
    parser.add_argument("--precision", default="bfloat16",
                        choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this machine has no NVIDIA GPU that PyTorch sees; nothing is measured")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    names = [name for name in LAYERS if not args.names or any(part in name for part in args.names)]
    unknown = [part for part in args.names if not any(part in name for name in LAYERS)]
    if unknown:
        parser.error(f"no layer has {', '.join(map(repr, unknown))} in its name")
    if args.part is not None:
        compile_some(names, args.precision, args.part, args.workers)
        return
    own = [sys.executable, *sys.argv, "--workers", str(args.workers)]
    workers = [subprocess.Popen([*own, "--part", str(part)]) for part in range(args.workers)]
    for worker in workers:
        worker.wait()
    with torch.inference_mode():
        ratios = [race(name, args.precision) for name in names]
    ran = [ratio for ratio in ratios if ratio]
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ran)) if ran else 0
    behind = sum(ratio < 0.9 for ratio in ratios)
    print(f"{args.precision}: geometric mean of {len(ran)}: {mean:.2f}; {behind} below 0.9; "
          f"{torch.cuda.get_device_name()}")


if __name__ == "__main__":
    main()
