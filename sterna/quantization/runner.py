"""Runs an ONNX model on samples, compiled for this machine."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from onnx import ModelProto

from sterna.driver.relay_build import build
from sterna.frontend.onnx.importer import from_onnx
from sterna.relay.arrays import Array
from sterna.runtime import cpu
from sterna.runtime.graph_executor import GraphModule

Sample = Mapping[str, Array]
NATIVE = "llvm -mcpu=native"


class Runner:
    """A compiled model that gives its outputs by name."""

    def __init__(self, model: ModelProto, sample: Sample) -> None:
        self.outputs = [entry.name for entry in model.graph.output]
        shapes = {name: value.shape for name, value in sample.items()}
        module, params = from_onnx(model, shapes)
        built = build(module, NATIVE, params=params)
        self.module = GraphModule(built["default"](cpu()))

    def __call__(self, sample: Sample) -> dict[str, Array]:
        """The outputs for one sample."""
        for name, value in sample.items():
            self.module.set_input(name, value)
        self.module.run()
        return {
            name: self.module.get_output(place).numpy()
            for place, name in enumerate(self.outputs)
        }

    def over(self, samples: Iterable[Sample]) -> Iterator[dict[str, Array]]:
        """The outputs for each sample."""
        for sample in samples:
            yield self(sample)


def expect_finite(outputs: Mapping[str, Array]) -> None:
    """Refuse tensors that no range holds."""
    for name, value in outputs.items():
        if value.dtype.kind == "f" and not np.all(np.isfinite(value)):
            raise ValueError(
                f"tensor '{name}' is not finite everywhere when the float model runs on the "
                "samples; look at these and at the model before it is quantised"
            )
