"""Models with more weights than a linker takes: what compiling and exporting them holds in memory.

    python benchmarks/large_weights.py [--layers 9] [--rows 8192] [--markdown]

The model's weights are zeros in a file with holes, which take no room on the disk; the library that
is written does. It is loaded and run. Peak memory may be at most 1.5 times the weights.
"""

import argparse
import resource
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from rows import Row, show_rows

import sterna

MOST = 1.5
GIGABYTE = 1e9


def write_model(folder: Path, layers: int, rows: int) -> Path:
    """A model of square matrices that lie in a file of their own."""
    size = rows * rows * 4
    weights = []
    for place in range(layers):
        tensor = TensorProto(
            name=f"w{place}", data_type=TensorProto.FLOAT, dims=(rows, rows),
            data_location=TensorProto.EXTERNAL,
        )
        for key, told in (("location", "weights"), ("offset", place * size), ("length", size)):
            tensor.external_data.add(key=key, value=str(told))
        weights.append(tensor)
    nodes = [helper.make_node("MatMul", ["x", f"w{n}"], [f"y{n}"]) for n in range(layers)]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, rows))]
    made = [helper.make_tensor_value_info(f"y{n}", TensorProto.FLOAT, (1, rows))
            for n in range(layers)]
    graph = helper.make_graph(nodes, "large", given, made, weights)
    path = folder / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    with open(folder / "weights", "wb") as file:
        file.truncate(layers * size)
    return path


def peak() -> int:
    """The most bytes that this process has had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(folder: Path, layers: int, rows: int) -> Row:
    """Compile, write, load and run it."""
    path, size, before = write_model(folder, layers, rows), layers * rows * rows * 4, peak()
    sterna.compile(path).export(folder / "large.so")
    taken = peak() - before
    results = sterna.load(folder / "large.so")(np.ones((1, rows), "float32"))
    if any(np.any(result) for result in results):
        raise SystemExit("the library computes something else than zeros")
    told = f"{size / GIGABYTE:.2f} GB of weights"
    return Row("peak memory of compiling and exporting", taken / size, "x", MOST, True, told)


def main() -> int:
    """Measure one model; 1 if it takes too much."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=9)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        row = measure(Path(name), args.layers, args.rows)
    return show_rows("Large weights", [row], args.markdown)


if __name__ == "__main__":
    raise SystemExit(main())
