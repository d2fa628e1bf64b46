"""rfactor (split reduction, split-K): partial results along a reduction axis."""

from typing import Any

from sterna.arith import Analyzer, substitute
from sterna.ir import build
from sterna.ir.expr import Call, Expr, Var
from sterna.te.bounds import pass_down, value_of_axes
from sterna.te.schedule import Schedule, Split, Stage
from sterna.te.tensor import (
    COMM_REDUCE,
    ComputeOp,
    IterVar,
    Range,
    Reduce,
    Tensor,
    axis_range,
)


def rfactor(schedule: Schedule, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Any:
    """Make a loop of a reduction an axis of partial results, which are reduced afterwards.

    B[i] = sum(A[i, k], k split into k.outer, k.inner), axis k.inner
    ->  B.rf[k.inner, i] = sum(A[i, k.outer*4 + k.inner], k.outer);  B[i] = sum(B.rf[v, i], v)
    """
    stage = schedule[tensor]
    op = stage.op
    if not isinstance(op, ComputeOp) or not op.reduce_axis:
        raise ValueError(f"rfactor needs a reduction, and {op.name} is none")
    if axis.iter_type != COMM_REDUCE or not any(axis is leaf for leaf in stage.leaf_iter_vars):
        loops = [leaf.name for leaf in stage.leaf_iter_vars if leaf.iter_type == COMM_REDUCE]
        raise ValueError(
            f"Can only factor a loop over a reduction axis of {op.name}: {', '.join(loops)}; "
            f"{axis.name} is none of them"
        )
    if stage.step_predicate is not None:
        raise ValueError(f"apply rfactor to {op.name} before set_step_predicate, which says which "
                         "steps of the stages that it makes count")
    if stage.layout_conditions:
        raise ValueError(f"apply rfactor to {op.name} before transform_layout leaves gaps")
    if stage.attach_type != "root":
        raise ValueError(f"apply rfactor to {op.name} before it is computed at a loop")
    if not -len(op.axis) - 1 <= factor_axis <= len(op.axis):
        raise ValueError(
            f"factor_axis={factor_axis} is outside of the {len(op.axis)} axes of {op.name}"
        )
    place = factor_axis if factor_axis >= 0 else len(op.axis) + 1 + factor_axis
    return _Factoring(schedule, stage, op, axis, place).run()


class _Factoring:
    def __init__(
        self, schedule: Schedule, stage: Stage, op: ComputeOp, axis: IterVar, place: int
    ) -> None:
        self.schedule, self.stage, self.op, self.axis, self.place = schedule, stage, op, axis, place
        self.analyzer = Analyzer()
        self.ranges = {a: axis_range(a) for a in (*op.axis, *op.reduce_axis)}
        pass_down(stage, self.ranges, self.analyzer)
        self.values = value_of_axes(stage, self.ranges)
        first = op.body[0]
        assert isinstance(first, Reduce)
        self.reduce = first

    def run(self) -> Any:
        partial = self.partial_results()
        stage = Stage(partial)
        stage.scope, stage.group = self.stage.scope, self.stage.group
        self.schedule.insert(self.schedule.stages.index(self.stage), stage)
        self.reduce_them(partial)
        outputs = partial.outputs
        return outputs[0] if len(outputs) == 1 else list(outputs)

    def partial_results(self) -> ComputeOp:
        """The operation that reduces over all loops but one."""
        op = self.op
        data = [IterVar(a.dom, a.name, a.iter_type) for a in op.axis]
        factored = IterVar(self.ranges[self.axis], self.axis.name)
        rest = [
            leaf
            for leaf in self.stage.leaf_iter_vars
            if leaf.iter_type == COMM_REDUCE and leaf is not self.axis
        ]
        own = {leaf: IterVar(self.ranges[leaf], leaf.name, COMM_REDUCE) for leaf in rest}
        loops: dict[Var, Expr] = {leaf.var: axis.var for leaf, axis in own.items()}
        loops[self.axis.var] = factored.var
        at: dict[Var, Expr] = {a.var: b.var for a, b in zip(op.axis, data, strict=True)}
        for root in op.reduce_axis:
            at[root.var] = self.ranges[root].min + substitute(self.values[root], loops)
        condition = substitute(self.reduce.condition, at)
        for guard in self.guards():
            condition = build.logical_and(condition, substitute(guard, loops))
        source = [substitute(s, at) for s in self.reduce.source]
        body = self.body(tuple(source), tuple(own.values()), condition)
        axes = [*data[: self.place], factored, *data[self.place :]]
        return ComputeOp(f"{op.name}.rf", axes, body, op.tag, op.attrs)

    def body(
        self, source: tuple[Expr, ...], axes: tuple[IterVar, ...], condition: Expr
    ) -> list[Expr]:
        combiner = self.reduce.combiner
        if axes:
            return [Reduce(combiner, source, axes, condition, i) for i in range(len(source))]
        return [
            build.if_then_else(condition, value, identity)
            for value, identity in zip(source, combiner.identity, strict=True)
        ]

    def guards(self) -> list[Expr]:
        """Conditions under which the loops stay inside the reduction's axes."""
        for leaf in self.stage.leaf_iter_vars:
            self.analyzer.bind(leaf.var, 0, self.ranges[leaf].extent)
        found: list[Expr] = []
        for relation in self.stage.relations:
            if isinstance(relation, Split) and relation.parent.iter_type == COMM_REDUCE:
                inside = self.values[relation.parent] < self.ranges[relation.parent].extent
                if not self.analyzer.can_prove(inside):
                    found.append(Call(inside.dtype, "likely", (inside,)))
        return found

    def reduce_them(self, partial: ComputeOp) -> None:
        """The stage now reduces the partial results."""
        op = self.op
        over = IterVar(
            Range(0, self.ranges[self.axis].extent), f"{self.axis.name}.v", COMM_REDUCE
        )
        indices = [a.var for a in op.axis]
        indices.insert(self.place, over.var)
        source = tuple(t(*indices) for t in partial.outputs)
        always = build.const(True)
        body = [
            Reduce(self.reduce.combiner, source, (over,), always, i, self.reduce.init)
            for i in range(len(source))
        ]
        final = ComputeOp(op.name, op.axis, body, op.tag, op.attrs)
        if self.stage.is_output:
            self.schedule.outputs = [final if o is op else o for o in self.schedule.outputs]
        self.stage.set_op(final)
        self.stage.iter_var_attrs = {}
        self.schedule.stage_map[final] = self.stage
