"""Every ONNX file of a folder beside other engines.

    python benchmarks/model_files.py FOLDER [--inputs FOLDER] [--only NAME] [--threads 1 2]

Inputs come from NAME.npz of the second folder, by their names; those of other files are drawn at
random, with 1 for each dimension that the file leaves open. Exits with 1 when a result differs or a
network cannot be compiled.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from timing_run import Task, add_options, check_options, run

from sterna.relay.random_inputs import random_inputs

QUANTISED = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul")


@dataclass(frozen=True)
class Spec:
    """An input of a file."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def specs_of(graph: onnx.GraphProto) -> Iterable[Spec]:
    """The inputs that a caller brings."""
    weights = {value.name for value in graph.initializer}
    for value in graph.input:
        if value.name not in weights:
            held = value.type.tensor_type
            shape = tuple(max(dim.dim_value, 1) for dim in held.shape.dim)
            dtype = onnx.helper.tensor_dtype_to_np_dtype(held.elem_type)
            yield Spec(value.name, shape, str(dtype))


def task_of(path: Path, folder: Path, inputs: Path | None) -> Task:
    """A file to be timed."""
    graph = onnx.load(path, load_external_data=False).graph

    def make(graph: onnx.GraphProto, _: Path) -> tuple[Path, Mapping[str, Any]]:
        given = inputs / f"{path.stem}.npz" if inputs else None
        if given and given.is_file():
            with np.load(given) as arrays:
                return path, dict(arrays)
        return path, random_inputs(list(specs_of(graph)))

    key = str(path.relative_to(folder).with_suffix(""))
    quantised = any(node.op_type in QUANTISED for node in graph.node)
    kind = key.split("/")[0] if "/" in key else "model"
    return Task(key, kind, "int8" if quantised else "", quantised, partial(make, graph))


def main() -> int:
    """Find files and time them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="of the ONNX files, with those below it")
    parser.add_argument("--inputs", type=Path, metavar="FOLDER", help="of NAME.npz files")
    add_options(parser)
    parser.set_defaults(seconds=0.3)
    options = parser.parse_args()
    check_options(parser, options)
    files = sorted(options.folder.rglob("*.onnx"))
    if not files:
        parser.error(f"'{options.folder}' has no ONNX file")
    tasks = [task_of(path, options.folder, options.inputs) for path in files]
    return run(tasks, options, "Networks")


if __name__ == "__main__":
    sys.exit(main())
