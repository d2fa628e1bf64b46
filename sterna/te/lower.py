"""From a schedule to loops."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from sterna.arith import Analyzer, substitute
from sterna.ir import build
from sterna.ir.expr import HANDLE, And, Call, Expr, Var, variables_in
from sterna.te.bounds import Bounds, infer_bounds, root_axes, thread_variables, value_of_axes
from sterna.te.env_threads import launched
from sterna.te.extern import ExternOp, extern_body
from sterna.te.normalize import normalize
from sterna.te.prefetch import with_prefetches
from sterna.te.rolling_buffer import Roll, find_roll
from sterna.te.scan import ScanOp
from sterna.te.schedule import AxisAttributes, Schedule, Split, Stage
from sterna.te.tensor import (
    COMM_REDUCE,
    PARALLELIZED,
    TENSORIZED,
    THREAD_INDEX,
    UNROLLED,
    VECTORIZED,
    ComputeOp,
    IterVar,
    PlaceholderOp,
    Reduce,
    Tensor,
    axis_range,
    replace_loads,
)
from sterna.te.tensorize import tensorized_leaf, tensorized_loops
from sterna.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    PrimFunc,
    Stmt,
    nothing,
    seq,
)

_KINDS: dict[int | None, LoopKind] = {
    None: "serial",
    PARALLELIZED: "parallel",
    VECTORIZED: "vectorized",
    UNROLLED: "unrolled",
    TENSORIZED: "serial",
}

Argument = Tensor | Buffer | Var


@dataclass
class Place:
    """Where a stage's results are kept: a buffer per output, and the index of its first element."""

    buffers: list[Buffer]
    mins: list[Expr]
    """Empty: all are 0."""
    allocates: list[Buffer]
    """Those of the buffers that are neither arguments nor another stage's."""
    roll: Roll | None = None


def lower_schedule(schedule: Schedule, args: Sequence[Argument], name: str) -> PrimFunc:
    """The loops of a schedule as a function of these arguments."""
    return _Lowering(normalize(schedule), args, name).run()


class _Lowering:
    def __init__(self, schedule: Schedule, args: Sequence[Argument], name: str) -> None:
        self.schedule = schedule
        self.name = name
        self.args = list(args)
        self.bounds: Bounds = infer_bounds(schedule)
        self.analyzer: Analyzer = self.bounds.analyzer
        self.places: dict[Stage, Place] = {}

    # ---- the whole function ----

    def run(self) -> PrimFunc:
        params, buffers = self.make_parameters()
        for stage in self.schedule.stages:
            if isinstance(stage.op, ScanOp):
                self.place(stage)
                self.place_parts(stage, stage.op)
        for stage in self.schedule.stages:
            self.place(stage)
        root = [s for s in self.schedule.stages if self.is_computed(s) and s.attach_type == "root"]
        body = self.with_producers(root, nothing())
        params += self.shape_variables(params, buffers)
        buffers += [None] * (len(params) - len(buffers))
        return PrimFunc(self.name, tuple(params), tuple(buffers), body)

    def make_parameters(self) -> tuple[list[Var], list[Buffer | None]]:
        params: list[Var] = []
        buffers: list[Buffer | None] = []
        for arg in self.args:
            if isinstance(arg, Tensor):
                stage = self.schedule.stage_map.get(arg.op)
                if stage is None:
                    raise ValueError(
                        f"the argument {arg.name} is not part of the schedule; remove it, or make "
                        "an output depend on it"
                    )
                if stage.attach_type == "inline":
                    raise ValueError(
                        f"the argument {arg.name} is inlined, so nothing would be stored in it; "
                        "compute it at the root, or remove it from args"
                    )
                buffer = self.argument_buffer(stage, arg)
                self.add_argument(stage, arg, buffer)
                params.append(buffer.data)
                buffers.append(buffer)
            elif isinstance(arg, Buffer):
                params.append(arg.data)
                buffers.append(arg)
            elif isinstance(arg, Var):
                params.append(arg)
                buffers.append(None)
            else:
                raise ValueError(
                    f"Expected args of {self.name} to be Tensor, Buffer or Var, but got {arg!r}"
                )
        return params, buffers

    def argument_buffer(self, stage: Stage, tensor: Tensor) -> Buffer:
        shape = stage.op.output(tensor.value_index).shape  # in the layout that it has by now
        return Buffer(
            tensor.name, tensor.dtype, shape, axis_separators=stage.axis_separators
        )

    def add_argument(self, stage: Stage, tensor: Tensor, buffer: Buffer) -> None:
        known = self.places.get(stage)
        if known is None:
            outputs = [self.argument_buffer(stage, t) for t in stage.op.outputs]
            zeros = [build.const(0)] * len(stage.op.axis)
            if stage.axis_alignment or stage.is_rolling:
                change = "storage_align" if stage.axis_alignment else "rolling_buffer"
                raise ValueError(
                    f"{change} cannot change {stage.op.name}: its memory is the caller's"
                )
            mins = zeros if isinstance(stage.op, ComputeOp) else []
            known = self.places[stage] = Place(outputs, mins, list(outputs))
        known.allocates = [b for b in known.allocates if b is not known.buffers[tensor.value_index]]
        known.buffers[tensor.value_index] = buffer

    def shape_variables(self, params: list[Var], buffers: list[Buffer | None]) -> list[Var]:
        """Variables of the arguments' shapes that are no arguments themselves."""
        found: dict[Var, None] = {}
        for buffer in buffers:
            for extent in buffer.shape if buffer is not None else ():
                found.update(dict.fromkeys(variables_in(extent)))
        known = set(params)
        return [v for v in found if v not in known and v.dtype != HANDLE]

    # ---- storage ----

    def is_computed(self, stage: Stage) -> bool:
        return not isinstance(stage.op, PlaceholderOp)

    def place(self, stage: Stage) -> None:
        """Decide where the stage's results are kept."""
        if stage in self.places:
            return
        if isinstance(stage.op, PlaceholderOp):
            raise ValueError(
                f"the input {stage.op.name} of {self.name} is not among its arguments: pass it in "
                "args"
            )
        if stage.is_output:
            raise ValueError(
                f"the output {stage.op.name} of {self.name} is not among its arguments: pass it in "
                "args"
            )
        if not isinstance(stage.op, ComputeOp) and (stage.axis_alignment or stage.is_rolling):
            change = "storage_align" if stage.axis_alignment else "rolling_buffer"
            raise ValueError(f"{change} cannot change {stage.op.name}, an extern or scan")
        mins: list[Expr] = []
        shapes = [t.shape for t in stage.op.outputs]
        strides: tuple[Expr, ...] = ()
        roll: Roll | None = None
        if isinstance(stage.op, ComputeOp):
            ranges = [self.bounds.ranges[stage][axis] for axis in stage.op.axis]
            mins = [r.min for r in ranges]
            shapes = [tuple(r.extent for r in ranges)] * len(shapes)
            strides = self.padded_strides(stage, shapes[0])
            roll = find_roll(stage, self.bounds) if stage.is_rolling else None
            if roll is not None:
                mins[roll.axis] = roll.start
        buffers = [
            Buffer(
                t.name, t.dtype, shape, stage.scope or "global", strides,
                axis_separators=stage.axis_separators,
            )
            for t, shape in zip(stage.op.outputs, shapes, strict=True)
        ]  # fmt: skip
        self.places[stage] = Place(buffers, mins, buffers, roll)

    def place_parts(self, stage: Stage, op: ScanOp) -> None:
        """A scan's init, update and state are kept where the scan itself is."""
        buffers = self.places[stage].buffers
        places: dict[Stage, Place] = {}
        for part in (op.init, op.update, op.state_placeholder):
            for tensor, buffer in zip(part, buffers, strict=True):
                other = self.schedule.stage_map.get(tensor.op)
                if other is None:  # a state that nothing reads
                    continue
                own = other.axis_alignment or other.scope
                if other in self.places or own or other.is_double_buffered or other.is_rolling:
                    raise ValueError(
                        f"{tensor.name} is kept in the memory of the scan {op.name}: it can be no "
                        "argument, and have no scope, alignment, double or rolling buffer"
                    )
                place = places.setdefault(other, Place([buffer] * tensor.op.num_outputs, [], []))
                place.buffers[tensor.value_index] = buffer
        self.places.update(places)

    def padded_strides(self, stage: Stage, shape: Sequence[Expr]) -> tuple[Expr, ...]:
        """Strides as storage_align asks for them; empty when it asks for nothing."""
        if not stage.axis_alignment:
            return ()
        if stage.axis_separators:
            raise ValueError(
                f"storage_align cannot change {stage.op.name}: its memory has axes, not strides"
            )
        axes = stage.op.axis
        strides: list[Expr] = []
        stride: Expr = build.const(1)
        for axis, extent in zip(reversed(axes), reversed(shape), strict=True):
            if axis in stage.axis_alignment:
                factor, offset = stage.axis_alignment[axis]
                stride = stride + build.floormod(factor + offset - stride % factor, factor)
            strides.insert(0, stride)
            stride = stride * extent
        return tuple(strides)

    def load(self, expr: Expr) -> Expr:
        """The expression with tensors read from their buffers."""

        def read(tensor: Tensor, indices: tuple[Expr, ...]) -> Expr | None:
            place = self.places[self.schedule[tensor]]
            buffer = place.buffers[tensor.value_index]
            return BufferLoad(buffer, self.local_indices(place, indices))

        return replace_loads(expr, read)

    def local_indices(self, place: Place, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        if not place.mins:
            return tuple(indices)
        local = [build.sub(index, low) for index, low in zip(indices, place.mins, strict=True)]
        if place.roll is not None:
            axis = place.roll.axis
            local[axis] = build.floormod(local[axis], place.roll.extent)
        return tuple(self.analyzer.simplify(index) for index in local)

    # ---- nests ----

    def with_producers(self, stages: Sequence[Stage], rest: Stmt) -> Stmt:
        """Compute stages in order, then go on; each one's memory lives until the end."""
        body = rest
        for stage in reversed(stages):
            made = self.nest(stage)
            place = self.places[stage]
            if stage.is_double_buffered:
                for buffer in reversed(place.buffers):
                    made = AttrStmt("double_buffer", buffer, build.const(1), made)
            body = seq(made, body)
            if place.roll is None:
                body = self.with_memory(place, body)
        return body

    def with_memory(self, place: Place, body: Stmt) -> Stmt:
        for buffer in place.allocates:
            body = Allocate(buffer, body)
        return body

    def with_rolling(self, leaf: IterVar, loop: Stmt) -> Stmt:
        """A loop inside the memory of what rolls while it runs."""
        for place in self.places.values():
            if place.roll is not None and place.roll.loop is leaf:
                loop = self.with_memory(place, loop)
        return loop

    def attached_at(self, stage: Stage, axis: IterVar) -> list[Stage]:
        return [
            s
            for s in self.schedule.stages
            if s.attach_type == "scope" and s.attach_stage is stage and s.attach_ivar is axis
        ]

    def nest(self, stage: Stage) -> Stmt:
        """The loops of one stage."""
        op = stage.op
        if stage.store_predicate is not None and not isinstance(op, ComputeOp):
            raise ValueError(f"set_store_predicate: {op.name} stores as its parts do")
        if isinstance(op, ExternOp):
            return extern_body(op, [self.kept(t) for t in op.inputs], self.places[stage].buffers)
        if isinstance(op, ScanOp):
            first = [s for s in self.schedule.stages if s.attach_type == "init"]
            first = [s for s in first if s.attach_stage is stage]
            nest = Nest(self, stage, op)
            body = self.with_producers(first, nest.steps())
            return nest.launching(seq(*self.enough_rows(op), body))
        assert isinstance(op, ComputeOp)
        return Nest(self, stage, op).make()

    def enough_rows(self, op: ScanOp) -> list[Stmt]:
        """A check that a scan's tensors have room for its init."""
        rows, times = op.init[0].shape[0], op.update[0].shape[0]
        enough = self.analyzer.simplify(build.less_equal(rows, times))
        text = f"the scan {op.name} has {times} rows, fewer than the {rows} of its init"
        return [] if build.is_const(enough, 1) else [AssertStmt(enough, "ValueError", text)]

    def kept(self, tensor: Tensor) -> Buffer:
        """Where a whole tensor is kept."""
        return self.places[self.schedule[tensor]].buffers[tensor.value_index]


class Nest:
    """The loops, guards and stores of one stage."""

    def __init__(self, lowering: _Lowering, stage: Stage, op: ComputeOp | ScanOp) -> None:
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

    # ---- guards ----

    def store_predicates(self) -> Iterator[Expr]:
        """The parts of the stage's predicate in terms of the loop variables.

        A part that picks one of the threads which reduce together says who stores their result,
        not whose share is added: the loops here add all shares.
        """
        if self.stage.store_predicate is None:
            return
        values: dict[Var, Expr] = {
            axis.var: value for axis, value in self.relative.items() if value is not axis.var
        }
        values.update(self.at)
        values.update(thread_variables(self.stage))
        together = {
            leaf.var
            for leaf, attributes in self.stage.iter_var_attrs.items()
            if leaf.iter_type == COMM_REDUCE and attributes.bind_thread is not None
        }
        parts = [substitute(self.stage.store_predicate, values)]
        while parts:
            part = parts.pop()
            if isinstance(part, And):
                parts += [part.b, part.a]
            elif not together.intersection(variables_in(part)):
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
        inner = self.loops(leaves[first:], self.guarded(self.update(), True))
        outer = self.loops(leaves[:first], seq(self.init(leaves[first:]), inner))
        return seq(*promises, outer)

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
            body = with_prefetches(self, leaf, self.rolling(leaf, body))
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

    def loop(self, leaf: IterVar, var: Var, body: Stmt) -> Stmt:
        attributes = self.stage.iter_var_attrs.get(leaf, AxisAttributes())
        body = self.with_pragmas(leaf, body)
        extent = self.ranges[leaf].extent
        zero = build.const(0, extent.dtype)
        thread = leaf if leaf.iter_type == THREAD_INDEX else attributes.bind_thread
        if thread is not None:
            self.check_thread(leaf, thread)
            return For(var, zero, extent, "thread", body, thread.thread_tag)
        return For(var, zero, extent, _KINDS[attributes.kind], body)

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

    def store_at(self, output: int, value: Expr) -> Stmt:
        indices = [self.at[axis.var] for axis in self.op.axis]
        local = self.lowering.local_indices(self.place, indices)
        return BufferStore(self.place.buffers[output], value, local)

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
        indices = [self.at[axis.var] for axis in self.op.axis]
        local = self.lowering.local_indices(self.place, indices)
        parts: dict[Var, Expr] = {}
        for i, source in enumerate(reduce.source):
            parts[combiner.left[i]] = BufferLoad(self.place.buffers[i], local)
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
        return self.predicated(body)
