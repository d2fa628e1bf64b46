"""The compiler's own schedules for workloads that it knows: products, convolutions, softmax.

A workload is described as operators describe what they compute, and scheduled as their kernels
are: register tiles, packed panels, bands, rows in the cache. What these schedules ask (choose) is
the space that is searched, with what the cost model finds cheapest as its first point.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sterna.auto_scheduler.convolutions import convolution_of
from sterna.auto_scheduler.softmax import SoftmaxRewriter, is_reduction_by
from sterna.ir import build
from sterna.ir.expr import Add, Call, Cast, Expr, Mul, Var, variables_in
from sterna.ir.node import Node, post_order
from sterna.schedule.choose import Scope, answering, deciding
from sterna.schedule.conv_chain import schedule_convs
from sterna.schedule.default import along_last, schedule_stages
from sterna.schedule.gemm import schedule_contraction
from sterna.schedule.kernel import Kernel, Processor
from sterna.schedule.rows_in_cache import schedule_rows
from sterna.schedule.sum_of_products import CHANNEL, TAP, describe_sum
from sterna.target import Target, is_gpu, processor_of
from sterna.te import ComputeOp, Operation, Schedule, Tensor, create_schedule
from sterna.te.tensor import ProducerLoad, Reduce, replace_loads, rewrite_body

SCOPE = "workload"


@dataclass(frozen=True)
class OwnSchedule:
    """A schedule of the compiler's own, the tensors of its function, and what was decided."""

    schedule: Schedule
    tensors: list[Tensor]
    scopes: tuple[Scope, ...]

    @property
    def offers(self) -> dict[str, dict[str, float]]:
        """By question, what was offered at which cost: a tile is asked for twice, by its packer."""
        found: dict[str, dict[str, float]] = {}
        for scope in self.scopes:
            for name, decision in scope.decisions.items():
                found[name] = {**dict(decision.offered), **found.get(name, {})}
        return found

    @property
    def taken(self) -> dict[str, str]:
        """By question, the answer."""
        return {n: d.taken for scope in reversed(self.scopes) for n, d in scope.decisions.items()}


def own_schedule(
    tensors: Sequence[Tensor], target: Target, answers: Mapping[str, str]
) -> OwnSchedule | None:
    """The schedule of a workload under answers; None if it is none that operators compute."""
    if is_gpu(target):
        return None
    scoped = {f"{SCOPE}/{name}": answer for name, answer in answers.items()}
    with answering(scoped), deciding(SCOPE) as scope:
        made = _Workload(tensors, processor_of(target)).scheduled()
    return None if made is None else OwnSchedule(*made, (*scope.inner, scope))


class _Workload:
    """The operations of a workload, which are written anew where operators write them better."""

    def __init__(self, tensors: Sequence[Tensor], processor: Processor) -> None:
        self.tensors, self.processor = list(tensors), processor
        self.renewed: dict[Tensor, Tensor] = {}
        plain = create_schedule(self._outputs())
        self.ops = [stage.op for stage in plain.stages if isinstance(stage.op, ComputeOp)]
        self.is_plain = all(
            isinstance(s.op, ComputeOp) or not s.op.input_tensors for s in plain.stages
        )

    def _outputs(self) -> list[Operation]:
        read = {source.op for tensor in self.tensors for source in _behind(tensor)}
        return list(dict.fromkeys(
            t.op for t in self.tensors if isinstance(t.op, ComputeOp) and t.op not in read
        ))

    def scheduled(self) -> tuple[Schedule, list[Tensor]] | None:
        outputs, sums = self._outputs(), [op for op in self.ops if op.reduce_axis]
        if not self.is_plain or len(outputs) != 1 or not sums:
            return None
        if any(op.num_outputs > 1 for op in self.ops):
            return None
        if len(sums) == 1 and _is_sum_of_products(sums[0]):
            return self._product(sums[0])
        if len(sums) > 1 and all(_reduces_rows(op) for op in sums):
            return self._rows()
        return None

    def _product(self, total: ComputeOp) -> tuple[Schedule, list[Tensor]]:
        conv = convolution_of(total)
        written = None
        for op in self.ops:
            if op is total and conv is not None:
                data, weight = self._new(conv.data), self._new(conv.weight)
                with deciding(SCOPE):
                    written = conv.written(data, weight, self.processor)
            if op is total and written is not None:
                self.renewed[op.output(0)] = written.tensor
                continue
            made = self._rewrite(op)
            if op is total:
                describe_sum(made, _roles(op))
        anchor = self._new(total.output(0))
        kept = frozenset[Operation]() if written is None else written.kept
        kernel = self._kernel(anchor, keep={t.op for t in anchor.op.input_tensors} | kept)
        if kept or not isinstance(anchor.op, ComputeOp):  # statements, and what lies around them
            schedule_stages(kernel, inner=True)
        else:
            (schedule_contraction if written is None else schedule_convs)(kernel)
        return kernel.schedule, self._arguments()

    def _rows(self) -> tuple[Schedule, list[Tensor]]:
        change = SoftmaxRewriter(self._new)
        for op in self.ops:
            self._rewrite(op, change)
        anchor = self._new(self._outputs()[0].output(0))
        kernel = self._kernel(anchor, keep=set())
        schedule_rows(kernel)
        return kernel.schedule, self._arguments()

    def _rewrite(self, op: ComputeOp, change: SoftmaxRewriter | None = None) -> Tensor:
        """An operation on what was written for its operands."""

        def renew(tensor: Tensor, indices: tuple[Expr, ...]) -> Expr | None:
            own = self.renewed.get(tensor)
            return None if own is None else ProducerLoad(own, indices)

        def changed(expr: Expr) -> Expr:
            return replace_loads(expr if change is None else change.rewrite(expr), renew)

        body = rewrite_body(op.body, changed)
        made = ComputeOp(op.name, op.axis, body, op.tag, dict(op.attrs)).output(0)
        self.renewed[op.output(0)] = made
        return made

    def _kernel(self, anchor: Tensor, keep: set[Operation]) -> Kernel:
        """The stages of the workload, with what is cheap computed where it is read."""
        out = self._new(self._outputs()[0].output(0))
        schedule = create_schedule(out.op)
        for stage in schedule.stages:
            op = stage.op
            if isinstance(op, ComputeOp) and not op.reduce_axis and not stage.is_output:
                by_row = len(op.axis) < out.ndim
                if op not in keep and not by_row and not is_costly(op):
                    stage.compute_inline()
        return Kernel(schedule, [anchor], [out], self.processor)

    def _new(self, tensor: Tensor) -> Tensor:
        return self.renewed.get(tensor, tensor)

    def _arguments(self) -> list[Tensor]:
        return [self._new(tensor) for tensor in self.tensors]


def _behind(tensor: Tensor) -> list[Tensor]:
    """Everything that a tensor is made of."""
    found: dict[Tensor, None] = {}
    stack = list(tensor.op.input_tensors)
    while stack:
        own = stack.pop()
        if own not in found:
            found[own] = None
            stack += own.op.input_tensors
    return list(found)


def is_costly(op: ComputeOp) -> bool:
    """Whether an element takes a function such as exp, which is better computed once."""
    found = False

    def look(node: Node) -> None:
        nonlocal found
        found = found or (isinstance(node, Call) and node.dtype.is_float and len(node.args) == 1)

    for body in op.body:
        post_order(body, look)
    return found


def _is_sum_of_products(op: ComputeOp) -> bool:
    """Whether it adds products of two numbers that are read, all of its axes in one of them."""
    body = op.body[0]
    if not isinstance(body, Reduce) or body.init or not op.axis or not is_reduction_by(body, Add):
        return False
    if not build.is_const(body.condition, 1) or not isinstance(body.source[0], Mul):
        return False
    product = body.source[0]
    read = [side.value if isinstance(side, Cast) else side for side in (product.a, product.b)]
    loads = [side for side in read if isinstance(side, ProducerLoad)]
    if len(loads) < 2:
        return False
    used = {var for load in loads for index in load.indices for var in variables_in(index)}
    return all(axis.var in used for axis in (*op.axis, *op.reduce_axis))


def _reduces_rows(op: ComputeOp) -> bool:
    return len(op.reduce_axis) == 1 and along_last(op)


def _roles(op: ComputeOp) -> list[str]:
    """What the axes of a sum run over: taps of a window move what is read beside another axis."""
    body = op.body[0]
    assert isinstance(body, Reduce)
    moved: set[Var] = set()

    def look(node: Node) -> None:
        if isinstance(node, ProducerLoad):
            for index in node.indices:
                used = variables_in(index)
                moved.update(used if len(used) > 1 else ())

    post_order(body.source[0], look)
    return [TAP if axis.var in moved else CHANNEL for axis in op.reduce_axis]
