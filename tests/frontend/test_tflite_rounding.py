"""Layers that LiteRT leaves to kernels of its own, which round twice, beside LiteRT."""

import platform

import numpy as np
import pytest

from sterna.relay.arrays import Array
from tests.frontend.test_tflite_dynamic_range import packed
from tests.frontend.tflite_models import T, constant, one_operator, run_imported, run_litert

ON_ARM = platform.machine() in ("aarch64", "arm64")


def depthwise(dtype: str, weights: str, axis: int, seed: int) -> tuple[bytes, Array]:
    """A model of 21 channels, 16 of which fill vectors of eight, and its data."""
    rng = np.random.default_rng(seed)
    low, high = {"int4": (-7, 8), "uint8": (0, 256)}[weights]
    whole = rng.integers(low, high, (1, 2, 3, 21))
    scale, own = 0.03, rng.uniform(0.004, 0.02, 21 if weights == "int4" else 1).astype("float32")
    ends = np.iinfo(dtype)
    zero = int(rng.integers(ends.min, ends.max))
    weight = T(whole.shape, weights, packed(whole) if weights == "int4" else whole.astype(weights),
               scale=own, zero=130 if weights == "uint8" else 0, axis=axis)
    bias = constant(rng.integers(-900, 900, 21).astype("int32"), scale=scale * own)
    model = one_operator(
        "DEPTHWISE_CONV_2D", [T((1, 9, 8, 7), dtype, scale=scale, zero=zero), weight, bias],
        [T((1, 8, 6, 21), dtype, scale=0.05 if weights == "int4" else 0.9,
           zero=int(ends.min) + 100)],
        ("DepthwiseConv2DOptions", {"padding": 1, "strideH": 1, "strideW": 1,
                                    "depthMultiplier": 3}))
    return model, rng.integers(ends.min, ends.max + 1, (1, 9, 8, 7)).astype(dtype)


@pytest.mark.skipif(not ON_ARM, reason="LiteRT's kernel rounds in another way without NEON")
@pytest.mark.parametrize(("dtype", "weights", "axis"), [
    ("int8", "int4", 3), ("uint8", "uint8", 0), ("uint8", "uint8", 3)])
def test_depthwise_convolutions(dtype: str, weights: str, axis: int) -> None:
    for seed in range(4):
        model, x = depthwise(dtype, weights, axis, seed)
        np.testing.assert_array_equal(run_imported(model, x)[0], run_litert(model, x)[0])


def test_channels_of_4_bits_are_rounded_twice_on_microcontrollers() -> None:
    for seed in range(4):
        model, x = depthwise("int8", "int4", 3, seed)
        want = run_litert(model, x, reference=True)[0]
        np.testing.assert_array_equal(run_imported(model, x, rounding="tflm")[0], want)


@pytest.mark.parametrize("kernel", [(1, 1), (1, 3), (2, 2)])
def test_transposed_windows_that_steps_pass_over(kernel: tuple[int, int]) -> None:
    rng = np.random.default_rng(sum(kernel))
    x = rng.integers(-128, 128, (1, 5, 6, 4)).astype("int8")
    weight = rng.integers(-127, 128, (3, *kernel, 4)).astype("int8")
    result = (1, 10, 12, 3)
    model = one_operator("TRANSPOSE_CONV", [
        constant(np.array(result, "int32")), T(weight.shape, "int8", weight, scale=0.011, zero=0),
        T(x.shape, "int8", scale=0.04, zero=7),
        constant(rng.integers(-900, 900, 3).astype("int32"), scale=np.float32(0.04) * 0.011),
    ], [T(result, "int8", scale=0.21, zero=-9)],
        ("TransposeConvOptions", {"padding": 0, "strideH": 2, "strideW": 2}))
    np.testing.assert_array_equal(run_imported(model, x)[0], run_litert(model, x)[0])


@pytest.mark.parametrize(("scale", "alpha"), [(0.3, 0.01), (0.001, 0.2), (60.0, 0.1), (0.05, 0.3)])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_factors_that_are_too_small_or_large_for_quick_kernels(
    dtype: str, scale: float, alpha: float
) -> None:
    ends = np.iinfo(dtype)
    x = np.arange(ends.min, ends.max + 1).astype(dtype).reshape(1, 256)
    slope = ("LeakyReluOptions", {"alpha": alpha})
    for kind, options in (("LEAKY_RELU", slope), ("QUANTIZE", None)):
        model = one_operator(kind, [T(x.shape, dtype, scale=scale, zero=int(ends.min) + 90)],
                             [T(x.shape, dtype, scale=0.41, zero=int(ends.min) + 100)], options)
        np.testing.assert_array_equal(run_imported(model, x)[0], run_litert(model, x)[0])
