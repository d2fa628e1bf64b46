"""Operators of ONNX Runtime's own domain over quantised tensors."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.frontend.support import model_of, run_imported, run_reference

RNG = np.random.default_rng(7)
KINDS = ("uint8", "int8")


def whole(*shape: int, dtype: str = "uint8") -> Any:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def weights(*shape: int) -> Any:
    """Seven bits: ONNX Runtime's sums of two products saturate where x86-64 has no VNNI."""
    return RNG.integers(-64, 64, shape).astype("int8")


def number(value: float) -> Any:
    return np.float32(value)


def point(value: int, dtype: str = "uint8") -> Any:
    return np.array(value, dtype)


def own(kind: str, *inputs: Any, tolerance: float = 0, **attrs: Any) -> None:
    """Within a step of what ONNX Runtime computes, which rounds other floats in between."""
    names = ["" if value is None else f"x{place}" for place, value in enumerate(inputs)]
    feeds = {f"x{i}": np.asarray(v) for i, v in enumerate(inputs) if v is not None}
    node = helper.make_node(kind, names, ["y"], domain="com.microsoft", **attrs)
    model = model_of([node], feeds, {}, ["y"], 17)
    (want,), (got,) = run_reference(model, feeds), run_imported(model, feeds)
    assert got.shape == want.shape and got.dtype == want.dtype
    if tolerance:
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    else:
        assert np.abs(got.astype("int64") - want).max() <= 1


@pytest.mark.parametrize("dtype", KINDS)
def test_element_by_element(dtype: str) -> None:
    a, b = whole(2, 3, 4, dtype=dtype), whole(3, 1, dtype=dtype)
    scales = number(0.02), point(5, dtype)
    for kind in ("QLinearAdd", "QLinearMul"):
        own(kind, a, *scales, b, number(0.05), point(9, dtype), number(0.06), point(11, dtype))
    own("QLinearSigmoid", a, *scales, number(1 / 256), point(0, dtype))
    own("QLinearLeakyRelu", a, *scales, number(0.03), point(7, dtype), alpha=0.2)
    own("QLinearSoftmax", a, *scales, number(1 / 256), point(0, dtype), axis=-1, opset=13)
    mask = RNG.integers(0, 2, (3, 4)).astype(bool)
    own("QLinearWhere", mask, a, *scales, b, number(0.05), point(9, dtype), number(0.06),
        point(11, dtype))


@pytest.mark.parametrize("dtype", KINDS)
def test_parts_of_their_own_scales(dtype: str) -> None:
    first, second = whole(2, 3, 4, dtype=dtype), whole(2, 2, 4, dtype=dtype)
    own("QLinearConcat", number(0.03), point(4, dtype), first, number(0.02), point(3, dtype),
        second, number(0.05), point(9, dtype), axis=1)


@pytest.mark.parametrize("dtype", KINDS)
def test_averages(dtype: str) -> None:
    data, scales = whole(1, 5, 6, 7, dtype=dtype), (number(0.02), point(5, dtype))
    after = number(0.018), point(6, dtype)
    own("QLinearGlobalAveragePool", data, *scales, *after, channels_last=0)
    own("QLinearGlobalAveragePool", data, *scales, *after, channels_last=1)
    own("QLinearAveragePool", data, *scales, *after, kernel_shape=[3, 2], strides=[2, 1],
        pads=[1, 0, 1, 1])


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("transposed", [0, 1])
def test_dense_layers(dtype: str, transposed: int) -> None:
    data, scales = whole(3, 8, dtype=dtype), (number(0.02), point(5, dtype))
    weight = weights(*((6, 8) if transposed else (8, 6)))
    bias = RNG.integers(-1000, 1000, 6).astype("int32")
    result = number(0.7), point(100, dtype)
    one = number(0.03), point(0, "int8")
    own("QGemm", data, *scales, weight, *one, bias, *result, transB=transposed)
    own("QGemm", data, *scales, weight, *one, None, *result, transB=transposed, alpha=0.5)
    own("QGemm", data, *scales, weight, *one, bias, transB=transposed, tolerance=1e-4)
    every = RNG.random(6).astype("float32") / 10, np.zeros(6, "int8")
    own("QGemm", data, *scales, weight, *every, bias, *result, transB=transposed)


@pytest.mark.parametrize("dtype", KINDS)
def test_products_to_floats(dtype: str) -> None:
    data, weight = whole(2, 3, 8, dtype=dtype), weights(8, 6)
    bias = RNG.standard_normal(6).astype("float32")
    one, every = number(0.03), RNG.random(6).astype("float32")
    own("MatMulIntegerToFloat", data, weight, number(0.02), one, point(5, dtype), None, bias,
        tolerance=1e-4)
    own("MatMulIntegerToFloat", data, weight, number(0.02), every, point(5, dtype),
        tolerance=1e-4)
    floats = RNG.standard_normal((3, 8)).astype("float32")
    own("DynamicQuantizeMatMul", floats, weight, one, point(3, "int8"), bias, tolerance=1e-4)
    own("DynamicQuantizeMatMul", floats, weight, every, tolerance=1e-4)


def test_numbers_of_sixteen_bits() -> None:
    floats = RNG.standard_normal((3, 8)).astype("float32")
    own("QuantizeLinear", floats, number(1e-4), point(30000, "uint16"))
    own("DequantizeLinear", whole(3, 8, dtype="uint16"), number(1e-4), point(30000, "uint16"),
        tolerance=1e-4)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("is_whole", [False, True])
def test_lstm_of_bytes(direction: str, is_whole: bool) -> None:
    """States that begin as zeros have no range; scales are of a direction or of a column."""
    count, units, features = 1 + (direction == "bidirectional"), 5, 6
    shape = (count,) if is_whole else (count, 4 * units)
    data = RNG.standard_normal((4, 2, features)).astype("float32")
    scales = [RNG.uniform(0.004, 0.006, shape).astype("float32") for _ in range(2)]
    zeros = [np.full(shape, 0, "int8") for _ in range(2)]
    own_weights = [weights(count, n, 4 * units) for n in (features, units)]
    bias = RNG.standard_normal((count, 8 * units)).astype("float32")
    inputs = [data, *own_weights, bias, None, None, None, None, scales[0], zeros[0], scales[1],
              zeros[1]]
    names = ["" if value is None else f"x{place}" for place, value in enumerate(inputs)]
    feeds = {"x0": data}
    held = {f"x{i}": v for i, v in enumerate(inputs) if i and v is not None}
    node = helper.make_node("DynamicQuantizeLSTM", names, ["y", "h", "c"], domain="com.microsoft",
                            hidden_size=units, direction=direction)
    model = model_of([node], feeds, held, ["y", "h", "c"], 17)
    for want, got in zip(run_reference(model, feeds), run_imported(model, feeds), strict=True):
        np.testing.assert_allclose(got, want, atol=4e-3)  # a state may be rounded to another step


def test_lstm_of_bytes_that_is_refused() -> None:
    whole_weights = [whole(1, n, 8, dtype="int8") for n in (3, 2)]
    scales = np.ones(1, "float32"), np.zeros(1, "int8")
    names = ["x0", "x1", "x2", "", "", "", "", "", "x8", "x9", "x8", "x9"]
    held = {"x1": whole_weights[0], "x2": whole_weights[1], "x8": scales[0], "x9": scales[1]}
    node = helper.make_node("DynamicQuantizeLSTM", names, ["y"], domain="com.microsoft",
                            hidden_size=2, clip=1.0, name="cell")
    feeds = {"x0": np.zeros((1, 1, 3), "float32")}
    with pytest.raises(NotImplementedError, match=r"a bound of its gates \(clip\)"):
        run_imported(model_of([node], feeds, held, ["y"], 17), feeds)


def test_zeros_have_a_scale() -> None:
    data = np.zeros((2, 3), "float32")
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    model = model_of([node], {"x": data}, {}, ["y", "s", "z"], 17)
    for want, got in zip(
        run_reference(model, {"x": data}), run_imported(model, {"x": data}), strict=True
    ):
        np.testing.assert_array_equal(got, want)
