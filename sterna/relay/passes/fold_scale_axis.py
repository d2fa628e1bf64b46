"""Batch norm folding: factors per channel, folded into the weights of what computes the channels.

    multiply(add(nn.conv2d(%x, %w), %b), %s)  ->  add(nn.conv2d(%x, multiply(%w, %s')), %b * %s)
    nn.conv2d(multiply(%x, %s), %w)           ->  nn.conv2d(%x, multiply(%w, %s'))

The weights are constants as a rule, and FoldConstant then computes the products.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.ir.transform import Pass, Sequential, function_pass
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array, from_numpy, to_numpy
from sterna.relay.expr import Call, Constant, Function, RelayExpr
from sterna.relay.op import call, is_call_of, record_of, rules_of
from sterna.relay.passes.canonicalize_ops import canonical_call
from sterna.relay.passes.fold_constant import FoldConstant
from sterna.relay.traverse import not_primitive, post_order, rewrite

Spread = Callable[[Any, tuple[int, ...], Array], Array | None]

# How far back a factor is carried.
LONGEST_WAY = 8


@dataclass(frozen=True, slots=True)
class ScaleRule:
    """How factors per channel become factors of an operator's weights.

    result(attrs) and data(attrs) are the axes of the channels, None if there is none. for_result
    and for_data(attrs, weight shape, factors) spread factors of channels over the weights: an array
    that the weights are multiplied by, or None if that is none.
    """

    result: Callable[[Any], int | None]
    for_result: Spread
    data: Callable[[Any], int | None]
    for_data: Spread


def BackwardFoldScaleAxis() -> Pass:
    """Batch norm folding: fold factors into the weights of what stands before them."""
    made: Pass = function_pass(
        lambda func, mod, context: backward_fold_scale_axis(func),
        opt_level=3, name="BackwardFoldScaleAxis", kind=Function,
    )
    return made


def ForwardFoldScaleAxis() -> Pass:
    """Batch norm folding: fold factors into the weights of what stands behind them."""
    made: Pass = function_pass(
        lambda func, mod, context: forward_fold_scale_axis(func),
        opt_level=3, name="ForwardFoldScaleAxis", kind=Function,
    )
    return made


def FoldScaleAxis() -> Pass:
    """Both, and the constants that they make computed."""
    order = [BackwardFoldScaleAxis(), ForwardFoldScaleAxis(), FoldConstant()]
    return Sequential(order, name="FoldScaleAxis")


def backward_fold_scale_axis(func: Function) -> Function:
    """The function with factors carried back into weights."""
    users = _count_users(func)
    single: set[int] = set()  # the new forms of expressions that are used once

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        made = new
        if is_call_of(new, "multiply"):
            assert isinstance(new, Call)
            for data, factor in (new.args, new.args[::-1]):
                if isinstance(factor, Constant):
                    found = _scaled(data, to_numpy(factor.data), new, single, LONGEST_WAY)
                    if found is not None and found.checked_type == new.checked_type:
                        made = found
                        break
        if users.get(id(old), 0) <= 1:
            single.add(id(made))
        return made

    made = rewrite(func, change, not_primitive)
    assert isinstance(made, Function)
    return made


def _count_users(func: Function) -> dict[int, int]:
    users: dict[int, int] = {}
    for expr in post_order(func, not_primitive):
        for operand in expr.operands() if not_primitive(expr) else ():  # type: ignore[attr-defined]
            users[id(operand)] = users.get(id(operand), 0) + 1
    return users


def _scaled(
    expr: RelayExpr, factor: Any, like: RelayExpr, single: set[int], steps: int
) -> RelayExpr | None:
    """The expression times a factor, without a multiplication of its own; None if that fails."""
    if not isinstance(expr, Call) or id(expr) not in single or steps == 0:
        return None
    record = rules_of(expr)
    if record is None or expr.checked_type != like.checked_type:
        return None
    if record.contraction.scale is not None:
        return _weights_scaled(expr, factor)
    expr = canonical_call(expr)  # a bias is an addition
    record = record_of(expr)
    assert record is not None
    if record.name in ("add", "subtract"):
        for place in (0, 1):
            other = expr.args[1 - place]
            if not isinstance(other, Constant):
                continue
            inner = _scaled(expr.args[place], factor, like, single, steps - 1)
            if inner is not None:
                moved = call("multiply", other, _constant(factor, other))
                return call(record.name, *((inner, moved) if place == 0 else (moved, inner)))
    return None


def _weights_scaled(expr: Call, factor: Any) -> RelayExpr | None:
    record = record_of(expr)
    assert record is not None and record.contraction.scale is not None
    rule = record.contraction.scale
    axis = rule.result(expr.attrs)
    scaled = _scaled_weight(expr, expr.checked_type, factor, axis, rule.for_result)
    return None if scaled is None else _over(expr, expr.args[0], scaled)


def _over(expr: Call, data: RelayExpr, weight: RelayExpr) -> Call:
    """The same call of other operands."""
    made = Call(expr.op, (data, weight), expr.attrs)
    made.span = expr.span
    return made


def _scaled_weight(
    expr: Call, data: Any, factor: Any, axis: int | None, spread: Spread
) -> RelayExpr | None:
    """The weights times a factor that varies along one axis of the data only."""
    weight = expr.args[1].checked_type
    if axis is None or not isinstance(data, TensorType) or not data.is_static:
        return None
    assert isinstance(weight, TensorType)
    if not weight.is_static or weight.dtype != data.dtype:  # narrower weights cannot take it
        return None
    vector = _along(factor, axis % data.ndim, data.ndim)
    if vector is None:
        return None
    each = np.broadcast_to(vector, data.concrete_shape[axis % data.ndim])
    factors = spread(expr.attrs, weight.concrete_shape, each)
    if factors is None:
        return None
    return call("multiply", expr.args[1], _constant(factors, expr.args[1]))


def _along(factor: Any, axis: int, ndim: int) -> Any:
    """The factor's values along an axis; None if it varies along another."""
    shape = (1,) * (ndim - factor.ndim) + factor.shape
    if len(shape) > ndim or any(extent != 1 for i, extent in enumerate(shape) if i != axis):
        return None
    return np.asarray(factor).reshape(-1)


def _constant(values: Any, like: RelayExpr) -> Constant:
    kind = like.checked_type
    assert isinstance(kind, TensorType)
    return Constant(from_numpy(np.asarray(values), kind.dtype))


def forward_fold_scale_axis(func: Function) -> Function:
    """The function with factors of data moved into the weights that the data meets."""

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        record = rules_of(new)
        if record is None or record.contraction.scale is None or not isinstance(new, Call):
            return new
        product = new.args[0]
        if not is_call_of(product, "multiply"):
            return new
        assert isinstance(product, Call)
        rule = record.contraction.scale
        axis = rule.data(new.attrs)
        for data, factor in (product.args, product.args[::-1]):
            if isinstance(factor, Constant) and data.checked_type == product.checked_type:
                values = to_numpy(factor.data)
                weight = _scaled_weight(new, data.checked_type, values, axis, rule.for_data)
                if weight is not None:
                    return _over(new, data, weight)
        return new

    made = rewrite(func, change, not_primitive)
    assert isinstance(made, Function)
    return made
