"""Constant folding: calls whose operands are known, computed now.

    add(meta[relay.Constant][0], meta[relay.Constant][1])  ->  meta[relay.Constant][0]

The operators' references compute them, so nothing is compiled. What would only grow, such as a
constant spread over a large shape, is left to the run.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.ir.transform import Pass, function_pass
from sterna.ir.types import TensorType, Type, flatten_type
from sterna.relay.arrays import from_folded, let_go, shared_numpy
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, TupleGetItem
from sterna.relay.op import AnyOp, record_of
from sterna.relay.reference import reference_value
from sterna.relay.traverse import not_primitive, rewrite

Allows = Callable[[AnyOp, Call, int], bool]

# A result may be this much larger than the operands.
GROWTH, SMALL_BYTES = 4, 1 << 20


def FoldConstant() -> Pass:
    """Compute what is known."""
    made: Pass = function_pass(
        lambda func, mod, context: fold_constant(func),
        opt_level=2, name="FoldConstant", kind=Function,
    )
    return made


def fold_constant(expr: Any) -> Any:
    """The function or expression with known calls replaced by constants."""
    return rewrite(expr, lambda new, old: fold_one(new), not_primitive)


def fold_one(new: RelayExpr, allows: Allows | None = None) -> RelayExpr:
    """One expression whose parts are folded already, computed if they are known.

    allows(record, call, bytes) says whether to compute a call whose value has so many bytes.
    """
    if isinstance(new, TupleGetItem) and isinstance(new.tuple_value, Tuple):
        return new.tuple_value.fields[new.index]
    record = record_of(new)
    if record is None or record.reference is None or not record.foldable:
        return new
    assert isinstance(new, Call)
    if not all(map(_is_known, new.args)) or not _worth_it(record, new, allows):
        return new
    return evaluate(record, new)


def evaluate(record: AnyOp, call: Call) -> RelayExpr:
    """The value of a call of constants, as a constant or a tuple of constants."""
    made = _constant(reference_value(record, call, map(_value, call.args)), call.checked_type)
    made.span = _name_of(call)
    for arg in call.args:
        if isinstance(arg, Constant):
            let_go(arg.data)
    return made


def _name_of(call: Call) -> str | None:
    """A value keeps the name of the largest constant that it is made from, if that has one."""
    held = [arg for arg in call.args if isinstance(arg, Constant) and arg.span]
    return max(held, key=lambda arg: arg.data.nbytes).span if held else call.span


def _is_known(expr: RelayExpr) -> bool:
    if isinstance(expr, Tuple):
        return all(map(_is_known, expr.fields))
    return isinstance(expr, Constant)


def _value(expr: RelayExpr) -> Any:
    if isinstance(expr, Tuple):
        return [_value(part) for part in expr.fields]
    assert isinstance(expr, Constant)
    return shared_numpy(expr.data)


def _constant(value: Any, kind: Type) -> RelayExpr:
    if isinstance(value, tuple | list):
        parts = zip(value, kind.fields, strict=True)  # type: ignore[attr-defined]
        return Tuple(tuple(_constant(part, own) for part, own in parts))
    return Constant(from_folded(np.asarray(value), str(kind.dtype)))  # type: ignore[attr-defined]


def _worth_it(record: AnyOp, call: Call, allows: Allows | None) -> bool:
    made = flatten_type(call.checked_type)
    if not all(kind.is_static for kind in made):
        return False
    given = [kind for arg in call.args for kind in flatten_type(arg.checked_type)]
    after, before = sum(map(_bytes, made)), sum(map(_bytes, given))
    if after > max(SMALL_BYTES, GROWTH * before):
        return False
    return allows is None or allows(record, call, after)


def _bytes(kind: TensorType) -> int:
    return math.prod(kind.concrete_shape) * kind.dtype.bits // 8
