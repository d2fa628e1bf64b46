"""The cheapest implementation for every contraction: direct, Winograd, AMX, byte pairs, ...

    nn.conv2d(%x, const, kernel_size=3)
    ->  nn.conv2d(%x, packed, kernel_size=3, implementation="winograd(m=4, ...)")

The operator's record says what it becomes. Packed weights may be larger; the setting
relay.Winograd.max_growth limits how much, and 0 leaves Winograd's transform out, as below level 2.
relay.weights.max_growth limits all of them together: what saves most cycles for a byte comes first.
"""

import math
from dataclasses import dataclass
from typing import Any

from sterna.ir.module import IRModule
from sterna.ir.pass_context import PassContext
from sterna.ir.transform import Pass, function_pass
from sterna.relay.arrays import let_go
from sterna.relay.expr import Call, Constant, Function, RelayExpr
from sterna.relay.op import AnyOp, Way, record_of
from sterna.relay.passes.rewrite_calls import rewrite_calls
from sterna.relay.traverse import not_primitive, post_order

MAX_GROWTH, MAX_GROWTH_IN_ALL = "relay.Winograd.max_growth", "relay.weights.max_growth"
# What holds below level 3 unless the setting is given: products as the model has them, then tiles
# of up to four results a side.
GROWTH_OF_LEVEL = (0, 0, 4)


def ChooseImplementations(processor: Any = None) -> Pass:
    """Pack known weights for the cheapest way; without a processor nothing changes."""

    def change(func: Function, mod: IRModule, context: PassContext) -> Function:
        if processor is None:
            return func
        in_all = context.get_config(MAX_GROWTH_IN_ALL) or math.inf
        return choose_implementations(func, processor, max_growth(context), in_all)

    made: Pass = function_pass(change, opt_level=0, name="ChooseImplementations", kind=Function)
    return made


def max_growth(context: PassContext) -> int:
    """How many times larger weights may become: as the user says, else as the level does."""
    level, of_level = context.opt_level, GROWTH_OF_LEVEL
    if MAX_GROWTH not in context.config and 0 <= level < len(of_level):
        return of_level[level]
    growth: int = context.get_config(MAX_GROWTH)
    return growth


def choose_implementations(
    func: Function, processor: Any, growth: float, in_all: float = math.inf
) -> Function:
    """The function with what costs less in the place of contractions."""
    limited = {} if in_all == math.inf else _share_growth(func, processor, growth, in_all)

    def answer(record: AnyOp, call: Call) -> RelayExpr | None:
        rule = record.contraction.implement
        if rule is None:
            return None
        weight = call.args[1]
        made = rule(call, processor, limited.get(id(weight), growth))
        if made is not None and isinstance(weight, Constant):
            let_go(weight.data)
        return made

    return rewrite_calls(func, answer)


@dataclass(frozen=True, slots=True)
class _Step:
    """Weights that grow from one way to the next, and what that saves."""

    weight: int
    """The identity of the constant."""
    growth: float
    more: float
    """Bytes."""
    saved: float
    """Cycles for each of them."""


def _share_growth(
    func: Function, processor: Any, growth: float, in_all: float
) -> dict[int, float]:
    """How much the weights of each contraction may grow, so that all keep to a limit."""
    steps: list[_Step] = []
    limited: dict[int, float] = {}
    size = 0.0
    for expr in post_order(func, not_primitive):
        if isinstance(expr, Constant):
            size += expr.data.nbytes
        record = record_of(expr)
        if record is None or record.contraction.ways is None:
            continue
        assert isinstance(expr, Call)
        weight = expr.args[1]
        if isinstance(weight, Constant):
            limited[id(weight)] = 0.0
            ways = [way for way in record.contraction.ways(expr, processor) if way.growth <= growth]
            steps += _steps(weight, ways)
    left = (in_all - 1) * size
    stopped: set[int] = set()
    for step in sorted(steps, key=lambda each: -each.saved):  # of equal ones the first
        if step.weight in stopped:
            continue
        if step.more > left:
            stopped.add(step.weight)
            continue
        limited[step.weight] = step.growth
        left -= step.more
    return limited


def _steps(weight: Constant, ways: list[Way]) -> list[_Step]:
    """From way to way, by the convex hull: each step saves less for a byte than the one before."""
    if not ways:
        return []
    found: list[_Step] = []
    at, rest = ways[0], ways[1:]
    while rest:
        slopes = [_step(weight, at, way) for way in rest]
        best = max(range(len(rest)), key=lambda place: slopes[place].saved)
        found.append(slopes[best])
        at, rest = rest[best], rest[best + 1 :]
    return found


def _step(weight: Constant, one: Way, other: Way) -> _Step:
    before, after = max(1.0, one.growth), max(1.0, other.growth)
    more = (after - before) * weight.data.nbytes
    saved = (one.cycles - other.cycles) / more if more else math.inf
    return _Step(id(weight), other.growth, more, saved)
