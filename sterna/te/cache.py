"""cache_read and cache_write: copies of tensors in other memories (packing, staging)."""

from collections.abc import Sequence
from typing import Any

from sterna.arith import substitute
from sterna.ir.expr import Expr, Var
from sterna.te.schedule import Schedule, Stage
from sterna.te.tensor import (
    ComputeOp,
    IterVar,
    Operation,
    Range,
    Tensor,
    replace_loads,
    rewrite_body,
)


def cache_read(
    schedule: Schedule, tensor: Tensor, scope: str, readers: Operation | Tensor | Sequence[Any]
) -> Tensor:
    """A copy of a tensor in another memory, from which the readers read.

    B[i] = A[i] + 1  ->  A.local[ax0] = A[ax0]; B[i] = A.local[i] + 1
    """
    given: list[Any] = list(readers) if isinstance(readers, list | tuple) else [readers]
    source = schedule[tensor]
    tensor = source.op.output(tensor.value_index)  # in the layout that it has by now
    stages = [schedule[reader] for reader in given]
    for stage in stages:
        if not any(schedule[t] is source for t in stage.op.input_tensors):
            raise ValueError(f"{stage.op.name} does not read {tensor.name}")
    axes = [IterVar(Range(0, e), f"ax{i}") for i, e in enumerate(tensor.shape)]
    body = tensor(*[axis.var for axis in axes])
    cache = Stage(ComputeOp(f"{tensor.op.name}.{scope}", axes, [body]))
    cache.scope, cache.group = scope, source.group
    copied = cache.op.output(0)

    def replacement(read: Tensor, indices: tuple[Expr, ...]) -> Expr | None:
        same = schedule[read] is source and read.value_index == tensor.value_index
        return copied(*indices) if same else None

    for stage in stages:
        schedule.rewrite_stage(stage, lambda expr: replace_loads(expr, replacement))
    schedule.insert(schedule.stages.index(source) + 1, cache)
    return copied


def cache_write(schedule: Schedule, tensor: Tensor | Sequence[Tensor], scope: str) -> Any:
    """Compute a tensor in another memory and copy it from there.

    B[i] = A[i] + 1  ->  B.local[i.c] = A[i.c] + 1; B[i] = B.local[i]
    """
    several = isinstance(tensor, list | tuple)
    given: list[Any] = list(tensor) if several else [tensor]  # type: ignore[arg-type]
    stage = schedule[given[0]]
    op = stage.op
    if not isinstance(op, ComputeOp):
        raise ValueError(f"cache write only take ComputeOp as writers, not {op}")
    if stage.relations:
        raise ValueError(f"Create cache_write before doing split/fuse/reorder on {op.name}")
    if stage.layout_conditions:
        raise ValueError(f"Create cache_write of {op.name} before transform_layout leaves gaps")
    if any(schedule[t] is not stage for t in given) or len(given) != op.num_outputs:
        raise ValueError(f"cache_write takes all outputs of {op.name} or its only one")
    # The copy keeps the user's axes; the cache gets its own, and the reduction.
    axes = [IterVar(axis.dom, f"{axis.name}.c", axis.iter_type) for axis in op.axis]
    own: dict[Var, Expr] = {a.var: b.var for a, b in zip(op.axis, axes, strict=True)}
    body = rewrite_body(op.body, lambda expr: substitute(expr, own))
    cache = Stage(ComputeOp(f"{op.name}.{scope}", axes, body, op.tag, op.attrs))
    cache.scope, cache.group = scope, stage.group
    copies = [t(*[axis.var for axis in op.axis]) for t in cache.op.outputs]
    copy_op = ComputeOp(op.name, op.axis, copies, op.tag, op.attrs)
    schedule.replace_op(stage, copy_op)
    stage.set_op(copy_op)
    schedule.insert(schedule.stages.index(stage), cache)
    made = cache.op.outputs
    return list(made) if several else made[0]
