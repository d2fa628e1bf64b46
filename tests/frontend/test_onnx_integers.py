"""Quantised ONNX models: computed in integers, to the last bit as ONNX Runtime's kernels do.

Weights stay within 7 bits, for on processors without dot products that runtime saturates sums.
"""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import sterna as tvm
from sterna.frontend import from_onnx
from sterna.relay import transform
from sterna.relay.arrays import Array
from sterna.relay.interpreter import interpret
from tests.frontend.support import model_of, run_reference

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Every test draws the same numbers, in whichever process."""
    RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state


def whole(shape: tuple[int, ...], dtype: str, reach: int = 0) -> Array:
    """Numbers all over a type's range, or as far from 0."""
    info = np.iinfo(dtype)
    low, high = (-reach, reach) if reach else (info.min, info.max)
    return RNG.integers(low, high + 1, shape).astype(dtype)


class Graph:
    """A model under construction: tensors by name, those that are known and those that are fed."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.feeds: dict[str, Array] = {}
        self.weights: dict[str, Array] = {}

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        out = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [out], **attrs))
        return out

    def known(self, value: Any, dtype: str = "float32") -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(value, dtype)
        return name

    def parameters(self, scale: Any, zero: Any, dtype: str) -> list[str]:
        return [self.known(scale), self.known(zero, dtype)]

    def data(self, array: Array, scale: float, zero: int) -> str:
        """Numbers that are fed as integers."""
        name = f"x{len(self.feeds)}"
        self.feeds[name] = array
        return self.add("DequantizeLinear", name, *self.parameters(scale, zero, str(array.dtype)))

    def weight(self, array: Array, scale: Any, **attrs: Any) -> str:
        zero = np.zeros(np.shape(scale))
        parameters = self.parameters(scale, zero, str(array.dtype))
        name = self.known(array, str(array.dtype))
        return self.add("DequantizeLinear", name, *parameters, **attrs)

    def quantized(self, real: str, scale: float, zero: int, dtype: str) -> str:
        return self.add("QuantizeLinear", real, *self.parameters(scale, zero, dtype))

    def check(self, result: str, floats: bool = False) -> Any:
        """The same integers as the runtime's; gives the graph that made them."""
        made, found, want = self.run(result, floats)
        np.testing.assert_array_equal(found, want)
        return made

    def run(self, result: str, floats: bool = False) -> tuple[Any, Array, Array]:
        """The graph that computes in integers, what it gives and what the runtime gives."""
        model = model_of(self.nodes, self.feeds, self.weights, [result], 13)
        mod, params = from_onnx(model)
        passes = [transform.InferType(), transform.IntegerArithmetic(),
                  transform.SimplifyInference(), transform.InferType()]
        with tvm.transform.PassContext(opt_level=3):
            made = tvm.transform.Sequential(passes)(mod)["main"]
        given = {**self.feeds, **{name: value.numpy() for name, value in params.items()}}
        found = interpret(made, *[given[param.name_hint] for param in made.params])
        (want,) = run_reference(model, self.feeds)
        assert (found.shape, found.dtype) == (want.shape, want.dtype)
        text = str(made).replace('compute_dtype="float32"', "")
        assert ("float32" in text or "qnn.dequantize" in text) == floats
        return made, found, want


CONVOLUTIONS: dict[str, Any] = {
    "pointwise": ((1, 8, 5, 6), (12, 8, 1, 1), {}),
    "three_by_three": ((2, 3, 7, 6), (8, 3, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "depthwise": ((1, 6, 7, 7), (6, 1, 3, 3), {"pads": [1, 0, 1, 2], "group": 6}),
    "groups": ((1, 8, 6, 6), (6, 4, 3, 2), {"group": 2, "dilations": [2, 1]}),
    "one_axis": ((1, 4, 11), (5, 4, 3), {"pads": [2, 0]}),
}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_convolutions(kind: str, per_channel: bool, dtype: str) -> None:
    shape, kernel, attrs = CONVOLUTIONS[kind]
    g = Graph()
    zero, scale = (131, 0.02) if dtype == "uint8" else (-7, 0.02)
    x = g.data(whole(shape, dtype), scale, zero)
    scales = RNG.uniform(0.001, 0.01, kernel[0]).astype("float32") if per_channel else 0.004
    w = g.weight(whole(kernel, "int8", 63), scales, axis=0)
    bias_scale = np.float32(scale) * np.asarray(scales, "float32")
    b = g.weight(whole(kernel[:1], "int32", 4000), bias_scale, axis=0)
    made = g.add("Conv", x, w, b, **attrs)
    g.check(g.quantized(made, 0.05, zero - 3, dtype))


@pytest.mark.parametrize(("bounds", "dtype", "zero"), [
    (None, "uint8", 0), ((0.0, 6.0), "uint8", 0), ((0.0, 6.0), "int8", -128),
])
def test_activations_become_bounds(bounds: Any, dtype: str, zero: int) -> None:
    g = Graph()
    x = g.data(whole((1, 4, 5, 5), "uint8"), 0.05, 128)
    w = g.weight(whole((4, 4, 1, 1), "int8", 63), 0.01)
    made = g.add("Conv", x, w)
    if bounds is None:
        made = g.add("Relu", made)
    else:
        made = g.add("Clip", made, *[g.known(bound) for bound in bounds])
    g.check(g.quantized(made, 6.0 / 255 if bounds else 0.1, zero, dtype))


def pair(g: Graph, op: str, dtype: str, wider: float = 1.0) -> tuple[str, Array, Array]:
    """An operator of two inputs, and the scales and zero points of those and of the result."""
    info = np.iinfo(dtype)
    zeros = RNG.integers(info.min, info.max + 1, 3)
    scales = RNG.uniform(0.01, 0.2, 3).astype("float32")
    scales[2] *= np.float32(wider)
    a, b = (g.data(whole((1, 7, 40, 41), dtype), float(s), int(z))
            for s, z in zip(scales[:2], zeros[:2], strict=True))
    made = g.quantized(g.add(op, a, b), float(scales[2]), int(zeros[2]), dtype)
    return made, scales, zeros


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_sums(dtype: str) -> None:
    for _ in range(10):
        g = Graph()
        g.check(pair(g, "Add", dtype)[0])


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_products(dtype: str) -> None:
    """The product is rounded to a float, then its sum with the zero point, on every processor.

    So ONNX Runtime does on x86; on AArch64 it rounds once, and a few are on the other side of a
    half. Sums of doubles are exact here.
    """
    for _ in range(10):
        g = Graph()
        made, scales, zeros = pair(g, "Mul", dtype, 10.0)
        _, found, want = g.run(made, floats=True)
        a, b = (x.astype("float64") - z for x, z in zip(g.feeds.values(), zeros, strict=False))
        exact = a * b * np.float64(scales[0] * scales[1] / scales[2])
        sums = exact + zeros[2], exact.astype("float32").astype("float64") + zeros[2]
        info = np.iinfo(dtype)
        once, twice = (np.clip(np.rint(x.astype("float32")), info.min, info.max) for x in sums)
        np.testing.assert_array_equal(found, twice)
        np.testing.assert_array_equal(want, once if np.array_equal(want, once) else twice)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_dense_layer_behind_a_mean(dtype: str) -> None:
    g = Graph()
    zero = 3 if dtype == "uint8" else -100
    x = g.data(whole((2, 10, 6, 7), dtype), 0.03, zero)
    mean = g.quantized(g.add("GlobalAveragePool", x), 0.02, zero, dtype)
    again = g.add("DequantizeLinear", mean, *g.parameters(0.02, zero, dtype))
    flat = g.quantized(g.add("Flatten", again), 0.02, zero, dtype)
    flat = g.add("DequantizeLinear", flat, *g.parameters(0.02, zero, dtype))
    w = g.weight(whole((9, 10), "int8", 63), 0.01)
    b = g.weight(whole((9,), "int32", 900), np.float32(0.02) * np.float32(0.01))
    made = g.check(g.quantized(g.add("Gemm", flat, w, b, transB=1), 0.04, zero, dtype))
    assert str(made).count("qnn.quantize") == 0


def test_products_of_matrices() -> None:
    g = Graph()
    x = g.data(whole((2, 5, 12), "uint8"), 0.03, 77)
    w = g.weight(whole((12, 7), "int8", 63), RNG.uniform(0.01, 0.02, 7), axis=1)
    g.check(g.quantized(g.add("MatMul", x, w), 0.4, 99, "uint8"))


def test_elements_are_moved_as_integers() -> None:
    g = Graph()
    parameters = g.parameters(0.1, 9, "uint8")
    a, b = (g.data(whole((1, 4, 6, 6), "uint8"), 0.1, 9) for _ in range(2))
    pooled = g.add("MaxPool", g.add("Concat", a, b, axis=1), kernel_shape=[2, 2], pads=[1, 0, 0, 1])
    turned = g.add("Transpose", pooled, perm=[0, 2, 3, 1])
    g.check(g.add("QuantizeLinear", turned, *parameters))


def test_another_scheme_is_what_floats_make_of_it() -> None:
    g = Graph()
    x = g.data(np.arange(256, dtype="uint8"), 0.1, 9)
    g.check(g.quantized(x, 0.07, 40, "uint8"), floats=True)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_operators_on_integers(dtype: str) -> None:
    g = Graph()
    zero = 120 if dtype == "uint8" else -5
    g.feeds["x"] = whole((1, 3, 8, 8), dtype)
    scales = RNG.uniform(0.001, 0.01, 6).astype("float32")
    conv = g.add(
        "QLinearConv", "x", *g.parameters(0.02, zero, dtype),
        g.known(whole((6, 3, 3, 3), "int8", 63), "int8"),
        *g.parameters(scales, np.zeros(6), "int8"),
        *g.parameters(0.03, zero + 2, dtype), g.known(whole((6,), "int32", 900), "int32"),
        pads=[1, 1, 1, 1],
    )
    made = g.add(
        "QLinearMatMul", conv, *g.parameters(0.03, zero + 2, dtype),
        g.known(whole((8, 5), "int8", 63), "int8"), *g.parameters(0.01, 0, "int8"),
        *g.parameters(0.09, zero, dtype),
    )
    g.check(made)


def test_products_under_a_scheme_of_the_run() -> None:
    g = Graph()
    g.feeds["x"] = RNG.normal(0, 2, (3, 8)).astype("float32")
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])]
    g.nodes += nodes
    g.known(whole((8, 5), "int8", 63), "int8")
    g.check(g.add("MatMulInteger", "q", "w0", "z"), floats=True)


def test_convolutions_of_integers() -> None:
    g = Graph()
    g.feeds["x"] = whole((1, 3, 6, 6), "uint8")
    g.feeds["z"] = np.array(77, "uint8")
    w, zero = g.known(whole((4, 3, 3, 3), "uint8"), "uint8"), g.known(128, "uint8")
    g.check(g.add("ConvInteger", "x", w, "z", zero, pads=[1, 1, 1, 1]))


def test_a_bias_of_another_scale_stays_a_float() -> None:
    g = Graph()
    x = g.data(whole((1, 4, 3, 3), "uint8"), 0.05, 128)
    w = g.weight(whole((4, 4, 1, 1), "int8", 63), 0.01)
    b = g.weight(whole((4,), "int32", 900), 0.001)
    text = str(_rewritten(g, g.quantized(g.add("Conv", x, w, b), 0.1, 3, "uint8")))
    assert "qnn.conv2d" in text and "qnn.requantize" not in text


def _rewritten(g: Graph, result: str) -> Any:
    mod, _ = from_onnx(model_of(g.nodes, g.feeds, g.weights, [result], 13))
    passes = [transform.InferType(), transform.IntegerArithmetic(), transform.InferType()]
    with tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(passes)(mod)["main"]
