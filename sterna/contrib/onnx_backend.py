"""Sterna behind ONNX's interface for backends: models go in as protobufs, arrays come out.

A model is compiled once, as sterna.compile does it, and called with all of its inputs.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from sterna.model.compile_model import compile as compile_model

TARGET = "llvm -mcpu=native"
OPT_LEVEL = 3


class SternaRep(BackendRep):
    """A model that runs on any inputs that it allows."""

    def __init__(self, model: ModelProto, target: str, opt_level: int) -> None:
        self.model = compile_model(model, target, opt_level=opt_level)
        weights = {tensor.name for tensor in model.graph.initializer}
        weights |= {sparse.values.name for sparse in model.graph.sparse_initializer}
        self.names = [entry.name for entry in model.graph.input if entry.name not in weights]
        self.tensors = {e.name for e in model.graph.input if e.type.HasField("tensor_type")}
        self.outputs = [entry.name for entry in model.graph.output]

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, by place and by name; inputs are a list or a dictionary by name."""
        given = self._by_name(inputs)
        found = self.model.run(given)
        return namedtupledict("Outputs", self.outputs)(*(_output(found, n) for n in self.outputs))

    def _by_name(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            named = dict(inputs)
        else:
            values = list(inputs) if isinstance(inputs, Sequence) else [inputs]
            if len(values) != len(self.names):
                raise ValueError(
                    f"the model has the inputs {', '.join(self.names) or 'none'}; "
                    f"{len(values)} were given"
                )
            named = dict(zip(self.names, values, strict=True))
        missing = [name for name in self.names if name not in named]
        if missing:
            raise ValueError(f"the model's inputs {', '.join(missing)} are missing")
        for name, value in named.items():
            if name not in self.names:
                raise ValueError(f"the model has no input '{name}', but {', '.join(self.names)}")
            if name in self.tensors and not isinstance(value, np.ndarray | np.generic):
                raise ValueError(f"input '{name}' is a {type(value).__name__}, not an array")
        return named


def _output(found: Mapping[str, Any], name: str) -> Any:
    """An output by its name; the parts of a sequence of known length have numbers."""
    if name in found:
        return found[name]
    places = itertools.takewhile(lambda i: f"{name}.{i}" in found, itertools.count())
    return [found[f"{name}.{place}"] for place in places]


class SternaBackend(Backend):
    """Compiles models for this machine's processor and runs them there."""

    @classmethod
    def prepare(
        cls, model: ModelProto, device: str = "CPU", target: str = TARGET,
        opt_level: int = OPT_LEVEL, **kwargs: Any,
    ) -> SternaRep:
        """A handle that runs the model."""
        if not cls.supports_device(device):
            raise ValueError(f"the backend runs models on CPU, not on '{device}'")
        onnx.checker.check_model(model)
        return SternaRep(model, target, opt_level)

    @classmethod
    def run_model(
        cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """What the model computes from these inputs."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """What one operator computes from its inputs, of which those it leaves out are not given.

        opset_version: by which operator set to read it; the newest one if it is not given.
        """
        names = [name for name in dict.fromkeys(node.input) if name]
        values = [np.asarray(value) for value in inputs]
        if len(values) != len(names):
            raise ValueError(
                f"node '{node.name}' ({node.op_type}) reads {', '.join(names) or 'nothing'}; "
                f"{len(values)} inputs were given"
            )
        entries = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in zip(names, values, strict=True)
        ]
        wanted = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = helper.make_graph([node], node.op_type, entries, wanted)
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid(node.domain, version)]
        )
        return cls.run_model(onnx.shape_inference.infer_shapes(model), values, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a device, "CPU" or such, can run models."""
        try:
            return bool(Device(device).type == DeviceType.CPU)
        except (AttributeError, ValueError):
            return False


prepare = SternaBackend.prepare
run_model = SternaBackend.run_model
run_node = SternaBackend.run_node
supports_device = SternaBackend.supports_device
