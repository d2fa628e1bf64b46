"""Single layers of well-known networks beside the fastest of other engines.

    python benchmarks/layers.py [--only CLASS/NAME] [--threads 1 2] [--json FILE [--resume]]
    python benchmarks/layers.py --random 300 --seed 7

Layers that nobody tuned for, from the shape lists of networks that people use: float32 and bytes, a
batch of one and of eight, constant and free weights. A time is the best turn's median, a ratio the
fastest peer's time over ours. The bound is the least time that the machine allows for the layer's
arithmetic and its data, as a share of our time. --random draws further layers over the same classes
by a seed. Layers of bytes are held against the same model run operator by operator, without fused
kernels; a peer that differs from it, as pairs of bytes saturate in 16 bits, is shown and does not
count. Exits with 1 when a result of ours differs or a layer cannot be compiled.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
from layer_list.every import LAYERS
from layer_list.layer import Layer
from layer_list.sample import sample
from timing_run import Task, add_options, check_options, run


def task_of(layer: Layer) -> Task:
    """A layer to be timed; its model is made when its turn comes."""
    def make(folder: Path) -> tuple[Path, Mapping[str, Any]]:
        model, inputs = layer.build()
        path = folder / "layer.onnx"
        onnx.save(model, path)
        return path, inputs

    return Task(layer.key, layer.kind, str(layer.variant), layer.variant.quantised, make)


def main() -> int:
    """Choose layers and time them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--random", type=int, metavar="N", help="draw N layers at random instead")
    parser.add_argument("--seed", type=int, default=0, help="of the drawing")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    options = parser.parse_args()
    check_options(parser, options)
    layers = LAYERS if options.random is None else sample(options.random, options.seed)
    if options.list:
        print("\n".join(layer.key for layer in layers))
        return 0
    title = "Layers" if options.random is None else f"Random layers of seed {options.seed}"
    return run([task_of(layer) for layer in layers], options, title)


if __name__ == "__main__":
    sys.exit(main())
