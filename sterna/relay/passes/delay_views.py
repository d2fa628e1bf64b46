"""Elementwise calls before views of contractions: they can be these contractions' epilogues.

    nn.relu(reshape(nn.conv2d(%x, %w)))  ->  reshape(nn.relu(nn.conv2d(%x, %w)))

A view costs nothing, but a kernel ends where the shape of its result changes.
"""

from sterna.ir.transform import Pass
from sterna.ir.types import TensorType
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.layout_rules import broadcast, follow, rule_of
from sterna.relay.op import BROADCAST, AnyOp, call, record_of
from sterna.relay.passes.rewrite_calls import call_pass


def DelayViews() -> Pass:
    """Let views of contractions follow the elementwise calls that read them."""
    return call_pass("DelayViews", 2, delay_views)


def delay_views(record: AnyOp, old: Call) -> RelayExpr | None:
    """The call of what its operands are views of, if they all are of one shape, as a view."""
    if rule_of(record) not in (follow, broadcast) or not _is_static(old):
        return None  # it depends on where an element lies
    shown = [arg for arg in old.args if _is_view(arg) and _shape(arg) == _shape(old)]
    sources = [arg.args[0] for arg in shown if isinstance(arg, Call)]
    if not sources or not all(map(_is_static, sources)):
        return None
    shape = _shape(sources[0])
    alike = all(_shape(source) == shape for source in sources)
    if not alike or not any(_is_from_contraction(source) for source in sources):
        return None
    args = [arg.args[0] if arg in shown else arg for arg in old.args]  # type: ignore[attr-defined]
    others = [arg for arg in old.args if arg not in shown]
    if not all(_fits(arg, _shape(old), shape) for arg in others):
        return None
    made = Call(old.op, tuple(args), old.attrs)
    if _shape(made) != shape:
        return None
    return call("reshape", made, newshape=_shape(old), allowzero=True)


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
        same = [arg for arg in expr.args if arg.checked_type == expr.checked_type]
        if not same:
            return False
        expr = same[0]
    return record is not None and record.contraction.describe is not None


def _fits(arg: RelayExpr, old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Whether an operand is broadcast to another shape as to the old one."""
    if not isinstance(arg, Constant) or not new:
        return False
    own = _shape(arg)
    return len(own) <= 1 and (own in ((), (1,)) or own[-1:] == old[-1:] == new[-1:])
