"""Operators of ONNX Runtime's own domain, and experimental ones."""

from typing import Any

import numpy as np

from tests.frontend.support import check

RNG = np.random.default_rng(6)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def own(kind: str, *inputs: Any, **more: Any) -> None:
    check(kind, *inputs, domain="com.microsoft", tolerance=1e-4, **more)


def test_activations_and_products() -> None:
    own("Gelu", floats(3, 4))
    own("BiasGelu", floats(3, 4), floats(4))
    own("FastGelu", floats(3, 4))
    own("FastGelu", floats(3, 4), floats(4))
    own("QuickGelu", floats(3, 4))
    own("FusedMatMul", floats(2, 3, 4), floats(2, 5, 4), transB=1, alpha=0.5)
    own("FusedConv", floats(1, 2, 5, 5), floats(3, 2, 3, 3), floats(3), activation="Relu")


def test_gemm_with_an_activation() -> None:
    operands = floats(3, 4), floats(5, 4), floats(5)
    own("FusedGemm", *operands, transB=1, alpha=0.5, activation="Relu")
    own("FusedGemm", *operands, transB=1, activation="LeakyRelu", activation_alpha=0.2)


def test_operators_that_the_standard_took_over() -> None:
    own("Trilu", floats(2, 3, 4), np.int64(1), upper=0, weights=(1,))
    own("Range", np.int64(2), np.int64(9), np.int64(3), weights=(0, 1, 2))
    own("GatherND", floats(3, 4), np.array([[2, 1], [0, 3]]))
    own("ExpandDims", floats(3, 4), np.int32(1), weights=(1,))


def test_experimental_operators() -> None:
    data = floats(1, 3, 6, 5)
    check("ImageScaler", data, opset=7, bias=[0.1, 0.2, 0.3], scale=2.0)
    check("Crop", data, opset=7, border=[1, 2, 1, 1])
    check("Affine", data, opset=7, alpha=2.0, beta=0.5)
    check("ScaledTanh", data, opset=7, alpha=2.0, beta=0.5)
