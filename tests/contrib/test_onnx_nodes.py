"""ONNX's own tests of operators, compiled and run, as docs/onnx_coverage.md lists them."""

import numpy as np
import onnx
import pytest

from sterna.contrib.onnx_coverage import (
    error_in_ulp,
    listed,
    node_tests,
    run_test,
)
from tests.support import ROOT

PAGE = (ROOT / "docs" / "onnx_coverage.md").read_text("utf-8")
PASSING, FAILING = listed(PAGE)


@pytest.mark.parametrize("name", PASSING)
def test_that_passes(name: str) -> None:
    run_test(node_tests()[name])


def test_the_page_lists_every_test() -> None:
    assert f"`onnx` {onnx.__version__} has {len(node_tests())} tests" in PAGE
    assert f"; {len(PASSING)} pass here" in " ".join(PAGE.split())
    assert sorted([*PASSING, *FAILING]) == sorted(node_tests())
    assert len(PASSING) >= 1500


def test_errors_are_counted_in_steps_of_the_type() -> None:
    special = np.array([1, 0, np.nan, -np.inf], "float32")
    assert error_in_ulp(special, special) == 0
    finite = np.array([1, 0, -3.5, 1e-44], "float32")
    assert error_in_ulp(np.nextafter(finite, np.float32(9)), finite) == 1
    assert error_in_ulp(np.array([3, 7], "int8"), np.array([3, 9], "int8")) == 2
    assert error_in_ulp(np.array([0.0]), np.array([np.nan])) != 0
    assert error_in_ulp(np.zeros((0, 2)), np.zeros((0, 2))) == 0
