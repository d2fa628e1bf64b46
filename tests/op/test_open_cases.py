"""Cases of operators with their first dimension open: one kernel, held against the reference."""

from collections.abc import Iterator
from typing import Any

import pytest

import sterna as tvm
from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import INT32, Var
from sterna.ir.types import Dim, TensorType, TupleType, Type, flatten_type
from sterna.lowering.lower_kernel import lower_kernel
from sterna.relay import expr as relay
from sterna.relay.op import AnyOp, Case, Op, records
from sterna.relay.reference import value_of_type
from sterna.relay.symbols import map_dims_of, simplified
from sterna.target import processor_of
from tests.op.harness import _run, arrays_of, assert_same, flatten, type_of

# Every so many of all cases; 1 is a sweep over all of them.
STRIDE = 23

CASES = [
    pytest.param(record, case, id=f"{record.name}-{place}")
    for record in records().values() if record.compute is not None
    for place, case in enumerate(record.cases)
][::STRIDE]


@pytest.mark.parametrize(("record", "case"), CASES)
def test_first_dimension_open(record: AnyOp, case: Case) -> None:
    attrs = record.attrs(**case.attrs) if record.attrs is not None else None
    operands = arrays_of(case)
    kinds = [type_of(value) for value in operands]
    first = flatten_type(kinds[0])[0] if kinds else None
    if first is None or not first.shape:
        return  # there is nothing to open
    extent, n = first.concrete_shape[0], Var("n", INT32)
    kind = record.infer(attrs, *kinds)
    for opened in _ways_to_open(kinds, extent, n):
        try:
            found = simplified(record.infer(attrs, *opened))
        except ValueError:
            continue  # it says that it cannot; models are specialised then
        known = all(part.is_symbolic for part in flatten_type(found))
        if known and _closed(found, n, extent) == kind:
            break
    else:
        return
    values: dict[relay.Var, Any] = {}
    args = tuple(_argument(*pair, values) for pair in zip(operands, opened, strict=True))
    function = relay.Function(tuple(values), relay.Call(Op(record.name), args, attrs))
    target = tvm.target.Target("llvm")
    try:
        loops = lower_kernel(function, "kernel", processor_of(target), None).function
    except ValueError as error:
        assert "known" in str(error)  # it says what it must know; models are specialised then
        return
    built = tvm.build(loops, target="llvm")["kernel"]
    more = [extent] if any(param is n for param in loops.params) else []
    wanted = flatten(value_of_type(record, attrs, kind, operands))
    given = list(values.values())
    for got, want in zip(_run(lambda *a: built(*a, *more), given, kind, target), wanted,
                         strict=True):
        assert_same(got, want, case.tolerance)


def _ways_to_open(kinds: list[Type], extent: int, n: Var) -> Iterator[list[Type]]:
    """All first dimensions of that extent, or only that of the first operand."""
    yield [_opened(kind, extent, n) for kind in kinds]
    yield [_opened(kinds[0], extent, n), *kinds[1:]]


def _opened(kind: Type, extent: int, n: Var) -> Type:
    if isinstance(kind, TupleType):
        return TupleType(tuple(_opened(part, extent, n) for part in kind.fields))
    assert isinstance(kind, TensorType)
    if not kind.shape or kind.shape[0] != extent:
        return kind
    return TensorType((n, *kind.shape[1:]), kind.dtype)


def _closed(kind: Type, n: Var, extent: int) -> Type:
    def change(dim: Dim) -> Dim:
        return dim if isinstance(dim, int) else substitute(dim, {n: build.const(extent)})

    return simplified(map_dims_of(kind, change))


def _argument(value: Any, kind: Type, values: dict[relay.Var, Any]) -> relay.RelayExpr:
    if isinstance(kind, TupleType):
        pairs = zip(value, kind.fields, strict=True)
        return relay.Tuple(tuple(_argument(*pair, values) for pair in pairs))
    var = relay.Var(f"x{len(values)}", kind)
    values[var] = value
    return var
