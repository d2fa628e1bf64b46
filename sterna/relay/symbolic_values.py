"""Symbolic shape inference of values: the numbers that a graph computes from shapes of tensors.

    concatenate([strided_slice(shape_of(%x: (n, 4, 6)), 0, 1), [-1]])  ->  (n, -1)

Operators whose shapes are operands become those whose shapes are attributes where it finds these.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.arith import Analyzer
from sterna.ir import build
from sterna.ir.expr import Expr, IntImm, variables_in
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.expr import Call, Constant, RelayExpr, Tuple, TupleGetItem
from sterna.relay.op import record_of

# Numbers of shapes are few, and computed in few steps.
MOST_NUMBERS = 64
MOST_STEPS = 64
# Extents end below this.
_END = 2**31 - 1


def symbolic_value(expr: RelayExpr) -> Array | None:
    """What an expression is, as objects that are numbers or expressions over extents."""
    found = extents_in(expr)
    return None if found is None or _has_unknown(found) else found


def extents_in(expr: RelayExpr) -> Array | None:
    """The same, where extents of which nothing is known may be among the numbers as they are."""
    found: Array | None = _Values().of(expr, 0)
    return found


def is_of_shapes(expr: RelayExpr) -> bool:
    """Whether numbers are computed from nothing but shapes of tensors."""
    return extents_in(expr) is not None or reads_open_shapes(expr)


def reads_open_shapes(expr: RelayExpr) -> bool:
    """Whether shapes of which nothing is known yet decide a value, and nothing else does."""
    is_open, stack, steps = False, [expr], 0
    while stack:
        part = stack.pop()
        steps += 1
        record = record_of(part)
        if isinstance(part, Constant):
            continue
        if isinstance(part, TupleGetItem):
            stack.append(part.tuple_value)
        elif isinstance(part, Tuple):
            stack += part.fields
        elif record is None or steps > MOST_STEPS or not _is_small(part):
            return False
        elif record.name in _OF_SHAPES:
            assert isinstance(part, Call)
            kind = part.args[0].checked_type
            is_open |= isinstance(kind, TensorType) and not kind.is_symbolic
        elif record.name in _ELEMENTWISE or record.name in _MOVED or record.name == "prod":
            assert isinstance(part, Call)
            stack += part.args
        else:
            return False
    return is_open


class _Values:
    """What is known of the parts of an expression."""

    def __init__(self) -> None:
        self.found: dict[int, Any] = {}

    def of(self, expr: RelayExpr, steps: int) -> Any:
        """An array of objects, a list of them for a tuple; None if runs alone know."""
        if id(expr) not in self.found:
            self.found[id(expr)] = self._of(expr, steps) if steps < MOST_STEPS else None
        return self.found[id(expr)]

    def _of(self, expr: RelayExpr, steps: int) -> Any:
        if isinstance(expr, Constant):
            return _of_constant(expr)
        if isinstance(expr, Tuple):
            fields = [self.of(field, steps + 1) for field in expr.fields]
            return None if any(field is None for field in fields) else fields
        if isinstance(expr, TupleGetItem):
            whole = self.of(expr.tuple_value, steps + 1)
            return None if whole is None else whole[expr.index]
        record = record_of(expr)
        if record is None or not _is_small(expr):
            return None
        assert isinstance(expr, Call)
        if record.name in _OF_SHAPES:
            return _OF_SHAPES[record.name](expr.args[0])
        if record.name == "prod" and _is_whole(expr):
            numbers = self.of(expr.args[0], steps + 1)
            if numbers is None or _has_unknown(numbers):
                return None
            return _one(_product(numbers.ravel().tolist()))
        if record.name not in _ELEMENTWISE and record.name not in _MOVED:
            return None
        given = [self.of(arg, steps + 1) for arg in expr.args]
        if any(each is None for each in given):
            return None
        try:
            is_computed = record.name in _ELEMENTWISE and record.name != "cast"
            if is_computed and any(map(_has_unknown, given)):
                return None
            if record.name in _ELEMENTWISE:
                return _objects(_ELEMENTWISE[record.name](*given))
            if record.name == "take":
                given[1] = _numbers(given[1])
            assert record.reference is not None
            made = record.reference(expr.attrs, *given)
            return made if isinstance(made, list | tuple) else _objects(made)  # of one: no array
        except _Undecided:
            return None


class _Undecided(Exception):
    """Whether something holds depends on extents."""


def _is_small(expr: RelayExpr) -> bool:
    """Whether it may be numbers of a shape; tuples are told by what they are split from."""
    kind = expr.checked_type
    if not isinstance(kind, TensorType):
        return True
    if not kind.is_static or kind.dtype.is_float:
        return False
    return int(np.prod(kind.concrete_shape)) <= MOST_NUMBERS


def _of_constant(expr: Constant) -> Any:
    kind = expr.checked_type
    if not isinstance(kind, TensorType) or not _is_small(expr):
        return None
    return _objects(to_numpy(expr.data).tolist())


def _objects(value: Any) -> Array:
    """An array of Python's numbers and of expressions."""
    given = np.asarray(value, dtype=object)
    made = np.empty(given.shape, dtype=object)
    made[...] = given
    return made


def _shape(data: RelayExpr) -> Any:
    kind = data.checked_type
    assert isinstance(kind, TensorType)
    made = np.empty(kind.ndim, dtype=object)
    made[:] = kind.shape
    return made


def _size(data: RelayExpr) -> Any:
    shape = _shape(data)
    if _has_unknown(shape):
        return None
    return _one(_product(shape.tolist()))


def _has_unknown(value: Array) -> bool:
    return any(isinstance(number, AnyDim) for number in value.ravel())


def _one(number: Any) -> Array:
    made = np.empty((), dtype=object)
    made[()] = number
    return made


def _is_whole(expr: Call) -> bool:
    """Whether a reduction gives a single number."""
    kind = expr.checked_type
    return isinstance(kind, TensorType) and kind.ndim == 0


def _numbers(value: Array) -> Array:
    """Indices, which extents do not decide."""
    if any(isinstance(each, Expr) for each in value.ravel()):
        raise _Undecided
    return value.astype(np.int64)


def _product(numbers: list[Any]) -> Any:
    found: Any = 1
    for number in numbers:
        found = _multiplied(found, number)
    return found


def _simple(value: Any) -> Any:
    if not isinstance(value, Expr):
        return value
    made = Analyzer().simplify(value)
    return made.value if isinstance(made, IntImm) else made


def _pairwise(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    made: Callable[..., Any] = np.frompyfunc(lambda a, b: _simple(combine(a, b)), 2, 1)
    return made


def _multiplied(a: Any, b: Any) -> Any:
    return _simple(a * b if isinstance(a, Expr) else b * a)


def _quotient(a: Any, b: Any) -> Any:
    """Towards zero, which is downwards for what is not negative."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if not _holds(build.as_expr(a) >= 0) or not _holds(build.as_expr(b) >= 1):
        raise _Undecided
    return build.as_expr(a) // b


def _floored(a: Any, b: Any) -> Any:
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return a // b
    if not isinstance(b, int) or b < 1:
        raise _Undecided
    return a // b


def _extreme(of_numbers: Callable[[int, int], int], of_exprs: Callable[..., Expr]) -> Any:
    return _pairwise(
        lambda a, b: of_exprs(a, b) if isinstance(a, Expr) or isinstance(b, Expr)
        else of_numbers(a, b)
    )


def _holds(condition: Expr) -> bool:
    """Whether extents that are not negative make a condition hold."""
    known = Analyzer()
    for var in variables_in(condition):
        known.bind(var, 0, _END)
    return known.can_prove(condition)


def is_extent(value: Expr) -> bool:
    """Whether a value is not negative, as long as extents are not."""
    return _holds(value >= 0)


def _decided(compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def decide(a: Any, b: Any) -> bool:
        if not isinstance(a, Expr) and not isinstance(b, Expr):
            return bool(compare(a, b))
        condition = compare(build.as_expr(a), b)
        if _holds(condition):
            return True
        if _holds(build.logical_not(condition)):
            return False
        raise _Undecided

    made: Callable[..., Any] = np.frompyfunc(decide, 2, 1)
    return made


def _equal(a: Any, b: Any) -> Any:
    return build.equal(a, b) if isinstance(a, Expr) or isinstance(b, Expr) else a == b


_OF_SHAPES: dict[str, Callable[[RelayExpr], Any]] = {"shape_of": _shape, "ndarray_size": _size}
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "cast": lambda x: np.frompyfunc(lambda e: int(e) if isinstance(e, bool) else e, 1, 1)(x),
    "add": _pairwise(lambda a, b: a + b),
    "subtract": _pairwise(lambda a, b: a - b),
    "multiply": _pairwise(_multiplied),
    "negative": lambda x: _pairwise(lambda a, b: b - a)(x, _objects(0)),
    "trunc_divide": _pairwise(_quotient),
    "divide": _pairwise(_quotient),
    "floor_divide": _pairwise(_floored),
    "maximum": _extreme(max, build.maximum),
    "minimum": _extreme(min, build.minimum),
    "equal": _decided(_equal),
    "less": _decided(lambda a, b: a < b),
    "less_equal": _decided(lambda a, b: a <= b),
    "greater": _decided(lambda a, b: a > b),
    "greater_equal": _decided(lambda a, b: a >= b),
    "logical_not": np.frompyfunc(lambda a: not a, 1, 1),
    "logical_and": np.frompyfunc(lambda a, b: a and b, 2, 1),
    "logical_or": np.frompyfunc(lambda a, b: a or b, 2, 1),
    "where": np.frompyfunc(lambda c, a, b: a if c else b, 3, 1),
}
# These move elements and look at none: what they do to arrays they do to arrays of expressions.
_MOVED = frozenset({
    "broadcast_to", "concatenate", "expand_dims", "reshape", "reverse", "split", "squeeze",
    "stack", "strided_slice", "transpose", "take",
})
