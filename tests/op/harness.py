"""Runs an operator's case through its computation and holds it against its reference."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import sterna as tvm
from sterna.ir.types import Dim, TensorType, TupleType, Type, flatten_type
from sterna.lowering.lower_kernel import lower_kernel
from sterna.relay.arrays import from_numpy, numpy_dtype, to_numpy
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, TupleGetItem, Var
from sterna.relay.infer import fits, show_call
from sterna.relay.op import AnyOp, Case, Op, find, record_of
from sterna.relay.reference import reference_value, value_of_type
from sterna.relay.traverse import post_order
from sterna.runtime.ndarray import empty
from sterna.support.dtype import DataType
from sterna.target import is_gpu, processor_of
from sterna.te import create_schedule, placeholder
from sterna.te.lower import lower_schedule
from sterna.tir.passes.bind_threads import bind_threads


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


def check_case(record: AnyOp, case: Case, target: str = "llvm") -> None:
    """Types, reference, rewritings and compiled computation of one case agree."""
    attrs = record.attrs(**case.attrs) if record.attrs is not None else None
    check_operands(record, attrs, arrays_of(case), case.tolerance, target)


def check_operands(
    record: AnyOp, attrs: Any, operands: list[Any], tolerance: float, target: str = "llvm"
) -> None:
    """The same for these operands."""
    kind = record.infer(attrs, *[type_of(value) for value in operands])
    wanted = flatten(value_of_type(record, attrs, kind, operands))
    known = [type_of(want) for want in wanted]
    for have, part in zip(known, flatten_type(kind), strict=True):
        assert fits(have, part), f"the reference gives {have!r}, the relation {part!r}"
    _check_rewritings(record, attrs, operands, wanted, tolerance)
    if record.compute is None:
        return
    exact = known[0] if isinstance(kind, TensorType) else TupleType(tuple(known))
    for got, want in zip(compiled(record, attrs, operands, exact, target), wanted, strict=True):
        assert_same(got, want, tolerance)


def compiled(
    record: AnyOp, attrs: Any, operands: list[Any], kind: Type | None = None,
    target: str = "llvm",
) -> list[Any]:
    """The results of an operator's computation; kind is their type where the run must tell."""
    inferred = record.infer(attrs, *[type_of(value) for value in operands])
    kind = kind or inferred
    module, name, values = built(record, attrs, operands, kind, target)
    return _run(module[name], values, kind, tvm.target.Target(target))


def built(
    record: AnyOp, attrs: Any, operands: list[Any], kind: Type, target: str
) -> tuple[tvm.runtime.Module, str, list[Any]]:
    """The code of an operator's computation, its name there, and the arrays that it takes."""
    inferred = record.infer(attrs, *[type_of(value) for value in operands])
    assert record.compute is not None
    whole = tvm.target.Target(target)
    if all(part.is_static for part in flatten_type(inferred)):
        return _as_kernel(record, attrs, operands, whole)
    count = iter(range(1000))
    holders = [_placeholders(value, count) for value in operands]
    found = None
    if is_gpu(whole) and record.compute_by_threads is not None:
        found = record.compute_by_threads(attrs, kind, *holders)
    made = flatten(found if found is not None else record.compute(attrs, kind, *holders))
    schedule = create_schedule([t.op for t in made])
    read = [t.op in schedule.stage_map for t in flatten(holders)]
    inputs = [t for t, is_read in zip(flatten(holders), read, strict=True) if is_read]
    values = [v for v, is_read in zip(flatten(operands), read, strict=True) if is_read]
    loops = lower_schedule(schedule, [*inputs, *made], "kernel")
    if is_gpu(whole):
        loops = bind_threads(loops)
    return tvm.build(loops, target=whole), "kernel", values


def _as_kernel(
    record: AnyOp, attrs: Any, operands: list[Any], target: tvm.target.Target
) -> tuple[tvm.runtime.Module, str, list[Any]]:
    """The kernel that a graph would run, with the operator's own schedule."""
    values: dict[Var, Any] = {}
    args = tuple(argument_of(value, values, False) for value in operands)
    function = Function(tuple(values), Call(Op(record.name), args, attrs))
    keys = target if is_gpu(target) else None
    loops = lower_kernel(function, "kernel", processor_of(target), keys).function
    return tvm.build(loops, target=target), "kernel", list(values.values())


def _run(
    function: Callable[..., Any], operands: list[Any], kind: Type, target: tvm.target.Target
) -> list[Any]:
    """What a function gives, on the device that a target's kernels run on."""
    given = [from_numpy(np.asarray(value, order="C")) for value in operands]
    results = [empty(part.concrete_shape, part.dtype) for part in flatten_type(kind)]
    if is_gpu(target):
        device = tvm.device(target.kind.name)
        there = [array.copyto(device) for array in (*given, *results)]
        function(*there)
        results = [array.copyto(tvm.cpu()) for array in there[len(given) :]]
    else:
        function(*given, *results)
    return [to_numpy(result) for result in results]


def reference(name: str, *arrays: Any, **attrs: Any) -> Any:
    """What an operator's reference gives."""
    record = find(name)
    assert record.reference is not None
    return record.reference(record.attrs(**attrs) if record.attrs else None, *arrays)


def kind(shape: tuple[Dim, ...], dtype: str = "float32") -> TensorType:
    """A type of tensors."""
    return TensorType(shape, DataType(dtype))


def assert_same(got: Any, want: Any, tolerance: float) -> None:
    """Both arrays are equal; floats nearly so, relative to the largest."""
    assert got.dtype == want.dtype
    if str(want.dtype).startswith(("float", "bfloat")):
        exact = want.astype("float64")
        scale = max(1.0, float(np.max(np.abs(exact)[np.isfinite(exact)], initial=0.0)))
        np.testing.assert_allclose(
            got.astype("float64"), exact, rtol=tolerance, atol=tolerance * scale
        )
    else:
        np.testing.assert_array_equal(got, want)


# ---- what an operator says about itself by other operators ----


def _check_rewritings(
    record: AnyOp, attrs: Any, operands: list[Any], wanted: list[Any], tolerance: float
) -> None:
    """Where an operator says that it is others, they give what it gives."""
    for question in (record.simplify, record.canonicalize, record.fast, record.to_static):
        if question is None:
            continue
        as_constants = question is record.to_static
        values: dict[Var, Any] = {}
        args = tuple(argument_of(value, values, as_constants) for value in operands)
        made = question(attrs, args)
        assert made is not None or not as_constants, "constants are known"
        if made is not None:
            for got, want in zip(flatten(evaluate(made, values)), wanted, strict=True):
                assert_same(got, want, tolerance)


def constant_of(value: Any) -> RelayExpr:
    """An array as a constant, a list as a tuple of them."""
    if isinstance(value, list):
        return Tuple(tuple(map(constant_of, value)))
    return Constant(from_numpy(np.asarray(value, order="C")))


def argument_of(value: Any, values: dict[Var, Any], as_constants: bool = False) -> RelayExpr:
    """An operand of a call: constants, or variables of which values tells the arrays."""
    if isinstance(value, list):
        return Tuple(tuple(argument_of(item, values, as_constants) for item in value))
    if as_constants:
        return constant_of(value)
    variable = Var(f"v{len(values)}", type_of(value))
    values[variable] = value
    return variable


def evaluate(root: RelayExpr, values: Mapping[Var, Any]) -> Any:
    """The value of a graph by its operators' references."""
    found: dict[Any, Any] = dict(values)
    for expr in post_order(root):
        if isinstance(expr, Constant):
            found[expr] = to_numpy(expr.data)
        elif isinstance(expr, Tuple):
            found[expr] = [found[part] for part in expr.fields]
        elif isinstance(expr, TupleGetItem):
            found[expr] = found[expr.tuple_value][expr.index]
        elif isinstance(expr, Call):
            record = record_of(expr)
            assert record is not None and record.reference is not None
            found[expr] = reference_value(record, expr, [found[arg] for arg in expr.args])
            for have, part in zip(flatten(found[expr]), flatten_type(expr.checked_type),
                                  strict=True):
                assert fits(type_of(have), part), f"{type_of(have)!r} of {show_call(expr)}"
    return found[root]


def _placeholders(value: Any, count: Any) -> Any:
    if isinstance(value, list):
        return [_placeholders(item, count) for item in value]
    return placeholder(value.shape, str(value.dtype), name=f"p{next(count)}")
