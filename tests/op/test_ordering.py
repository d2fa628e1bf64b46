"""Operators that put elements in order, count and add up: against NumPy's own functions."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, te
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import TensorType, flatten_type
from sterna.op.ordering import comparable
from sterna.relay.arrays import numpy_dtype
from sterna.relay.op import find
from sterna.support.dtype import DataType
from sterna.te import create_schedule, placeholder
from tests.op.harness import compiled

RNG = np.random.default_rng(7)
DTYPES = ["float64", "float32", "int64", "uint64", "int8", "uint8", "bool"]


def reference(name: str, *operands: Any, **attrs: Any) -> Any:
    record = find(name)
    assert record.reference is not None and record.attrs is not None
    return record.reference(record.attrs(**attrs), *operands)


def run(name: str, *operands: Any, **attrs: Any) -> list[Any]:
    record = find(name)
    assert record.attrs is not None
    return compiled(record, record.attrs(**attrs), list(operands))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_references_are_numpys(dtype: str, axis: int) -> None:
    x = RNG.integers(0, 9, (5, 6, 7)).astype(dtype)
    if dtype.startswith("float"):
        x[RNG.random(x.shape) < 0.2] = np.nan
    np.testing.assert_array_equal(reference("sort", x, axis=axis), np.sort(x, axis))
    np.testing.assert_array_equal(
        reference("argsort", x, axis=axis, dtype="int64"), np.argsort(x, axis, kind="stable")
    )
    down = reference("sort", x, axis=axis, is_ascend=False)
    np.testing.assert_array_equal(down, np.flip(np.sort(x, axis), axis))
    values, _, inverse, number, counts = reference("unique", x, return_counts=True)
    want, _, where, many = np.unique(x, True, True, True)
    assert number == len(want)
    np.testing.assert_array_equal(values[: len(want)], want)
    np.testing.assert_array_equal(inverse, where.reshape(-1))
    np.testing.assert_array_equal(counts[: len(want)], many)


def test_unique_slices_are_numpys() -> None:
    x = RNG.integers(0, 2, (8, 3, 2))
    for axis in (0, 1, 2):
        values, first, inverse, number, counts = reference(
            "unique", x, axis=axis, return_counts=True
        )
        want, place, where, many = np.unique(x, True, True, True, axis)
        size = number.item()
        assert size == want.shape[axis]
        np.testing.assert_array_equal(np.take(values, np.arange(size), axis), want)
        np.testing.assert_array_equal(first[:size], place)
        np.testing.assert_array_equal(inverse, where.reshape(-1))
        np.testing.assert_array_equal(counts[:size], many)


def test_long_lines_in_parallel() -> None:
    x = RNG.integers(0, 99, (5, 1717)).astype("float32")
    x[RNG.random(x.shape) < 0.1] = np.nan
    (places,) = run("argsort", x)
    np.testing.assert_array_equal(places, np.argsort(x, -1, kind="stable"))
    (values,) = run("sort", x.T.copy(), axis=0)
    np.testing.assert_array_equal(values, np.sort(x.T, 0))
    (total,) = run("cumsum", np.nan_to_num(x), axis=0)
    np.testing.assert_allclose(total, np.cumsum(np.nan_to_num(x), 0))


# Few different numbers, so that equals meet; NaN and zeros of both signs among those of floats.
SPECIAL = [np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf]


def repeated(shape: tuple[int, ...], dtype: str) -> Any:
    if DataType(dtype).is_float:
        x = RNG.integers(-40, 40, shape).astype("float32")
        special = RNG.random(shape) < 0.1
        x[special] = RNG.choice(SPECIAL, int(special.sum()))
        return x.astype(numpy_dtype(dtype))
    info = np.iinfo(dtype)
    return RNG.choice(np.array([info.min, info.max, 0, 1, 2, 3, 50, 99], dtype), shape)


@pytest.mark.parametrize(
    ("dtype", "is_ascend"),
    [
        ("float64", True), ("float32", False), ("float32", True), ("float16", False),
        ("bfloat16", True), ("int64", False), ("uint64", True), ("int32", True),
        ("uint16", False), ("int8", False),
    ],
)
def test_few_of_many_and_all_of_many(dtype: str, is_ascend: bool) -> None:
    """Few are inserted, more found by a tournament of groups, all ordered by a radix sort."""
    x = repeated((2, 1003), dtype)
    for k in (3, 30, 1003):
        attrs = {"k": k, "is_ascend": is_ascend, "dtype": "int64"}
        for got, want in zip(run("topk", x, **attrs), reference("topk", x, **attrs), strict=True):
            np.testing.assert_array_equal(comparable(got), comparable(want))


def test_lines_of_every_short_length() -> None:
    for length in (1, 2, 16, 17, 31, 32, 129):
        x = repeated((3, length), "float32")
        (places,) = run("argsort", x)
        np.testing.assert_array_equal(places, np.argsort(x, -1, kind="stable"))


def test_long_digits() -> None:
    x = RNG.standard_normal(20000).astype("float32")
    (values,) = run("sort", x)
    np.testing.assert_array_equal(values, np.sort(x))
    values, places = run("topk", np.sort(x)[:, None], k=30, axis=0)
    np.testing.assert_array_equal(places[:, 0], np.arange(20000)[:-31:-1])
    np.testing.assert_array_equal(values[:, 0], np.sort(x)[:-31:-1])


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("sort", {}), ("argsort", {"is_ascend": False}), ("topk", {"k": 2, "ret_type": "values"}),
        ("cumsum", {"axis": 1, "reverse": True}), ("unique", {}), ("argwhere_padded", {}),
    ],
)
def test_an_extent_may_be_a_variable(name: str, attrs: dict[str, Any]) -> None:
    record = find(name)
    assert record.attrs is not None and record.compute is not None
    values = record.attrs(**attrs)
    kind = TensorType((2, te.size_var("n")))
    x = placeholder(kind.shape, name="x")
    made = record.compute(values, record.infer(values, kind), x)
    tensors = made if isinstance(made, list) else [made]
    function = tvm.build(create_schedule(tensors[0].op), [x, *tensors], "llvm")
    for size in (2, 3, 17, 64):
        given = RNG.integers(0, 5, (2, size)).astype("float32")
        want = reference(name, given, **attrs)
        wanted = want if isinstance(want, list) else [want]
        got = [np.empty(one.shape, one.dtype) for one in wanted]
        function(given, *got)
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


def test_what_the_run_must_tell_has_no_extent() -> None:
    x = relay.var("x", shape=(AnyDim(), 3))
    kinds = [relay.argwhere(x), relay.cumsum(x), relay.unique(x)[0]]
    k = relay.var("k", shape=(), dtype="int64")
    kinds += [relay.topk(x, k, ret_type="values"), relay.topk(x, 2)[1]]
    for expr in kinds:
        typed = infer(expr)["main"].body.checked_type
        assert any(isinstance(dim, AnyDim) for kind in flatten_type(typed) for dim in kind.shape)


def test_mistakes() -> None:
    x = relay.var("x", shape=(2, 3))
    flags = relay.var("flags", shape=(7,), dtype="bool")
    with pytest.raises(ValueError, match="k is at most the 3 elements along axis -1, not 4"):
        infer(relay.topk(x, 4, ret_type="values"))
    with pytest.raises(ValueError, match="ret_type is both, values or indices, not 'all'"):
        relay.topk(x, 1, ret_type="all")
    with pytest.raises(ValueError, match="axis 2 is not one of the 2 dimensions"):
        infer(relay.sort(x, axis=2))
    with pytest.raises(ValueError, match="condition has at most 3 elements as data has, not 7"):
        infer(relay.compress(x, flags, axis=1))
    with pytest.raises(ValueError, match="data without a dtype for the result has elements"):
        infer(relay.cumsum(flags))


def infer(expr: Any) -> Any:
    mod = tvm.IRModule.from_expr(relay.Function(tuple(relay.analysis.free_vars(expr)), expr))
    return relay.transform.InferType()(mod)
