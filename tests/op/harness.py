"""Runs an operator's case through its computation and holds it against its reference."""

from typing import Any

import numpy as np

import sterna as tvm
from sterna.ir.types import TensorType, TupleType, Type, flatten_type
from sterna.relay.arrays import from_numpy, numpy_dtype, to_numpy
from sterna.relay.op import Case, OpRecord
from sterna.runtime.ndarray import empty
from sterna.support.dtype import DataType
from sterna.te import create_schedule, placeholder


def arrays_of(case: Case, seed: int = 0) -> list[Any]:
    """The operands of a case: arrays, and lists of arrays for tuples."""
    rng = np.random.default_rng(seed)
    return [_array(given, rng) for given in case.inputs]


def _array(given: Any, rng: np.random.Generator) -> Any:
    if isinstance(given, np.ndarray):
        return given
    if isinstance(given, list):
        return [_array(item, rng) for item in given]
    shape, dtype = given, "float32"
    if len(given) == 2 and isinstance(given[0], tuple):
        shape, dtype = given
    kind = numpy_dtype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if str(dtype).startswith(("int", "uint")):
        low = 0 if str(dtype).startswith("uint") else -7
        return rng.integers(low, 8, shape).astype(kind)
    return rng.standard_normal(shape).astype(kind)


def type_of(value: Any) -> Type:
    """The type of an array or a list of arrays."""
    if isinstance(value, list):
        return TupleType(tuple(type_of(item) for item in value))
    return TensorType(value.shape, DataType(str(value.dtype)))


def flatten(value: Any) -> list[Any]:
    """The arrays in a result."""
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in flatten(item)]
    return [value]


def check_case(record: OpRecord, case: Case, target: str = "llvm") -> None:
    """Types, reference and compiled computation of one case agree."""
    operands = arrays_of(case)
    attrs = record.attrs(**case.attrs) if record.attrs is not None else None
    kind = record.infer(attrs, *[type_of(value) for value in operands])
    assert record.reference is not None
    wanted = flatten(record.reference(attrs, *operands))
    for want, part in zip(wanted, flatten_type(kind), strict=True):
        assert tuple(want.shape) == part.concrete_shape, (want.shape, part)
        assert str(want.dtype) == part.dtype, (want.dtype, part)
    if record.compute is None:
        return
    count = iter(range(1000))
    holders = [_placeholders(value, count) for value in operands]
    made = flatten(record.compute(attrs, kind, *holders))
    inputs = flatten(holders)
    function = tvm.build(create_schedule([t.op for t in made]), [*inputs, *made], target)
    given = [from_numpy(np.asarray(value, order="C")) for value in flatten(operands)]
    results = [empty(part.concrete_shape, part.dtype) for part in flatten_type(kind)]
    function(*given, *results)
    for result, want in zip(results, wanted, strict=True):
        got = to_numpy(result)
        if str(want.dtype).startswith(("float", "bfloat")):
            finite = np.abs(want.astype("float64"))[np.isfinite(want.astype("float64"))]
            scale = max(1.0, float(np.max(finite, initial=0.0)))
            np.testing.assert_allclose(
                got.astype("float64"), want.astype("float64"),
                rtol=case.tolerance, atol=case.tolerance * scale,
            )  # fmt: skip
        else:
            np.testing.assert_array_equal(got, want)


def _placeholders(value: Any, count: Any) -> Any:
    if isinstance(value, list):
        return [_placeholders(item, count) for item in value]
    return placeholder(value.shape, str(value.dtype), name=f"p{next(count)}")
