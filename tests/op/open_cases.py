"""Cases of operators with one dimension open: one kernel for any extent, run with the case's own.

    python -m tests.op.open_cases [--axis -1] [--only add nn.dense] [--stride 7]

Every case of every operator that has a computation is compiled with a symbol for one extent of its
first operand, and of the others that have the same one there. It prints what is wrong, and how many
are right; the operators that say what they must know are counted by what they say.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

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

RIGHT, NOTHING, CLOSED = "right", "no such dimension", "types need the extent"
REFUSED = "kernels need the extent"


def cases() -> list[tuple[AnyOp, Case, str]]:
    """Every case of an operator that has a computation, with a name."""
    return [
        (record, case, f"{record.name}-{place}")
        for record in records().values() if record.compute is not None
        for place, case in enumerate(record.cases)
    ]


def outcome_of(record: AnyOp, case: Case, axis: int) -> str:
    """Run a case with an axis of its operands open; an AssertionError if results differ."""
    attrs = record.attrs(**case.attrs) if record.attrs is not None else None
    operands = arrays_of(case)
    kinds = [type_of(value) for value in operands]
    first = flatten_type(kinds[0])[0] if kinds else None
    if first is None or not first.shape:
        return NOTHING
    extent, n = first.concrete_shape[axis], Var("n", INT32)
    kind = record.infer(attrs, *kinds)
    for opened in _ways_to_open(kinds, axis, extent, n):
        try:
            found = simplified(record.infer(attrs, *opened))
        except ValueError:
            continue  # it says that it cannot; models are specialised then
        known = all(part.is_symbolic for part in flatten_type(found))
        if known and _closed(found, n, extent) == kind:
            break
    else:
        return CLOSED
    values: dict[relay.Var, Any] = {}
    args = tuple(_argument(*pair, values) for pair in zip(operands, opened, strict=True))
    function = relay.Function(tuple(values), relay.Call(Op(record.name), args, attrs))
    target = tvm.target.Target("llvm")
    try:
        loops = lower_kernel(function, "kernel", processor_of(target), None).function
    except ValueError as error:
        assert "known" in str(error), error  # it says what it must know
        return REFUSED
    built = tvm.build(loops, target="llvm")["kernel"]
    more = [extent] if any(param is n for param in loops.params) else []
    wanted = flatten(value_of_type(record, attrs, kind, operands))
    given = list(values.values())
    for got, want in zip(_run(lambda *a: built(*a, *more), given, kind, target), wanted,
                         strict=True):
        assert_same(got, want, case.tolerance)
    return RIGHT


def _ways_to_open(kinds: list[Type], axis: int, extent: int, n: Var) -> Iterator[list[Type]]:
    """All dimensions of that place and extent, or only that of the first operand."""
    yield [_opened(kind, axis, extent, n) for kind in kinds]
    yield [_opened(kinds[0], axis, extent, n), *kinds[1:]]


def _opened(kind: Type, axis: int, extent: int, n: Var) -> Type:
    if isinstance(kind, TupleType):
        return TupleType(tuple(_opened(part, axis, extent, n) for part in kind.fields))
    assert isinstance(kind, TensorType)
    if not kind.shape or kind.shape[axis] != extent:
        return kind
    shape = list(kind.shape)
    shape[axis] = n
    return TensorType(tuple(shape), kind.dtype)


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


def main(words: Sequence[str] | None = None) -> int:
    """Run what the command line names; 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axis", type=int, choices=(0, -1), default=0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--stride", type=int, default=1, help="every so many of all cases")
    given = parser.parse_args(words)
    chosen = [each for each in cases() if not given.only or each[0].name in given.only]
    counts: Counter[str] = Counter()
    wrong = 0
    for record, case, name in chosen[:: given.stride]:
        try:
            counts[outcome_of(record, case, given.axis)] += 1
        except Exception as error:  # whatever it is: the sweep names it and goes on
            wrong += 1
            print(f"{name}: {type(error).__name__}: {str(error).strip()[:300]}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in counts.most_common()), f", {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
