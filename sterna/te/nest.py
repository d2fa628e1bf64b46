"""Loop nests: how the loops of one stage run, what predicates guard them, what they store."""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import And, Call, Expr, Var, variables_in
from sterna.te.bounds import root_axes, thread_variables, value_of_axes
from sterna.te.env_threads import launched
from sterna.te.prefetch import with_prefetches
from sterna.te.scan import ScanOp
from sterna.te.schedule import AxisAttributes, Split, Stage
from sterna.te.tensor import (
    COMM_REDUCE,
    PARALLELIZED,
    TENSORIZED,
    THREAD_INDEX,
    UNROLLED,
    VECTORIZED,
    ComputeOp,
    IterVar,
    Reduce,
    axis_range,
)
from sterna.te.tensorize import tensorized_leaf, tensorized_loops
from sterna.te.thread_reduction import reduce_across_threads, shared_axes
from sterna.tir.stmt import (
    AssertStmt,
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    Stmt,
    nothing,
    seq,
)

if TYPE_CHECKING:
    from sterna.te.lower import Lowering

_KINDS: dict[int | None, LoopKind] = {
    None: "serial",
    PARALLELIZED: "parallel",
    VECTORIZED: "vectorized",
    UNROLLED: "unrolled",
    TENSORIZED: "serial",
}


class Nest:
    """The loops, guards and stores of one stage."""

    def __init__(self, lowering: "Lowering", stage: Stage, op: ComputeOp | ScanOp) -> None:
        self.lowering = lowering
        self.stage = stage
        self.op = op
        self.ranges = lowering.bounds.ranges[stage]
        self.analyzer = lowering.analyzer
        self.place = lowering.places[stage]
        self.relative = value_of_axes(stage, self.ranges)
        self.at: dict[Var, Expr] = {
            axis.var: self.analyzer.simplify(self.ranges[axis].min + self.relative[axis])
            for axis in root_axes(stage)
        }
        self.predicates = list(self.store_predicates())
        self.steps_that_count = list(self.step_predicates())
        self.partial: list[tuple[Buffer, tuple[Expr, ...]]] | None = None
        """Where results are collected before they are whole; see thread_reduction.py."""

    # ---- guards ----

    def store_predicates(self) -> Iterator[Expr]:
        """The parts of the stage's predicate in terms of the loop variables.

        A part that picks one of the threads which reduce together says who stores their result,
        not whose share is added: the loops here add all shares.
        """
        if self.stage.store_predicate is None:
            return
        together = {
            leaf.var
            for leaf, attributes in self.stage.iter_var_attrs.items()
            if leaf.iter_type == COMM_REDUCE and attributes.is_launched
        }
        for part in self.parts_of(self.stage.store_predicate):
            if not together.intersection(variables_in(part)):
                yield part

    def step_predicates(self) -> Iterator[tuple[IterVar, Expr]]:
        """The parts of the predicate of steps, with the first loop of the sum that tells each."""
        if self.stage.step_predicate is None:
            return
        leaves = self.stage.leaf_iter_vars
        first = next(i for i, leaf in enumerate(leaves) if leaf.iter_type == COMM_REDUCE)
        for part in self.parts_of(self.stage.step_predicate):
            condition = self.analyzer.simplify(part)
            used = variables_in(condition)
            told = max([first, *(i for i, leaf in enumerate(leaves) if leaf.var in used)])
            if not self.analyzer.can_prove(condition):
                yield leaves[told], condition

    def parts_of(self, predicate: Expr) -> Iterator[Expr]:
        """The parts that hold together, in terms of the loop variables."""
        values: dict[Var, Expr] = {
            axis.var: value for axis, value in self.relative.items() if value is not axis.var
        }
        values.update(self.at)
        values.update(thread_variables(self.stage))
        parts = [substitute(predicate, values)]
        while parts:
            part = parts.pop()
            if isinstance(part, And):
                parts += [part.b, part.a]
            else:
                yield part

    def promises(self) -> Iterator[Stmt]:
        """Checks of what the user said about splits that divide."""
        for relation in self.stage.relations:
            if not isinstance(relation, Split) or not relation.divides:
                continue
            extent = self.ranges[relation.parent].extent
            parts = relation.factor if relation.factor is not None else relation.nparts
            assert parts is not None
            whole = self.analyzer.simplify(build.floormod(extent, parts).equal(0))
            one_part = self.ranges[relation.inner].extent is extent
            if build.is_const(whole, 1) or one_part:
                continue
            text = (
                f"the extent {extent} of the axis {relation.parent.name} of {self.op.name} is no "
                f"multiple of {parts}, though it was split with disable_predication"
            )
            if build.is_const(whole, 0):
                raise ValueError(f"{text}; leave that out, and the rest is guarded")
            yield AssertStmt(whole, "ValueError", text)

    def guards(self, reductions: bool) -> list[Expr]:
        """Conditions under which an iteration is part of the computation."""
        found: list[Expr] = []
        for relation in self.stage.relations:
            if not isinstance(relation, Split) or relation.divides:
                continue
            if not reductions and relation.parent.iter_type == COMM_REDUCE:
                continue
            extent = self.ranges[relation.parent].extent
            self.require(found, self.relative[relation.parent] < extent)
        for axis in self.op.axis:
            whole = axis_range(axis)
            if self.ranges[axis] is not whole:
                self.require(found, self.at[axis.var] >= whole.min)
                self.require(found, self.at[axis.var] < whole.min + whole.extent)
        for condition in self.stage.layout_conditions:
            self.require(found, substitute(condition, self.at))
        return found

    def require(self, found: list[Expr], condition: Expr) -> None:
        simple = self.analyzer.simplify(condition)
        if not self.analyzer.can_prove(simple):
            found.append(Call(simple.dtype, "likely", (simple,)))

    def guarded(self, body: Stmt, reductions: bool) -> Stmt:
        for condition in reversed(self.guards(reductions)):
            body = IfThenElse(condition, body)
        return body

    # ---- loops ----

    def make(self) -> Stmt:
        leaves = self.stage.leaf_iter_vars
        first = next(
            (i for i, leaf in enumerate(leaves) if leaf.iter_type == COMM_REDUCE), len(leaves)
        )
        promises = list(self.promises())
        tensorized = tensorized_leaf(self)
        if tensorized is not None:
            return seq(*promises, tensorized_loops(self, tensorized))
        if not self.op.reduce_axis:
            return seq(*promises, self.loops(leaves, self.guarded(self.store(), True)))
        if shared_axes(self, leaves[first:]):
            reduced = reduce_across_threads(self, leaves[first:])
        else:
            inner = self.loops(leaves[first:], self.guarded(self.update(), True))
            reduced = seq(self.init(leaves[first:]), inner)
        return seq(*promises, self.loops(leaves[:first], reduced))

    def steps(self) -> Stmt:
        """The loops of a scan: what is computed inside them stores its rows."""
        leaves = self.stage.leaf_iter_vars[len(launched(self.stage)) :]
        return seq(*self.promises(), self.loops(leaves, nothing()))

    def launching(self, body: Stmt) -> Stmt:
        """The body inside the threads that are launched around it."""
        threads = launched(self.stage)
        # The user may launch the same threads around another stage too.
        own: dict[Var, Expr] = {t.var: Var(t.name, t.var.dtype) for t in threads}
        inside: Stmt = substitute(self.loops(threads, body), own)
        return inside

    def loops(self, leaves: Sequence[IterVar], body: Stmt) -> Stmt:
        for leaf in reversed(leaves):
            attached = self.lowering.attached_at(self.stage, leaf)
            if attached:
                body = self.lowering.with_producers(attached, body)
            body = self.counting(leaf, self.rolling(leaf, body))
            body = with_prefetches(self, leaf, body)
            body = self.lowering.with_rolling(leaf, self.loop(leaf, leaf.var, body))
        return body

    def rolling(self, leaf: IterVar, body: Stmt) -> Stmt:
        """The body of a loop; of a rolling buffer, only for what is not there yet.

        That is asked as soon as the loops have said which part it is about.
        """
        if self.place.roll is None:
            return body
        relative = self.relative[self.op.axis[self.place.roll.axis]]
        used = variables_in(relative)
        last = [axis for axis in self.stage.leaf_iter_vars if axis.var in used][-1]
        return IfThenElse(self.place.roll.is_new(relative), body) if last is leaf else body

    def counting(self, leaf: IterVar, body: Stmt) -> Stmt:
        """The body of a loop; only for steps that add something, if it is the loop that tells."""
        for last, condition in self.steps_that_count:
            if last is leaf:
                body = IfThenElse(condition, body)
        return body

    def loop(self, leaf: IterVar, var: Var, body: Stmt) -> Stmt:
        attributes = self.stage.iter_var_attrs.get(leaf, AxisAttributes())
        body = self.with_pragmas(leaf, body)
        extent = self.ranges[leaf].extent
        zero = build.const(0, extent.dtype)
        thread = leaf if leaf.iter_type == THREAD_INDEX else attributes.bind_thread
        if thread is not None:
            self.check_thread(leaf, thread)
        if thread is not None and (leaf.iter_type != COMM_REDUCE or attributes.is_launched):
            return For(var, zero, extent, "thread", body, thread.thread_tag)
        kind = "serial" if build.is_const(extent, 0) else _KINDS[attributes.kind]
        return For(var, zero, extent, kind, body)  # vectors have one lane at the least

    def with_pragmas(self, leaf: IterVar, body: Stmt) -> Stmt:
        attributes = self.stage.iter_var_attrs.get(leaf, AxisAttributes())
        for key, value in reversed(attributes.pragmas):
            said = build.as_expr(1 if value is None else value)
            body = AttrStmt(f"pragma_{key}", None, said, body)
        return body

    def check_thread(self, leaf: IterVar, thread: IterVar) -> None:
        """A loop must fit into the range of the thread that runs it."""
        extent = self.ranges[leaf].extent
        if thread.dom is not None and self.analyzer.can_prove(extent > thread.dom.extent):
            raise ValueError(
                f"the loop {leaf.name} of {self.op.name} has {extent} iterations, but "
                f"{thread.thread_tag}, which it is bound to, has {thread.dom.extent} threads"
            )

    # ---- what is stored ----

    def result_at(self, output: int) -> tuple[Buffer, tuple[Expr, ...]]:
        """Where an iteration's result is kept."""
        if self.partial is not None:
            return self.partial[output]
        indices = [self.at[axis.var] for axis in self.op.axis]
        local = self.lowering.local_indices(self.place, indices)
        return self.place.buffers[output], local

    def store_at(self, output: int, value: Expr) -> Stmt:
        buffer, indices = self.result_at(output)
        return BufferStore(buffer, value, indices)

    def value(self, expr: Expr) -> Expr:
        return self.lowering.load(substitute(expr, self.at))

    def store(self) -> Stmt:
        return self.predicated(
            seq(*[self.store_at(i, self.value(e)) for i, e in enumerate(self.op.body)])
        )

    def predicated(self, body: Stmt, unknown: Collection[Var] = ()) -> Stmt:
        for part in reversed(self.predicates):
            if not any(var in unknown for var in variables_in(part)):
                body = IfThenElse(part, body)
        return body

    def init(self, leaves: Sequence[IterVar]) -> Stmt:
        """Sets the results to those of nothing, with loops of its own."""
        reduced = {x.var for x in leaves if x.iter_type == COMM_REDUCE}
        return self.init_loops(leaves, self.guarded(self.predicated(self.start(), reduced), False))

    def start(self) -> Stmt:
        """Sets one element of each result to that of nothing."""
        reduce = self.op.body[0]
        assert isinstance(reduce, Reduce)
        start = reduce.init or reduce.combiner.identity
        return seq(*[self.store_at(i, self.value(e)) for i, e in enumerate(start)])

    def init_loops(self, leaves: Sequence[IterVar], body: Stmt) -> Stmt:
        """Loops like those over the data axes among some, with variables of their own."""
        renamed: dict[Var, Expr] = {}
        for leaf in reversed(leaves):
            if leaf.iter_type == COMM_REDUCE:
                continue
            var = Var(f"{leaf.name}.init", leaf.var.dtype)
            renamed[leaf.var] = var
            self.analyzer.bind(var, 0, self.ranges[leaf].extent)
            body = self.loop(leaf, var, self.rolling(leaf, body))
        replaced: Stmt = substitute(body, renamed)
        return replaced

    def update(self) -> Stmt:
        """Combines one more element into the results."""
        reduce = self.op.body[0]
        assert isinstance(reduce, Reduce)
        combiner = reduce.combiner
        parts: dict[Var, Expr] = {}
        for i, source in enumerate(reduce.source):
            parts[combiner.left[i]] = BufferLoad(*self.result_at(i))
            parts[combiner.right[i]] = self.value(source)
        results = [substitute(r, parts) for r in combiner.result]
        if len(results) == 1:
            body = self.store_at(0, results[0])
        else:  # every result is known before the first is stored
            names = [Var(f"{self.op.name}.new{i}", r.dtype) for i, r in enumerate(results)]
            body = seq(*[self.store_at(i, v) for i, v in enumerate(names)])
            for var, result in reversed(list(zip(names, results, strict=True))):
                body = LetStmt(var, result, body)
        condition = self.value(reduce.condition)
        if not build.is_const(condition, 1):
            body = IfThenElse(condition, body)
        return body if self.partial is not None else self.predicated(body)
