"""Floats by weights of whole numbers, beside LiteRT: rows, images and pixels have their ranges."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sterna.relay.arrays import Array
from sterna.support.errors import OpNotImplemented
from tests.frontend.tflite_models import T, constant, one_operator, run_imported, run_litert

# Kinds of layers: the shapes of data, weights and result, and where scales of channels lie.
LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]] = {
    "FULLY_CONNECTED": ((3, 10), (4, 10), (3, 4), 0),
    "rows of odd length": ((3, 9), (4, 9), (3, 4), 0),
    "CONV_2D": ((2, 5, 4, 3), (5, 2, 3, 3), (2, 5, 4, 5), 0),
    "pixels": ((2, 3, 4, 6), (5, 1, 1, 6), (2, 3, 4, 5), 0),
    "DEPTHWISE_CONV_2D": ((2, 5, 4, 3), (1, 2, 3, 6), (2, 5, 4, 6), 3),
    "TRANSPOSE_CONV": ((2, 3, 4, 3), (5, 2, 3, 3), (2, 6, 8, 5), 0),
    "BATCH_MATMUL": ((2, 3, 6), (2, 6, 4), (2, 3, 4), 0),
}
KINDS = {"rows of odd length": "FULLY_CONNECTED", "pixels": "CONV_2D"}
CASES = [
    *[(name, "int8", per) for name in LAYERS for per in (False, True)
      if (name, per) not in (("BATCH_MATMUL", True), ("DEPTHWISE_CONV_2D", False))],
    *[(name, dtype, per) for name in ("FULLY_CONNECTED", "rows of odd length", "CONV_2D", "pixels")
      for dtype in ("int4", "uint8") for per in (False, True)],
]


def packed(whole: Array) -> bytes:
    """Numbers of 4 bits, two in a byte, the first one in the lower half."""
    nibbles = np.append(whole.ravel(), np.zeros(whole.size % 2)).astype(np.int8).view(np.uint8) & 15
    return bytes(nibbles[::2] | (nibbles[1::2] << 4))


def options_of(kind: str, is_whole: bool) -> tuple[str, dict[str, Any]]:
    steps = {"padding": 0, "strideH": 1, "strideW": 1}
    found: dict[str, tuple[str, dict[str, Any]]] = {
        "FULLY_CONNECTED": ("FullyConnectedOptions", {"asymmetricQuantizeInputs": is_whole}),
        "BATCH_MATMUL": ("BatchMatMulOptions", {"asymmetricQuantizeInputs": is_whole}),
        "CONV_2D": ("Conv2DOptions", steps),
        "DEPTHWISE_CONV_2D": ("DepthwiseConv2DOptions", {**steps, "depthMultiplier": 2}),
        "TRANSPOSE_CONV": ("TransposeConvOptions", {**steps, "strideH": 2, "strideW": 2}),
    }
    return found[kind]


def made(
    name: str, dtype: str, per_channel: bool, is_whole: bool, seed: int
) -> tuple[bytes, Array]:
    rng = np.random.default_rng(seed)
    data, weights, result, axis = LAYERS[name]
    kind = KINDS.get(name, name)
    low, high = {"int8": (-127, 128), "uint8": (0, 256), "int4": (-7, 8)}[dtype]
    whole = rng.integers(low, high, weights)
    if dtype == "uint8":  # of int8 the lowest number, whose sign LiteRT's SSE kernels cannot turn
        whole[whole == 128] = 127
    scales = np.exp(rng.uniform(-5, -2, weights[axis] if per_channel else 1)).astype("float32")
    stored: Any = packed(whole) if dtype == "int4" else whole.astype(dtype)
    weight = T(weights, dtype, stored, scale=scales, zero=7 if dtype == "uint8" else 0, axis=axis)
    bias = constant(rng.standard_normal(result[-1]).astype("float32"))
    operands: Sequence[T | None] = [T(data), weight, bias]
    if kind == "BATCH_MATMUL":
        operands = [T(data), weight]
    if kind == "TRANSPOSE_CONV":
        operands = [constant(np.array(result, "int32")), weight, T(data), bias]
    x = (rng.standard_normal(data) + rng.uniform(-1, 1)).astype("float32")
    return one_operator(kind, operands, [T(result)], options_of(kind, is_whole)), x


@pytest.mark.parametrize(("name", "dtype", "per_channel"), CASES)
def test_layers_of_ranges(name: str, dtype: str, per_channel: bool) -> None:
    for seed, is_whole in enumerate((False, True)):
        model, x = made(name, dtype, per_channel, is_whole, seed)
        (want,), (got,) = run_litert(model, x), run_imported(model, x)
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6 * np.abs(want).max())


def test_rows_of_zeros() -> None:
    for name, dtype in (("FULLY_CONNECTED", "uint8"), ("DEPTHWISE_CONV_2D", "int8")):
        for is_whole in (False, True):
            model, x = made(name, dtype, True, is_whole, 5)
            x[0] = 0
            (want,), (got,) = run_litert(model, x), run_imported(model, x)
            np.testing.assert_allclose(got, want, rtol=1e-5)


def test_matrices_by_other_whole_numbers_are_refused() -> None:
    weight = constant(np.ones((1, 4, 3), "uint8"), scale=1.0)
    model = one_operator("BATCH_MATMUL", [T((1, 2, 4)), weight], [T((1, 2, 3))],
                         options_of("BATCH_MATMUL", False))
    with pytest.raises(OpNotImplemented, match="floats by uint8"):
        run_imported(model, np.ones((1, 2, 4), "float32"))
