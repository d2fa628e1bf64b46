"""compute_inline: computing elements where they are read."""

from collections.abc import Callable
from typing import Any

from sterna.arith import substitute
from sterna.ir.expr import Call, Expr, IntImm, Let, Var, variables_in
from sterna.ir.node import Node
from sterna.te.schedule import Schedule, Stage
from sterna.te.tensor import ComputeOp, LoadReplacer, ProducerLoad, Tensor
from sterna.tir.copy import with_own_names

Element = Callable[[Tensor, tuple[Expr, ...]], Expr | None]


def inline_stages(schedule: Schedule) -> None:
    """Remove the stages that are marked inline; their readers compute them.

    B[i] = A[i] + 1; C[i] = B[i] * 2    ->    C[i] = (A[i] + 1) * 2

    What is read several times is computed once: readers first, so that all reads are seen.
    """
    for stage in reversed(schedule.stages):
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
        return with_own_names(body)  # each reader binds its own

    for reader in schedule.stages:
        if reader is not stage and any(schedule[t] is stage for t in reader.op.input_tensors):
            if not isinstance(reader.op, ComputeOp):
                raise ValueError(f"{op.name} cannot be inlined into {reader.op.name}")
            outer = {axis.var for axis in (*reader.op.axis, *reader.op.reduce_axis)}
            inliner = _Inliner(element, lambda tensor: schedule[tensor] is stage, outer)
            schedule.rewrite_stage(reader, inliner.inlined)
    schedule.stages.remove(stage)


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
