"""Casts of small floats, on every engine and for every number, against ml_dtypes."""

import importlib
import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import sterna as tvm
from sterna import te
from sterna.ir import build
from sterna.support import element_arrays
from sterna.support.dtype import DataType
from sterna.support.float_format import FORMATS
from tests.codegen.small_types import ENGINES, Case, every_code, numbers, run_all, vectors
from tests.support import require_module, require_program

Array = npt.NDArray[Any]
TINY = sorted(name for name in FORMATS if FORMATS[name].bits <= 8)


@pytest.fixture(autouse=True)
def compiler() -> None:
    require_program("cc")


def same(a: Array, b: Array) -> Any:
    both = np.isnan(a) & np.isnan(b)
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | both


def reference(values: Array, name: str) -> Array:
    """Rounded by ml_dtypes, from float32."""
    require_module("ml_dtypes")
    kind = np.float16 if name == "float16" else getattr(importlib.import_module("ml_dtypes"), name)
    with np.errstate(all="ignore"):
        rounded: Array = values.astype(np.float32).astype(kind).astype(np.float32)
    return rounded


def around(name: str) -> Array:
    """Numbers at, between and beyond those of a type, which float32 holds."""
    every = numbers(every_code(name)).astype(np.float64)
    finite = np.unique(every[np.isfinite(every)])
    between = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    random = np.random.default_rng(1).standard_normal(200).astype(np.float32)
    spread = random * np.float32(2) ** np.arange(-100, 100, dtype=np.float32)
    top = np.float32(FORMATS[name].maximum)
    ends = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-39], np.float32)
    if FORMATS[name].specials == "scale":
        # ml_dtypes does not round the smallest floats to the nearest of these.
        between = between[between > 2.0**-126]
    with np.errstate(over="ignore"):
        beyond = top * np.array([1.01, 1.04, 1.06, 1.1, 1.3, 2, -1.05, -4], np.float32)
    return np.concatenate([
        finite.astype(np.float32), between, np.nextafter(between, np.float32(np.inf)),
        np.nextafter(between, np.float32(-np.inf)), spread, ends, beyond,
    ])


@pytest.mark.parametrize("engine", ENGINES)
def test_every_number_widens(engine: str) -> None:
    pairs = [*((name, "float32") for name in TINY), ("float8_e4m3fn", "float16"),
             ("float8_e5m2", "float64")]
    cases = [Case(lambda x, out=out: x.astype(out), [every_code(name)], out) for name, out in pairs]
    for (name, out), found in zip(pairs, run_all(engine, cases), strict=True):
        with np.errstate(over="ignore"):
            expected = numbers(every_code(name)).astype(out)
        assert same(numbers(found), expected).all(), (name, out)


@pytest.mark.parametrize("engine", ENGINES)
def test_rounding_from_every_float(engine: str) -> None:
    pairs = [(name, source) for name in TINY for source in ("float32", "float64")]
    pairs += [("float8_e4m3fn", "float16"), ("float8_e5m2fnuz", "float16")]
    with np.errstate(over="ignore"):
        inputs = [around(name).astype(source) for name, source in pairs]
    cases = [
        Case(lambda x, name=name: x.astype(name), [tvm.nd.array(values)], name, vectors(8))
        for (name, _), values in zip(pairs, inputs, strict=True)
    ]
    for pair, values, found in zip(pairs, inputs, run_all(engine, cases), strict=True):
        assert same(numbers(found), reference(values, pair[0])).all(), pair


@pytest.mark.parametrize("engine", ENGINES)
def test_saturation(engine: str) -> None:

    def case(name: str) -> Case:
        compute = lambda x: tvm.tir.call_intrin(name, "tir.saturate", x)  # noqa: E731
        return Case(compute, [tvm.nd.array(around(name))], name, vectors(4))

    cases = [case(name) for name in TINY]
    for name, found in zip(TINY, run_all(engine, cases), strict=True):
        kind = DataType(name)
        codes = element_arrays.encode(around(name), kind, saturate=True)
        assert same(numbers(found), element_arrays.decode(codes, kind)).all(), name


def hard_to_round(name: str) -> list[Array]:
    """Doubles beside the middle of two numbers, and integers that doubles do not hold."""
    format = FORMATS[name]
    finite = [format.decode(code) for code in range(0, format.largest, 1 + format.largest // 200)]
    between = [(a + b) / 2 for a, b in itertools.pairwise(finite)]
    doubles = np.array([x * (1 + s * 2.0**-50) for x in between for s in (-1, 0, 1)])
    whole = [2**62 + 2**54 + d for d in (-1, 0, 1)] + [-(2**62) - 2**54 + d for d in (-1, 0, 1)]
    integers = np.array([*whole, 2**53 + 1, -1, 0, 1, 3, 2**63 - 1, -(2**63)], np.int64)
    return [doubles, integers, integers.astype(np.uint64)]


@pytest.mark.parametrize("engine", ENGINES)
def test_doubles_and_integers_are_rounded_once(engine: str) -> None:
    names = ["bfloat16", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn"]
    pairs = [(name, values) for name in names for values in hard_to_round(name)]
    cases = [
        Case(lambda x, name=name: x.astype(name), [tvm.nd.array(values)], name)
        for name, values in pairs
    ]
    for (name, values), found in zip(pairs, run_all(engine, cases), strict=True):
        expected = [build.round_float(v.item(), DataType(name)) for v in values]
        assert same(numbers(found), np.array(expected, np.float32)).all(), (name, values.dtype)


@pytest.mark.parametrize("engine", ENGINES)
def test_arithmetic_is_rounded_after_each_step(engine: str) -> None:
    name = "float8_e4m3fn"
    codes = every_code(name).numpy()
    a, b = (x.reshape(-1) for x in np.meshgrid(codes[::5], codes[::7]))
    x, y = tvm.nd.array(a, dtype=name), tvm.nd.array(b, dtype=name)
    p, q = numbers(x), numbers(y)
    with np.errstate(all="ignore"):
        expected = [p + q, p * q, p - q, np.where(p < q, p, q)]
    computes = [
        lambda u, v: u + v, lambda u, v: u * v, lambda u, v: u - v,
        lambda u, v: te.if_then_else(u < v, u, v),
    ]
    cases = [Case(compute, [x, y], name, vectors(8)) for compute in computes]
    for exact, found in zip(expected, run_all(engine, cases), strict=True):
        assert same(numbers(found), reference(exact, name)).all()


@pytest.mark.parametrize("engine", ["llvm", "c"])
def test_functions_go_through_float32(engine: str) -> None:
    name = "float8_e5m2"
    codes = every_code(name)
    (found,) = run_all(engine, [Case(te.exp, [codes], name)])
    with np.errstate(all="ignore"):
        exact = np.exp(numbers(codes).astype(np.float64))
        expected = reference(exact.astype(np.float32), name)
    # One in the last place of float32 may fall on the other side of the middle.
    assert same(numbers(found), expected).mean() > 0.99


@pytest.mark.parametrize("engine", ENGINES)
def test_bits_are_reinterpreted(engine: str) -> None:
    names = ("float8_e4m3fn", "float8_e5m2fnuz", "float4_e2m1fn", "float6_e3m2fn")
    plain = [f"uint{FORMATS[name].bits}" for name in names]
    there = [
        Case(lambda x, name=name: tvm.tir.reinterpret(name, x), [every_code(held)], name)
        for name, held in zip(names, plain, strict=True)
    ]
    found = run_all(engine, there)
    back = [
        Case(lambda x, held=held: tvm.tir.reinterpret(held, x), [array], held)
        for array, held in zip(found, plain, strict=True)
    ]
    for name, array, again in zip(names, found, run_all(engine, back), strict=True):
        codes = np.arange(1 << FORMATS[name].bits)
        assert same(numbers(array), element_arrays.decode(codes, DataType(name))).all()
        assert (again.numpy() == codes)[~np.isnan(numbers(array))].all()


@pytest.mark.parametrize("name", TINY)
def test_the_ends_of_a_type(name: str) -> None:
    every = numbers(every_code(name))
    finite = every[np.isfinite(every)]
    assert float(te.max_value(name)) == finite.max()  # type: ignore[arg-type]
    assert float(te.min_value(name)) == finite.min()  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["llvm", "c"])
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"])
def test_extremes_of_rows(name: str, engine: str) -> None:
    """Also where a type has no infinity to begin with."""
    x = te.placeholder((5, 6), name, "x")
    j, k = te.reduce_axis((0, 6), "j"), te.reduce_axis((0, 6), "k")
    least = te.compute((5,), lambda i: te.min(x[i, j], axis=j), name="least")
    most = te.compute((5,), lambda i: te.max(x[i, k], axis=k), name="most")
    module = tvm.build(te.create_schedule([least.op, most.op]), [x, least, most], engine)
    given = tvm.nd.array(np.random.default_rng(2).standard_normal((5, 6)), dtype=name)
    low, high = (tvm.nd.empty((5,), name) for _ in range(2))
    module(given, low, high)
    rows = numbers(given)
    assert (numbers(low) == rows.min(1)).all() and (numbers(high) == rows.max(1)).all()
