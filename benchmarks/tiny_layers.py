"""Instructions for a product, layer by layer, of quantised networks on microcontrollers.

    python benchmarks/tiny_layers.py MODEL.tflite [...] [--board=mps3_an547] [--counted=FOLDER]

`sterna micro --layers` counts them in QEMU; the products are those of the file, also where
channels that cannot matter are left out. A kernel of several layers counts for the first. On a
Cortex-M4 (mps2_an386) layers are held against what they may take, on a Cortex-M55 (mps3_an547)
against what CMSIS-NN takes for such a layer, by gcc 12.2 -O3. Counts are left in the folder that
--counted names, and taken from it if there. Networks that a board refuses are named, and why.
"""

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rows import Row, show_rows
from tiny_networks import Refused, sterna_micro

from sterna.frontend.tflite.schema import OperatorInfo, Subgraph, read_model

# Pointwise and dense layers of fewer channels were not counted with CMSIS-NN.
FEWEST = 32
LAYERS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")


@dataclass(frozen=True)
class Layer:
    """A layer of a file: what kind it is, what it reads for one result, and its products."""

    name: str
    kind: str
    depth: int
    products: int


def layer_of(graph: Subgraph, operator: OperatorInfo, is_first: bool) -> Layer:
    """What an operator of a file is."""
    out = graph.tensors[operator.outputs[0]]
    weight = graph.tensors[operator.inputs[1]].shape
    depth = math.prod(weight[1:])
    if operator.kind == "DEPTHWISE_CONV_2D":
        kind, depth = "depthwise", math.prod(weight[1:3])
    elif operator.kind == "FULLY_CONNECTED":
        kind = "dense"
    else:
        kind = "first" if is_first else "pointwise" if weight[1:3] == (1, 1) else "window"
    return Layer(out.name, kind, depth, math.prod(out.shape) * depth)


def bound_of(layer: Layer, board: str) -> float:
    """The instructions for a product that a layer may take."""
    if layer.depth < FEWEST and layer.kind == "dense":
        return math.inf
    if board == "mps2_an386":
        return {"first": 4.0, "depthwise": 4.0, "dense": 2.27}.get(layer.kind, 1.5)
    if board != "mps3_an547" or (layer.depth < FEWEST and layer.kind == "pointwise"):
        return math.inf
    if layer.kind == "pointwise":  # which takes the less the more there is to sum
        return 0.62 if layer.depth < 64 else 0.40 if layer.depth < 128 else 0.28
    if layer.kind == "window":
        return 0.39 if layer.depth < 9 * 64 else 0.21
    return {"first": 1.99, "depthwise": 2.32, "dense": 0.58}[layer.kind]


def counted(path: Path, board: str, folder: Path) -> list[dict[str, Any]]:
    """The instructions of each kernel of a network."""
    kept = folder / f"{board}-{path.stem}.json"
    if not kept.exists():
        kept.write_text(sterna_micro(path, board, "--layers"))
    rows: list[dict[str, Any]] = json.loads(kept.read_text())["layers"]
    return rows


def rows_of(path: Path, board: str, folder: Path) -> list[Row]:
    """What each layer of a network takes, beside what it may."""
    kernels = counted(path, board, folder)
    graph = read_model(path.read_bytes()).subgraphs[0]
    operators = [each for each in graph.operators if each.kind in LAYERS]
    rows = []
    for place, operator in enumerate(operators):
        layer = layer_of(graph, operator, place == 0)
        own = [kernel for kernel in kernels if kernel["layers"][:1] == [layer.name]]
        own = own or [kernel for kernel in kernels if layer.name in kernel["layers"]]
        if own:
            count = sum(kernel["instructions"] for kernel in own)
            rows.append(Row(
                f"{path.stem} {place}: {layer.kind}", count / layer.products, "per product",
                bound_of(layer, board), True, f"{layer.products} products"))
    return rows


def main(words: list[str]) -> int:
    """Count the layers of the networks that are named."""
    named = {word.partition("=")[0]: word.partition("=")[2] for word in words}
    board = named.get("--board", "mps2_an386")
    paths = [Path(word) for word in words if not word.startswith("--")]
    with TemporaryDirectory() as fresh:
        folder = Path(named.get("--counted", fresh))
        folder.mkdir(parents=True, exist_ok=True)
        rows = []
        for path in paths:
            try:
                rows += rows_of(path, board, folder)
            except Refused as refused:
                print(refused)
    return show_rows(f"Layers on {board}", rows, "--markdown" in words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
