"""Inlining whatever is cheap to compute where it is read, as classic schedules begin.

    tvm.te.schedule.AutoInlineInjective(s)    # s[each injective stage].compute_inline()

Stages that are outputs, or that were scheduled, stay as they are.
"""

from collections.abc import Callable, Sequence

from sterna.ir.expr import Expr, Var
from sterna.ir.node import nodes_of
from sterna.te.schedule import Schedule, Stage
from sterna.te.tensor import ComputeOp, ProducerLoad


def AutoInlineInjective(sch: Schedule) -> None:
    """Inline the stages that reduce nothing."""
    _inline(sch, lambda op: not op.reduce_axis)


def AutoInlineBroadcast(sch: Schedule) -> None:
    """Inline the stages whose elements read others at some of their own axes, in order."""
    _inline(sch, lambda op: _reads(op, _are_some_of))


def AutoInlineElemWise(sch: Schedule) -> None:
    """Inline the stages whose elements read others at their own place."""
    _inline(sch, lambda op: _reads(op, _are_all_of))


def _inline(sch: Schedule, is_cheap: Callable[[ComputeOp], bool]) -> None:
    for stage in sch.stages:
        op = stage.op
        if isinstance(op, ComputeOp) and not _is_settled(stage) and is_cheap(op):
            stage.compute_inline()


def _is_settled(stage: Stage) -> bool:
    """Whether a stage is an output, or a user said how it is computed."""
    assert isinstance(stage.op, ComputeOp)
    axes = [*stage.op.axis, *stage.op.reduce_axis]
    leaves = stage.leaf_iter_vars
    moved = len(axes) != len(leaves) or any(a is not b for a, b in zip(axes, leaves, strict=True))
    return stage.is_output or stage.attach_type != "root" or moved or bool(stage.iter_var_attrs)


def _reads(
    op: ComputeOp, fits: Callable[[Sequence[Expr], Sequence[Var]], bool]
) -> bool:
    axes = [axis.var for axis in op.axis]
    loads = [load for body in op.body for load in nodes_of(body, ProducerLoad)]
    return not op.reduce_axis and all(fits(load.indices, axes) for load in loads)


def _are_all_of(indices: Sequence[Expr], axes: Sequence[Var]) -> bool:
    return len(indices) == len(axes) and all(a is b for a, b in zip(indices, axes, strict=True))


def _are_some_of(indices: Sequence[Expr], axes: Sequence[Var]) -> bool:
    rest = iter(axes)
    return all(any(index is axis for axis in rest) for index in indices)
