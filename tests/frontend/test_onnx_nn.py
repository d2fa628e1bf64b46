"""Layers of ONNX."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from sterna.contrib import onnx_backend
from tests.frontend.support import check

RNG = np.random.default_rng(2)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions(rank: int) -> None:
    data, weight = floats(1, 4, *(6,) * rank), floats(6, 2, *(3,) * rank)
    pads = [1, 0, 2][:rank] * 2
    check("Conv", data, weight, floats(6), weights=[1, 2], group=2, pads=pads,
          strides=[2] * rank, tolerance=1e-4)
    for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        check("Conv", data, floats(5, 4, *(2,) * rank), weights=[1], auto_pad=mode, tolerance=1e-4)
    check("Conv", data, weight, group=2, dilations=[2] * rank, tolerance=1e-4)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed_convolutions(rank: int) -> None:
    data, weight = floats(1, 4, *(3,) * rank), floats(4, 2, *(3,) * rank)
    two = [2] * rank
    check("ConvTranspose", data, weight, floats(4), weights=[1, 2], group=2, strides=two,
          pads=[1] * rank * 2, output_padding=[1] * rank, tolerance=1e-4)
    check("ConvTranspose", data, weight, strides=two, auto_pad="SAME_UPPER", tolerance=1e-4)
    check("ConvTranspose", data, weight, strides=two, output_shape=[8] * rank, tolerance=1e-4)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "LpPool"])
def test_poolings(kind: str, rank: int) -> None:
    data = floats(1, 2, *(7,) * rank)
    check(kind, data, kernel_shape=[3] * rank, strides=[2] * rank, pads=[1] * 2 * rank)
    check(kind, data, kernel_shape=[2] * rank, auto_pad="SAME_UPPER", strides=[2] * rank)


def test_more_poolings() -> None:
    data = floats(1, 2, 6, 7)
    check("MaxPool", data, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    check("MaxPool", data, kernel_shape=[2, 2], strides=[2, 2], outputs=2)
    check("MaxPool", data, kernel_shape=[2, 2], dilations=[2, 2])
    check("AveragePool", data, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    check("AveragePool", data, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    for kind in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        check(kind, data)


def test_normalisations() -> None:
    data = floats(2, 4, 5, 3)
    four = [floats(4), floats(4), floats(4), np.abs(floats(4)) + 1]
    check("BatchNormalization", data, *four, weights=[1, 2, 3, 4])
    check("BatchNormalization", data, *four, outputs=3, training_mode=1, tolerance=1e-4)
    check("InstanceNormalization", data, floats(4), floats(4), weights=[1, 2], tolerance=1e-4)
    check("LayerNormalization", data, floats(3), floats(3), tolerance=1e-4)
    check("LayerNormalization", data, floats(5, 3), axis=2, outputs=3, tolerance=1e-4)
    check("GroupNormalization", data, floats(4), floats(4), num_groups=2, opset=21, tolerance=1e-4)
    check("LRN", data, size=3)
    check("LpNormalization", data, axis=1, p=1)
    check("MeanVarianceNormalization", data, tolerance=1e-4)


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax(kind: str) -> None:
    check(kind, floats(2, 3, 4))
    check(kind, floats(2, 3, 4), axis=0)
    check(kind, floats(2, 3, 4), opset=11)
    check(kind, floats(2, 3, 4), opset=11, axis=0)


def test_softmax_of_bfloat16_is_rounded_once() -> None:
    """To the nearest number: half a unit in the last place, of eight bits."""
    data = floats(3, 1000).astype(ml_dtypes.bfloat16)
    (found,) = onnx_backend.run_node(helper.make_node("Softmax", ["x"], ["y"]), [data])
    power = np.exp(data.astype("float64"))
    np.testing.assert_allclose(
        found.astype("float64"), power / power.sum(-1, keepdims=True), rtol=2**-8 * 1.001)


@pytest.mark.parametrize("a, b", [
    ((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((4,), (4, 5)), ((3, 4), (4,)),
    ((4,), (4,)), ((2, 1, 3, 4), (5, 4, 2)), ((4,), (2, 4, 3)), ((3, 4), (2, 4, 3)),
])
def test_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    check("MatMul", floats(*a), floats(*b))
    check("MatMul", floats(*a), floats(*b), weights=[1])


def test_gemm_and_einsum() -> None:
    check("Gemm", floats(3, 4), floats(5, 4), floats(5), weights=[1, 2], transB=1)
    check("Gemm", floats(4, 3), floats(4, 5), floats(3, 1), transA=1, alpha=0.5, beta=2.0)
    check("Gemm", floats(3, 4), floats(4, 5))
    check("Einsum", floats(2, 3, 4), floats(2, 4, 5), equation="bij, bjk -> bik")


def test_dropout_does_nothing_but_its_mask() -> None:
    check("Dropout", floats(3, 4))
    check("Dropout", floats(3, 4), outputs=2)
    check("Dropout", floats(3, 4), opset=7, ratio=0.3)


def test_operators_that_onnx_defines_by_others() -> None:
    q, k, v = floats(1, 2, 3, 4), floats(1, 2, 5, 4), floats(1, 2, 5, 4)
    check("Attention", q, k, v, opset=23, tolerance=1e-4)
    check("Attention", q, k, v, floats(3, 5), opset=23, tolerance=1e-4, scale=0.3)
    angles = floats(1, 3, 2)
    check("RotaryEmbedding", q, np.cos(angles), np.sin(angles), opset=23, tolerance=1e-4)
