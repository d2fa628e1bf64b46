"""Inference engines under one face: a model file and its inputs in, a function that runs it out.

Each is imported when it is asked for; `pip install onnxruntime openvino MNN` brings the peers. For
PyTorch `pip install --no-deps onnx2torch` beside torch: what onnx2torch asks for would bring
another torch.
"""

import importlib.metadata
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from sterna.model import CompiledModel, OpenModel
from sterna.model import compile as compile_model
from sterna.model.bench import onnxruntime_runner
from sterna.model.bounds import measure_bounds
from sterna.runtime.node_times import NodeTime

Arrays = Mapping[str, Any]
Runner = Callable[[], list[Any]]


@dataclass(frozen=True)
class Limits:
    """What one run of a model takes of the machine, and the least time that the machine allows."""

    least_seconds: float
    """The longest of its multiply-adds, its inputs and outputs, and its weights, at their rates."""
    kernel_seconds: float
    """What its kernels took, without the call."""
    kernels: int
    flops: int


class CompiledRunner:
    """Ours: a compiled model on its inputs, and what the machine allows it."""

    def __init__(self, model: CompiledModel, inputs: Arrays, threads: int) -> None:
        self.model, self.threads = model, threads
        self.inputs = {spec.name: inputs[spec.name] for spec in model.inputs}
        self.arguments = list(self.inputs.values())

    def __call__(self) -> list[Any]:
        results = self.model(*self.arguments)
        return list(results) if isinstance(results, tuple) else [results]

    def limits(self) -> Limits | None:
        """By the model as a whole: what passes between its kernels is no need of its own.

        None of a model whose run finds out shapes: how often its kernels run is not known before.
        """
        if isinstance(self.model, OpenModel):
            return None
        bounds = measure_bounds(self.threads)
        times = self.model.profile(repeat=3, bounds=False, inputs=self.inputs)
        written = sum(np.asarray(result).nbytes for result in self())
        held = sum(array.nbytes for array in self.model.weights.values())
        weights = min(held, sum(node.constant_bytes for node in times.nodes))
        read = sum(array.nbytes for array in self.arguments) + weights
        flops = sum(node.flops or 0 for node in times.nodes)
        computed = sum(bounds.seconds(replace(node, bytes=None)) or 0.0 for node in times.nodes)
        moved = NodeTime("model", "model", times.seconds, len(self.arguments), (), None,
                         read + written, weights, written)
        least = max(computed, bounds.seconds(moved, weights) or 0.0)
        return Limits(least, times.seconds, len(times.nodes), flops)


def sterna(path: Path, inputs: Arrays, threads: int) -> Runner:
    """Ours; the number of threads comes from the environment, which the caller sets.

    Shapes that the file leaves open are those of the inputs. Single numbers, such as a sampling
    rate, are fixed: branches on them fold.
    """
    shapes = {name: array.shape for name, array in inputs.items()}
    fixed = {name: inputs[name] for name, shape in shapes.items() if shape == ()} or None
    given = shapes if _is_open(path) else None
    return CompiledRunner(compile_model(path, shapes=given, fixed=fixed), inputs, threads)


def _is_open(path: Path) -> bool:
    """Whether a file leaves dimensions of its inputs open."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    kinds = [value.type.tensor_type for value in graph.input]
    return any(dim.dim_value < 1 for kind in kinds for dim in kind.shape.dim)


def onnxruntime(path: Path, inputs: Arrays, threads: int) -> Runner:
    """ONNX Runtime's CPU provider."""
    return onnxruntime_runner(path, inputs, threads)


def unfused(path: Path, inputs: Arrays) -> list[Any]:
    """What a model gives operator by operator, of bytes too as floats: no engine fuses them.

    Processors without dot products of bytes add pairs of these in 16 bits, which saturate, in the
    fused kernels of ONNX Runtime and of OpenVINO: those are no reference.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    results: list[Any] = session.run(None, dict(inputs))
    return results


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
    """MNN, whose own converter reads the file.

    The converter is called without the script around it, which would install a package and send
    what it converted to its makers.
    """
    import _tools
    import MNN.expr
    import MNN.nn
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    outputs = [output.name for output in graph.output]
    converted = Path(tempfile.mkdtemp()) / "model.mnn"
    _tools.mnnconvert([
        "mnnconvert", "-f", "ONNX", "--modelFile", str(path), "--MNNModel", str(converted),
        "--bizCode", "benchmark",
    ])
    if not converted.is_file():
        raise ValueError("its converter does not take the model")
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


def torch(path: Path, inputs: Arrays, threads: int) -> Runner:
    """PyTorch on what onnx2torch makes of the file, eager or compiled: whichever is faster."""
    import torch
    import torch._inductor.config

    if importlib.util.find_spec("torchvision") is None:
        _stand_in_for_torchvision()
    import onnx2torch

    torch.set_num_threads(threads)
    torch._inductor.config.freezing = True  # weights are constants, packed once
    net = onnx2torch.convert(path).eval()
    feeds = [torch.from_numpy(array) for array in inputs.values()]

    def runner(call: Callable[..., Any]) -> Runner:
        def run() -> list[Any]:
            with torch.no_grad():
                results = call(*feeds)
            return [r.numpy() for r in (results if isinstance(results, tuple) else (results,))]

        return run

    eager, compiled = runner(net), runner(torch.compile(net))
    try:
        compiled()
    except Exception as error:
        told = str(error).splitlines()[0]
        print(f"{path.stem}: torch runs eager, as it cannot compile it: {told}", file=sys.stderr)
        return eager
    return min(eager, compiled, key=_seconds)


def _stand_in_for_torchvision() -> None:
    """onnx2torch imports torchvision for its converters of boxes, and for nothing else."""
    whole, ops = ModuleType("torchvision"), ModuleType("torchvision.ops")
    vars(whole)["ops"], vars(ops)["roi_align"] = ops, None
    sys.modules.update({"torchvision": whole, "torchvision.ops": ops})


def _seconds(run: Runner, number: int = 5) -> float:
    """Of the best of some runs, after two that prepare."""
    best = float("inf")
    for turn in range(2 + number):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start if turn >= 2 else best)
    return best


# What must be installed for each peer, first the one whose version tells.
PACKAGES = {
    "onnxruntime": ["onnxruntime"],
    "openvino": ["openvino"],
    "mnn": ["MNN"],
    "torch": ["torch", "onnx2torch"],
}


def installed() -> dict[str, str]:
    """The peers that are here, and their versions."""
    found = {}
    for name, packages in PACKAGES.items():
        try:
            versions = [importlib.metadata.version(package) for package in packages]
        except importlib.metadata.PackageNotFoundError:
            continue
        found[name] = versions[0]
    return found
