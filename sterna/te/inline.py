"""compute_inline: computing elements where they are read."""

from collections.abc import Callable, Sequence
from typing import Any

from sterna.arith import substitute
from sterna.ir.expr import Call, Expr, IntImm, Let, Var, variables_in
from sterna.ir.node import Node, nodes_of
from sterna.te.schedule import Schedule, Stage
from sterna.te.tensor import (
    ComputeOp,
    LoadReplacer,
    Operation,
    ProducerLoad,
    Tensor,
    tensors_in,
)
from sterna.tir.copy import with_own_names

Element = Callable[[Tensor, tuple[Expr, ...]], Expr | None]


def inline_stages(schedule: Schedule) -> None:
    """Remove the stages that are marked inline; their readers compute them.

    B[i] = A[i] + 1; C[i] = B[i] * 2    ->    C[i] = (A[i] + 1) * 2

    What is read several times is computed once: readers first, so that all reads are seen.
    """
    waiting = [stage for stage in reversed(schedule.stages) if stage.attach_type == "inline"]
    reads = _Reads(schedule)
    while waiting:
        together = reads.independent(waiting)
        del waiting[: len(together)]
        _inline(schedule, together, reads)


class _Reads:
    """Which stages read which."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.known: dict[Operation, frozenset[Stage]] = {}
        self.in_indices: set[Stage] = set()
        """Those that are read for where to read others."""
        ops = [stage.op for stage in schedule.stages if isinstance(stage.op, ComputeOp)]
        bodies = [expr for op in ops for expr in op.body]
        for load in (load for body in bodies for load in nodes_of(body, ProducerLoad)):
            self.in_indices |= {schedule[t] for t in tensors_in(load.indices)}

    def of(self, stage: Stage) -> frozenset[Stage]:
        """The stages that a stage reads."""
        if stage.op not in self.known:
            self.known[stage.op] = frozenset(self.schedule[t] for t in stage.op.input_tensors)
        return self.known[stage.op]

    def independent(self, stages: Sequence[Stage]) -> list[Stage]:
        """The first of several, and those behind it that can be inlined with it at once."""
        first = stages[0]
        if first in self.in_indices:
            self.in_indices |= self.of(first)
            return [first]
        read: set[Stage] = set()
        found: list[Stage] = []
        for stage in stages:
            if stage in read or stage in self.in_indices:
                break
            found.append(stage)
            read |= self.of(stage)
        return found


def _inline(schedule: Schedule, stages: Sequence[Stage], reads: _Reads) -> None:
    """Remove stages that do not read each other."""
    for stage in stages:
        _refuse(stage)
    inlined = {*stages}

    def element(tensor: Tensor, indices: tuple[Expr, ...]) -> Expr | None:
        op = schedule[tensor].op
        if schedule[tensor] not in inlined:
            return None
        assert isinstance(op, ComputeOp)
        at = {axis.var: index for axis, index in zip(op.axis, indices, strict=True)}
        body: Expr = substitute(op.body[tensor.value_index], at)
        return with_own_names(body)  # each reader binds its own

    for reader in schedule.stages:
        read = inlined & reads.of(reader)
        if not read:
            continue
        if not isinstance(reader.op, ComputeOp):
            raise ValueError(f"{read.pop().op.name} cannot be inlined into {reader.op.name}")
        outer = {axis.var for axis in (*reader.op.axis, *reader.op.reduce_axis)}
        inliner = _Inliner(element, lambda tensor: schedule[tensor] in inlined, outer)
        schedule.rewrite_stage(reader, inliner.inlined)
    schedule.stages[:] = [stage for stage in schedule.stages if stage not in inlined]


def _refuse(stage: Stage) -> None:
    op = stage.op
    if not isinstance(op, ComputeOp) or op.reduce_axis:
        raise ValueError(f"{op.name} cannot be inlined: only elementwise computations can")
    if stage.is_double_buffered or stage.is_rolling:
        kind = "double" if stage.is_double_buffered else "rolling"
        raise ValueError(f"{op.name} cannot have a {kind} buffer and be inlined: it has none then")


class _Inliner(LoadReplacer):
    """Puts elements in place of loads; one that is read repeatedly gets a name.

    Its name stands where it is surely evaluated: in a branch, for the readers of that alone.
    """

    def __init__(
        self, element: Element, is_inlined: Callable[[Tensor], bool], outer: set[Var]
    ) -> None:
        super().__init__(self._element)
        self.element, self.is_inlined, self.outer = element, is_inlined, outer
        self.names: dict[Any, Var] = {}
        self.has_repeated = False

    def inlined(self, expr: Expr) -> Expr:
        """A whole expression."""
        counts = self._loads(expr)[0]
        self.has_repeated = any(count > 1 for count in counts.values())
        return self._with_names(expr)

    def _with_names(self, expr: Expr) -> Expr:
        """An expression or a branch of one, and before it what several of its loads share."""
        values: dict[Any, tuple[Var, Expr]] = {}
        for key, load in self._repeated(expr) if self.has_repeated else ():
            value = None if key in self.names else self.element(load.tensor, load.indices)
            if value is not None and not isinstance(value, Var | IntImm | ProducerLoad):
                values[key] = (Var(load.tensor.op.name, load.dtype), value)
        self.names |= {key: name for key, (name, _) in values.items()}
        made: Expr = self.rewrite(expr)
        for key, (name, value) in reversed(values.items()):
            del self.names[key]
            made = Let(name, value, made)
        return made

    def visit_Call(self, call: Call) -> Expr:
        """Branches have names of their own."""
        if call.op != "if_then_else" or not self.has_repeated:
            made: Expr = self.rewrite_children(call)
            return made
        condition, *branches = call.args
        args = (self.rewrite(condition), *map(self._with_names, branches))
        same = all(a is b for a, b in zip(args, call.args, strict=True))
        return call if same else Call(call.dtype, call.op, args)

    def _repeated(self, root: Expr) -> list[tuple[Any, ProducerLoad]]:
        """The loads that occur more than once, and at least once where they surely are made."""
        counts, sure = self._loads(root)
        return [(key, load) for key, load in sure.items() if counts[key] > 1]

    def _loads(self, root: Expr) -> tuple[dict[Any, int], dict[Any, ProducerLoad]]:
        """How often elements of what is inlined are read; those that can be read before it all."""
        counts: dict[Any, int] = {}
        sure: dict[Any, ProducerLoad] = {}
        stack: list[tuple[Any, bool]] = [(root, True)]
        while stack:
            expr, always = stack.pop()
            if isinstance(expr, ProducerLoad) and self.is_inlined(expr.tensor):
                key = _key(expr.tensor, expr.indices)
                counts[key] = counts.get(key, 0) + 1
                inside = all(self.outer.issuperset(variables_in(each)) for each in expr.indices)
                if always and inside:
                    sure.setdefault(key, expr)
            guards = isinstance(expr, Call) and expr.op == "if_then_else"
            for place, child in enumerate(expr.children()):
                stack.append((child, always and not (guards and place > 0)))
        return counts, sure

    def _element(self, tensor: Tensor, indices: tuple[Expr, ...]) -> Expr | None:
        named = self.names.get(_key(tensor, indices)) if self.names else None
        return named if named is not None else self.element(tensor, indices)


def _key(tensor: Tensor, indices: tuple[Expr, ...]) -> Any:
    return (tensor, *[index_key(index) for index in indices])


def index_key(index: Any) -> Any:
    """What equal indices share; variables are themselves, whatever their names."""
    if isinstance(index, Var) or not isinstance(index, Node):
        return index
    fields = (getattr(index, name) for name in index.FIELDS)
    return (type(index), *[index_key(field) for field in fields])
