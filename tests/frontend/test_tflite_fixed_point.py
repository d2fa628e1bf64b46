"""Curves and sums of whole numbers are what TFLite Micro's rules say, written anew in Python's own.

Its kernels run on x86-64 alone; rules are the same everywhere. Numbers of Python have no end, so
what overflows in kernels would be seen here.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest

from sterna.frontend.tflite.byte_sums import find_byte_sum
from sterna.frontend.tflite.sigmoids import sigmoid_of_bytes
from sterna.relay.arrays import Array
from tests.frontend.tflite_models import T, one_operator, run_imported, run_litert

ONE = (1 << 31) - 1
# How many scales and zero points are drawn.
DRAWS = 120


def divide(x: int, by: int) -> int:
    """Rounded, halves away from zero."""
    return (abs(x) + by // 2) // by * (1 if x >= 0 else -1)


def times(a: int, b: int) -> int:
    """The product of fractions, rounded, halves upward."""
    return (2 * a * b + (1 << 31)) >> 32


def factor_of(real: float) -> tuple[int, int]:
    fraction, power = math.frexp(real)
    return math.floor(fraction * 2.0**31 + 0.5), power


def scaled(x: int, factor: tuple[int, int]) -> int:
    multiplier, power = factor
    made = times(x << max(power, 0), multiplier)
    assert -(1 << 31) <= x << max(power, 0) < 1 << 31
    return divide(made, 1 << max(-power, 0))


def held(x: int) -> int:
    return max(-(1 << 31), min(x, ONE))


def exp(a: int, whole_bits: int) -> int:
    """Of what is not positive: by its series around -1/8 and by powers of e for the rest."""
    if a == 0:
        return ONE
    bits = 31 - whole_bits
    quarter = 1 << (bits - 2)
    last = a % quarter - quarter
    x = held(last << whole_bits) + (1 << 28)
    x2 = times(x, x)
    x3, x4 = times(x2, x), times(x2, x2)
    series = x + divide(times(divide(x4, 4) + x3, 715827883) + x2, 2)
    made = 1895147668 + times(series, 1895147668)
    for place, power in enumerate(
        (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
    ):
        if whole_bits > place - 2 and (last - a) >> (bits + place - 2) & 1:
            made = times(made, power)
    return made


def two_over_one_and(a: int) -> int:
    """2 / (1 + a) with two bits of whole part: three steps of Newton's."""
    half = (a + ONE + 1) // 2
    x = 1515870810 + times(half, -1010580540)
    for _ in range(3):
        x += held(times(x, (1 << 29) - times(half, x)) << 2)
    return x


def logistic(a: int) -> int:
    if a == 0:
        return 1 << 30
    above = held(two_over_one_and(exp(-abs(a), 4)) << 1)
    return above if a > 0 else ONE - above


def tanh(a: int) -> int:
    above = held((two_over_one_and(exp(-abs(a), 5)) - (1 << 29)) << 2)
    return above if a > 0 else -above if a < 0 else 0


def curve_of(kind: str, byte: int, scale: float, zero: int) -> int:
    factor = factor_of(scale * 2**27)
    radius = math.floor(15 * 2.0**27 / 2.0 ** factor[1])
    distance = byte - zero
    if abs(distance) >= radius:
        return -128 if distance < 0 else 127
    argument = scaled(distance, factor)
    if kind == "LOGISTIC":
        return max(-128, min(divide(logistic(argument), 1 << 23) - 128, 127))
    return max(-128, min(divide(tanh(argument), 1 << 24), 127))


def drawn(count: int, seed: int) -> list[tuple[float, int]]:
    rng = np.random.default_rng(seed)
    scales = np.exp(rng.uniform(-9, 1.5, count)).astype(np.float32)
    return [(float(scale), int(rng.integers(-128, 128))) for scale in scales]


@pytest.mark.parametrize("kind", ["LOGISTIC", "TANH"])
def test_curves_of_every_byte(kind: str) -> None:
    # the first lies within a millionth of a half
    for scale, zero in [(float(np.float32(0.007215987)), -126), *drawn(DRAWS, 0)]:
        wanted = [curve_of(kind, byte, scale, zero) for byte in (*range(128), *range(-128, 0))]
        assert sigmoid_of_bytes(kind, scale, zero).tolist() == wanted, (scale, zero)


@pytest.mark.parametrize("kind,out_scale,out_zero", [("LOGISTIC", 1 / 256, -128),
                                                     ("TANH", 1 / 128, 0)])
def test_models_of_curves(kind: str, out_scale: float, out_zero: int) -> None:
    every = np.arange(-128, 128).astype(np.int8)
    scale, zero = float(np.float32(0.007215987)), -126
    data = one_operator(kind, [T((256,), "int8", None, scale=scale, zero=zero)],
                        [T((256,), "int8", None, scale=out_scale, zero=out_zero)], None)
    (made,) = run_imported(data, every, rounding="tflm")
    assert made.tolist() == [curve_of(kind, int(byte), scale, zero) for byte in every]


def softmax(row: list[int], scale: float) -> list[int]:
    factor = factor_of(min(scale * 2**26, ONE))
    radius = math.floor(31 * 2.0**26 / 2.0 ** factor[1])
    below = [each - max(row) for each in row]
    powers = [exp(scaled(each, factor), 5) if each >= -radius else None for each in below]
    total = sum(divide(each, 1 << 12) for each in powers if each is not None)
    over = total.bit_length() - 20
    left = (total << (12 - over)) - (1 << 31)
    reciprocal = held(two_over_one_and(left) << 1)
    return [
        -128 if each is None
        else max(-128, min(divide(times(reciprocal, each), 1 << (over + 23)) - 128, 127))
        for each in powers
    ]


@pytest.mark.parametrize("draw", range(6))
def test_softmax(draw: int) -> None:
    scale, _ = drawn(6, 1)[draw]
    rng = np.random.default_rng(draw)
    data = rng.integers(-128, 128, (40, 10)).astype(np.int8)
    model = one_operator(
        "SOFTMAX", [T(data.shape, "int8", None, scale=scale, zero=3)],
        [T(data.shape, "int8", None, scale=1 / 256, zero=-128)], ("SoftmaxOptions", {"beta": 1.0}))
    (made,) = run_imported(model, data, rounding="tflm")
    assert made.tolist() == [softmax(row, scale) for row in data.tolist()]


# ---- numbers of 16 bits ----


@pytest.mark.parametrize("kind", ["LOGISTIC", "TANH"])
@pytest.mark.parametrize("scale", [2.0**-12, 2.0**-11, 2.0**-12 * 1.0003, 1 / 3000, 3e-6, 0.8])
def test_curves_of_16_bits(kind: str, scale: float) -> None:
    every = np.arange(-32768, 32768).astype(np.int16)
    data = one_operator(kind, [T(every.shape, "int16", None, scale=scale, zero=0)],
                        [T(every.shape, "int16", None, scale=1 / 32768, zero=0)], None)
    for rule in ("xnnpack", "tflm"):
        (theirs,) = run_litert(data, every, reference=rule == "tflm")
        (mine,) = run_imported(data, every, rounding=rule)
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("scale,out_scale", [(0.01, 0.01), (3.0, 1 / 32768)])
def test_curves_of_16_bits_have_a_scale(scale: float, out_scale: float) -> None:
    data = one_operator("TANH", [T((4,), "int16", None, scale=scale, zero=0)],
                        [T((4,), "int16", None, scale=out_scale, zero=0)], None)
    with pytest.raises(ValueError, match="scale"):
        run_imported(data, np.zeros(4, np.int16))


# ---- sums of two bytes ----


def sum_of(pair: tuple[int, int], scales: list[float], zeros: list[int], sign: int) -> int:
    twice = 2 * max(scales[:2])
    first, second = (
        scaled((byte - zero) << 20, factor_of(scale / twice))
        for byte, scale, zero in zip(pair, scales, zeros, strict=False)
    )
    made = scaled(first + sign * second, factor_of(twice / (2**20 * scales[2])))
    return max(-128, min(made + zeros[2], 127))


@pytest.mark.parametrize("kind,sign", [("ADD", 1), ("SUB", -1)])
@pytest.mark.parametrize("draw", range(4))
def test_sums_of_bytes(kind: str, sign: int, draw: int) -> None:
    rng = np.random.default_rng(draw)
    scales = [float(np.float32(each)) for each in np.exp(rng.uniform(-4, -1, 3))]
    zeros = [int(each) for each in rng.integers(-128, 128, 3)]
    pairs = rng.integers(-128, 128, (2, 3000)).astype(np.int8)
    operands = [T((3000,), "int8", None, scale=scale, zero=zero)
                for scale, zero in zip(scales, zeros, strict=True)]
    data = one_operator(kind, operands[:2], operands[2:], (f"{kind.title()}Options", {}))
    (made,) = run_imported(data, *pairs, rounding="tflm")
    wanted = [sum_of((int(a), int(b)), scales, zeros, sign) for a, b in pairs.T]
    assert made.tolist() == wanted


def given_by(made: Array, low: int) -> Array:
    return np.clip(made, low, low + 255)


def test_a_sum_is_found_where_one_is_the_same() -> None:
    every = np.arange(-128, 128)
    wanted = given_by((np.add.outer(every * 700_001, every * 300_007) + 12_345) >> 20, -128)
    found = find_byte_sum(wanted, 700_001 / 2**20, 300_007 / 2**20, -128)
    assert found is not None
    products = np.add.outer(every * found.lhs_factor, every * found.rhs_factor) + found.start
    np.testing.assert_array_equal(given_by(products >> found.shift, -128), wanted)
    assert np.abs(products).max() < 1 << 31


def test_a_sum_that_rounds_halves_away_from_zero() -> None:
    """Factors that are larger by next to nothing bring halves of both signs further out."""
    every = np.arange(-128, 128)
    total = np.add.outer(every, every)
    wanted = given_by(np.sign(total) * ((np.abs(total) + 1) // 2), -128)
    found = find_byte_sum(wanted, 0.5, 0.5, -128)
    assert found is not None and found.lhs_factor > 1 << (found.shift - 1)


def test_no_sum_is_a_maximum() -> None:
    every = np.arange(-128, 128)
    assert find_byte_sum(np.maximum.outer(every, every), 0.5, 0.5, -128) is None


def short_places(curve: Callable[[float], float], low: float, high: float) -> list[int]:
    """The ends of 512 lines, by single floats, each moved by half of what its line misses."""
    single = np.float32
    step, inverse = single((single(high) - single(low)) / single(512)), single(32768)

    def rounded(x: np.float32) -> np.float32:
        return single(math.copysign(math.floor(abs(float(x)) + 0.5), float(x)))

    def value(at: np.float32) -> np.float32:
        return single(single(curve(float(at))) * inverse)

    made = []
    for n in range(512):
        at = single(single(low) + single(single(n) * step))
        own, half = rounded(value(at)), rounded(value(single(at + step / single(2))))
        on_line = rounded(single(
            (value(single(single(low) + single(single(n + 1) * step))) + own) / single(2)))
        made.append(min(int(own - rounded(single((on_line - half) / single(2)))), 32767))
    return [*made, min(int(rounded(value(single(high)))), 32767)]


EXPONENTIALS = short_places(math.exp, -10.0, 0.0)
RECIPROCALS = short_places(lambda x: 1 / (1 + x), 0.0, 1.0)


def on_line(x: int, places: list[int]) -> int:
    held_x = max(-32768, min(x, 32767))
    line, along = divmod(held_x + 32768, 128)
    return places[line] + (((places[line + 1] - places[line]) * along + 64) >> 7)


def softmax_of_16_bits(row: list[int], scale: float) -> list[int]:
    factor = factor_of(float(np.float32(scale)) / (10 / 65535))
    parts = [on_line(scaled(each - max(row), factor) + 32767, EXPONENTIALS) for each in row]
    bits = sum(parts).bit_length()
    fraction = ((sum(parts) << (31 - bits)) + (1 << 13)) >> 14
    reciprocal = on_line(fraction - (3 << 15), RECIPROCALS)
    return [min((part * reciprocal + (1 << (bits - 2))) >> (bits - 1), 32767) for part in parts]


def softmax_model(shape: tuple[int, ...], scale: float, out_scale: float = 1 / 32768) -> bytes:
    return one_operator(
        "SOFTMAX", [T(shape, "int16", None, scale=scale, zero=0)],
        [T(shape, "int16", None, scale=out_scale, zero=0)], ("SoftmaxOptions", {"beta": 1.0}))


@pytest.mark.parametrize(("scale", "columns"), [
    (1e-3, 7), (6e-4, 20), (10 / 65535, 2), (10 / 65535, 3), (3e-4, 200), (1e-5, 5), (0.3, 1),
])
def test_softmax_of_16_bits(scale: float, columns: int) -> None:
    rng = np.random.default_rng(columns)
    rows = np.concatenate([rng.integers(-32768, 32768, (150, columns)) // by for by in (1, 60)])
    data = rows.astype(np.int16)
    model = softmax_model(data.shape, scale)
    (made,), (wanted,) = run_imported(model, data), run_litert(model, data)
    np.testing.assert_array_equal(made, wanted)
    (made,) = run_imported(model, data, rounding="tflm")
    assert made.tolist() == [softmax_of_16_bits(row, scale) for row in data.tolist()]


def test_softmax_of_16_bits_has_one_scale() -> None:
    data = np.zeros((1, 4), np.int16)
    with pytest.raises(ValueError, match="the result 1/32768 for its scale"):
        run_imported(softmax_model((1, 4), 1e-3, 1 / 256), data)
