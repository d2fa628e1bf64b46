"""Sterna behind ONNX's interface for backends: models go in as protobufs, arrays come out.

A model is compiled when it first sees inputs of some shapes, and again for others.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from sterna.driver.relay_build import build
from sterna.frontend.onnx.importer import import_for
from sterna.ir.module import OUTPUT_NAMES, IRModule
from sterna.ir.transform import PassContext
from sterna.relay.arrays import Array, from_numpy, to_numpy
from sterna.runtime import Device as RuntimeDevice
from sterna.runtime import cpu
from sterna.runtime.graph_executor import GraphModule
from sterna.target import Target, is_gpu

TARGET = "llvm -mcpu=native"
OPT_LEVEL = 3


def device_of(target: Target) -> RuntimeDevice:
    """The first device of those that a target's code runs on."""
    kind = target.kind.device_type
    return RuntimeDevice(kind, 0) if is_gpu(target) else cpu(0)


@dataclass(slots=True)
class _Program:
    """A model compiled for inputs of certain shapes, and for certain values of a few of them."""

    executor: GraphModule
    values: dict[str, Array]
    lengths: list[int | None]
    """How many arrays an output that is a sequence has; None for one that is an array."""

    @classmethod
    def of(cls, model: ModelProto, inputs: Mapping[str, Array], target: str, level: int) -> Any:
        """The model compiled for these inputs and others like them."""
        module, decisive = import_for(model, inputs)
        with PassContext(opt_level=level):
            library = build(module, target=target)
        executor = GraphModule(library["default"](device_of(library.target)))
        values = {name: inputs[name].copy() for name in decisive}
        return cls(executor, values, _lengths(module, [each.name for each in model.graph.output]))

    def fits(self, inputs: Mapping[str, Array]) -> bool:
        """Whether it may run on inputs of its shapes."""
        return all(np.array_equal(value, inputs[name]) for name, value in self.values.items())

    def run(self, inputs: Mapping[str, Array]) -> list[Array | list[Array]]:
        """The outputs for these inputs."""
        for name, array in inputs.items():
            if self.executor.get_input_index(name) >= 0:
                self.executor.set_input(name, from_numpy(array))
        self.executor.run()
        count = self.executor.get_num_outputs()
        every = (to_numpy(self.executor.get_output(place)).copy() for place in range(count))
        return [
            next(every) if length is None else [next(every) for _ in range(length)]
            for length in self.lengths
        ]


def _lengths(module: IRModule, outputs: Sequence[str]) -> list[int | None]:
    """By the results' names: those of a sequence are numbered."""
    names = set(module.attrs[OUTPUT_NAMES])
    made: list[int | None] = []
    for output in outputs:
        count = next(place for place in itertools.count() if f"{output}.{place}" not in names)
        made.append(None if output in names else count)
    return made


class SternaRep(BackendRep):
    """A model that runs on any inputs that it allows."""

    def __init__(self, model: ModelProto, target: str, opt_level: int) -> None:
        self.model, self.target, self.opt_level = model, target, opt_level
        weights = {tensor.name for tensor in model.graph.initializer}
        weights |= {sparse.values.name for sparse in model.graph.sparse_initializer}
        self.names = [entry.name for entry in model.graph.input if entry.name not in weights]
        self.outputs = [entry.name for entry in model.graph.output]
        self._programs: dict[tuple[Any, ...], list[_Program]] = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, by place and by name; inputs are a list or a dictionary by name."""
        given = self._by_name(inputs)
        found = self._program(given).run(given)
        return namedtupledict("Outputs", self.outputs)(*found)

    def _by_name(self, inputs: Any) -> dict[str, Array]:
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
            if not isinstance(value, np.ndarray | np.generic):
                raise ValueError(f"input '{name}' is a {type(value).__name__}, not an array")
        return {name: np.asarray(value) for name, value in named.items()}

    def _program(self, inputs: Mapping[str, Array]) -> _Program:
        shapes = tuple(inputs[name].shape for name in self.names)
        programs = self._programs.setdefault(shapes, [])
        for program in programs:
            if program.fits(inputs):
                return program
        programs.append(_Program.of(self.model, inputs, self.target, self.opt_level))
        return programs[-1]


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
