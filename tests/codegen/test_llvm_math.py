"""Mathematical functions: errors in units of the last place, and their values at the edges."""

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna
from sterna import te
from sterna.codegen.llvm.machine import LLVMOptions
from sterna.ir.build import call_intrinsic
from sterna.target import Target
from sterna.target.code_generators.llvm import llvm_options
from tests.codegen.test_llvm_common import Array, elementwise

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


# This processor, and older ones whose code it runs.
NATIVE = LLVMOptions.native()
PROCESSORS = [NATIVE] + [
    llvm_options(Target(f"llvm -mtriple={NATIVE.triple} -mcpu={cpu}"))
    for cpu, feature in (("haswell", "+avx2"), ("x86-64", "+sse2"))
    if feature in NATIVE.features.split(",")
]


def _sigmoid(x: Array) -> Array:
    z = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + z), z / (1 + z))


# The reference runs in a longer type; erf has none there, so that its own error counts.
UNARY: dict[str, tuple[Callable[[Array], Any], float, float]] = {
    "exp": (np.exp, 2, 2), "exp2": (np.exp2, 2, 2), "exp10": (lambda x: np.power(
        np.longdouble(10), x), 2, 2),
    "log": (np.log, 2, 2), "log2": (np.log2, 2, 2), "log10": (np.log10, 2, 3),
    "log1p": (np.log1p, 2, 2), "tanh": (np.tanh, 2, 3), "sigmoid": (_sigmoid, 2, 2),
    "sin": (np.sin, 2, 2), "cos": (np.cos, 2, 2), "tan": (np.tan, 2, 3),
    "asin": (np.arcsin, 2, 2), "acos": (np.arccos, 2, 2), "atan": (np.arctan, 2, 2),
    "sinh": (np.sinh, 2, 4), "cosh": (np.cosh, 2, 4), "asinh": (np.arcsinh, 2, 3),
    "acosh": (np.arccosh, 2, 3), "atanh": (np.arctanh, 2, 3),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2, 2), "sqrt": (np.sqrt, 0.5001, 0.5001),
    "erf": (lambda x: np.array([math.erf(v) for v in x.tolist()], "longdouble"), 2, 3),
}


def samples(bits: int) -> Array:
    """Every order of magnitude, the usual ranges, quadrant borders and the special numbers."""
    rng = np.random.default_rng(bits)
    count, dtype = (20000 if bits == 32 else 5000), f"float{bits}"
    parts = [rng.integers(0, 1 << bits, count, f"uint{bits}").view(dtype)]
    parts += [(rng.normal(size=count) * scale).astype(dtype) for scale in (1e-3, 1, 10, 100, 700)]
    parts.append((1 + rng.normal(size=count) * 1e-3).astype(dtype))
    parts.append(rng.uniform(-1, 1, count).astype(dtype))
    parts.append((np.pi / 2 * rng.integers(1, 10000, count)).astype(dtype))
    info = np.finfo(dtype)
    parts.append(np.array([0.0, -0.0, 1, -1, 0.5, -0.5, 2, 8, 10, 100, np.inf, -np.inf, np.nan,
                           info.smallest_subnormal, -info.smallest_subnormal, info.tiny, info.max,
                           info.min], dtype))
    return np.concatenate(parts)


def errors(got: Array, wanted: Array) -> Array:
    """In units of the last place of the right answer."""
    rounded = wanted.astype(got.dtype)
    unit = np.spacing(np.abs(rounded)).astype("longdouble")
    unit = np.where(np.isfinite(unit), unit, np.spacing(np.finfo(got.dtype).max))
    limit = np.longdouble(np.finfo(got.dtype).max)
    # An overflow is as far off as the largest number would be.
    near = np.clip(got.astype("longdouble"), -limit, limit)
    far = np.clip(wanted, -limit, limit)
    distance = np.abs(near - far) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    either = np.isnan(got) != np.isnan(rounded)
    result: Array = np.where(same, np.minimum(distance, 0.5), np.where(either, np.inf, distance))
    return np.where(np.isnan(result), 0.0, result)


def flushed(op: str, got: Array, wanted: Array) -> Array:
    """Where float32's sigmoid is 0 because its result is no normal number or next to the least."""
    tiny = 1.002 * np.finfo("float32").tiny
    found: Array = (op == "sigmoid") & (got.dtype == "float32") & (got == 0) & (wanted < tiny)
    return found


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("op", UNARY)
def test_unary(op: str, bits: int) -> None:
    reference, limit32, limit64 = UNARY[op]
    x = samples(bits)
    wanted = np.asarray(reference(x.astype("longdouble")))
    results = []
    for lanes in (1, 16):
        got = elementwise(lambda v: call_intrinsic(op, v), f"float{bits}", [(f"float{bits}", x)],
                          lanes)
        worst = np.where(flushed(op, got, wanted), 0.0, errors(got, wanted))
        at = int(np.argmax(worst))
        limit = limit32 if bits == 32 else limit64
        assert worst[at] <= limit, f"{op}({x[at]!r}) = {got[at]!r}, not {wanted[at]!r}"
        zeros = (got == 0) & (wanted == 0)
        np.testing.assert_array_equal(np.signbit(got)[zeros], np.signbit(wanted)[zeros])
        results.append(got)
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize("lanes", [1, 12, 16])
def test_one_plus_erf(lanes: int) -> None:
    """One polynomial for all numbers: the error is one of the sum, and its ends are exact."""
    x = np.concatenate([samples(32)[::7], np.linspace(-5, 5, 20001, dtype="float32")])
    wanted = 1 + np.array([math.erf(v) for v in x.tolist()])
    for build in (lambda v: call_intrinsic("erf", v) + 1.0,
                  lambda v: 1.0 + call_intrinsic("erf", v)):
        got = elementwise(build, "float32", [("float32", x)], lanes)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(x))
        assert np.nanmax(np.abs(got - wanted)) < 3e-7
        assert set(got[x >= 4]) == {2.0} and set(got[x <= -4]) == {0.0}


@pytest.mark.parametrize("cpu", ["neoverse-n1", "cortex-a72"])
def test_numbers_of_long_polynomials_lie_in_lanes(cpu: str) -> None:
    """Multiply-adds take them from there; in a loop none is made again of an integer register."""
    x = te.placeholder((64,), "float32", "x")
    y = te.compute((64,), lambda i: 1.0 + te.erf(x[i]))
    schedule = te.create_schedule(y.op)
    schedule[y].vectorize(schedule[y].split(y.op.axis[0], factor=4)[1])
    target = f"llvm -mtriple=aarch64-linux-gnu -mcpu={cpu}"
    text = sterna.build(schedule, [x, y], target=target).get_source("asm")
    assert len(re.findall(r"fmla\s+v\d+\.4s, v\d+\.4s, v\d+\.s\[", text)) >= 12
    assert not re.findall(r"dup\s+v\d+\.4s, w", text)


@pytest.mark.parametrize("options", PROCESSORS, ids=lambda options: options.cpu)
@pytest.mark.parametrize("lanes", [1, 3, 8, 24, 40, 64])
def test_sigmoids_of_any_vectors(options: LLVMOptions, lanes: int) -> None:
    """Estimates of inverses take whole registers; processors give more bits of them or fewer."""
    x = np.concatenate([samples(32)[::17], np.linspace(-87.4, -87.3, 1000, dtype="float32")])
    wanted = _sigmoid(x.astype("longdouble"))
    got = elementwise(lambda v: call_intrinsic("sigmoid", v), "float32", [("float32", x)], lanes,
                      options)
    worst = np.where(flushed("sigmoid", got, wanted), 0.0, errors(got, wanted))
    assert worst.max() <= 2, x[int(np.argmax(worst))]


@pytest.mark.parametrize("options", PROCESSORS, ids=lambda options: options.cpu)
@pytest.mark.parametrize("lanes", [1, 3, 16])
def test_tanh_by_division(options: LLVMOptions, lanes: int) -> None:
    """Cores that divide quickly do not wait for steps by Newton, and are off by as little."""
    x = np.concatenate([samples(32)[::17], np.linspace(0, 10, 20001, dtype="float32")])
    wanted = np.tanh(x.astype("longdouble"))
    for quickly in (False, True):
        got = elementwise(lambda v: call_intrinsic("tanh", v), "float32", [("float32", x)], lanes,
                          dataclasses.replace(options, divides_quickly=quickly))
        worst = errors(got, wanted)
        assert worst.max() <= 1.8, x[int(np.argmax(worst))]
        assert set(got[x >= 9.1]) == {1.0}
        np.testing.assert_array_equal(np.signbit(got)[x == 0], np.signbit(x)[x == 0])


def test_a_core_that_divides_quickly() -> None:
    """The Neoverse N1 divides for tanh; processors that estimate more bits do not."""
    x = te.placeholder((64,), "float32", "x")
    y = te.compute((64,), lambda i: te.tanh(x[i]))
    schedule = te.create_schedule(y.op)
    schedule[y].vectorize(schedule[y].split(y.op.axis[0], factor=16)[1])
    for target, instruction in (("aarch64-linux-gnu -mcpu=neoverse-n1", "fdiv"),
                                ("x86_64-linux-gnu -mcpu=sapphirerapids", "vrcp14ps")):
        text = sterna.build(schedule, [x, y], target=f"llvm -mtriple={target}").get_source("asm")
        found = set(re.findall(r"\b(fdiv|vdivps|vrcp14ps)\s", text))
        assert found == {instruction}, target


@pytest.mark.parametrize("op", ["exp", "tanh", "sin", "pow"])
def test_half(op: str) -> None:
    x = np.arange(0, 65536, 7, dtype="uint16").view("float16")
    both = [("float16", x)] * (2 if op == "pow" else 1)
    for lanes in (1, 8):
        got = elementwise(lambda *v: call_intrinsic(op, *v), "float16", both, lanes)
        function: Any = {"exp": np.exp, "tanh": np.tanh, "sin": np.sin, "pow": np.power}[op]
        args = [a.astype("float64") for _, a in both]
        wanted = function(*args).astype("longdouble")
        assert errors(got, wanted).max() <= 1


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, math.inf, -math.inf, math.nan,
           1e10, -1e10, 1.5, 1e-30, 1e30, 2.0**53, 1e-40, -1e-40]


def pairs(bits: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(bits + 1)
    x, y = (grid.ravel() for grid in np.meshgrid(SPECIAL, SPECIAL))
    n = 2000
    x = np.concatenate([x, np.exp(rng.normal(size=n) * 3), np.exp(rng.normal(size=n) * bits),
                        1 + rng.normal(size=n) * 1e-3, -rng.integers(1, 50, n)])
    y = np.concatenate([y, rng.normal(size=n) * 30, rng.normal(size=n) * 3,
                        rng.normal(size=n) * 1e4, rng.integers(-20, 20, n)])
    return x.astype(f"float{bits}"), y.astype(f"float{bits}")


def _pow(x: float, y: float) -> Any:
    """C's pow, with more digits where both are plain numbers."""
    try:
        plain = math.pow(x, y)
    except OverflowError:
        plain = math.inf if x > 0 or y % 2 == 0 else -math.inf
    except ValueError:
        if x != 0:
            return math.nan
        odd = abs(y) < 2**53 and y % 2 == 1
        return math.copysign(math.inf, x) if odd else math.inf
    if not math.isfinite(plain) or plain == 0 or not math.isfinite(y) or not math.isfinite(x):
        return plain
    return math.copysign(1, plain) * np.power(np.longdouble(abs(x)), np.longdouble(y))


def _fmod(x: float, y: float) -> float:
    return math.nan if y == 0 or math.isinf(x) else math.fmod(x, y)


def _exact(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: function(np.longdouble(x), np.longdouble(y))


BINARY: dict[str, tuple[Callable[[float, float], Any], float]] = {
    "pow": (_pow, 4), "atan2": (_exact(np.arctan2), 3), "hypot": (_exact(np.hypot), 2),
    "fmod": (_fmod, 0.5), "copysign": (math.copysign, 0.5),
}


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("op", BINARY)
def test_binary(op: str, bits: int) -> None:
    reference, limit = BINARY[op]
    x, y = pairs(bits)
    values = [reference(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    wanted = np.array(values, "longdouble")
    kind = f"float{bits}"
    for lanes in (1, 8):
        got = elementwise(lambda a, b: call_intrinsic(op, a, b), kind, [(kind, x), (kind, y)],
                          lanes)
        worst = errors(got, wanted)
        at = int(np.argmax(worst))
        assert worst[at] <= limit, f"{op}({x[at]!r}, {y[at]!r}) = {got[at]!r}, not {wanted[at]!r}"


@pytest.mark.parametrize("bits", [32, 64])
def test_functions_of_bits(bits: int) -> None:
    kind = f"float{bits}"
    x, y = pairs(bits)
    got = elementwise(lambda a, b: call_intrinsic("nextafter", a, b), kind, [(kind, x), (kind, y)])
    np.testing.assert_array_equal(got, np.nextafter(x, y))
    n = np.resize(np.array([0, 1, -1, -30, -140, 140, -1100, 1074, 5000, -5000]), len(x))
    got = elementwise(lambda a, b: call_intrinsic("ldexp", a, b), kind,
                      [(kind, x), ("int32", n)], 8)
    np.testing.assert_array_equal(got, np.ldexp(x, n))
