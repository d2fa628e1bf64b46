"""Arrays of every element type, from NumPy and back."""

import ml_dtypes
import numpy as np
import pytest

from sterna.relay.arrays import from_numpy, to_numpy

TYPES = [
    "bool", "int8", "uint64", "float16", "bfloat16", "float8_e4m3fn", "float8_e8m0fnu", "int4",
    "uint4", "int2", "uint2", "float4_e2m1fn",
]


@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_come_back(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    given = np.array([0, 1, 1, 0.5, 2, -2, 1], "float32").astype(kind)
    found = to_numpy(from_numpy(given))
    assert found.dtype == kind
    np.testing.assert_array_equal(found.astype("float32"), given.astype("float32"))
