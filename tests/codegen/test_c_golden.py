"""The text of generated C, as a person reads it."""

from collections.abc import Callable

import pytest

from sterna.codegen.c import generate
from sterna.tir import parse

PROGRAMS = {
    "scale": """
def scale(A: Buffer[(n, 16), "float32"], C: Buffer[(n, 16), "float32"], n: Size[int32]):
    for i in range(n):  # parallel
        for j in range(16):
            C[i, j] = max(A[i, j]*0.5, 0.0)
""",
    "quantize": """
def quantize(A: Buffer[(64,), "float16"], C: Buffer[(64,), "int8"], zero: int32):
    T = allocate((8,), "int32", "local")
    for i in range(8):
        T[ramp(0, 1, 8)] = int32x8(A[ramp(i*8, 1, 8)])
        for j in range(8):  # unrolled
            if likely(i*8 + j < 60):
                C[i*8 + j] = saturate(T[j] + zero, dtype="int8")
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_text(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.c", generate([parse(PROGRAMS[name])], name))
