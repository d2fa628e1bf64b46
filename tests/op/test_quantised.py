"""Quantised tensors: references against exact numbers, whole builds against references."""

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.op.qnn.small_sums import reach_of
from sterna.relay.interpreter import interpret
from tests.op.harness import reference


def run(expr: Any, level: int = 3, **inputs: np.ndarray) -> np.ndarray:
    """What a built graph gives."""
    with tvm.transform.PassContext(opt_level=level):
        library = relay.build(tvm.IRModule.from_expr(expr), target="llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(**inputs)
    return module.get_output(0).numpy()


def numbers(*values: Any) -> list[np.ndarray]:
    """Scales and zero points in turns."""
    return [np.array(v, "int32" if i % 2 else "float32") for i, v in enumerate(values)]


# ---- rounding ----


def _to_even(x: Fraction) -> int:
    return round(x)


def _upward(x: Fraction) -> int:
    return math.floor(x + Fraction(1, 2))


def _away(x: Fraction) -> int:
    return _upward(x) if x >= 0 else -_upward(-x)


@pytest.mark.parametrize(
    ("rounding", "exact"),
    [("UPWARD", _upward), ("TONEAREST", _away), ("TONEAREST_EVEN", _to_even)],
)
def test_requantize_is_one_product_rounded_once(rounding: str, exact: Any) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        have, want = np.exp(rng.uniform(-9, 9, 2)).astype("float32")
        fraction, power = math.frexp(float(have) / float(want))
        ratio = Fraction(math.floor(fraction * 2**31 + 0.5)) * Fraction(2) ** (power - 31)
        data = rng.integers(-(2**31), 2**31, 40) >> rng.integers(0, 31, 40)
        zero, out_zero = (int(z) for z in rng.integers(-128, 128, 2))
        operands = [have, np.array(zero), want, np.array(out_zero)]
        got = reference("qnn.requantize", data.astype("int32"), *map(np.asarray, operands),
                        rounding=rounding, out_dtype="int16")
        moved = [exact((int(x) - zero) * ratio) + out_zero for x in data]
        assert got.tolist() == [min(max(x, -(2**15)), 2**15 - 1) for x in moved]


def test_requantize_halves() -> None:
    data, operands = np.array([-3, -1, 1, 3, 5], "int32"), numbers(0.5, 0, 1.0, 0)
    for rounding, want in {
        "UPWARD": [-1, 0, 1, 2, 3], "TONEAREST": [-2, -1, 1, 2, 3],
        "TONEAREST_EVEN": [-2, 0, 0, 2, 2],
    }.items():
        for how in ("int64", "float32"):
            got = reference("qnn.requantize", data, *operands, rounding=rounding, compute_dtype=how)
            assert got.tolist() == want


@pytest.mark.parametrize("bias", [5_000, 1 << 22])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_small_sums_become_bytes_as_large_ones_do(bias: int, dtype: str) -> None:
    """By additions where conversions are slow: each step is rounded to a float32 all the same."""
    rng = np.random.default_rng(bias)
    x = rng.integers(-128, 128, (600, 8)).astype("int8")
    weight = rng.integers(-127, 128, (16, 8)).astype("int8")
    added = np.linspace(-bias, bias, 16).astype("int32")
    ratios = rng.uniform(0.3, 1, 16).astype("float32") * np.float32(2000 / (bias + 60_000))
    zero, one = relay.const(np.int32(3)), relay.const(np.float32(1))
    sums = relay.qnn.dense(relay.var("x", shape=x.shape, dtype="int8"), relay.const(weight), zero,
                           relay.const(0), one, one, units=16)
    made = relay.qnn.requantize(
        relay.add(sums, relay.const(added)), relay.const(ratios), relay.const(0), one,
        relay.const(5), axis=1, rounding="TONEAREST_EVEN", compute_dtype="float32", out_dtype=dtype,
    )
    whole = (x.astype("int32") - 3) @ weight.T.astype("int32") + added
    want = np.clip(np.rint(whole.astype("float32") * ratios) + 5,
                   np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)
    np.testing.assert_array_equal(run(made, x=x), want)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(made))
    arm = tvm.target.Target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1")
    legal = str(relay.transform.Legalize(arm)(module))
    assert "qnn.scaled_bytes" in legal and ("reinterpret" in legal) == (bias < 1 << 22)
    reach = reach_of(relay.transform.InferType()(module)["main"].body.args[0])
    assert reach is not None and np.abs(whole).max() <= reach
    assert reach == 131 * np.abs(weight.astype("int64")).sum(1).max() + np.abs(added).max()


@pytest.mark.parametrize("data", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [0, 90, 128, 255, None])
@pytest.mark.parametrize("shape", [(7, 30), (2, 3, 64)])
def test_weights_of_any_zero_point_are_multiplied_as_bytes(
    data: str, zero: int | None, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(zero)
    weight = rng.integers(0, 256, (20, shape[-1])).astype("uint8")
    points = rng.integers(0, 256, 20) if zero is None else np.array(zero)
    low = np.iinfo(data).min
    x = rng.integers(low, low + 256, shape).astype(data)
    one = relay.const(np.float32(1))
    made = relay.qnn.dense(
        relay.var("x", shape=shape, dtype=data), relay.const(weight),
        relay.const(np.int32(low + 9)), relay.const(points.astype("int32")), one, one, units=20,
    )
    shifted = weight.astype("int32") - points.reshape(-1, 1)
    np.testing.assert_array_equal(run(made, x=x), (x.astype("int32") - (low + 9)) @ shifted.T)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(made))
    for machine in ("x86_64-linux-gnu -mcpu=cascadelake", "aarch64-linux-gnu -mcpu=neoverse-n1"):
        legal = relay.transform.Legalize(tvm.target.Target(f"llvm -mtriple={machine}"))(module)
        parts: list[relay.Expr] = []
        relay.analysis.post_order_visit(legal["main"], parts.append)
        assert "int8" in [str(p.data.dtype) for p in parts if isinstance(p, relay.Constant)]


@pytest.mark.parametrize("zero", [90, None])
@pytest.mark.parametrize(("shape", "kernel", "attrs"), [
    ((2, 6, 9, 7), (5, 6, 3, 2), {"padding": (1, 0, 2, 1), "strides": (2, 1)}),
    ((1, 8, 5, 6), (4, 8, 1, 1), {}),
    ((1, 6, 7, 5), (3, 3, 5, 8), {"data_layout": "NHWC", "kernel_layout": "HWIO", "padding": 1}),
    ((2, 4, 11), (6, 4, 3), {"padding": (2, 1), "dilation": 2}),
    ((11, 1, 17, 5), (3, 1, 2, 2), {"padding": 1}),
], ids=["window", "pixels", "channels last", "rows", "one channel"])
def test_windows_of_any_zero_point_are_multiplied_as_bytes(
    shape: tuple[int, ...], kernel: tuple[int, ...], attrs: dict[str, Any], zero: int | None
) -> None:
    rng, rank = np.random.default_rng(zero), len(shape) - 2
    last = attrs.get("kernel_layout") == "HWIO"
    outputs, window = kernel[-1 if last else 0], kernel[:2] if last else kernel[2:]
    weight = rng.integers(0, 256, kernel).astype("uint8")
    points = rng.integers(0, 256, outputs) if zero is None else np.array(zero)
    x, one = rng.integers(0, 256, shape).astype("uint8"), relay.const(np.float32(1))
    convolution = relay.qnn.conv1d if rank == 1 else relay.qnn.conv2d
    made = convolution(
        relay.var("x", shape=shape, dtype="uint8"), relay.const(weight), relay.const(np.int32(9)),
        relay.const(points.astype("int32")), one, one, channels=outputs, kernel_size=window,
        **attrs,
    )
    want = interpret(relay.Function(tuple(relay.analysis.free_vars(made)), made), x)
    np.testing.assert_array_equal(run(made, x=x), want)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(made))
    legal = relay.transform.Legalize(tvm.target.Target("llvm -mcpu=cascadelake"))(module)
    parts: list[relay.Expr] = []
    relay.analysis.post_order_visit(legal["main"], parts.append)
    assert "int8" in [str(p.data.dtype) for p in parts if isinstance(p, relay.Constant)]


# ---- narrow types ----


def test_quantize_to_types_that_numpy_lacks() -> None:
    x = np.array([-9.0, -0.6, 0.25, 3.9, 1e4, np.inf], "float32")
    half = numbers(0.5, 0)
    got = reference("qnn.quantize", x, *half, out_dtype="int4", rounding="TO_EVEN")
    assert got.astype("int8").tolist() == [-8, -1, 0, 7, 7, 7]
    got = reference("qnn.quantize", x, *half, out_dtype="float8_e4m3fn")
    assert got.astype("float32").tolist() == [-18.0, -1.25, 0.5, 8.0, 448.0, 448.0]
    got = reference("qnn.quantize", x, *half, out_dtype="float8_e5m2", saturate=False)
    assert got.astype("float32").tolist() == [-16.0, -1.25, 0.5, 8.0, 20480.0, np.inf]
    back = reference("qnn.dequantize", got, *half)
    assert back.tolist() == [-8.0, -0.625, 0.25, 4.0, 10240.0, np.inf]
    four = np.array([-8, 0, 7], ml_dtypes.int4)
    assert reference("qnn.dequantize", four, *numbers(0.5, -1)).tolist() == [-3.5, 0.5, 4.0]


def test_dynamic_quantize_is_onnxs() -> None:
    x = np.array([-1.0, -2.1, -1.3, -2.5, -3.34, -4.0], "float32")
    got, scale, zero = reference("qnn.dynamic_quantize", x)
    assert got.tolist() == [191, 121, 172, 96, 42, 0]
    assert zero == 255
    np.testing.assert_allclose(scale, 4 / 255, rtol=1e-6)


# ---- whole builds, where zero points are constants ----


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("zero", [0, 131])
def test_build_of_a_quantised_network(level: int, zero: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (1, 4, 7, 6)).astype("uint8")
    w = rng.integers(-128, 128, (8, 4, 3, 3)).astype("int8")
    scales = np.exp(rng.uniform(-6, -4, 8)).astype("float32")
    zeros = rng.integers(-4, 4, 8).astype("int32") if zero else np.array(0, "int32")
    attrs: dict[str, Any] = {"kernel_size": (3, 3), "channels": 8, "padding": (1, 1)}
    operands = [np.array(zero, "int32"), zeros, np.array(0.02, "float32"), scales]
    tail = numbers(0.01, 3)
    data = relay.var("x", shape=x.shape, dtype="uint8")
    made = relay.qnn.op.conv2d(data, w, *operands, **attrs)
    made = relay.qnn.op.requantize(made, 0.02 * scales, relay.const(0), *tail, axis=1)
    sums = reference("qnn.conv2d", x, w, *operands, **attrs)
    want = reference("qnn.requantize", sums, (np.float32(0.02) * scales).astype("float32"),
                     np.array(0), *tail, axis=1)
    np.testing.assert_array_equal(run(made, level, x=x), want)


def test_build_of_sums_and_products() -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(-128, 128, (3, 5)).astype("int8")
    y = rng.integers(-128, 128, (1, 5)).astype("int8")
    operands = numbers(0.05, 3, [0.1, 0.2, 0.3, 0.01, 1.0], -7, 0.1, 5)
    for name in ("add", "subtract", "mul"):
        data = relay.var("x", shape=x.shape, dtype="int8")
        made = getattr(relay.qnn.op, name)(data, y, *operands)
        np.testing.assert_array_equal(run(made, x=x), reference(f"qnn.{name}", x, y, *operands))


def test_mistakes() -> None:
    x = relay.var("x", shape=(2, 3), dtype="int8")
    scale, zero = relay.const(0.5), relay.const(0)
    with pytest.raises(ValueError, match="the length of input_scale, along axis -1 is 3, not 2"):
        relay.qnn.op.dequantize(x, relay.const(np.ones(2, "float32")), zero)
    with pytest.raises(ValueError, match="rounding is one of UPWARD, TONEAREST, TONEAREST_EVEN"):
        relay.qnn.op.requantize(x, scale, zero, scale, zero, rounding="DOWN")
    with pytest.raises(ValueError, match="out_dtype is integers of up to 32 bits or floats of 8"):
        relay.qnn.op.quantize(x, scale, zero, out_dtype="int64")
    with pytest.raises(ValueError, match="weight has integers of up to 16 bits, not int32"):
        weight = relay.var("w", shape=(4, 3), dtype="int32")
        relay.qnn.op.dense(x, weight, zero, zero, scale, scale)


# ---- averages ----


@pytest.mark.parametrize("include", [True, False])
def test_averages_are_rounded_once(include: bool) -> None:
    """Against exact fractions, at odd extents and with a border."""
    rng = np.random.default_rng(2)
    data = rng.integers(0, 256, (1, 4, 5, 2)).astype("uint8")
    x = relay.var("x", shape=data.shape, dtype="uint8")
    scales = [relay.const(v) for v in numbers(0.5, 100, 0.25, 7)]
    made = relay.qnn.op.avg_pool2d(x, *scales, (3, 2), (2, 1), (1, 0), (1, 1), False, include)
    got = run(made, x=data)
    framed = np.pad(data.astype(int) - 100, ((0, 0), (1, 1), (0, 0), (0, 0)))
    inside = np.pad(np.ones((4, 5), int), ((1, 1), (0, 0)), constant_values=int(include))
    for n, y, z, c in np.ndindex(*got.shape):
        window = np.s_[2 * y : 2 * y + 3, z : z + 2]
        exact = 2 * Fraction(int(framed[n][window][..., c].sum()), int(inside[window].sum()))
        away = math.floor(abs(exact) + Fraction(1, 2)) * (1 if exact >= 0 else -1)
        assert got[n, y, z, c] == min(max(away + 7, 0), 255)


def test_averages_take_one_scale() -> None:
    x = relay.var("x", shape=(1, 4, 4, 2), dtype="uint8")
    many = relay.const(np.array([1, 2], "float32"))
    zero, one = relay.const(0), relay.const(1.0)
    with pytest.raises(ValueError, match="input_scale is one number for all of data"):
        relay.qnn.op.avg_pool2d(x, many, zero, one, zero, (2, 2), (1, 1), (0, 0), (1, 1))
