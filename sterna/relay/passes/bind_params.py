"""Parameters as constants.

    fn (%x, %w) { nn.dense(%x, %w) }   ->   fn (%x) { nn.dense(%x, meta[relay.Constant][0]) }
"""

from collections.abc import Mapping
from typing import Any

from sterna.ir.types import TensorType
from sterna.relay.expr import Constant, Function, RelayExpr, Var, as_expr
from sterna.relay.traverse import substitute


def bind_params(func: Function, params: Mapping[str, Any]) -> Function:
    """The function with parameters of these names replaced by constants."""
    by_name: dict[str, list[Var]] = {}
    for param in func.params:
        by_name.setdefault(param.name_hint, []).append(param)
    values: dict[Var, RelayExpr] = {}
    for name, value in params.items():
        found = by_name.get(name, [])
        if len(found) > 1:
            raise ValueError(f"{len(found)} parameters are named {name}; rename all but one")
        for param in found:
            values[param] = _constant(param, name, value)
    if not values:
        return func
    kept = tuple(param for param in func.params if param not in values)
    body = substitute(func.body, values)
    return Function(kept, body, func.ret_type, func.type_params, func.attrs)


def _constant(param: Var, name: str, value: Any) -> RelayExpr:
    made = as_expr(value)
    assert isinstance(made, Constant)
    wanted, given = param._type, made.checked_type
    if isinstance(wanted, TensorType) and isinstance(given, TensorType):
        same = wanted.ndim == given.ndim and all(
            type(a) is not int or a == b for a, b in zip(wanted.shape, given.shape, strict=True)
        )
        if not same or wanted.dtype != given.dtype:
            raise ValueError(f"the parameter {name} is {wanted!r}, but its value is {given!r}")
    made.span = made.span or name
    return made
