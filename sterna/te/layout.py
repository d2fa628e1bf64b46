"""Layout transformation: keeping a tensor in another layout than the one it is written in."""

from collections.abc import Callable
from typing import Any

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import Expr, Var
from sterna.te.scan import ScanOp, readers_of
from sterna.te.schedule import Schedule, Stage
from sterna.te.tensor import (
    ComputeOp,
    IterVar,
    Operation,
    PlaceholderOp,
    Range,
    Tensor,
    replace_loads,
    rewrite_body,
)
from sterna.tir.index_map import IndexMap


def transform_layout(
    stage: Stage, mapping_function: Callable[..., Any]
) -> list[IterVar] | None:
    """Lay a stage's memory out by a function from indices to the indices there.

    B[i, j] = A[i, j]; C[i, j] = B[i, j];  B with lambda i, j: [j // 4, i, j % 4]
    ->  B[axis0, i, axis2] = A[i, axis0*4 + axis2]; C[i, j] = B[j // 4, i, j % 4]

    The loops of a computation run through its new memory in order; they are returned. An argument
    is passed in the new layout. te.AXIS_SEPARATOR between indices keeps the dimensions before it
    apart from those after it, for memory that has several. Where the layout has gaps, because 4
    does not divide an extent for example, nothing is stored.
    """
    schedule, op = stage.schedule, stage.op
    assert schedule is not None
    _check(schedule, stage)
    shape = op.output(0).shape
    wide = any(extent.dtype.bits > 32 for extent in shape)
    index_map, separators = IndexMap.from_func_with_separators(
        mapping_function, len(shape), index_dtype="int64" if wide else "int32"
    )
    try:
        new_shape = index_map.map_shape(shape)
        inverse, conditions = index_map.inverse_where(shape)
    except ValueError as error:
        raise ValueError(f"transform_layout of {op.name}: {error}") from None
    readers = readers_of(schedule, stage)
    made = _moved(stage, new_shape, inverse, conditions)
    schedule.replace_op(stage, made)
    stage.axis_separators = tuple(separators)

    def read(tensor: Tensor, indices: tuple[Expr, ...]) -> Expr | None:
        if schedule[tensor] is not stage:
            return None
        return made.output(tensor.value_index)(*index_map.map_indices(indices))

    for reader in readers:
        schedule.rewrite_stage(reader, lambda expr: replace_loads(expr, read))
    return list(made.axis) if isinstance(made, ComputeOp) else None


def _moved(
    stage: Stage, shape: list[Expr], inverse: IndexMap, conditions: list[Expr]
) -> Operation:
    """The stage's operation with indices of the new layout."""
    op = stage.op
    if isinstance(op, PlaceholderOp):
        return PlaceholderOp(op.name, shape, op.dtype)
    assert isinstance(op, ComputeOp)
    axes = [
        IterVar(Range.from_min_extent(build.const(0, extent.dtype), extent), var.name)
        for var, extent in zip(inverse.initial_indices, shape, strict=True)
    ]
    own: dict[Var, Expr] = {
        var: build.cast(var.dtype, axis.var)
        for var, axis in zip(inverse.initial_indices, axes, strict=True)
    }
    at: dict[Var, Expr] = {
        axis.var: build.cast(axis.var.dtype, substitute(index, own))
        for axis, index in zip(op.axis, inverse.final_indices, strict=True)
    }
    body = rewrite_body(op.body, lambda expr: substitute(expr, at))
    stage.layout_conditions = [substitute(condition, at) for condition in stage.layout_conditions]
    stage.layout_conditions += [substitute(condition, own) for condition in conditions]
    if stage.store_predicate is not None:
        stage.store_predicate = substitute(stage.store_predicate, at)
    if stage.step_predicate is not None:
        stage.step_predicate = substitute(stage.step_predicate, at)
    old = set(op.axis)
    stage.leaf_iter_vars = [*axes, *stage.leaf_iter_vars[len(op.axis) :]]
    stage.all_iter_vars = [*axes, *(axis for axis in stage.all_iter_vars if axis not in old)]
    return ComputeOp(op.name, axes, body, op.tag, op.attrs)


def _check(schedule: Schedule, stage: Stage) -> None:
    """Refuse what would contradict what was said about the old layout, or needs it."""
    op = stage.op
    if not isinstance(op, (ComputeOp, PlaceholderOp)) or not op.output(0).shape:
        raise ValueError(
            f"transform_layout changes inputs and computations with axes, and {op.name} is none"
        )
    for other in schedule.stages:
        if isinstance(other.op, ScanOp) and any(
            schedule.stage_map.get(t.op) is stage for t in other.op.state_placeholder
        ):
            raise ValueError(f"{op.name} is laid out as the scan {other.op.name}: it is its state")
    for reader in readers_of(schedule, stage):
        if not isinstance(reader.op, ComputeOp):
            raise ValueError(
                f"the layout of {op.name} cannot change, since {reader.op.name} takes it whole; "
                "let that take a copy"
            )
    if isinstance(op, PlaceholderOp):
        return
    attached = [s for s in schedule.stages if s.attach_stage is stage]
    untouched = len(stage.leaf_iter_vars) >= len(op.axis) and all(
        leaf is axis and axis not in stage.iter_var_attrs
        for leaf, axis in zip(stage.leaf_iter_vars, op.axis, strict=False)
    )
    if attached or not untouched or stage.axis_alignment:
        raise ValueError(
            f"transform_layout gives {op.name} new axes: use it before the loops of the old ones "
            "are split, reordered, marked, aligned, or computed at"
        )
