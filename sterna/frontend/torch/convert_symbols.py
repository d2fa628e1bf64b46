"""Extents and numbers that programs compute with, and the checks of what they assume."""

import operator
from collections.abc import Callable
from typing import Any

from sterna.frontend.calls import dtype_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.extents import Extent, dims_of, total
from sterna.frontend.torch.table import aten
from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented


@aten("sym_size.int", "size.int")
def sym_size(x: RelayExpr, dim: int) -> Extent:
    return dims_of(x)[dim]


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


_BINARY = (
    "add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge",
    "and_", "or_", "xor",
)


def _of_two(function: Callable[[Any, Any], Any]) -> None:
    def convert(a: Any, b: Any) -> Any:
        return function(a, b)

    aten(f"operator::{function.__name__}")(convert)


for _name in _BINARY:
    _of_two(getattr(operator, _name))


@aten("operator::neg")
def negated(a: Any) -> Any:
    return -a


@aten("sym_max")
def sym_max(a: Any, b: Any) -> Any:
    return build.maximum(a, b) if isinstance(a, Expr) or isinstance(b, Expr) else max(a, b)


@aten("sym_min")
def sym_min(a: Any, b: Any) -> Any:
    return build.minimum(a, b) if isinstance(a, Expr) or isinstance(b, Expr) else min(a, b)


@aten("sym_sum")
def sym_sum(a: list[Any]) -> Any:
    return sum(a)


@aten("sym_not")
def sym_not(a: Any) -> Any:
    return build.logical_not(a) if isinstance(a, Expr) else not a


@aten("sym_float")
def sym_float(a: Any) -> float:
    return float(a)


@aten("sym_int")
def sym_int(a: Any) -> int:
    return int(a)


@aten("_assert_scalar", "_assert_async", "sym_constrain_range", "sym_constrain_range_for_size")
def assumed(**about: Any) -> list[RelayExpr]:
    """What torch checked when it recorded the program."""
    return []


@aten("_assert_tensor_metadata")
def assert_metadata(a: RelayExpr, dtype: str | None = None, **about: Any) -> list[RelayExpr]:
    if dtype is not None and dtype_of(a) != dtype:
        raise ValueError(f"a tensor of {dtype} is assumed, which is of {dtype_of(a)}")
    return []
