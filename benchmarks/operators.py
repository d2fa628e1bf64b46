"""What a model's operators reach of the machine's limits, by class.

    python benchmarks/operators.py MODEL.onnx... [--markdown]

A class is an operator and the way its schedule computes it. The limit of a kernel is the longest of
its arithmetic at the measured rate of multiply-adds, its bytes at that of copies and reads of as
many, and its weights at that of reads of as many bytes as the whole model's weights have; exp,
sigmoid and tanh count by the instructions that they need at the least. Winograd's way saves
arithmetic, which is counted as if it did not: it may pass the limit.
"""

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rows import show

import sterna
from sterna.model import CompiledModel

HEAD = ("model", "class", "kernels", "ms", "share of the time", "GFLOP/s", "share of the limit")

# How a schedule computes, which its explanation begins with: direct, Winograd F(4, 3).
WAY = re.compile(r"[^,(]+(\([^)]*\))?")


@dataclass
class OperatorClass:
    """What the kernels of one class take together, in a run of a model."""

    kernels: int = 0
    seconds: float = 0.0
    flops: int = 0
    least: float = 0.0
    """Seconds at the machine's limits."""


def classes_of(model: CompiledModel, repeat: int = 20) -> dict[str, OperatorClass]:
    """The classes of a model's operators, those that take longest first."""
    names = {}
    for kernel in model.report().kernels:
        way = WAY.match(kernel.choices.get("schedule", ""))
        names[kernel.name] = ", ".join([kernel.anchor, *([way[0].strip()] if way else [])])
    times = model.profile(repeat=repeat)
    found: dict[str, OperatorClass] = defaultdict(OperatorClass)
    for node in times.nodes:
        held = found[names.get(node.function, "others")]
        held.kernels += 1
        held.seconds += node.seconds
        held.flops += node.flops or 0
        held.least += (times.share_of_bound(node) or 0.0) * node.seconds
    return dict(sorted(found.items(), key=lambda item: -item[1].seconds))


def measure(paths: Sequence[Path], least_share: float = 0.01) -> list[tuple[str, ...]]:
    """The rows of the table; classes that take next to nothing are left out."""
    lines: list[tuple[str, ...]] = []
    for path in paths:
        found = classes_of(sterna.compile(path))
        whole = sum(held.seconds for held in found.values())
        for name, held in found.items():
            if held.seconds < least_share * whole:
                continue
            lines.append((
                path.stem, name, str(held.kernels), f"{held.seconds * 1e3:.2f}",
                f"{held.seconds / whole:.0%}", f"{held.flops / held.seconds * 1e-9:.0f}",
                f"{held.least / held.seconds:.0%}",
            ))
    return lines


def main() -> int:
    """Profile the models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    show("Operators", HEAD, measure(options.models), options.markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
