"""ONNX's rules for numbers that a type does not have."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from sterna.contrib import onnx_backend

FLOATS = np.array(
    [0, 1e-40, 5.9e-39, 1, 1.25, 1.5, 1.75, 3, -3, 1e30, 3e38, 3.4e38, np.inf, np.nan], "float32"
)


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_floats_become_powers_of_two(mode: str, saturate: int) -> None:
    to = TensorProto.FLOAT8E8M0
    node = helper.make_node("Cast", ["x"], ["y"], to=to, round_mode=mode, saturate=saturate)
    (found,) = onnx_backend.run_node(node, [FLOATS])
    want = numpy_helper.to_float8e8m0(FLOATS, bool(saturate), mode)
    np.testing.assert_array_equal(found.view("uint8"), want.view("uint8"))


def test_floats_that_are_too_large_stay_the_largest_if_asked_to() -> None:
    for saturate, large in ((1, 448), (0, np.nan)):
        to = TensorProto.FLOAT8E4M3FN
        node = helper.make_node("Cast", ["x"], ["y"], to=to, saturate=saturate)
        (found,) = onnx_backend.run_node(node, [np.array([1.5, 1e9, -np.inf, np.nan], "float32")])
        assert found.dtype == ml_dtypes.float8_e4m3fn
        np.testing.assert_array_equal(found.astype("float32"), [1.5, large, -large, np.nan])


def test_truth_and_bits() -> None:
    node = helper.make_node("BitCast", ["x"], ["y"], to=TensorProto.UINT8)
    (found,) = onnx_backend.run_node(node, [np.array([True, False])])
    np.testing.assert_array_equal(found, np.array([1, 0], "uint8"))
