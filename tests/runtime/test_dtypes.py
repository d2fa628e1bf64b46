"""Type names mean the same to Python and to the runtime."""

import pytest

from sterna import nd
from sterna.runtime import DataType

NAMES = [
    "bool", "handle", "bfloat16", "complex64", "complex128", "float16", "float32", "float64",
    "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn",
    "float4_e2m1fn", "float32x4", "int8x16", *[f"int{b}" for b in (1, 2, 4, 8, 16, 32, 64)],
    *[f"uint{b}" for b in (2, 4, 8, 16, 32, 64)],
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_comes_back_as_itself(name: str) -> None:
    array = nd.empty((8,), name)
    dtype = array.dtype
    assert dtype == name == DataType(name)
    assert array.nbytes == (8 * dtype.bits * dtype.lanes + 7) // 8


WRONG = ["", "FLOAT32", "bfloat32", "boolx", "float33", "float32x0", "float8", "int0", "int65"]


@pytest.mark.parametrize("name", WRONG)
def test_both_refuse_the_same_names(name: str) -> None:
    with pytest.raises(ValueError, match="names no data type"):
        DataType(name)
    with pytest.raises(ValueError, match="names no data type"):
        nd.empty((1,), name)
