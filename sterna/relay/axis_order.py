"""Chains of transposes and reshapes: whether their elements lie in the order they came in.

    layout_transform(reshape(transpose(%x, [0, 2, 1]), [1, C, H, W]), NCHW, NHWC)  ->  reshape(%x)

A transposition says in its operator's record in which order it takes axes, a view changes none.
Together they may do nothing: tokens of a transformer are an image with its channels last.
"""

import math
from collections.abc import Iterator, Sequence

from sterna.ir.types import TensorType
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import record_of

# Parts of an axis, each with its extent and the step in the chain's result.
Axis = list[tuple[int, int]]


def in_order_of(chain: Call) -> RelayExpr | None:
    """The first expression of a chain of which its end is a view; None where it is of none."""
    found = None
    for source, axes in _sources(chain, _axes(chain)):
        if _is_in_order(axes):
            found = source
    return found


def is_view_with(expr: RelayExpr, order: Sequence[int]) -> bool:
    """Whether an expression that is transposed so would be a view of what it was made of."""
    kind = expr.checked_type
    if not isinstance(kind, TensorType) or not kind.is_static or kind.ndim != len(order):
        return False
    shape = kind.concrete_shape
    turned = _row_major([shape[axis] for axis in order])
    axes = [turned[order.index(axis)] for axis in range(len(order))]
    return any(_is_in_order(found) for _, found in _sources(expr, axes))


def viewed_with(chain: Call, order: Sequence[int]) -> Iterator[RelayExpr]:
    """Expressions of a chain that, if they were laid out so, its end would be a view of."""
    for source, axes in _sources(chain, _axes(chain)):
        if len(axes) == len(order) and _is_in_order([axes[axis] for axis in order]):
            yield source


def _axes(expr: RelayExpr) -> list[Axis]:
    kind = expr.checked_type
    if not isinstance(kind, TensorType) or not kind.is_static:
        return []
    return _row_major(kind.concrete_shape)


def _row_major(shape: Sequence[int]) -> list[Axis]:
    return [[(extent, math.prod(shape[place + 1 :]))] for place, extent in enumerate(shape)]


def _is_in_order(axes: list[Axis]) -> bool:
    step = 1
    for extent, own in reversed([part for axis in axes for part in axis if part[0] != 1]):
        if own != step:
            return False
        step *= extent
    return True


def _sources(expr: RelayExpr, axes: list[Axis]) -> Iterator[tuple[RelayExpr, list[Axis]]]:
    """What each call of a chain reads, with the axes that it has of the chain's result."""
    while isinstance(expr, Call) and axes:
        record = record_of(expr)
        source = expr.args[0] if expr.args else None
        kind = source.checked_type if source is not None else None
        if record is None or not isinstance(kind, TensorType) or not kind.is_static:
            return
        if record.is_view:
            axes = _regrouped(axes, kind.concrete_shape)
        else:
            order = None if record.order is None else record.order(expr)
            if order is None:
                return
            axes = [axes[order.index(axis)] for axis in range(len(order))]
        expr = source  # type: ignore[assignment]
        if axes:
            yield expr, axes


def _regrouped(axes: list[Axis], shape: Sequence[int]) -> list[Axis]:
    """The axes of a view's operand; none where neither is made of whole parts of the other."""
    parts = [part for axis in axes for part in axis if part[0] != 1]
    made: list[Axis] = []
    for extent in shape:
        axis: Axis = []
        rest = extent
        while rest > 1:
            inner, step = parts.pop(0) if parts else (0, 0)
            shared = math.gcd(rest, inner)
            if not inner or shared not in (rest, inner):
                return []
            axis.append((shared, step * (inner // shared)))
            if shared < inner:
                parts.insert(0, (inner // shared, step))
            rest //= shared
        made.append(axis)
    return made
