"""Elementwise calls before views of contractions: they can be these contractions' epilogues.

    nn.relu(reshape(nn.conv2d(%x, %w)))  ->  reshape(nn.relu(nn.conv2d(%x, %w)))

A view costs nothing, but a kernel ends where the shape of its result changes.
"""

import math

from sterna.ir.transform import Pass
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array, from_numpy, shared_numpy
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.layout_rules import broadcast, follow, rule_of
from sterna.relay.op import BROADCAST, AnyOp, call, record_of
from sterna.relay.passes.rewrite_calls import call_pass


def DelayViews() -> Pass:
    """Let views of contractions follow the elementwise calls that read them."""
    return call_pass("DelayViews", 2, delay_views)


def delay_views(record: AnyOp, old: Call) -> RelayExpr | None:
    """The call of what its operands are views of, if they all are of one shape, as a view."""
    if not _is_static(old):
        return None
    if record.pattern <= BROADCAST and hasattr(old.attrs, "axis"):
        return _delay_view_of_channels(old)
    if rule_of(record) not in (follow, broadcast):
        return None  # it depends on where an element lies
    shown = [arg for arg in old.args if _is_view(arg) and _shape(arg) == _shape(old)]
    sources = [arg.args[0] for arg in shown if isinstance(arg, Call)]
    if not sources or not all(map(_is_static, sources)):
        return None
    shape = _shape(sources[0])
    alike = all(_shape(source) == shape for source in sources)
    if not alike or not any(_is_from_contraction(source) for source in sources):
        return None
    args = [
        arg.args[0] if arg in shown else _stretched(arg, _shape(old), shape)  # type: ignore[attr-defined]
        for arg in old.args
    ]
    found = [arg for arg in args if arg is not None]
    if len(found) < len(args):
        return None
    made = Call(old.op, tuple(found), old.attrs)
    if _shape(made) != shape:
        return None
    return call("reshape", made, newshape=_shape(old), allowzero=True)


def _delay_view_of_channels(old: Call) -> RelayExpr | None:
    """The same of a call whose other operands have a number for each place along an axis.

    qnn.requantize(reshape(nn.conv2d(%x, %w)), %scales, axis=2)
    ->  reshape(qnn.requantize(nn.conv2d(%x, %w), %scales, axis=3))
    """
    view, *others = old.args
    if not _is_view(view) or getattr(old.attrs, "block_size", None):
        return None
    assert isinstance(view, Call) and old.attrs is not None
    source = view.args[0]
    if not _is_static(source) or not _is_from_contraction(source):
        return None
    before, after = _shape(view), _shape(source)
    own: int = old.attrs.axis  # type: ignore[attr-defined]
    axis = _same_axis(own % len(before), before, after)
    if axis is None:
        return None
    made = Call(old.op, (source, *others), old.attrs.replace(axis=axis))
    return call("reshape", made, newshape=_shape(old), allowzero=True)


def _same_axis(axis: int, old: tuple[int, ...], new: tuple[int, ...]) -> int | None:
    """The axis of a shape whose places are those of an axis of the old one, if any is."""
    behind = math.prod(old[axis + 1 :])
    return next(
        (place for place, size in enumerate(new)
         if size == old[axis] and math.prod(new[place + 1 :]) == behind), None)


def _is_static(expr: RelayExpr) -> bool:
    kind = expr.checked_type
    return isinstance(kind, TensorType) and kind.is_static


def _shape(expr: RelayExpr) -> tuple[int, ...]:
    kind = expr.checked_type
    assert isinstance(kind, TensorType)
    return kind.concrete_shape


def _is_view(expr: RelayExpr) -> bool:
    record = record_of(expr)
    return record is not None and record.is_view


def _is_from_contraction(expr: RelayExpr) -> bool:
    """Whether it is a contraction, or elementwise calls behind one."""
    while (record := record_of(expr)) is not None and record.pattern <= BROADCAST:
        assert isinstance(expr, Call)
        if not _is_static(expr):
            return False
        wide = _shape(expr)
        same = [arg for arg in expr.args if _is_static(arg) and _shape(arg) == wide]
        if not same:
            return False
        expr = same[0]
    return record is not None and record.contraction.describe is not None


def _stretched(
    arg: RelayExpr, old: tuple[int, ...], new: tuple[int, ...]
) -> RelayExpr | None:
    """A constant that is broadcast to another shape as it was to the old one; None if none is.

    It has one number, or one for each place along an axis that both shapes have.
    """
    held = _constant_below(arg)
    if held is None or not new:
        return None
    own = _shape(arg)
    longer = [axis for axis, size in enumerate(own) if size != 1]
    if len(own) > len(old) or len(longer) > 1:
        return None
    if not longer:
        return arg if len(own) <= 1 else _constant(held.reshape(()))
    place = longer[0] - len(own) + len(old)
    axis = _same_axis(place, old, new) if own[longer[0]] == old[place] else None
    if axis is None:
        return None
    shape = (own[longer[0]], *(1,) * (len(new) - axis - 1))
    return arg if shape == own else _constant(held.reshape(shape))


def _constant_below(expr: RelayExpr) -> Array | None:
    """The numbers of a constant, or of one that views are of."""
    while isinstance(expr, Call) and _is_view(expr):
        expr = expr.args[0]
    return shared_numpy(expr.data) if isinstance(expr, Constant) else None


def _constant(array: Array) -> Constant:
    return Constant(from_numpy(array))
