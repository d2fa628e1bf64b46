"""Computing elements where they are read."""

from sterna.arith import substitute
from sterna.ir.expr import Expr
from sterna.te.schedule import Schedule, Stage
from sterna.te.tensor import ComputeOp, Tensor, replace_loads


def inline_stages(schedule: Schedule) -> None:
    """Remove the stages that are marked inline; their readers compute them.

    B[i] = A[i] + 1; C[i] = B[i] * 2    ->    C[i] = (A[i] + 1) * 2
    """
    for stage in list(schedule.stages):
        if stage.attach_type == "inline":
            _inline(schedule, stage)


def _inline(schedule: Schedule, stage: Stage) -> None:
    op = stage.op
    if not isinstance(op, ComputeOp) or op.reduce_axis:
        raise ValueError(f"{op.name} cannot be inlined: only elementwise computations can")
    if stage.is_double_buffered or stage.is_rolling:
        kind = "double" if stage.is_double_buffered else "rolling"
        raise ValueError(f"{op.name} cannot have a {kind} buffer and be inlined: it has none then")

    def element(tensor: Tensor, indices: tuple[Expr, ...]) -> Expr | None:
        if schedule[tensor] is not stage:
            return None
        at = {axis.var: index for axis, index in zip(op.axis, indices, strict=True)}
        body: Expr = substitute(op.body[tensor.value_index], at)
        return body

    for reader in schedule.stages:
        if reader is not stage and any(schedule[t] is stage for t in reader.op.input_tensors):
            if not isinstance(reader.op, ComputeOp):
                raise ValueError(f"{op.name} cannot be inlined into {reader.op.name}")
            schedule.rewrite_stage(reader, lambda expr: replace_loads(expr, element))
    schedule.stages.remove(stage)
