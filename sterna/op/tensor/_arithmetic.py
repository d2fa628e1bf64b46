"""Rules for sums and products with constants.

Floats are joined only where nothing cancels and nothing leaves the type's range on the way: what
users write to round or to saturate keeps its meaning. A sum with 0 loses the sign of zero.
"""

import math
from collections.abc import Callable

import numpy as np

from sterna.op.dynamic import tensor_type
from sterna.relay.arrays import Array, float_info, from_numpy, to_numpy
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.op import call, is_call_of, record_of
from sterna.relay.passes.fold_constant import evaluate
from sterna.support.dtype import DataType

Rule = Callable[[Call], RelayExpr | None]


def with_neutral(number: int, on_the_right: bool = False) -> Rule:
    """x + 0 -> x, x * 1 -> x; where the constant does not make the result larger than x."""

    def rule(made: Call) -> RelayExpr | None:
        sides = [made.args] if on_the_right else [made.args, made.args[::-1]]
        for data, other in sides:
            if data.checked_type == made.checked_type and _is_all(other, number):
                return data
        return None

    return rule


def _is_all(expr: RelayExpr, number: int) -> bool:
    return isinstance(expr, Constant) and bool(np.all(to_numpy(expr.data) == number))


def lone_number(made: Call) -> RelayExpr | None:
    """x + [[c]] -> x + c: kernels hold numbers, and read constants of one element from memory."""
    record = record_of(made)
    assert record is not None
    for place, (other, data) in enumerate((made.args, made.args[::-1])):
        if not isinstance(other, Constant) or isinstance(data, Constant):
            continue
        kind, result = tensor_type(data), tensor_type(made)
        if other.data.shape and math.prod(other.data.shape) == 1 and kind.shape == result.shape:
            args = [*made.args]
            args[place] = Constant(from_numpy(to_numpy(other.data).reshape(()), other.data.dtype))
            return call(record.name, *args)
    return None


def constants_joined(made: Call) -> RelayExpr | None:
    """(x + c1) + c2 -> x + (c1 + c2), and so for products"""
    record = record_of(made)
    assert record is not None
    outer = _split(made)
    inner = _split(outer[0]) if outer and is_call_of(outer[0], record.name) else None
    if outer is None or inner is None:
        return None
    joined = _joined(record.name, inner[1], outer[1])
    return None if joined is None else call(record.name, inner[0], joined)


def difference_joined(made: Call) -> RelayExpr | None:
    """(x - c1) + c2 -> x + (c2 - c1) for integers, which wrap the same way"""
    outer = _split(made)
    inner = outer[0] if outer and is_call_of(outer[0], "subtract") else None
    if outer is None or not isinstance(inner, Call) or not isinstance(inner.args[1], Constant):
        return None
    less, more = inner.args[1], outer[1]
    if isinstance(inner.args[0], Constant) or not DataType(more.data.dtype).is_integer:
        return None
    joined = _folded("subtract", more, less)
    if _wide(joined).size > max(_wide(less).size, _wide(more).size):
        return None
    return call("add", inner.args[0], joined)


def factor_first(product: Call) -> RelayExpr | None:
    """(x * a + b) * c -> x * (a * c) + b * c"""
    outer = _split(product)
    added = _split(outer[0]) if outer and is_call_of(outer[0], "add") else None
    inner = _split(added[0]) if added and is_call_of(added[0], "multiply") else None
    if outer is None or added is None or inner is None:
        return None
    factor, shift = _joined("multiply", inner[1], outer[1]), _folded("multiply", added[1], outer[1])
    if factor is None or not np.all(np.isfinite(_wide(shift))):
        return None
    return call("add", call("multiply", inner[0], factor), shift)


def product_for_quotient(made: Call) -> RelayExpr | None:
    """erf(x / c) -> erf(x * (1 / c)), for functions that pass on a rounding of x no larger"""
    record, quotient = record_of(made), made.args[0]
    if not is_call_of(quotient, "divide") or not isinstance(quotient, Call):
        return None
    data, divisor = quotient.args
    if record is None or not isinstance(divisor, Constant):
        return None
    info = float_info(DataType(divisor.data.dtype))
    size = np.abs(_wide(divisor))
    least, most = float(info.smallest_normal), 1 / float(info.smallest_normal)
    if not np.all((size >= least) & (size <= most)):
        return None
    inverse = from_numpy(np.asarray(1 / _wide(divisor)), divisor.data.dtype)
    return call(record.name, call("multiply", data, Constant(inverse)))


def _split(expr: RelayExpr) -> tuple[RelayExpr, Constant] | None:
    """A call's operand that is computed and the one that is constant."""
    assert isinstance(expr, Call)
    first, second = expr.args
    if isinstance(first, Constant) == isinstance(second, Constant):
        return None
    if isinstance(second, Constant):
        return first, second
    assert isinstance(first, Constant)
    return second, first


def _joined(name: str, a: Constant, b: Constant) -> Constant | None:
    """The sum or the product of two constants, if it can stand for one after the other."""
    made = _folded(name, a, b)
    x, y, both = _wide(a), _wide(b), _wide(made)
    if both.size > max(x.size, y.size):
        return None
    dtype = DataType(a.data.dtype)
    return made if not dtype.is_float or _SAFE[name](x, y, both, dtype) else None


def _folded(name: str, a: Constant, b: Constant) -> Constant:
    whole = call(name, a, b)
    record = record_of(whole)
    assert record is not None
    made = evaluate(record, whole)
    assert isinstance(made, Constant)
    return made


def _wide(constant: Constant) -> Array:
    return to_numpy(constant.data).astype(np.float64)


def _sums_do_not_cancel(x: Array, y: Array, both: Array, dtype: DataType) -> bool:
    return bool(np.all(np.isfinite(both)) and np.all(x * y >= 0))


def _products_stay_in_range(x: Array, y: Array, both: Array, dtype: DataType) -> bool:
    """Neither factor undoes the other, and their product has all its digits."""
    one_way = (np.abs(x) <= 1) == (np.abs(y) <= 1)
    least = float(float_info(dtype).smallest_normal)
    exact = (x == 0) | (y == 0) | (np.abs(both) >= least)
    return bool(np.all(np.isfinite(both)) and np.all(one_way & exact))


_SAFE = {"add": _sums_do_not_cancel, "multiply": _products_stay_in_range}
