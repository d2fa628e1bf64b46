"""Extents and numbers that programs compute with, and the checks of what they assume."""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from sterna.frontend.calls import axis_below, call, cast, constant, dtype_of, rank_of, type_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.checks import assume
from sterna.frontend.torch.extents import Extent, as_tensor, dims_of, total
from sterna.frontend.torch.table import aten, converter_of
from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Any as AnyDim
from sterna.relay.expr import RelayExpr
from sterna.relay.symbols import simplified_dim
from sterna.support.errors import OpNotImplemented


@aten("sym_size.int", "size.int")
def sym_size(x: RelayExpr, dim: int) -> Extent | RelayExpr:
    """An extent; one of which nothing is known, such as a count of rounds, is a tensor."""
    if not isinstance(type_of(x).shape[dim], AnyDim):
        return simplified_dim(type_of(x).shape[dim])
    place = constant(axis_below(dim, rank_of(x)), "int64")
    return call("take", call("shape_of", x, dtype="int64"), place, axis=0, mode="clip")


@aten("sym_numel", "numel")
def sym_numel(x: RelayExpr) -> Extent:
    return total(dims_of(x))


@aten("sym_stride.int", "stride.int")
def sym_stride(x: RelayExpr, dim: int) -> int:
    raise OpNotImplemented("strides, which are the compiler's own")


@aten("item", "_local_scalar_dense")
def item(x: RelayExpr) -> RelayExpr:
    return reshaped(x, ())


@aten("operator::getitem")
def getitem(a: list[Any], b: int) -> Any:
    return a[b]


def _bits(name: str, logical: Callable[[Any, Any], Expr], a: Any, b: Any) -> Expr:
    """An operator on bits, which is a logical one between truth values."""
    is_bool = all(str(build.as_expr(each).dtype) == "bool" for each in (a, b))
    return logical(a, b) if is_bool else build.bitwise(f"bitwise_{name}", a, b)


# Operators of Python on numbers: how they are built over extents, and of tensors of one number.
_BINARY: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "add": (operator.add, "add"), "sub": (operator.sub, "subtract"),
    "mul": (operator.mul, "multiply"), "floordiv": (operator.floordiv, "floor_divide"),
    "truediv": (operator.truediv, "divide"), "mod": (operator.mod, "floor_mod"),
    "pow": (operator.pow, "power"), "eq": (build.equal, "equal"),
    "ne": (build.not_equal, "not_equal"), "lt": (operator.lt, "less"),
    "le": (operator.le, "less_equal"), "gt": (operator.gt, "greater"),
    "ge": (operator.ge, "greater_equal"), "and_": (partial(_bits, "and", build.logical_and), "and"),
    "or_": (partial(_bits, "or", build.logical_or), "or"),
    "xor": (partial(_bits, "xor", build.not_equal), "xor"),
    "lshift": (operator.lshift, "left_shift"), "rshift": (operator.rshift, "right_shift"),
}


def _of_two(name: str, over_extents: Callable[[Any, Any], Any], of_tensors: str) -> None:
    plain, over_bits = getattr(operator, name), of_tensors in ("and", "or", "xor")

    def convert(a: Any, b: Any) -> Any:
        if isinstance(a, RelayExpr) or isinstance(b, RelayExpr):
            parts = _alike(a, b, name == "truediv")
            is_bool = dtype_of(parts[0]) == "bool"
            kind = ("logical_" if is_bool else "bitwise_") if over_bits else ""
            return call(f"{kind}{of_tensors}", *parts)
        is_open = isinstance(a, Expr) or isinstance(b, Expr)
        return over_extents(a, b) if is_open else plain(a, b)

    aten(f"operator::{name}")(convert)


for _name, (_over_extents, _of_tensors) in _BINARY.items():
    _of_two(_name, _over_extents, _of_tensors)


def _alike(a: Any, b: Any, is_float: bool) -> tuple[RelayExpr, RelayExpr]:
    """Two numbers as tensors of one type, of Python's: bool, int64 or float64."""
    parts = [_tensor(each) for each in (a, b)]
    kinds = [dtype_of(each) for each in parts]
    dtype = "float64" if is_float or any("float" in kind for kind in kinds) else "int64"
    if kinds == ["bool", "bool"] and not is_float:
        dtype = "bool"
    return cast(parts[0], dtype), cast(parts[1], dtype)


def _tensor(number: Any) -> RelayExpr:
    if isinstance(number, RelayExpr):
        return reshaped(number, ())
    if isinstance(number, Expr):
        return as_tensor(number)
    dtypes: dict[type, str] = {bool: "bool", float: "float64"}
    return constant(number, dtypes.get(type(number), "int64"))


@aten("operator::neg")
def negated(a: Any) -> Any:
    return call("negative", a) if isinstance(a, RelayExpr) else -a


@aten("sym_max")
def sym_max(a: Any, b: Any) -> Any:
    if isinstance(a, RelayExpr) or isinstance(b, RelayExpr):
        return call("maximum", *_alike(a, b, False))
    return build.maximum(a, b) if isinstance(a, Expr) or isinstance(b, Expr) else max(a, b)


@aten("sym_min")
def sym_min(a: Any, b: Any) -> Any:
    if isinstance(a, RelayExpr) or isinstance(b, RelayExpr):
        return call("minimum", *_alike(a, b, False))
    return build.minimum(a, b) if isinstance(a, Expr) or isinstance(b, Expr) else min(a, b)


@aten("sym_sum")
def sym_sum(a: list[Any]) -> Any:
    made: Any = 0
    for each in a:
        is_tensor = isinstance(each, RelayExpr) or isinstance(made, RelayExpr)
        made = call("add", *_alike(made, each, False)) if is_tensor else made + each
    return made


@aten("sym_not")
def sym_not(a: Any) -> Any:
    if isinstance(a, RelayExpr):
        return call("logical_not", cast(a, "bool"))
    return build.logical_not(a) if isinstance(a, Expr) else not a


@aten("sym_ite")
def sym_ite(a: Any, b: Any, c: Any) -> Any:
    """The second number where the first is true, else the third."""
    if not isinstance(a, RelayExpr | Expr):
        return b if a else c
    if isinstance(a, RelayExpr) or any(isinstance(each, RelayExpr) for each in (b, c)):
        return call("where", cast(_tensor(a), "bool"), *_alike(b, c, False))
    return build.select(a, build.as_expr(b), build.as_expr(c))


@aten("sym_float")
def sym_float(a: Any) -> Any:
    return cast(_tensor(a), "float64") if isinstance(a, RelayExpr | Expr) else float(a)


@aten("sym_int")
def sym_int(a: Any) -> Any:
    return cast(_tensor(a), "int64") if isinstance(a, RelayExpr) else int(a)


# ---- checks ----


@aten("_assert_scalar", "_assert_async")
def assert_scalar(x: Any, assert_msg: str = "") -> list[RelayExpr]:
    """What the program says must hold in a run; what holds in every run is no check."""
    reason = assert_msg or "a check of the program does not hold"
    if isinstance(x, RelayExpr):
        assume(cast(reshaped(x, ()), "bool"), reason)
    elif isinstance(x, Expr):
        assume(x if str(x.dtype) == "bool" else build.not_equal(x, 0), reason)
    elif not x:
        raise ValueError(reason)
    return []


@aten("sym_constrain_range", "sym_constrain_range_for_size")
def in_range(
    size: Any, min: int | None = None, max: int | None = None
) -> list[RelayExpr]:
    """A number that must lie in a range, as far as one is given."""
    for limit, name, word in ((min, "ge", "at least"), (max, "le", "at most")):
        if limit is not None:
            holds = converter_of(f"operator.{name}")
            assert holds is not None
            assert_scalar(holds(a=size, b=limit), f"a number of the program is {word} {limit}")
    return []


@aten("_assert_tensor_metadata")
def assert_metadata(a: RelayExpr, dtype: str | None = None, **about: Any) -> list[RelayExpr]:
    if dtype is not None and dtype_of(a) != dtype:
        raise ValueError(f"a tensor of {dtype} is assumed, which is of {dtype_of(a)}")
    return []
