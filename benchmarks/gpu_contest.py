"""On a machine with an NVIDIA GPU: products, attention and networks beside PyTorch, in turns.

    python benchmarks/gpu_contest.py [products] [small] [attention] [networks] [--precision KIND]

A ratio above 1 says that Sterna leads. PyTorch's side is a replayed CUDA graph, for networks also
torch.compile; all numbers are random. Only ratios of one run count: clocks move.
"""

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import sterna

Run = Callable[[], Any]

LARGE = ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 8192, 1024))
SMALL = (
    (49, 512, 4608), (49, 2048, 512), (196, 256, 2304), (196, 1024, 256), (784, 128, 1152),
    (3136, 64, 576), (128, 768, 768), (128, 3072, 768), (128, 768, 3072), (1, 4096, 4096),
)
ATTENTION = ((512, 64, False), (2048, 64, True), (2048, 128, False), (8192, 128, True))
NETWORKS = ("resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "vit_b_16")


class Attend(torch.nn.Module):  # type: ignore[misc]
    """Attention, with or without keys that come later."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


def graphed(run: Run) -> Run:
    """The same as one replay of a CUDA graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    replay: Run = graph.replay
    return replay


def microseconds(run: Run, repeat: int) -> float:
    """Of one call, by the device's clock."""
    first, last = torch.cuda.Event(True), torch.cuda.Event(True)
    first.record()
    for _ in range(repeat):
        run()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) * 1000 / repeat


def race(name: str, runs: Mapping[str, Run], repeat: int) -> float:
    """Print the median time of each, and how far Sterna leads the fastest other."""
    for run in runs.values():
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    times: dict[str, list[float]] = {who: [] for who in runs}
    for _ in range(9):
        for who, run in runs.items():
            times[who].append(microseconds(run, repeat))
    middle = {who: statistics.median(own) for who, own in times.items()}
    ratio = min(own for who, own in middle.items() if who != "sterna") / middle["sterna"]
    told = "  ".join(f"{who} {own:.1f} us" for who, own in middle.items())
    print(f"{name:44} {ratio:5.2f}  {told}", flush=True)
    return ratio


def compiled(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], precision: str) -> Run:
    """A module by way of ONNX, called on tensors of the GPU."""
    names = [f"x{place}" for place in range(len(inputs))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(module, inputs, str(path), input_names=names, dynamo=False)
        model = sterna.compile(path, target="cuda", precision=precision)
    there = [each.cuda() for each in inputs]
    return lambda: model(*there)


def beside(
    name: str, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], precision: str,
    repeat: int, compiles: bool = False,
) -> float:
    """Race a module."""
    ours = compiled(module.eval(), inputs, precision)
    narrow = getattr(torch, precision)
    there = module.to("cuda", narrow)
    given = [x.cuda() if x.dtype == torch.int64 else x.to("cuda", narrow) for x in inputs]
    with torch.inference_mode():
        runs: dict[str, Run] = {"sterna": ours, "torch": graphed(lambda: there(*given))}
        if compiles:
            fast = torch.compile(there, mode="reduce-overhead")
            runs["torch.compile"] = lambda: fast(*given)
        return race(f"{name} {precision}", runs, repeat)


def measure(what: str, precision: str) -> list[float]:
    """The ratios of one kind of work."""
    if what == "networks":
        import torchvision

        return [
            beside(name, getattr(torchvision.models, name)(), (torch.randn(1, 3, 224, 224),),
                   precision, 20, compiles=True)
            for name in NETWORKS
        ]
    if what == "attention":
        return [
            beside(f"attention {length} x {width}{' causal' if causal else ''}", Attend(causal),
                   tuple(torch.randn(1, 16, length, width) for _ in range(3)), precision, 10)
            for length, width, causal in ATTENTION
        ]
    return [
        beside(f"product {m} x {n} x {k}", torch.nn.Linear(k, n, bias=False),
               (torch.randn(m, k),), precision, 3 if what == "products" else 20)
        for m, n, k in (LARGE if what == "products" else SMALL)
    ]


def main() -> None:
    """Race what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", metavar="KIND",
                        help="products, small, attention, networks; all of them by default")
    parser.add_argument("--precision", default="bfloat16", choices=("bfloat16", "float32"))
    args = parser.parse_args()
    kinds = ("products", "small", "attention", "networks")
    unknown = sorted(set(args.what) - set(kinds))
    if unknown:
        parser.error(f"{', '.join(unknown)}: there are {', '.join(kinds)}")
    if not torch.cuda.is_available():
        sys.exit("this machine has no NVIDIA GPU that PyTorch sees; nothing is measured")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    ratios = [r for what in args.what or kinds for r in measure(what, args.precision)]
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
    print(f"geometric mean of {len(ratios)}: {mean:.2f}; {torch.cuda.get_device_name()}")


if __name__ == "__main__":
    main()
