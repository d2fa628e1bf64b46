"""Operators of bytes compute what LiteRT computes, to the last bit.

By default that is what its kernels for processors do, and by the rule of microcontrollers what
TFLite Micro's do, which are its reference kernels but for a few; they run on x86-64 alone. Some
kernels for processors round in another way on x86 than on AArch64, where they were measured: there
a value in a hundred may be off by one.
"""

import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from sterna.frontend.tflite.int16_functions import gelu_of_floats
from sterna.frontend.tflite.schema import read_model
from sterna.relay.arrays import Array
from sterna.relay.frontend import from_tflite
from sterna.support.errors import OpNotImplemented
from tests.frontend.tflite_models import (
    T,
    constant,
    one_operator,
    run_imported,
    run_litert,
    run_micro,
)

IS_MEASURED = platform.machine() in ("aarch64", "arm64")
HAS_MICRO = sys.platform == "linux" and platform.machine() == "x86_64"
DTYPES = ("int8", "uint8")
# Reference kernels whose ratio of scales is of float32, where TFLite Micro's is of float64.
NEAR = ("LEAKY_RELU", "PRELU", "RELU", "ABS")
# Reference kernels of floats, whose products compilers fuse for AArch64 and not for x86.
FUSED = ("CONCATENATION",)
# TFLite Micro's own quotients, one in ten thousand of which is off by one.
NEAR_ON_MICRO = ("DIV",)
# TFLite Micro does not look at the scale of its result.
NOT_SCALED = ("RELU6",)
# Scales whose ratio gives another number for a byte in float64 than in float32.
FINE = (0.25101757, 0.6850877)

EVERY = np.arange(256, dtype=np.uint8)
FIRST, SECOND = (part.reshape(256, 256) for part in (np.repeat(EVERY, 256), np.tile(EVERY, 256)))


def expect_same(mine: Array, theirs: Array, exact: bool, most: float = 0.01) -> None:
    """The same numbers, or so many of them off by one at most."""
    assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
    if exact:
        np.testing.assert_array_equal(mine, theirs)
    else:
        apart = np.abs(mine.astype(np.int64) - theirs.astype(np.int64))
        assert apart.max(initial=0) <= 1 and np.count_nonzero(apart) <= most * apart.size + 1


def check(
    data: bytes, *inputs: Array, rules: Sequence[str] = ("xnnpack", "tflm"), most: float = 0.01,
) -> None:
    """By LiteRT and, where the rule of microcontrollers is asked for, by TFLite Micro as well."""
    kind = read_model(data).subgraphs[0].operators[0].kind
    for rule in rules:
        reference = rule == "tflm" and kind not in FUSED
        wanted = run_litert(data, *inputs, reference=rule == "tflm")
        for mine, theirs in zip(run_imported(data, *inputs, rounding=rule), wanted, strict=True):
            expect_same(mine, theirs, kind not in NEAR if reference else IS_MEASURED, most)
    if not HAS_MICRO or kind in NOT_SCALED or "tflm" not in rules:
        return
    made = run_micro(data, *inputs)
    if made is not None:
        for mine, theirs in zip(run_imported(data, *inputs, rounding="tflm"), made, strict=True):
            expect_same(mine, theirs, exact=kind not in NEAR_ON_MICRO)


def zero(dtype: str, number: int) -> int:
    """A zero point that means the same in bytes of either sign."""
    return number if dtype == "int8" else number + 128


def quantised(dtype: str, shape: Sequence[int], scale: float, point: int, data: Any = None) -> T:
    return T(shape, dtype, data, scale=scale, zero=zero(dtype, point))


def bytes_of(dtype: str, *shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8).view(dtype)


# ---- functions of one ----

Options = tuple[str, Mapping[str, Any]] | None
UNARY: list[tuple[str, float, int, float, int, Options]] = [
    ("LOGISTIC", 0.05, 3, 1 / 256, -128, None), ("TANH", 0.02, 3, 1 / 128, 0, None),
    ("GELU", 0.02, 3, 0.02, -4, ("GeluOptions", {})),
    ("GELU", 0.02, 3, 0.02, -4, ("GeluOptions", {"approximate": True})),
    ("HARD_SWISH", 0.05, 3, 0.04, -100, ("HardSwishOptions", {})),
    ("HARD_SWISH", 0.03, -20, 0.03, -30, ("HardSwishOptions", {})),
    *((kind, 0.05, 3, *out, None) for kind in ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
      for out in ((0.05, 3), (0.03, -100))),
    # whose products lie near to halves, or elsewhere if the ratio of scales has more than 24 bits
    ("RELU", 0.0029549571, -111, 0.0036465630, -21, None),
    ("RELU6", 0.0040753791, 33, 0.0174055863, 93, None),
    ("RELU", FINE[0], -128, FINE[1], -128, None),
    ("LEAKY_RELU", 0.05, 3, 0.04, -30, ("LeakyReluOptions", {"alpha": 0.13})),
    ("QUANTIZE", 0.05, 3, 0.041, -30, ("QuantizeOptions", {})),
]
ONLY_SIGNED: list[tuple[str, float, int, float, int, Options]] = [
    ("EXP", 0.02, 3, 0.06, -128, ("ExpOptions", {})), ("LOG", 0.02, -128, 0.06, 3, None),
    ("RSQRT", 0.02, -128, 0.06, -128, None), ("SQRT", 0.02, -128, 0.01, -128, None),
    ("ABS", 0.02, 3, 0.02, -128, ("AbsOptions", {})),
    ("ABS", 0.1565454751, -36, 0.4178534746, -42, ("AbsOptions", {})),
    ("ABS", FINE[0], -128, FINE[1], -128, ("AbsOptions", {})),
    ("NEG", 0.02, 3, 0.02, -4, ("NegOptions", {})),
]


@pytest.mark.parametrize("case", [
    *((dtype, *case) for dtype in DTYPES for case in UNARY),
    *(("int8", *case) for case in ONLY_SIGNED),
], ids=lambda case: f"{case[1]}_{case[0]}_{case[4]}")
def test_a_function_of_every_byte(case: tuple[str, str, float, int, float, int, Options]) -> None:
    dtype, kind, scale, point, out_scale, out_point, options = case
    data = one_operator(kind, [quantised(dtype, (1, 256), scale, point)],
                        [quantised(dtype, (1, 256), out_scale, out_point)], options)
    check(data, EVERY.view(dtype).reshape(1, 256))


@pytest.mark.parametrize(("scale", "point", "out_scale", "out_point"), [
    (0.05, 3, 0.04, -100), (1 / 32, 0, 0.04, -60), (0.017, -20, 0.011, 5), (0.1, 0, 0.02, -100),
])
def test_exponential_linear_units_of_microcontrollers(
    scale: float, point: int, out_scale: float, out_point: int
) -> None:
    """LiteRT's package has none of bytes."""
    data = one_operator("ELU", [quantised("int8", (1, 256), scale, point)],
                        [quantised("int8", (1, 256), out_scale, out_point)])
    x = EVERY.view("int8").reshape(1, 256)
    (mine,) = run_imported(data, x, rounding="tflm")
    if scale == 0.05:  # half of a step
        assert mine[x == 5] == -97
    if HAS_MICRO:
        theirs = run_micro(data, x)
        assert theirs is not None
        np.testing.assert_array_equal(mine, theirs[0])


def test_bytes_of_one_sign_become_those_of_the_other() -> None:
    data = one_operator("QUANTIZE", [quantised("uint8", (256,), 0.05, 3)],
                        [quantised("int8", (256,), 0.041, -30)], ("QuantizeOptions", {}))
    check(data, EVERY)


@pytest.mark.parametrize("dtype", DTYPES)
def test_floats_become_bytes_and_bytes_floats(dtype: str) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([(np.arange(400) - 200) * 0.025, rng.standard_normal(600) * 3])
    real = x.astype(np.float32)
    check(one_operator("QUANTIZE", [T(real.shape)], [quantised(dtype, real.shape, 0.05, 3)],
                       ("QuantizeOptions", {})), real)
    data = one_operator("DEQUANTIZE", [quantised(dtype, (256,), 0.05, 3)], [T((256,))],
                        ("DequantizeOptions", {}))
    for mine, theirs in zip(run_imported(data, EVERY.view(dtype)),
                            run_litert(data, EVERY.view(dtype)), strict=True):
        np.testing.assert_array_equal(mine, theirs)


# ---- functions of two ----

BINARY: list[tuple[str, str, float, int]] = [
    ("ADD", "AddOptions", 0.07, 0), ("ADD", "AddOptions", 0.07, 1), ("SUB", "SubOptions", 0.07, 3),
    ("MUL", "MulOptions", 0.11, 0), ("MUL", "MulOptions", 0.11, 1), ("ADD", "AddOptions", 0.04, 0),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", BINARY, ids=lambda case: f"{case[0]}_{case[2]}_{case[3]}")
def test_a_function_of_every_pair(dtype: str, case: tuple[str, str, float, int]) -> None:
    kind, name, out_scale, activation = case
    data = one_operator(
        kind,
        [quantised(dtype, FIRST.shape, 0.05, 3), quantised(dtype, FIRST.shape, 0.031, -7)],
        [quantised(dtype, FIRST.shape, out_scale, -20)],
        (name, {"fusedActivationFunction": activation}),
    )
    check(data, FIRST.view(dtype), SECOND.view(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_pairs_are_compared_by_what_they_stand_for(dtype: str) -> None:
    for kind, name, scale, point in (
        ("LESS", "LessOptions", 0.031, -7), ("EQUAL", "EqualOptions", 0.05, 3),
    ):
        data = one_operator(
            kind,
            [quantised(dtype, FIRST.shape, 0.05, 3), quantised(dtype, FIRST.shape, scale, point)],
            [T(FIRST.shape, "bool")], (name, {}),
        )
        check(data, FIRST.view(dtype), SECOND.view(dtype))


def test_quotients_of_16_bits() -> None:
    """But for small numerators, whose shifts by more than 31 places have no meaning."""
    rng = np.random.default_rng(3)
    x, y = (rng.integers(200, 32768, 20_000) * rng.choice([-1, 1], 20_000) for _ in range(2))
    data = one_operator(
        "DIV", [T(x.shape, "int16", scale=0.0005), T(x.shape, "int16", scale=0.00031)],
        [T(x.shape, "int16", scale=0.00021)], ("DivOptions", {}))
    check(data, x.astype("int16"), y.astype("int16"), rules=("xnnpack",))


@pytest.mark.parametrize("kind", ["Add", "Sub"])
@pytest.mark.parametrize("ratio", [300.0, 40_000.0])
def test_sums_of_scales_far_apart(kind: str, ratio: float) -> None:
    """Five bytes at a time: vectors of LiteRT's own kernels lose bits above the sixteenth."""
    rng = np.random.default_rng(3)
    for _ in range(12):
        x, y = (rng.integers(-10, 15, 5).astype("int8"), bytes_of("int8", 5))
        check(one_operator(
            kind.upper(), [T((5,), "int8", scale=0.01 * ratio, zero=3),
                           T((5,), "int8", scale=0.005, zero=-7)],
            [T((5,), "int8", scale=0.01, zero=-20)], (f"{kind}Options", {})), x, y,
            rules=("xnnpack",))


def test_other_functions_of_two() -> None:
    same = [quantised("int8", FIRST.shape, 0.05, 3)] * 2
    check(one_operator("MAXIMUM", same, [same[0]], ("MaximumMinimumOptions", {})),
          FIRST.view("int8"), SECOND.view("int8"))
    other = [same[0], quantised("int8", FIRST.shape, 0.031, -7)]
    check(one_operator("SQUARED_DIFFERENCE", other, [quantised("int8", FIRST.shape, 0.1, -128)],
                       ("SquaredDifferenceOptions", {})), FIRST.view("int8"), SECOND.view("int8"))
    slopes = quantised("int8", (1, 1, 1), 0.01, 0, np.array([[[50]]], "int8"))
    check(one_operator("PRELU", [quantised("int8", (1, 16, 16, 1), 0.05, 3), slopes],
                       [quantised("int8", (1, 16, 16, 1), 0.04, -20)]),
          EVERY.view("int8").reshape(1, 16, 16, 1))


def test_bytes_of_two_scales_are_joined_under_one() -> None:
    for first, second in ((0.05, 0.031), (0.006, 0.7)):
        data = one_operator(
            "CONCATENATION",
            [quantised("uint8", (1, 256), first, 3), quantised("uint8", (1, 256), second, -7)],
            [quantised("uint8", (2, 256), 0.06, 3)], ("ConcatenationOptions", {"axis": 0}),
        )
        check(data, EVERY.reshape(1, 256), EVERY.reshape(1, 256))


# ---- reductions and windows ----


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind,scale", [
    ("MEAN", 0.04), ("MEAN", 0.05), ("SUM", 0.87), ("REDUCE_MAX", 0.05), ("REDUCE_MIN", 0.05),
])
@pytest.mark.parametrize("axes,out", [((1, 2), (2, 7)), ((3,), (2, 5, 6)), ((0, 1, 2, 3), ())])
def test_a_reduction(
    dtype: str, kind: str, scale: float, axes: tuple[int, ...], out: tuple[int, ...]
) -> None:
    data = one_operator(
        kind, [quantised(dtype, (2, 5, 6, 7), 0.05, 3), constant(np.array(axes, "int32"))],
        [quantised(dtype, out, scale, 3 if kind.startswith("REDUCE") else -5)],
        ("ReducerOptions", {}),
    )
    # its reference kernel for sums of signed bytes takes the zero point for part of them
    rules = ("xnnpack",) if (kind, dtype) == ("SUM", "int8") else ("xnnpack", "tflm")
    check(data, bytes_of(dtype, 2, 5, 6, 7), rules=rules)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
@pytest.mark.parametrize("padding", [0, 1])
def test_a_pool(dtype: str, kind: str, padding: int) -> None:
    shape = (1, 5, 4, 3) if padding == 0 else (1, 4, 3, 3)
    one = {"strideW": 2, "strideH": 2, "filterWidth": 3, "filterHeight": 3, "padding": padding}
    data = one_operator(
        kind, [quantised(dtype, (1, 10, 8, 3), 0.05, 3)], [quantised(dtype, shape, 0.05, 3)],
        ("Pool2DOptions", {**one, "fusedActivationFunction": 1}),
    )
    check(data, bytes_of(dtype, 1, 10, 8, 3))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns,scale", [(8, 0.03), (16, 0.1), (200, 0.3), (1, 0.1)])
def test_softmax(dtype: str, columns: int, scale: float) -> None:
    rows = 8000 // columns
    data = one_operator(
        "SOFTMAX", [quantised(dtype, (rows, columns), scale, 3)],
        [quantised(dtype, (rows, columns), 1 / 256, -128)], ("SoftmaxOptions", {"beta": 1.0}),
    )
    check(data, bytes_of(dtype, rows, columns))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 2, 5, 64, 3000, 9000, 40000])
def test_rows_over_their_lengths(dtype: str, columns: int) -> None:
    rows = 3000 // columns + 3
    given = bytes_of(dtype, rows, columns)
    if columns < 10:  # sums of few squares, and of none
        near = np.random.default_rng(1).integers(-3, 4, (300, columns)) + zero(dtype, 3)
        given = np.concatenate([given, near.astype(dtype)])
    data = one_operator(
        "L2_NORMALIZATION", [quantised(dtype, given.shape, 0.03, 3)],
        [quantised(dtype, given.shape, 1 / 128, 0)], ("L2NormOptions", {}))
    check(data, given)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"halfPixelCenters": True}, {"alignCorners": True}])
@pytest.mark.parametrize("size,wanted", [((5, 7), (11, 13)), ((9, 8), (4, 5)), ((1, 1), (6, 6))])
def test_an_image_of_another_size(
    dtype: str, options: Mapping[str, Any], size: tuple[int, int], wanted: tuple[int, int]
) -> None:
    data = one_operator(
        "RESIZE_BILINEAR",
        [quantised(dtype, (1, *size, 3), 0.1, 3), constant(np.array(wanted, "int32"))],
        [quantised(dtype, (1, *wanted, 3), 0.1, 3)], ("ResizeBilinearOptions", options),
    )
    rules = ("xnnpack", "tflm") if dtype == "int8" else ("xnnpack",)
    check(data, bytes_of(dtype, 1, *size, 3), rules=rules)


# ---- products ----


def _layer(
    kind: str, weights: tuple[int, ...], axis: int, options: Options, out: tuple[int, ...],
    per_channel: bool, dtype: str,
) -> bytes:
    rng = np.random.default_rng(3)
    count = weights[axis]
    own = rng.integers(-127, 128, weights).astype("int8") if dtype == "int8" else bytes_of(
        "uint8", *weights
    )
    scales = (rng.random(count) * 0.01 + 0.001).astype(np.float32) if per_channel else 0.007
    point = 0 if dtype == "int8" else 120
    bias_scale = np.float32(0.05) * np.asarray(scales, np.float32)
    data = (1, 12) if kind == "FULLY_CONNECTED" else (1, 7, 8, 4)
    return one_operator(kind, [
        quantised(dtype, data, 0.05, 3),
        T(weights, dtype, own, scale=scales, zero=point, axis=axis),
        T((count,), "int32", rng.integers(-900, 900, count).astype("int32"), scale=bias_scale),
    ], [quantised(dtype, out, 0.11, -10)], options)


PLAIN = {"strideW": 2, "strideH": 1, "padding": 0, "fusedActivationFunction": 1}


@pytest.mark.parametrize("dtype,per_channel", [("int8", True), ("int8", False), ("uint8", False)])
def test_layers(dtype: str, per_channel: bool) -> None:
    image = bytes_of(dtype, 1, 7, 8, 4)
    check(_layer("CONV_2D", (5, 3, 3, 4), 0, ("Conv2DOptions", PLAIN), (1, 7, 4, 5), per_channel,
                 dtype), image)
    check(_layer("DEPTHWISE_CONV_2D", (1, 3, 3, 8), 3,
                 ("DepthwiseConv2DOptions", {**PLAIN, "strideH": 2, "depthMultiplier": 2}),
                 (1, 4, 4, 8), per_channel, dtype), image)
    dense = _layer("FULLY_CONNECTED", (9, 12), 0, ("FullyConnectedOptions", {}), (1, 9),
                   per_channel, dtype)
    # its reference kernel rounds once where microcontrollers' round twice
    check(dense, bytes_of(dtype, 1, 12), rules=("xnnpack",))


def test_dense_rounds_twice_on_microcontrollers() -> None:
    data = _layer("FULLY_CONNECTED", (9, 12), 0, ("FullyConnectedOptions", {}), (1, 9), False,
                  "int8")
    x = bytes_of("int8", 1, 12)
    (mine,), (theirs,) = (run(data, x, **more) for run, more in (
        (run_imported, {"rounding": "tflm"}), (run_litert, {"reference": True})))
    assert np.abs(mine.astype(int) - theirs).max() <= 1


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_floats_by_weights_of_bytes(kind: str) -> None:
    """Floats are quantised by their range when the model runs."""
    rng = np.random.default_rng(3)
    weights, axis, out, options = {
        "CONV_2D": ((5, 3, 3, 4), 0, (2, 7, 8, 5),
                    ("Conv2DOptions", {"strideW": 1, "strideH": 1})),
        "DEPTHWISE_CONV_2D": ((1, 3, 3, 4), 3, (2, 7, 8, 4),
                              ("DepthwiseConv2DOptions",
                               {"strideW": 1, "strideH": 1, "depthMultiplier": 1})),
        "FULLY_CONNECTED": ((9, 12), 0, (5, 9), ("FullyConnectedOptions", {})),
    }[kind]
    x = rng.standard_normal((5, 12) if len(weights) == 2 else (2, 7, 8, 4)).astype(np.float32)
    x *= np.arange(1, len(x) + 1, dtype=np.float32).reshape(-1, *[1] * (x.ndim - 1))
    count = weights[axis]
    own = rng.integers(-127, 128, weights).astype("int8")
    data = one_operator(kind, [
        T(x.shape), T(weights, "int8", own, scale=rng.random(count) * 0.01 + 0.001, axis=axis),
        constant(rng.standard_normal(count).astype(np.float32)),
    ], [T(out)], options)
    (mine,), (theirs,) = run_imported(data, x), run_litert(data, x)
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


# ---- 16 bits ----


def test_layers_of_16_bits_by_weights_of_8() -> None:
    rng = np.random.default_rng(4)
    scales = (rng.random(5) * 0.01 + 0.001).astype(np.float32)
    weights = rng.integers(-127, 128, (5, 3, 3, 4)).astype("int8")
    bias = rng.integers(-900, 900, 5).astype("int64")
    x = rng.integers(-32768, 32768, (1, 7, 8, 4)).astype("int16")
    check(one_operator("CONV_2D", [
        T(x.shape, "int16", scale=0.0005), T(weights.shape, "int8", weights, scale=scales, axis=0),
        T((5,), "int64", bias, scale=scales * np.float32(0.0005)),
    ], [T((1, 7, 8, 5), "int16", scale=0.0011)],
        ("Conv2DOptions", {"strideW": 1, "strideH": 1})), x)
    dense = rng.integers(-127, 128, (9, 12)).astype("int8")
    rows = rng.integers(-32768, 32768, (3, 12)).astype("int16")
    check(one_operator("FULLY_CONNECTED", [
        T(rows.shape, "int16", scale=0.0005), T(dense.shape, "int8", dense, scale=0.007),
        T((9,), "int64", np.arange(9), scale=0.007 * 0.0005),
    ], [T((3, 9), "int16", scale=0.0011)], ("FullyConnectedOptions", {})), rows,
        rules=("xnnpack",))  # the reference kernel takes all bits of the ratio of scales


@pytest.mark.parametrize("bias", [None, "int32", "int64"])
@pytest.mark.parametrize("said", [2, 4])
def test_sums_of_16_bits_go_by_the_type_of_a_bias(bias: str | None, said: int) -> None:
    """Rounded once, halves upward; sums of 32 bits overflow, those of 64 do not."""
    if bias is not None and said != {"int32": 2, "int64": 4}[bias]:
        return
    rng = np.random.default_rng(4)
    for depth, low, out in ((40, -32768, 0.03), (1200, 20000, 90.0)):
        rows = rng.integers(low, 32768, (60, depth)).astype("int16")
        weights = rng.integers(-127 if low < 0 else 60, 128, (9, depth)).astype("int8")
        more: list[T | None] = [None] if bias is None else [
            T((9,), bias, rng.integers(-900, 900, 9).astype(bias), scale=0.007 * 0.0005)]
        check(one_operator("FULLY_CONNECTED", [
            T(rows.shape, "int16", scale=0.0005), T(weights.shape, "int8", weights, scale=0.007),
            *more,
        ], [T((60, 9), "int16", scale=out / 700)],
            ("FullyConnectedOptions", {"quantizedBiasType": said})), rows, rules=("xnnpack",))


def test_weights_of_4_bits_beside_16_are_what_those_of_8_are() -> None:
    """LiteRT's kernel reads them as bytes, and beyond their end."""
    rng = np.random.default_rng(4)
    x = rng.integers(-32768, 32768, (1, 7, 8, 6)).astype("int16")
    whole = rng.integers(-7, 8, (1, 3, 3, 6)).astype("int8")
    flat = whole.reshape(-1).view(np.uint8) & 15
    scales = rng.uniform(0.004, 0.02, 6).astype(np.float32)
    bias = T((6,), "int64", rng.integers(-900, 900, 6), scale=scales * np.float32(0.0005))
    made = [
        run_imported(one_operator("DEPTHWISE_CONV_2D", [
            T(x.shape, "int16", scale=0.0005),
            T(whole.shape, dtype, data, scale=scales, axis=3), bias,
        ], [T(x.shape, "int16", scale=0.002)],
            ("DepthwiseConv2DOptions", {"strideW": 1, "strideH": 1, "depthMultiplier": 1})), x)[0]
        for dtype, data in (("int4", bytes(flat[::2] | flat[1::2] << 4)), ("int8", whole))
    ]
    np.testing.assert_array_equal(made[0], made[1])


@pytest.mark.parametrize("kind,scale", [("Add", 0.0007), ("Sub", 0.0007)])
def test_sums_of_16_bits(kind: str, scale: float) -> None:
    rng = np.random.default_rng(5)
    x, y = (rng.integers(-32768, 32768, 2000).astype("int16") for _ in range(2))
    check(one_operator(
        kind.upper(), [T(x.shape, "int16", scale=0.0005), T(x.shape, "int16", scale=0.00031)],
        [T(x.shape, "int16", scale=scale)], (f"{kind}Options", {"potScaleInt16": False}),
    ), x, y)


# ---- numbers of 16 bits ----


@pytest.mark.parametrize(("scale", "out_scale"), [(0.0001, 0.0003), (0.00031, 0.00031)])
@pytest.mark.parametrize(("kind", "options"), [
    ("ABS", None), ("NEG", None), ("EXP", None), ("LOG", None), ("RSQRT", None), ("SQRT", None),
    ("GELU", ("GeluOptions", {"approximate": False})),
    ("GELU", ("GeluOptions", {"approximate": True})),
    ("LEAKY_RELU", ("LeakyReluOptions", {"alpha": 0.3})),
    ("LEAKY_RELU", ("LeakyReluOptions", {"alpha": -0.2})),
])
def test_functions_of_16_bits(kind: str, options: Options, scale: float, out_scale: float) -> None:
    """Of every number; roots are of those from 0 on."""
    every = np.arange(0 if "SQRT" in kind else -32768, 32768).astype("int16")
    data = one_operator(kind, [T(every.shape, "int16", None, scale=scale)],
                        [T(every.shape, "int16", None, scale=out_scale)], options)
    # places of lines are of float32, by products that AArch64 fuses and microcontrollers do not
    by_lines = kind in ("EXP", "LOG", "RSQRT", "GELU")
    check(data, every, rules=("xnnpack",) if by_lines else ("xnnpack", "tflm"), most=0.1)


def test_gelu_of_floats_far_below_zero() -> None:
    """LiteRT has erfc, and not 1 + erf, of which float32 leaves nothing there."""
    found = gelu_of_floats(False)(np.array([-5.0, 0.0, 2.0]))
    np.testing.assert_allclose(found, [-1.43325789e-06, 0, 1.95449973], rtol=1e-6)


def test_zero_points_of_16_bits() -> None:
    data = one_operator("EXP", [T((4,), "int16", None, scale=0.001, zero=1)],
                        [T((4,), "int16", None, scale=0.001)])
    with pytest.raises(ValueError, match="have zero points of 0, not 1 and 0"):
        run_imported(data, np.zeros(4, "int16"))


@pytest.mark.parametrize(("kind", "dtype"), [
    *((kind, dtype) for kind in ("MAXIMUM", "MINIMUM") for dtype in ("int8", "uint8", "int16")),
    ("REDUCE_MAX", "int8"), ("REDUCE_MIN", "uint8"),
    ("FLOOR_MOD", "int8"), ("FLOOR_MOD", "int16"),
])
def test_what_is_not_scaled(kind: str, dtype: str) -> None:
    """Kernels of these do not look at scales."""
    options: Options = (
        "FloorModOptions" if kind == "FLOOR_MOD" else "MaximumMinimumOptions", {})
    rng = np.random.default_rng(2)
    a, b = (rng.integers(1, 120, (3, 40)).astype(dtype) for _ in range(2))
    tensors = [quantised(dtype, a.shape, scale, 0) for scale in (0.05, 0.03, 0.07)]
    if kind.startswith("REDUCE"):
        check(one_operator(kind, [tensors[0], constant(np.array([1], "int32"))],
                           [quantised(dtype, (3,), 0.07, 0)], ("ReducerOptions", {})), a,
              rules=("xnnpack",))  # reference kernels refuse two scales
        return
    check(one_operator(kind, tensors[:2], tensors[2:], options), a, b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_quotients_of_every_pair(dtype: str) -> None:
    """Where quotients are not so small that LiteRT's kernel shifts by more bits than there are."""
    low = np.iinfo(dtype).min
    x = FIRST.view(dtype).reshape(-1)
    y = SECOND.view(dtype).reshape(-1)
    x, y = (one[y.astype(np.int64) - low >= 32] for one in (x, y))
    check(one_operator("DIV", [
        T(x.shape, dtype, scale=0.9, zero=low + 7), T(y.shape, dtype, scale=0.02, zero=low),
    ], [T(x.shape, dtype, scale=0.11, zero=low + 20)], ("DivOptions", {})), x, y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_logarithms_of_softmax(dtype: str) -> None:
    x = bytes_of(dtype, 40, 17)
    end = int(np.iinfo(dtype).max)
    data = one_operator("LOG_SOFTMAX", [quantised(dtype, x.shape, 0.08, 3)],
                        [T(x.shape, dtype, scale=16 / 256, zero=end)], ("LogSoftmaxOptions", {}))
    if dtype == "int8":
        check(data, x)
        return
    check(data, x, rules=("xnnpack",))
    with pytest.raises(OpNotImplemented, match="by the rule of microcontrollers"):
        run_imported(data, x, rounding="tflm")


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("point", [0, 5])
def test_products_of_matrices(dtype: str, point: int) -> None:
    """A second operand with a zero point is not for LiteRT's kernels for processors."""
    rng = np.random.default_rng(point)
    ends = np.iinfo(dtype)
    a, b = (rng.integers(ends.min, ends.max + 1, shape).astype(dtype)
            for shape in ((3, 20, 30), (3, 25, 30)))
    own = point if dtype == "int8" else 0
    scale = 0.003 if dtype == "int8" else 0.00003
    check(one_operator("BATCH_MATMUL", [
        T(a.shape, dtype, scale=scale, zero=own), T(b.shape, dtype, scale=scale, zero=own),
    ], [T((3, 20, 25), dtype, scale=0.0131 if dtype == "int8" else 0.0012, zero=own)],
        ("BatchMatMulOptions", {"adjY": True})), a, b)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_products_along_axes(dtype: str) -> None:
    ends = np.iinfo(dtype)
    x = np.random.default_rng(8).integers(ends.min, ends.max + 1, (2, 9, 3)).astype(dtype)
    own = 3 if dtype == "int8" else 0
    scale = 0.02 if dtype == "int8" else 0.00008
    check(one_operator("REDUCE_PROD", [
        T(x.shape, dtype, scale=scale, zero=own), constant(np.array([0, 2], "int32")),
    ], [T((9,), dtype, scale=scale * 3, zero=own)], ("ReducerOptions", {})), x)


def test_slopes_of_bytes_for_numbers_of_16_bits() -> None:
    every = np.arange(-32768, 32768).astype("int16").reshape(1, 128, 128, 4)
    scales = 0.00056563, 0.00200149, 0.00209586
    x, out = (T(every.shape, "int16", scale=scale) for scale in (scales[0], scales[2]))
    slopes = np.array([-100, 7, 99, -1], "int8").reshape(1, 1, 4)
    check(one_operator("PRELU", [x, constant(slopes, scale=scales[1])], [out]), every,
          rules=("xnnpack",))
    wide = one_operator("PRELU", [x, constant(slopes.astype("int16"), scale=scales[1])], [out])
    with pytest.raises(ValueError, match="slopes are of int16, which kernels read as if"):
        run_imported(wide, every)


@pytest.mark.parametrize("options", [{}, {"alignCorners": True}, {"halfPixelCenters": True}])
@pytest.mark.parametrize("scale", [0.02, None])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_an_image_with_and_without_a_scale(
    dtype: str, scale: float | None, options: Mapping[str, Any]
) -> None:
    ends = np.iinfo(dtype)
    x = np.random.default_rng(3).integers(ends.min, ends.max + 1, (1, 7, 8, 3)).astype(dtype)
    check(one_operator("RESIZE_BILINEAR", [
        T(x.shape, dtype, scale=scale), constant(np.array([11, 5], "int32")),
    ], [T((1, 11, 5, 3), dtype, scale=scale)], ("ResizeBilinearOptions", options)), x)


@pytest.mark.parametrize("bias", [None, "int32", "int64"])
def test_transposed_convolutions_of_16_bits(bias: str | None) -> None:
    rng = np.random.default_rng(6)
    x = rng.integers(-32768, 32768, (1, 5, 6, 4)).astype("int16")
    weights = rng.integers(-127, 128, (11, 3, 3, 4)).astype("int8")
    more = [] if bias is None else [
        T((11,), bias, rng.integers(-900, 900, 11).astype(bias), scale=0.0005 * 0.007)]
    kind = {"int32": 2, "int64": 4}.get(bias or "", 0)
    check(one_operator("TRANSPOSE_CONV", [
        constant(np.array([1, 10, 12, 11], "int32")),
        T(weights.shape, "int8", weights, scale=0.007, axis=0), T(x.shape, "int16", scale=0.0005),
        *more,
    ], [T((1, 10, 12, 11), "int16", scale=0.011)], (
        "TransposeConvOptions", {"strideW": 2, "strideH": 2, "quantizedBiasType": kind})), x,
        rules=("xnnpack",))


@pytest.mark.parametrize(("window", "step", "padding", "more"), [
    ((3, 3), (2, 2), 0, 0), ((2, 2), (2, 2), 1, 0), ((4, 3), (2, 3), 0, 0), ((5, 4), (3, 2), 1, 1),
    ((3, 5), (1, 1), 0, 0), ((1, 3), (1, 2), 1, 1), ((5, 5), (1, 3), 0, 0),
])
def test_transposed_convolutions_by_phases(
    window: tuple[int, int], step: tuple[int, int], padding: int, more: int
) -> None:
    rng = np.random.default_rng(6)
    x, weights = bytes_of("int8", 2, 5, 4, 3), bytes_of("int8", 7, *window, 3, seed=1)
    weights = np.maximum(weights, -127)
    shape = (2, *(
        n * s if padding == 0 else (n - 1) * s + k + min(more, s - 1)
        for n, s, k in zip(x.shape[1:3], step, window, strict=True)), 7)
    scales = rng.uniform(0.002, 0.006, 7).astype("float32")
    data = one_operator("TRANSPOSE_CONV", [
        constant(np.array(shape, "int32")), T(weights.shape, "int8", weights, scale=scales, axis=0),
        quantised("int8", x.shape, 0.05, 3),
        T((7,), "int32", rng.integers(-900, 900, 7).astype("int32"), scale=scales * 0.05),
    ], [quantised("int8", shape, 0.21, -10)],
        ("TransposeConvOptions", {"padding": padding, "strideH": step[0], "strideW": step[1]}))
    check(data, x)
    module, _ = from_tflite(data)
    assert "conv2d_transpose" not in module.astext() and "qnn.conv2d" in module.astext()


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_transposed_convolutions_whose_steps_pass_windows(dtype: str, padding: int) -> None:
    """LiteRT's own kernels where results are filled up: vectors round halves upward, the rest away
    from zero. XNNPACK's round once."""
    rng = np.random.default_rng(6)
    x, weights = bytes_of(dtype, 1, 5, 6, 4), bytes_of(dtype, 19, 1, 2, 4, seed=1)
    own = np.maximum(weights, -127) if dtype == "int8" else weights
    shape = (1, 9 + (padding == 0), 12, 19)
    check(one_operator("TRANSPOSE_CONV", [
        constant(np.array(shape, "int32")),
        T(own.shape, dtype, own, scale=0.007, zero=0 if dtype == "int8" else 120),
        quantised(dtype, x.shape, 0.05, 3),
        T((19,), "int32", rng.integers(-900, 900, 19).astype("int32"), scale=0.05 * 0.007),
    ], [quantised(dtype, shape, 0.0053, -10)],
        ("TransposeConvOptions", {"strideW": 2, "strideH": 2, "padding": padding})), x,
        rules=("xnnpack",))


@pytest.mark.parametrize(("kind", "options"), [
    ("RELU", None), ("LEAKY_RELU", ("LeakyReluOptions", {"alpha": 0.3})), ("GELU", None),
    ("EXP", None),
])
def test_bytes_without_a_scale_are_refused(kind: str, options: Options) -> None:
    data = one_operator(kind, [T((4,), "int8")], [T((4,), "int8")], options)
    with pytest.raises(ValueError, match="'t0' of int8 has no scale"):
        run_imported(data, np.zeros(4, "int8"))


def test_borders_are_what_stands_for_0_in_the_result() -> None:
    x, pads = bytes_of("int8", 1, 2, 3), constant(np.array([[0, 0], [1, 1], [2, 0]], "int32"))
    made = one_operator("PAD", [quantised("int8", x.shape, 0.05, 7), pads],
                        [quantised("int8", (1, 4, 5), 0.02, -3)], ("PadOptions", {}))
    (wanted,) = run_litert(made, x, reference=True)
    np.testing.assert_array_equal(run_imported(made, x)[0], wanted)
    assert wanted[0, 0, 0] == -3


@pytest.mark.parametrize("beta", [-1.0, float("nan"), float("inf")])
def test_a_softmax_of_no_scale_is_refused(beta: float) -> None:
    data = quantised("int8", (1, 4), 0.05, 0)
    made = one_operator("SOFTMAX", [data], [quantised("int8", (1, 4), 1 / 256, -128)],
                        ("SoftmaxOptions", {"beta": beta}))
    with pytest.raises(ValueError, match="its beta times the scale of its data"):
        run_imported(made, bytes_of("int8", 1, 4))
