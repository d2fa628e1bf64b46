"""Random networks of ONNX, compiled at all levels for targets at hand, against ONNX Runtime."""

import base64
import importlib.util
import shutil
from typing import Any

import numpy as np
import onnx
import onnx.checker

from sterna.model import compile as compile_model
from sterna.support.errors import OpNotImplemented
from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.fuzzers._draw_network import Network, draw_network
from sterna.testing.fuzz.tape import Tape

LEVELS = (3, 4, 2, 1, 0)
TOLERANCE = 1e-3
SHIFT = 1e-5
STEEP = 200.0


def targets() -> tuple[str, ...]:
    """What can be compiled and run here."""
    return ("llvm -mcpu=native", "llvm", *(("c",) if shutil.which("cc") else ()))


class Networks(Fuzzer):
    """Numbers equal to those of another runtime, whatever was optimized."""

    name = "networks"
    about = "random networks at all levels and targets, held against ONNX Runtime"
    seconds = 120.0
    memory = None  # ONNX Runtime reserves more than it uses

    def missing(self) -> str | None:
        """ONNX Runtime is no dependency."""
        found = importlib.util.find_spec("onnxruntime")
        return None if found else "needs the package onnxruntime"

    def check(self, tape: Tape) -> str:
        """Draw one, compile it and compare."""
        level, target = tape.choice(LEVELS), tape.choice(targets())
        network = draw_network(tape)
        onnx.checker.check_model(network.model, full_check=True)
        data = network.model.SerializeToString()
        wanted, near = reference(data, network.inputs), reference(data, shifted(network.inputs))
        try:
            model = compile_model(data, target, opt_level=level)
        except OpNotImplemented:
            return "not implemented"
        for name, array in model.run(network.inputs).items():
            compare(name, array, wanted[name], near[name], _shown(network, level, target))
        return f"level {level}"

    def program(self, values: list[int], error: str) -> str:
        """The model as bytes, and both results."""
        tape = Tape(values=values)
        level, target = tape.choice(LEVELS), tape.choice(targets())
        network = draw_network(tape)
        data = base64.b64encode(network.model.SerializeToString()).decode()
        comment = "\n".join(f"# {line}" for line in _shown(network, level, target).splitlines())
        arrays = {name: (each.tolist(), str(each.dtype)) for name, each in network.inputs.items()}
        return (
            f"{comment}\nimport base64\nimport numpy as np, onnxruntime, sterna\n\n"
            f"data = base64.b64decode({data!r})\n"
            f"inputs = {{n: np.array(v, t) for n, (v, t) in {arrays!r}.items()}}\n"
            "for name, got in "
            f"sterna.compile(data, {target!r}, opt_level={level}).run(inputs).items():\n"
            "    session = onnxruntime.InferenceSession(data)\n"
            "    print(name, got, session.run([name], inputs)[0], sep='\\n')\n"
        )


def reference(data: bytes, inputs: dict[str, Any]) -> dict[str, Any]:
    """What ONNX Runtime gives, without its own rewriting."""
    onnxruntime = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def shifted(inputs: dict[str, Any]) -> dict[str, Any]:
    """Inputs that are nearly the same: where results differ for them, few digits count."""
    rng = np.random.default_rng(1)
    return {
        name: (array * (1 + SHIFT * rng.choice([-1.0, 1.0], array.shape))).astype(array.dtype)
        if array.dtype.kind == "f" else array
        for name, array in inputs.items()
    }


def compare(name: str, got: Any, want: Any, near: Any, what: str) -> None:
    """Equal numbers; nothing is asked where a result jumps for nearly equal inputs."""
    assert got.dtype == want.dtype and got.shape == want.shape, (
        f"{name} is {got.dtype}{got.shape}, not {want.dtype}{want.shape}, of\n{what}"
    )
    x, y, z = (np.asarray(part).astype(np.float64) for part in (got, want, near))
    with np.errstate(invalid="ignore", over="ignore"):
        scale = max(1.0, float(np.max(np.abs(y)[np.isfinite(y)], initial=0.0)))
        bad = np.abs(x - y) > TOLERANCE * scale + STEEP * np.abs(y - z)
    bad |= np.isnan(x) != np.isnan(y)
    bad |= (np.isinf(x) | np.isinf(y)) & (x != y) & ~(np.isnan(x) & np.isnan(y))
    bad &= np.isfinite(y) == np.isfinite(z)
    assert not bad.any(), (
        f"{name} has {int(bad.sum())} of {bad.size} wrong numbers, {x[bad][:5]} for {y[bad][:5]}, "
        f"of\n{what}"
    )


def _shown(network: Network, level: int, target: str) -> str:
    return f"level {level} for {target}\n{onnx.printer.to_text(network.model.graph)[:4000]}"


FUZZER = Networks()
