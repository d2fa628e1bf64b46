"""A layer of a network as an ONNX model of its own, with the inputs that it is timed on."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from sterna.relay.arrays import Array

OPSET = 20
# The step of quantised data, and that of weights: what they are has no influence on the time.
DATA_STEP, WEIGHT_STEP = 0.02, 0.01
# Standard deviations of bytes that are drawn evenly, in steps.
SPREAD = 73.9
# Weights repeat after so many numbers, a prime: large ones would take longer to draw than to run.
DRAWN = 65_521


@dataclass(frozen=True)
class Variant:
    """How a layer is asked for: the batch, bytes or floats, constant weights or free ones."""

    batch: int = 1
    quantised: bool = False
    free: bool = False
    """Weights are inputs of the model, as when they are computed in the graph."""

    @classmethod
    def parse(cls, text: str) -> "Variant":
        """8 for a batch of eight, q for bytes, f for free weights: 8q."""
        unknown = set(text) - set("8qf")
        if unknown:
            raise ValueError(f"a variant is made of 8, q and f, not '{text}'")
        return cls(8 if "8" in text else 1, "q" in text, "f" in text)

    def __str__(self) -> str:
        batch = f"batch{self.batch}" if self.batch > 1 else ""
        parts = (batch, "int8" * self.quantised, "free" * self.free)
        return "-".join(part for part in parts if part)


class Graph:
    """An ONNX graph that is being made: operators, weights and the inputs that go in."""

    def __init__(self, variant: Variant, seed: int) -> None:
        self.variant = variant
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        self.inputs: dict[str, Array] = {}

    # ---- what goes in ----

    def feed(self, array: Array) -> str:
        """An input, and what it is given."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = np.ascontiguousarray(array)
        return name

    def data(self, *shape: int) -> str:
        """Normal floats; bytes that are made floats again where the layer is quantised."""
        if not self.variant.quantised:
            return self.feed(self.rng.standard_normal(shape, dtype="float32"))
        name = self.feed(self.rng.integers(0, 256, shape, dtype="uint8"))
        return self.floats(name, DATA_STEP, 128)

    def indices(self, high: int, *shape: int) -> str:
        """Integers from 0 to before a number."""
        return self.feed(self.rng.integers(0, high, shape))

    def constant(self, value: Any, dtype: str = "float32") -> str:
        """Numbers that the model holds."""
        name = f"w{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weights(self, *shape: int, fan_in: int = 1, axis: int = 0) -> str:
        """Of a contraction: constant or free, bytes with a scale per output channel or floats."""
        if self.variant.quantised:
            return self._bytes(shape, axis)
        numbers = self._drawn(shape) / np.float32(max(fan_in, 1) ** 0.5)
        return self.feed(numbers) if self.variant.free else self.constant(numbers)

    def bias(self, size: int, fan_in: int = 1) -> str:
        """Of a contraction; constant in every variant but that with free weights."""
        if self.variant.quantised:
            steps = self.constant(self.rng.integers(-2000, 2000, size), "int32")
            scale = self.constant(np.full(size, DATA_STEP * WEIGHT_STEP))
            zero = self.constant(np.zeros(size), "int32")
            return self.node("DequantizeLinear", steps, scale, zero, axis=0)
        return self.weights(size)

    def _bytes(self, shape: Sequence[int], axis: int) -> str:
        numbers = np.resize(self.rng.integers(-127, 128, DRAWN, dtype="int8"), shape)
        held = self.feed(numbers) if self.variant.free else self.constant(numbers, "int8")
        scale = self.constant(np.full(shape[axis], WEIGHT_STEP))
        zero = self.constant(np.zeros(shape[axis]), "int8")
        return self.node("DequantizeLinear", held, scale, zero, axis=axis)

    def _drawn(self, shape: Sequence[int]) -> Array:
        numbers: Array = np.resize(self.rng.standard_normal(DRAWN, dtype="float32"), shape)
        return numbers

    # ---- what is computed ----

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """An operator with one result."""
        return self.nodes_with(1, op, *inputs, **attributes)[0]

    def nodes_with(self, outputs: int, op: str, *inputs: str, **attributes: Any) -> list[str]:
        """An operator with several results."""
        names = [f"y{len(self.nodes)}_{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names

    def floats(self, steps: str, scale: float, zero: int) -> str:
        """What bytes stand for."""
        return self.node(
            "DequantizeLinear", steps, self.constant(scale), self.constant(zero, "uint8")
        )

    def result(self, value: str, fan_in: int = 1, zero: int = 128) -> str:
        """What a layer gives: bytes where it is quantised, so that sums of fan_in products fit."""
        if not self.variant.quantised:
            return value
        products = DATA_STEP * WEIGHT_STEP * SPREAD * SPREAD * max(fan_in, 1) ** 0.5
        return self.steps(value, products / 40 if fan_in > 1 else DATA_STEP, zero)

    def steps(self, value: str, scale: float, zero: int = 128) -> str:
        """The bytes that stand for floats."""
        return self.node(
            "QuantizeLinear", value, self.constant(scale), self.constant(zero, "uint8")
        )

    def model(self, outputs: Iterable[str], opset: int = OPSET) -> onnx.ModelProto:
        """The whole, with the types of its outputs inferred."""
        given = [helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        ) for name, array in self.inputs.items()]
        unknown = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self.nodes, "layer", given, unknown, self.constants)
        opsets = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return _with_types(model)


def _with_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """The types of the outputs, inferred without the weights, which are large."""
    light = onnx.ModelProto()
    light.CopyFrom(model) if _weight_bytes(model) < 1 << 20 else _copy_light(model, light)
    inferred = onnx.shape_inference.infer_shapes(light, strict_mode=True)
    for held, found in zip(model.graph.output, inferred.graph.output, strict=True):
        held.CopyFrom(found)
    return model


def _weight_bytes(model: onnx.ModelProto) -> int:
    return sum(len(constant.raw_data) for constant in model.graph.initializer)


def _copy_light(model: onnx.ModelProto, light: onnx.ModelProto) -> None:
    """Copy a model; large weights become inputs, of which only the types are known."""
    light.ir_version = model.ir_version
    light.opset_import.extend(model.opset_import)
    graph = light.graph
    graph.name = model.graph.name
    graph.node.extend(model.graph.node)
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
    for constant in model.graph.initializer:
        if len(constant.raw_data) < 1 << 12:
            graph.initializer.append(constant)
        else:
            graph.input.append(helper.make_tensor_value_info(
                constant.name, constant.data_type, list(constant.dims)
            ))


Make = Callable[[Graph], str | Sequence[str]]
"""Adds a layer's operators to a graph and says which values are its results."""


@dataclass(frozen=True)
class Layer:
    """One layer: its class, its name, and what makes its model."""

    kind: str
    name: str
    make: Make
    variant: Variant = Variant()

    @property
    def key(self) -> str:
        """conv-grouped/resnext50_3x3_g32_128_128_56-batch8"""
        variant = str(self.variant)
        return f"{self.kind}/{self.name}" + (f"-{variant}" if variant else "")

    def build(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """Its model, and the inputs that it is timed on; the same in every process."""
        graph = Graph(self.variant, zlib.crc32(self.key.encode()))
        made = self.make(graph)
        outputs = [made] if isinstance(made, str) else list(made)
        return graph.model(outputs), graph.inputs


def layers_of(kind: str, name: str, make: Make, variants: str = "") -> list[Layer]:
    """A layer as it is, and in the variants that are named."""
    return [Layer(kind, name, make, Variant.parse(text)) for text in ("", *variants.split())]
