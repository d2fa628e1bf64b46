"""Operators and conversions on every type, against NumPy, one and several lanes at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.ir import build
from sterna.ir.build import call_intrinsic, cast
from sterna.ir.expr import Expr
from sterna.isa.instruction_set import Instructions
from sterna.support.dtype import DataType
from tests.codegen.test_llvm_common import Array, elementwise

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]


def int_samples(dtype: str) -> tuple[Array, Array]:
    """Pairs of numbers, the extremes among them."""
    info = np.iinfo(dtype)
    rng = np.random.default_rng(1)
    edge = [info.min, info.min + 1, -7, -3, -2, -1, 0, 1, 2, 3, 5, 8, 100, info.max - 1, info.max]
    inside = [n for n in edge if info.min <= n <= info.max]
    values = np.array(inside + rng.integers(info.min, info.max, 12, dtype).tolist(), dtype)
    a, b = np.meshgrid(values, values)
    return a.ravel(), b.ravel()


def float_samples(dtype: str) -> tuple[Array, Array]:
    info = np.finfo(dtype)
    rng = np.random.default_rng(2)
    edge = [0.0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, info.max, -info.max,
            info.tiny, info.smallest_subnormal, 3e-6]
    values = np.concatenate([np.array(edge), rng.normal(size=9)]).astype(dtype)
    a, b = np.meshgrid(values, values)
    return a.ravel(), b.ravel()


def truncdiv(a: Array, b: Array) -> Array:
    quotient: Array = np.abs(a.astype(object)) // np.abs(b.astype(object))
    return np.where((a < 0) == (b < 0), quotient, -quotient)


def wrapped(values: Any, dtype: str) -> Array:
    bits = DataType(dtype).bits
    whole = [int(v) % (1 << bits) for v in values]
    result: Array = np.array(whole, f"uint{bits}").astype(dtype)
    return result


INT_OPS: dict[str, tuple[Callable[..., Expr], Callable[[Array, Array], Any]]] = {
    "add": (build.add, lambda a, b: a + b),
    "sub": (build.sub, lambda a, b: a - b),
    "mul": (build.mul, lambda a, b: a * b),
    "min": (build.minimum, np.minimum),
    "max": (build.maximum, np.maximum),
    "floordiv": (build.floordiv, lambda a, b: a // b),
    "floormod": (build.floormod, lambda a, b: a % b),
    "truncdiv": (build.truncdiv, truncdiv),
    "truncmod": (build.truncmod, lambda a, b: a - b * truncdiv(a, b)),
    "and": (lambda a, b: a & b, lambda a, b: a & b),
    "or": (lambda a, b: a | b, lambda a, b: a | b),
    "xor": (lambda a, b: a ^ b, lambda a, b: a ^ b),
}


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("name", INT_OPS)
def test_integer_operators(name: str, dtype: str) -> None:
    ours, reference = INT_OPS[name]
    a, b = int_samples(dtype)
    if name.endswith(("div", "mod")):
        keep = b != 0
        a, b = a[keep], b[keep]
    wanted = wrapped(reference(a.astype(object), b.astype(object)), dtype)
    for lanes in (1, 8):
        got = elementwise(ours, dtype, [(dtype, a), (dtype, b)], lanes)
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("divisor", [1, 2, 3, 8, -1, -2, -5, 64])
@pytest.mark.parametrize("name", ["floordiv", "floormod", "truncdiv", "truncmod"])
def test_division_by_constants(name: str, divisor: int) -> None:
    ours, reference = INT_OPS[name]
    a = int_samples("int32")[0]
    b = np.full_like(a, divisor)
    wanted = wrapped(reference(a.astype(object), b.astype(object)), "int32")
    for lanes in (1, 4):
        got = elementwise(lambda x: ours(x, divisor), "int32", [("int32", a)], lanes)
        np.testing.assert_array_equal(got, wanted)


COMPARES: dict[str, tuple[Callable[..., Expr], Callable[[Array, Array], Any]]] = {
    "lt": (build.less, np.less), "le": (build.less_equal, np.less_equal),
    "gt": (build.greater, np.greater), "ge": (build.greater_equal, np.greater_equal),
    "eq": (build.equal, np.equal), "ne": (build.not_equal, np.not_equal),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64", *FLOATS])
@pytest.mark.parametrize("name", COMPARES)
def test_comparisons(name: str, dtype: str) -> None:
    ours, reference = COMPARES[name]
    a, b = float_samples(dtype) if dtype in FLOATS else int_samples(dtype)
    for lanes in (1, 8):
        got = elementwise(ours, "bool", [(dtype, a), (dtype, b)], lanes)
        np.testing.assert_array_equal(got, reference(a, b))


FLOAT_OPS: dict[str, tuple[Callable[..., Expr], Callable[[Array, Array], Any]]] = {
    "add": (build.add, np.add), "sub": (build.sub, np.subtract),
    "mul": (build.mul, np.multiply), "div": (build.div, np.divide),
    "min": (build.minimum, lambda a, b: np.where(a < b, a, b)),
    "max": (build.maximum, lambda a, b: np.where(a > b, a, b)),
    "copysign": (lambda a, b: call_intrinsic("copysign", a, b), np.copysign),
}


def same_floats(got: Array, wanted: Array) -> None:
    np.testing.assert_array_equal(got, wanted)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(wanted)[numbers])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FLOAT_OPS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_float_operators(name: str, dtype: str) -> None:
    ours, reference = FLOAT_OPS[name]
    a, b = float_samples(dtype)
    for lanes in (1, 8):
        got = elementwise(ours, dtype, [(dtype, a), (dtype, b)], lanes)
        same_floats(got, reference(a, b).astype(dtype))


UNARY: dict[str, Callable[[Array], Any]] = {
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "nearbyint": np.rint, "abs": np.abs,
    "sqrt": np.sqrt,
    "round": lambda x: np.copysign(np.where(np.abs(x) < 2.0**52, np.floor(
        np.abs(x).astype("longdouble") + 0.5), np.abs(x)), x),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rounding(name: str, dtype: str) -> None:
    below_half = np.nextafter(np.array(0.5, dtype), np.array(0, dtype))
    more = [0.5, -0.5, 1.5, 2.5, -1.5, 4.5, 1e3 + 0.5, 65503, below_half, -below_half]
    x = np.concatenate([np.unique(float_samples(dtype)[0]), np.array(more, dtype)])
    for lanes in (1, 8):
        got = elementwise(lambda v: call_intrinsic(name, v), dtype, [(dtype, x)], lanes)
        same_floats(got, np.asarray(UNARY[name](x)).astype(dtype))


@pytest.mark.parametrize("source", [*INTS, "bool", *FLOATS])
@pytest.mark.parametrize("target", [*INTS, "bool", *FLOATS])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_casts(source: str, target: str) -> None:
    if source in FLOATS:
        x = float_samples(source)[0]
        if target in INTS:
            info = np.iinfo(target)
            x = x[np.isfinite(x)]
            whole = np.trunc(x.astype("float64"))
            x = x[(whole >= float(info.min)) & (whole < float(info.max))]
        wanted = x.astype(target)
    elif source == "bool":
        x = np.array([True, False, True])
        wanted = x.astype(target)
    else:
        x = int_samples(source)[0]
        wanted = x.astype(target)
    for lanes in (1, 8):
        got = elementwise(lambda v: cast(_like(target, v), v), target, [(source, x)], lanes)
        np.testing.assert_array_equal(got, wanted)


def _like(target: str, value: Expr) -> str:
    return DataType(target).with_lanes(value.dtype.lanes)


@pytest.mark.parametrize("target", INTS)
@pytest.mark.parametrize("source", ["float16", "float32", "float64", "int32", "uint64", "int64"])
def test_saturate(source: str, target: str) -> None:
    info = np.iinfo(target)
    x = (float_samples(source) if source in FLOATS else int_samples(source))[0]
    wanted = [
        0 if v != v else int(max(info.min, min(info.max, v if np.isinf(v) else int(v))))
        for v in x.tolist()
    ]
    for lanes in (1, 8, 12):
        got = elementwise(
            lambda v: call_intrinsic("saturate", v, dtype=_like(target, v)), target,
            [(source, x)], lanes,
        )
        np.testing.assert_array_equal(got, np.array(wanted, target))


@pytest.mark.parametrize("target", ["int32", "uint32", "int64", "uint64"])
def test_saturate_by_conversions_without_ends(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Instructions, "open_conversions", property(lambda self: (target,)))
    for source in ("float16", "float32", "float64"):
        test_saturate(source, target)


@pytest.mark.parametrize("lanes", [1, 2, 4, 12])
def test_the_nearest_whole_number(lanes: int) -> None:
    rng = np.random.default_rng(lanes)
    x = np.concatenate([rng.normal(0, 1e4, 100), np.arange(-4.5, 5), [2.0**30, -(2.0**31)]])
    x = x.astype("float32")
    got = elementwise(
        lambda v: cast(_like("int32", v), call_intrinsic("nearbyint", v)), "int32",
        [("float32", x)], lanes,
    )
    np.testing.assert_array_equal(got, np.rint(x).astype("int32"))


def bfloat_bits(x: Array) -> Array:
    """float32 to bfloat16 bits, to nearest even."""
    bits = np.asarray(x, "float32").view("uint32").astype("uint64")
    rounded = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    quiet = (bits >> np.uint64(16)) | np.uint64(0x40)
    return np.where(np.isnan(x), quiet, rounded).astype("uint16")


def bfloat_values(bits: Array) -> Array:
    return (bits.astype("uint32") << np.uint32(16)).view("float32")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bfloat16() -> None:
    a, b = (bfloat_bits(x) for x in float_samples("float32"))
    for name in ("add", "mul", "div", "min"):
        ours, reference = FLOAT_OPS[name]
        wanted = reference(bfloat_values(a), bfloat_values(b))
        for lanes in (1, 8):
            got = elementwise(ours, "bfloat16", [("bfloat16", a), ("bfloat16", b)], lanes)
            np.testing.assert_array_equal(bfloat_values(got), bfloat_values(bfloat_bits(wanted)))
    x = float_samples("float32")[0]
    got = elementwise(lambda v: cast(_like("bfloat16", v), v), "bfloat16", [("float32", x)], 8)
    np.testing.assert_array_equal(bfloat_values(got), bfloat_values(bfloat_bits(x)))
    # Through float32 this double would round twice: 1 + 2**-8 + 2**-40 lies above the middle.
    x = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, 1 + 3 * 2.0**-8 - 2.0**-40])
    got = elementwise(lambda v: cast("bfloat16", v), "bfloat16", [("float64", x)])
    np.testing.assert_array_equal(bfloat_values(got), [1 + 2.0**-7, 1, 1 + 2.0**-7])


def test_shifts_and_counts() -> None:
    for dtype in INTS:
        bits = DataType(dtype).bits
        a = int_samples(dtype)[0]
        s = (np.arange(len(a)) % bits).astype(dtype)
        wide = [int(v) for v in a]
        left = wrapped([v << int(d) for v, d in zip(wide, s, strict=True)], dtype)
        right = wrapped([v >> int(d) for v, d in zip(wide, s, strict=True)], dtype)
        unsigned = [v % (1 << bits) for v in wide]
        for lanes in (1, 4):
            both = [(dtype, a), (dtype, s)]
            np.testing.assert_array_equal(
                elementwise(lambda x, y: x << y, dtype, both, lanes), left
            )
            np.testing.assert_array_equal(
                elementwise(lambda x, y: x >> y, dtype, both, lanes), right
            )
            for op, wanted in (
                ("popcount", [v.bit_count() for v in unsigned]),
                ("clz", [bits - v.bit_length() for v in unsigned]),
                ("bitwise_not", wrapped([~v for v in wide], dtype)),
                ("abs", wrapped([abs(v) for v in wide], dtype)),
            ):
                got = elementwise(lambda x, op=op: call_intrinsic(op, x), dtype,
                                  [(dtype, a)], lanes)
                np.testing.assert_array_equal(got, wanted)


def test_reinterpret() -> None:
    x = float_samples("float32")[0]
    got = elementwise(lambda v: call_intrinsic("reinterpret", v, dtype=_like("int32", v)),
                      "int32", [("float32", x)], 8)
    np.testing.assert_array_equal(got, x.view("int32"))


def test_kinds_of_floats() -> None:
    for dtype in FLOATS:
        x = float_samples(dtype)[0]
        for op, reference in (("isnan", np.isnan), ("isinf", np.isinf), ("isfinite", np.isfinite)):
            for lanes in (1, 8):
                got = elementwise(
                    lambda v, op=op: call_intrinsic(op, v, dtype=_like("bool", v)), "bool",
                    [(dtype, x)], lanes,
                )
                np.testing.assert_array_equal(got, reference(x))


def test_truth() -> None:
    a = np.array([True, True, False, False])
    b = np.array([True, False, True, False])
    both = [("bool", a), ("bool", b)]
    for lanes in (1, 4):
        for ours, wanted in (
            (build.logical_and, a & b), (build.logical_or, a | b),
            (lambda x, y: build.logical_not(x), ~a), (lambda x, y: x ^ y, a ^ b),
            (build.equal, a == b), (lambda x, y: build.select(x, y, ~y), np.where(a, b, ~b)),
        ):
            np.testing.assert_array_equal(elementwise(ours, "bool", both, lanes), wanted)


def test_multiply_and_add_is_fused() -> None:
    rng = np.random.default_rng(3)
    a, b, c = (rng.normal(size=100).astype("float32") for _ in range(3))
    got = elementwise(lambda x, y, z: x * y + z, "float32",
                      [("float32", each) for each in (a, b, c)], 4)
    exact = (a.astype("longdouble") * b + c).astype("float32")
    np.testing.assert_array_equal(got, exact)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "uint32"])
def test_vectors_are_divided_exactly(dtype: str) -> None:
    """The largest and smallest numbers, quotients just below a whole, and any others."""
    info, rng = np.iinfo(dtype), np.random.default_rng(3)
    edges = np.array([info.min, info.min + 1, info.max - 1, info.max, 1, 2, 3, 7], dtype)
    over, under = (each.ravel() for each in np.meshgrid(edges, edges))
    near = rng.integers(1, info.max // 3, 512).astype(dtype)
    over = np.concatenate([over, near * 3 - 1, rng.integers(info.min, info.max, 4096)])
    under = np.concatenate([under, near, rng.integers(1, info.max, 4096)])
    over, under = over.astype(dtype), under.astype(dtype)
    under[under == 0] = 1
    if info.min < 0:
        over[(over == info.min) & (under == -1)] = info.max
    shape = over.shape
    a, b = (te.placeholder(shape, dtype, name=name) for name in "ab")
    rounds = (tvm.tir.truncdiv, tvm.tir.truncmod, tvm.tir.floordiv, tvm.tir.floormod)

    def divided(way: Callable[..., Expr]) -> te.Tensor:
        made: te.Tensor = te.compute(shape, lambda i: way(a[i], b[i]), name=way.__name__)
        return made

    made = [divided(way) for way in rounds]
    schedule = te.create_schedule([each.op for each in made])
    for each in made:
        _, lane = schedule[each].split(each.op.axis[0], factor=8)
        schedule[each].vectorize(lane)
    outs = [tvm.nd.empty(shape, dtype) for _ in made]
    run = tvm.build(schedule, [a, b, *made], target="llvm")
    run(tvm.nd.array(over), tvm.nd.array(under), *outs)
    wide, by = over.astype("int64"), under.astype("int64")
    cut = np.abs(wide) // np.abs(by) * np.sign(wide) * np.sign(by)
    wanted = [cut, wide - cut * by, wide // by, wide % by]
    for out, want in zip(outs, wanted, strict=True):
        np.testing.assert_array_equal(out.numpy(), want.astype(dtype))
