"""sterna.testing.assert_allclose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sterna import nd
from sterna.testing import assert_allclose, requires_package


class OnlyDLPack:
    """A tensor of another library that offers nothing but DLPack."""

    def __init__(self, values: list[float]) -> None:
        self._array = np.array(values)

    def __dlpack__(self, **options: Any) -> object:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class OnlyArray:
    """A tensor of another library that offers nothing but __array__."""

    def __init__(self, values: list[float]) -> None:
        self._values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self._values, dtype)


class OnDevice:
    """A tensor that cannot be read from the host."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TypeError("it is in device memory")


@pytest.mark.parametrize(
    "make",
    [np.array, list, tuple, lambda x: nd.array(np.array(x)), OnlyDLPack, OnlyArray],
    ids=["numpy", "list", "tuple", "ndarray", "dlpack", "array"],
)
def test_accepts_and_compares_tensors(make: Any) -> None:
    assert_allclose(make([1.0, 2.0]), np.array([1.0, 2.0]))
    assert_allclose(np.array([1.0, 2.0]), make([1.0, 2.0]))
    with pytest.raises(AssertionError, match="Mismatched elements: 1 / 2"):
        assert_allclose(make([1.0, 2.0]), np.array([1.0, 3.0]))


def test_accepts_torch_tensors() -> None:
    requires_package("torch").require()
    import torch

    assert_allclose(torch.ones(2, 3), np.ones((2, 3)))


@pytest.mark.parametrize(
    ("actual", "desired"),
    [(np.ones(3), 1.0), (np.ones((1, 3)), np.ones(3)), (np.ones(3), np.ones((3, 1)))],
)
def test_does_not_broadcast(actual: object, desired: object) -> None:
    with pytest.raises(AssertionError, match=r"the shapes differ: actual is .* desired is"):
        assert_allclose(actual, desired)


def test_scalars_match_zero_dimensional_arrays() -> None:
    assert_allclose(1.0, np.array(1.0))


def test_tolerances() -> None:
    assert_allclose([1.0], [1.0 + 1e-7])
    assert_allclose([1.0], [1.5], rtol=0.5)
    assert_allclose([0.0], [0.5], atol=0.5)
    assert_allclose([1.0], [1.5], 0.5, 0.0)
    with pytest.raises(AssertionError):
        assert_allclose([1.0], [1.0 + 1e-6])
    with pytest.raises(AssertionError):
        assert_allclose([0.0], [1e-6])


def test_verbose_shows_the_values() -> None:
    with pytest.raises(AssertionError, match=r"ACTUAL: array\(\[12345"):
        assert_allclose([12345.0], [0.0])
    with pytest.raises(AssertionError) as caught:
        assert_allclose(np.array([12345.0, 1.0]), np.array([54321.0, 1.0]), verbose=False)
    assert "ACTUAL: array" not in str(caught.value)


def test_unreadable_tensor_is_named() -> None:
    with pytest.raises(TypeError, match=r"cannot read `desired` .*OnDevice.*in device memory"):
        assert_allclose([1.0], OnDevice())
