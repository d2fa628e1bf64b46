"""A sample of the operators' cases on an OpenCL device; tests/op/on_opencl.py runs them all."""

import pytest

from sterna.testing import requires_opencl
from tests.op.on_opencl import cases, onnx_cases

pytestmark = requires_opencl.marks()

# Primes, so that over the operators first, second and later cases take turns.
EVERY, EVERY_OF_ONNX = 17, 97

SAMPLE = dict(list(cases("opencl").items())[::EVERY])
ONNX = dict(list(onnx_cases("opencl").items())[::EVERY_OF_ONNX])


@pytest.mark.parametrize("name", SAMPLE)
def test_case(name: str) -> None:
    SAMPLE[name]()


@pytest.mark.parametrize("name", ONNX)
def test_onnx_node(name: str) -> None:
    ONNX[name]()
