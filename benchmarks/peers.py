"""Inference engines under one face: a model file and its inputs in, a function that runs it out.

Each is imported when it is asked for; `pip install onnxruntime openvino MNN` brings the peers.
"""

import importlib.metadata
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sterna.model.bench import onnxruntime_runner

Arrays = Mapping[str, Any]
Runner = Callable[[], list[Any]]


def sterna(path: Path, inputs: Arrays, threads: int) -> Runner:
    """Ours; the number of threads comes from the environment, which the caller sets."""
    import sterna

    model = sterna.compile(path)
    return lambda: list(model.run(inputs).values())


def onnxruntime(path: Path, inputs: Arrays, threads: int) -> Runner:
    """ONNX Runtime's CPU provider."""
    return onnxruntime_runner(path, inputs, threads)


def openvino(path: Path, inputs: Arrays, threads: int) -> Runner:
    """OpenVINO in float32, set for latency."""
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = openvino.Core().compile_model(path, "CPU", settings).create_infer_request()
    feeds = dict(inputs)
    return lambda: list(request.infer(feeds).values())


def mnn(path: Path, inputs: Arrays, threads: int) -> Runner:
    """MNN, whose own converter reads the file."""
    import MNN.expr
    import MNN.nn
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    outputs = [output.name for output in graph.output]
    converted = Path(tempfile.mkdtemp()) / "model.mnn"
    subprocess.run(
        [Path(sys.executable).with_name("mnnconvert"), "-f", "ONNX", "--modelFile", path,
         "--MNNModel", converted, "--bizCode", "benchmark"],
        check=True, capture_output=True,
    )  # fmt: skip
    settings = {"backend": 0, "numThread": threads, "precision": "high"}
    manager = MNN.nn.create_runtime_manager((settings,))
    net = MNN.nn.load_module_from_file(
        str(converted), list(inputs), outputs, runtime_manager=manager
    )

    def place(array: Any) -> Any:
        whole = array.dtype == np.int64
        value = array.astype(np.int32) if whole else array
        kind = MNN.expr.int if whole else MNN.expr.float
        held = MNN.expr.placeholder(list(array.shape), MNN.expr.NCHW, kind)
        held.write(value)
        return held

    def run() -> list[Any]:
        results = net.forward([place(array) for array in inputs.values()])
        return [np.array(r.read()) for r in (results if isinstance(results, list) else [results])]

    return run


PEERS = {"onnxruntime": onnxruntime, "openvino": openvino, "mnn": mnn}
PACKAGES = {"onnxruntime": "onnxruntime", "openvino": "openvino", "mnn": "MNN"}


def installed() -> dict[str, str]:
    """The peers that are here, and their versions."""
    found = {}
    for name, package in PACKAGES.items():
        try:
            found[name] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
