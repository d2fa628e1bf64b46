"""The small floats: every number they hold, rounding, and constants, against ml_dtypes."""

import importlib
import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.ir import build
from sterna.ir.expr import FloatImm
from sterna.support import element_arrays
from sterna.support.dtype import DataType
from sterna.support.float_format import FORMATS, exact_enough
from tests.support import require_module

Array = npt.NDArray[Any]
NAMES = sorted(FORMATS)
TINY = [name for name in NAMES if FORMATS[name].bits <= 8]


def reference(name: str) -> Any:
    """The NumPy type."""
    require_module("ml_dtypes")
    return np.float16 if name == "float16" else getattr(importlib.import_module("ml_dtypes"), name)


def holder(name: str) -> Any:
    return np.uint16 if FORMATS[name].bits == 16 else np.uint8


def all_values(name: str) -> Array:
    """The number of every code."""
    codes = np.arange(1 << FORMATS[name].bits).astype(holder(name))
    with np.errstate(invalid="ignore"):
        values: Array = codes.view(reference(name)).astype(np.float64)
    return values


def interesting(name: str) -> Array:
    """Numbers at, between and beyond those of a type."""
    finite = np.unique(all_values(name)[np.isfinite(all_values(name))])
    if len(finite) > 1000:
        finite = np.unique(np.concatenate([finite[::97], finite[:40], finite[-40:]]))
    between = (finite[1:] + finite[:-1]) / 2
    top = FORMATS[name].maximum
    random = np.random.default_rng(0).standard_normal(500)
    return np.concatenate([
        finite, between, np.nextafter(between, np.inf), np.nextafter(between, -np.inf),
        random * top / 3, random / 100, random * 2.0 ** np.arange(-250, 250),
        [0.0, -0.0, math.inf, -math.inf, math.nan],
        np.array([1.01, 1.03, 1.05, 1.07, 1.2, 1.5, 2.0, -1.04, -3.0]) * top,
    ])


def same(a: Array, b: Array) -> Any:
    return (a == b) & (np.signbit(a) == np.signbit(b)) | (np.isnan(a) & np.isnan(b))


@pytest.mark.parametrize("name", NAMES)
def test_every_number(name: str) -> None:
    expected = all_values(name)
    found = np.array([FORMATS[name].decode(code) for code in range(len(expected))])
    assert same(found, expected).all()
    again = np.array([FORMATS[name].encode(value) for value in expected])
    numbers = ~np.isnan(expected)
    assert (again == np.arange(len(expected)))[numbers].all()
    assert np.isnan(found[again[~numbers]]).all()
    decoded = element_arrays.decode(np.arange(len(expected)), DataType(name))
    assert same(decoded.astype(np.float64), expected).all()


@pytest.mark.parametrize("name", NAMES)
def test_rounding(name: str) -> None:
    """From float32: ml_dtypes itself rounds doubles twice."""
    with np.errstate(all="ignore"):
        values = interesting(name).astype(np.float32)
        expected = values.astype(reference(name)).astype(np.float64)
    found = np.array([build.round_float(float(value), DataType(name)) for value in values])
    assert same(found, expected).all()


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_arrays_round_like_numbers(name: str, saturate: bool) -> None:
    values = interesting(name)
    expected = [FORMATS[name].encode(float(value), saturate) for value in values]
    found = element_arrays.encode(values, DataType(name), saturate)
    assert found.tolist() == expected


@pytest.mark.parametrize("name", NAMES)
def test_saturation(name: str) -> None:
    """Finite results stay as they are; everything too large is the largest number."""
    format = FORMATS[name]
    for value in map(float, interesting(name)):
        plain, held = (format.decode(format.encode(value, s)) for s in (False, True))
        has_none = math.isnan(value) or (format.specials == "scale" and value <= 0)
        if math.isfinite(plain) or has_none:
            assert same(np.array(plain), np.array(held))
        else:
            assert held == math.copysign(format.maximum, value)


@cache
def finite_numbers(name: str) -> list[Fraction]:
    numbers = [FORMATS[name].decode(code) for code in range(1 << FORMATS[name].bits)]
    return [Fraction(number) for number in numbers if math.isfinite(number)]


@given(st.sampled_from(TINY), st.floats(allow_nan=False, allow_infinity=False))
def test_the_nearest_number_is_found(name: str, value: float) -> None:
    """Against exact arithmetic."""
    format = FORMATS[name]
    if format.specials == "scale":
        value = abs(value) or 1.0
    found = format.decode(format.encode(value, saturate=True))
    nearest = min(abs(number - Fraction(value)) for number in finite_numbers(name))
    assert abs(Fraction(found) - Fraction(value)) == nearest


@given(st.integers(-(2**200), 2**200), st.sampled_from([*TINY, "float32"]))
def test_integers_are_rounded_once(value: int, name: str) -> None:
    near = Fraction(exact_enough(value))
    assert near == value or abs(value) > 2**53
    made = build.const(value, name)
    assert isinstance(made, FloatImm)
    if name != "float32":
        assert same(np.array(made.value), np.array(nearest_even(value, name)))


def nearest_even(value: int, name: str) -> float:
    """The same by fractions."""
    format = FORMATS[name]
    if value == 0 or (format.specials == "scale" and value < 0):
        return format.decode(format.encode(float(value)))
    numbers = [Fraction(format.decode(code)) for code in range(format.largest + 1)]
    numbers.append(2 * numbers[-1] - numbers[-2])
    size = abs(value)
    best = min(abs(number - size) for number in numbers)
    codes = [code for code, number in enumerate(numbers) if abs(number - size) == best]
    up = format.specials == "scale"
    code = max(codes) if up else next((c for c in codes if c % 2 == 0), codes[0])
    sign = format.sign if value < 0 else 0
    if size > numbers[-1] or code > format.largest:
        code = format.overflow
        sign = 0 if format.specials == "fnuz" else sign
    return format.decode(code | sign)


def test_constants_are_rounded_once() -> None:
    # 1 + 2**-8 lies between two numbers of bfloat16; a little more must not be lost on the way.
    assert build.round_float(1 + 2**-8 + 2**-40, DataType("bfloat16")) == 1 + 2**-7
    assert build.round_float(1 + 2**-8, DataType("bfloat16")) == 1
    assert build.round_float(2**62 + 2**54 + 1, DataType("bfloat16")) == 2**62 + 2**55
    assert build.round_float(2**60 + 2**36 + 1, DataType("float32")) == 2**60 + 2**37
    assert build.const(3.3, "float8_e4m3fn").value == 3.25  # type: ignore[attr-defined]
    assert build.cast("float4_e2m1fn", build.const(100, "int32")).value == 6  # type: ignore[attr-defined]
    assert math.isnan(build.const(1e9, "float8_e4m3fn").value)  # type: ignore[attr-defined]


@pytest.mark.parametrize("bits", range(1, 8))
def test_packing(bits: int) -> None:
    dtype = DataType(f"uint{bits}")
    for count in (0, 1, 2, 3, 7, 8, 9, 100):
        codes = np.random.default_rng(count).integers(0, 1 << bits, count).astype(np.uint8)
        packed = element_arrays.pack(codes, dtype)
        assert packed.size == dtype.bytes_of(count)
        whole = int.from_bytes(packed.tobytes(), "little")
        assert [whole >> bits * i & (1 << bits) - 1 for i in range(count)] == codes.tolist()
        assert (element_arrays.unpack(packed, count, dtype) == codes).all()
