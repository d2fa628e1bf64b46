"""Fewer kernels where each launch costs: what moves elements goes with what reads or makes them.

    add(reshape(nn.dense(%x, %w)), %y)    ->  reshape(add(nn.dense(%x, %w), reshape(%y)))
    transpose(%x: (1, 8, 4), [1, 0, 2])   ->  reshape(%x)
    %1 = transpose(%x); (f(%1), g(%1))    ->  (f(transpose(%x)), g(transpose(%x)))

A reshape is no work: behind an epilogue it does not part that from its product, and a transpose
that moves axes of extent 1 alone is one. Elements that several kernels read in another order are
read so by each of them, instead of being written in that order first.
"""

import math
from typing import Any

from sterna.ir.module import IRModule
from sterna.ir.pass_context import PassContext
from sterna.ir.transform import Pass, function_pass
from sterna.ir.types import TensorType
from sterna.relay.expr import Call, Constant, Function, RelayExpr
from sterna.relay.op import (
    BROADCAST,
    INJECTIVE,
    OUT_ELEMWISE_FUSABLE,
    call,
    is_call_of,
    rules_of,
)
from sterna.relay.traverse import not_primitive, post_order, rebuild

NAME = "FewerKernels"


def FewerKernels() -> Pass:
    """Move reshapes behind epilogues, and let every reader move elements itself."""

    def change(func: Function, mod: IRModule, context: PassContext) -> Function:
        return fewer_kernels(func)

    made: Pass = function_pass(change, opt_level=1, name=NAME, kind=Function)
    return made


def fewer_kernels(func: Function) -> Function:
    """The function with what moves elements beside what reads or makes them."""
    func.checked_type  # noqa: B018  (rules depend on shapes)
    behind = _Reshapes().run(func)
    behind.checked_type  # noqa: B018
    return _Movements(behind).run(behind)


def _counted(func: Function) -> dict[int, int]:
    """How often each expression is read."""
    counts: dict[int, int] = {id(func.body): 1}
    for expr in post_order(func, not_primitive):
        for part in expr.operands() if not_primitive(expr) else ():  # type: ignore[attr-defined]
            counts[id(part)] = counts.get(id(part), 0) + 1
    return counts


def _shape(expr: RelayExpr) -> tuple[int, ...] | None:
    kind = expr.checked_type
    if not isinstance(kind, TensorType) or not kind.is_static:
        return None
    return tuple(kind.concrete_shape)


def _reshaped(expr: RelayExpr, shape: tuple[int, ...]) -> RelayExpr:
    return expr if _shape(expr) == shape else call("reshape", expr, newshape=shape)


class _Reshapes:
    """Epilogues before the reshapes of their products."""

    def __init__(self) -> None:
        self.made: dict[int, RelayExpr] = {}
        self.open: dict[int, RelayExpr] = {}
        """By what stands for it: the product, with what follows, that a reshape is of."""

    def run(self, func: Function) -> Function:
        for expr in post_order(func, not_primitive):
            new = self._moved(expr)
            if new is None:
                new = expr if not not_primitive(expr) else rebuild(expr, self.made)
            self.made[id(expr)] = new
        made = self.made[id(func)]
        assert isinstance(made, Function)
        return made

    def _moved(self, expr: RelayExpr) -> RelayExpr | None:
        record = rules_of(expr)
        if record is None:
            return None
        assert isinstance(expr, Call)
        if is_call_of(expr, "transpose"):
            return self._still(expr)
        if is_call_of(expr, "layout_transform"):
            return self._row(expr)
        if record.contraction.rows_are_one:
            return self._rows(expr)
        if record.pattern == OUT_ELEMWISE_FUSABLE:
            new = rebuild(expr, self.made)
            self.open[id(new)] = new
            return new
        if is_call_of(expr, "reshape") or is_call_of(expr, "squeeze"):
            return self._passed(expr)
        if record.pattern <= BROADCAST:
            return self._behind(expr)
        return None

    def _rows(self, expr: Call) -> RelayExpr:
        """A product of rows along several axes, as a reshape of one of rows along a single one."""
        data, shape = _shape(expr.args[0]), _shape(expr)
        new = rebuild(expr, self.made)
        if data is None or shape is None or not isinstance(new, Call):
            return new
        inside: RelayExpr = new
        if len(data) > 2:
            flat = _reshaped(new.args[0], (math.prod(data[:-1]), data[-1]))
            inside = Call(new.op, (flat, *new.args[1:]), new.attrs)
            inside.span = expr.span
        outer = _reshaped(inside, shape)
        self.open[id(inside)] = self.open[id(outer)] = inside
        return outer

    def _still(self, expr: Call) -> RelayExpr | None:
        """A transpose that leaves all elements where they are."""
        shape, attrs = _shape(expr.args[0]), expr.attrs
        result = _shape(expr)
        if shape is None or result is None:
            return None
        axes: Any = attrs.axes or tuple(reversed(range(len(shape))))  # type: ignore[union-attr]
        moved = [axis % len(shape) for axis in axes]
        kept = [axis for axis in moved if shape[axis] > 1]
        if kept != sorted(kept):
            return None
        new = _reshaped(self.made[id(expr.args[0])], result)
        return self._remember(new, self.made[id(expr.args[0])])

    def _row(self, expr: Call) -> RelayExpr | None:
        """A transform of what has but one axis of several elements."""
        before, after = _shape(expr.args[0]), _shape(expr)
        if before is None or after is None or any(
            sum(extent > 1 for extent in shape) > 1 for shape in (before, after)
        ) or math.prod(before) != math.prod(after):
            return None
        return _reshaped(self.made[id(expr.args[0])], after)

    def _passed(self, expr: Call) -> RelayExpr | None:
        new = rebuild(expr, self.made)
        return self._remember(new, self.made[id(expr.args[0])])

    def _remember(self, new: RelayExpr, source: RelayExpr) -> RelayExpr:
        if id(source) in self.open:
            self.open[id(new)] = self.open[id(source)]
        return new

    def _behind(self, expr: Call) -> RelayExpr | None:
        """An elementwise call of a reshaped product, as a reshape of one of the product."""
        shape = _shape(expr)
        args = [self.made[id(arg)] for arg in expr.args]
        found = [arg for arg in args if id(arg) in self.open and _shape(arg) == shape]
        found.sort(key=lambda arg: self.open[id(arg)] is arg)  # reshaped ones first
        if shape is None or not found:
            return None
        inner = _shape(self.open[id(found[0])])
        if inner is None or math.prod(inner) != math.prod(shape):
            return None
        same = {id(arg) for arg in found if _shape(self.open[id(arg)]) == inner}
        given = [
            self.open[id(arg)] if id(arg) in same else _follows(arg, shape, inner) for arg in args
        ]
        if any(arg is None for arg in given):
            return None
        new = Call(expr.op, tuple(arg for arg in given if arg is not None), expr.attrs)
        new.span = expr.span
        outer = _reshaped(new, shape)
        self.open[id(new)] = self.open[id(outer)] = new
        return outer


def _follows(
    arg: RelayExpr, shape: tuple[int, ...], inner: tuple[int, ...]
) -> RelayExpr | None:
    """An operand as it is read beside a product of another shape; None if it has no such form.

    One number, all elements, or those along the last axis do not care about the axes before.
    """
    own = _shape(arg)
    if own is None or own == ():
        return arg if own == () else None
    if own == shape:
        return _reshaped(arg, inner)
    last = shape[-1]
    along_last = own[-1] == last == inner[-1] and math.prod(own) == last
    return _reshaped(arg, (last,)) if along_last else None


class _Movements:
    """What only moves elements, once for each of its readers that can do it on the way."""

    def __init__(self, func: Function) -> None:
        self.counts = _counted(func)
        self.made: dict[int, RelayExpr] = {}

    def run(self, func: Function) -> Function:
        for expr in post_order(func, not_primitive):
            self.made[id(expr)] = self._rebuilt(expr)
        made = self.made[id(func)]
        assert isinstance(made, Function)
        return made

    def _rebuilt(self, expr: RelayExpr) -> RelayExpr:
        if not not_primitive(expr):
            return expr
        record = rules_of(expr)
        if record is None or record.pattern > INJECTIVE:
            return rebuild(expr, self.made)
        assert isinstance(expr, Call)
        own = {id(arg): self._own(arg) for arg in expr.args}
        if all(own[id(arg)] is self.made[id(arg)] for arg in expr.args):
            return rebuild(expr, self.made)
        new = Call(expr.op, tuple(own[id(arg)] for arg in expr.args), expr.attrs)
        new.span = expr.span
        return new

    def _own(self, expr: RelayExpr, copied: bool = False) -> RelayExpr:
        """A movement that several read, for one of them; with copied it is a part of such a one."""
        if not _is_movement(expr):
            return self.made[id(expr)]
        assert isinstance(expr, Call)
        copied = copied or self.counts.get(id(expr), 0) > 1
        inner = self._own(expr.args[0], copied)
        if not copied:
            return self.made[id(expr)]
        rest = [self.made[id(arg)] for arg in expr.args[1:]]
        new = Call(expr.op, (inner, *rest), expr.attrs)
        new.span = expr.span
        return new


def _is_movement(expr: RelayExpr) -> bool:
    record = rules_of(expr)
    if record is None or record.pattern != INJECTIVE or not isinstance(expr, Call):
        return False
    if not all(isinstance(arg, Constant) for arg in expr.args[1:]):
        return False
    before, after = _shape(expr.args[0]), _shape(expr)
    return before is not None and after is not None and math.prod(after) <= math.prod(before)
