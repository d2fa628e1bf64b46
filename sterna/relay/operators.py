"""Python's operators on graph expressions."""

from collections.abc import Callable
from typing import Any

from sterna.ir.types import TensorType
from sterna.relay.builders import builder
from sterna.relay.expr import RelayExpr, TupleWrapper, as_expr, const


def _scalar_like(value: Any, other: RelayExpr) -> RelayExpr:
    """A Python number takes the element type of what it meets."""
    if isinstance(value, bool | int | float) and not isinstance(value, RelayExpr):
        kind = other._type
        return const(value, kind.dtype if isinstance(kind, TensorType) else None)
    return as_expr(value)


def _binary(name: str, swapped: bool) -> Callable[[RelayExpr, Any], Any]:
    def operate(self: RelayExpr, other: Any) -> Any:
        if not isinstance(other, RelayExpr | TupleWrapper | bool | int | float):
            try:
                other = as_expr(other)
            except TypeError:
                return NotImplemented
        second = _scalar_like(other, self)
        return builder(name)(second, self) if swapped else builder(name)(self, second)

    return operate


for _symbol, _name in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide",
    "floordiv": "floor_divide", "mod": "floor_mod", "pow": "power",
}.items():
    setattr(RelayExpr, f"__{_symbol}__", _binary(_name, False))
    setattr(RelayExpr, f"__r{_symbol}__", _binary(_name, True))
for _symbol, _name in {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}.items():
    setattr(RelayExpr, f"__{_symbol}__", _binary(_name, False))


def _negative(self: RelayExpr) -> Any:
    return builder("negative")(self)


def _astype(self: RelayExpr, dtype: Any) -> Any:
    return builder("cast")(self, str(dtype))


RelayExpr.__neg__ = _negative  # type: ignore[method-assign]
RelayExpr.astype = _astype  # type: ignore[method-assign]
