"""Channels that cannot matter: their weights go, and what they add stays as constants.

    %1 = rescale(nn.conv2d(%x, const of 64 channels) + const)      of 64 channels, 50 of them are
    rescale(nn.conv2d(%1, const of 64 x 32 channels) + const)      the same number for all inputs
    ->  the same with 14 channels between them, and other constants

What a channel can be is known by intervals: a contraction's record says the least and the largest
sum of each channel, and what follows it is monotone. A channel whose both ends are one number is
constant. So quantised networks have many of them: a sum that no input brings over half a step. Only
the results between contractions lose channels, and all others stay the same to the last bit.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.ir.module import IRModule
from sterna.ir.pass_context import PassContext
from sterna.ir.transform import Pass, function_pass
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array, shared_numpy
from sterna.relay.expr import Call, Constant, Function, RelayExpr, const
from sterna.relay.op import ChannelRule, call, record_of
from sterna.relay.traverse import not_primitive, post_order, rebuild

# Channels that are left are filled up to words of so many bytes with some that could go.
WHOLE = 4


def FoldDeadChannels(processor: Any = None) -> Pass:
    """Leave out constant channels where memory is scarce; elsewhere vectors want whole ones."""

    def change(func: Function, mod: IRModule, context: PassContext) -> Function:
        if processor is None or processor.has_spare_memory:
            return func
        return fold_dead_channels(func)

    made: Pass = function_pass(change, opt_level=2, name="FoldDeadChannels", kind=Function)
    return made


@dataclass(frozen=True, slots=True)
class _Range:
    """The least and the largest number of each channel."""

    low: Array
    high: Array

    @property
    def is_constant(self) -> Array:
        found: Array = self.low == self.high
        return found


@dataclass(eq=False, slots=True)
class _Layer:
    """A contraction of known weights, and the monotone calls behind it up to the next."""

    call: Call
    rule: ChannelRule
    data: _Range
    result: _Range
    """Of what the last call gives."""
    followed: list[Call]
    last: RelayExpr
    next: "_Layer | None" = None
    can_shed: bool = False
    """Whether its result may lose channels: those of a depthwise one go with those of its data."""
    dead: Array | None = None
    """Channels of its result that need not be computed."""


def fold_dead_channels(func: Function) -> Function:
    """The function without channels that cannot matter."""
    func.checked_type  # noqa: B018  (rules ask for types)
    order = post_order(func, not_primitive)
    layers = _layers(order, func)
    for layer in reversed(layers):
        layer.dead = _dead(layer)
    if not any(layer.dead is not None and layer.dead.any() for layer in layers):
        return func
    memo: dict[int, RelayExpr] = {}
    changed = {id(layer.call): layer for layer in layers}
    before = {id(layer.next.call): layer for layer in layers if layer.next is not None}
    inside = {id(one): layer for layer in layers for one in layer.followed}
    for expr in order:
        if id(expr) in changed:
            layer = changed[id(expr)]
            memo[id(expr)] = _kept(layer, before.get(id(expr)), memo[id(layer.call.args[0])])
        elif id(expr) in inside:
            memo[id(expr)] = _sliced(expr, inside[id(expr)], memo)
        else:
            memo[id(expr)] = rebuild(expr, memo) if not_primitive(expr) else expr
    made = memo[id(func)]
    assert isinstance(made, Function)
    return made


# ---- what channels can be ----


def _layers(order: list[RelayExpr], func: Function) -> list[_Layer]:
    """All contractions whose weights are known, in order, each with the next."""
    users: dict[int, list[RelayExpr]] = {}
    for expr in order:
        for operand in expr.operands() if not_primitive(expr) else ():  # type: ignore[attr-defined]
            users.setdefault(id(operand), []).append(expr)
    found: list[_Layer] = []
    of_result: dict[int, _Layer] = {}
    for expr in order:
        record = record_of(expr)
        rule = None if record is None else record.contraction.channels
        if rule is None or not isinstance(expr, Call) or not rule.suits(expr):
            continue
        feeding = of_result.get(id(expr.args[0]))
        seen = _whole_range(expr.args[0]) if feeding is None else feeding.result
        sums = _Range(*rule.bounds(expr, seen.low, seen.high))
        layer = _follow(_Layer(expr, rule, seen, sums, [], expr), users)
        layer.can_shed = not rule.is_depthwise(expr)
        if feeding is not None and users[id(feeding.last)] == [expr]:
            feeding.next = layer
            layer.can_shed = layer.can_shed or feeding.can_shed
        found.append(layer)
        of_result[id(layer.last)] = layer
    return found


def _whole_range(expr: RelayExpr) -> _Range:
    """All numbers of a type, for each channel of what nothing is known of."""
    kind = expr.checked_type
    assert isinstance(kind, TensorType)
    info, channels = np.iinfo(str(kind.dtype)), kind.concrete_shape[-1]
    return _Range(np.full(channels, info.min, np.int64), np.full(channels, info.max, np.int64))


def _follow(layer: _Layer, users: dict[int, list[RelayExpr]]) -> _Layer:
    """The layer with the monotone calls behind it that read nothing else but constants."""
    while True:
        readers = users.get(id(layer.last), [])
        user = readers[0] if len(readers) == 1 else None
        record = None if user is None else record_of(user)
        if record is None or not record.is_monotone or not isinstance(user, Call):
            return layer
        if user.args[0] is not layer.last or not all(
            isinstance(arg, Constant) for arg in user.args[1:]
        ):
            return layer
        operands = [shared_numpy(arg.data) for arg in user.args[1:] if isinstance(arg, Constant)]
        kind = layer.last.checked_type
        channels = len(layer.result.low)
        if any(array.size not in (1, channels) for array in operands):
            return layer
        assert isinstance(kind, TensorType) and record.reference is not None
        shape = (*[1] * (len(kind.shape) - 1), channels)
        limits = np.iinfo(str(kind.dtype))
        if layer.result.low.min() < limits.min or layer.result.high.max() > limits.max:
            return layer  # sums may wrap
        ends = [
            record.reference(user.attrs, end.reshape(shape).astype(str(kind.dtype)), *operands)
            for end in (layer.result.low, layer.result.high)
        ]
        layer.result = _Range(*(end.reshape(-1).astype(np.int64) for end in ends))
        layer.followed.append(user)
        layer.last = user


def _dead(layer: _Layer) -> Array:
    """The channels of a layer's result that the next layer needs not, filled up to words."""
    after = layer.next
    channels = len(layer.result.low)
    if after is None or not layer.can_shed:
        return np.zeros(channels, bool)
    assert after.dead is not None
    dead: Array = after.rule.unneeded(
        after.call, after.dead, layer.result.is_constant, layer.result.low
    )
    left = int((~dead).sum())
    more = min(max(left + -left % WHOLE, WHOLE), channels) - left
    dead[np.flatnonzero(dead)[:more]] = False
    return dead


# ---- without them ----


def _kept(layer: _Layer, feeding: _Layer | None, data: RelayExpr) -> RelayExpr:
    """A contraction of the channels that are left, plus what the others were."""
    assert layer.dead is not None
    gone = np.zeros(len(layer.data.low), bool)
    if feeding is not None and feeding.dead is not None:
        gone = feeding.dead
    made = layer.rule.keep(layer.call, data, ~gone, ~layer.dead)
    made.span = layer.call.span
    if not gone.any():
        return made
    rest = layer.rule.constant_part(layer.call, gone, layer.data.low)[~layer.dead]
    if not rest.any():
        return made
    kind = layer.call.checked_type
    assert isinstance(kind, TensorType)
    total = call("add", made, const(rest.astype(str(kind.dtype))))
    total.span = layer.call.span
    return total


def _sliced(expr: RelayExpr, layer: _Layer, memo: dict[int, RelayExpr]) -> RelayExpr:
    """A call behind a contraction, with the constants of the channels that are left."""
    assert isinstance(expr, Call) and layer.dead is not None
    channels, left = len(layer.dead), ~layer.dead
    args = [memo[id(expr.args[0])]]
    for arg in expr.args[1:]:
        assert isinstance(arg, Constant)
        values = shared_numpy(arg.data)
        whole = values.size == 1 or values.size != channels
        args.append(arg if whole else const(np.ascontiguousarray(values[..., left])))
    made = Call(expr.op, tuple(args), expr.attrs)
    made.span = expr.span
    return made
