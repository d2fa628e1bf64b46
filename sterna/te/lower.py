"""Lowering: from a schedule to loops."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sterna.arith import Analyzer
from sterna.ir import build
from sterna.ir.expr import HANDLE, Expr, Var, variables_in
from sterna.te.bounds import Bounds, infer_bounds, scope_of
from sterna.te.extern import ExternOp, extern_body
from sterna.te.nest import Nest
from sterna.te.normalize import normalize
from sterna.te.rolling_buffer import Roll, find_roll
from sterna.te.scan import ScanOp
from sterna.te.schedule import Schedule, Stage
from sterna.te.tensor import (
    ComputeOp,
    IterVar,
    PlaceholderOp,
    Tensor,
    replace_loads,
)
from sterna.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Buffer,
    BufferLoad,
    PrimFunc,
    Stmt,
    nothing,
    seq,
)

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


def lower_schedule(
    schedule: Schedule, args: Sequence[Argument], name: str,
    binds: Mapping[Tensor, Buffer] | None = None,
) -> PrimFunc:
    """The loops of a schedule as a function of these arguments; binds: their buffers, by tensor."""
    return Lowering(normalize(schedule), args, name, binds or {}).run()


def bound_buffer(tensor: Tensor, bound: Buffer, shape: tuple[Expr, ...]) -> Buffer:
    """The buffer that a program has for an argument."""
    if bound.dtype != tensor.dtype or len(bound.shape) != len(shape) or any(
        build.int_value(one) not in (None, build.int_value(other))
        for one, other in zip(bound.shape, shape, strict=True)
    ):
        extents = ", ".join(map(str, shape))
        raise ValueError(
            f"binds: the buffer {bound.name} is not of {tensor.dtype} and the shape ({extents}) "
            f"like the argument {tensor.name}"
        )
    if bound.strides:
        raise ValueError(
            f"binds: the buffer {bound.name} of {tensor.name} has strides, but functions are "
            "called with arrays without gaps: copy the array, or read a larger one by its indices"
        )
    return Buffer(bound.name, bound.dtype, shape, bound.scope, (), bound.alignment,
                  bound.axis_separators)


class Lowering:
    """A schedule, where its stages are kept, and the loops that come of it."""

    def __init__(
        self, schedule: Schedule, args: Sequence[Argument], name: str,
        binds: Mapping[Tensor, Buffer],
    ) -> None:
        self.schedule = schedule
        self.binds = binds
        self.name = name
        self.on_device = any(
            how.is_launched
            for stage in schedule.stages for how in stage.iter_var_attrs.values()
        )
        """Whether threads of a device run it, so that arrays lie in its memory."""
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
                if stage is None and isinstance(arg.op, PlaceholderOp):
                    unread = Buffer(arg.name, arg.dtype, arg.op.output(0).shape)
                    params.append(unread.data)
                    buffers.append(unread)
                    continue
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
        bound = self.binds.get(tensor)
        if bound is not None:
            return bound_buffer(tensor, bound, shape)
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
                t.name, t.dtype, shape, scope_of(stage), strides,
                axis_separators=stage.axis_separators,
            )
            for t, shape in zip(stage.op.outputs, shapes, strict=True)
        ]
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
        if stage.step_predicate is not None and not (isinstance(op, ComputeOp) and op.reduce_axis):
            raise ValueError(f"set_step_predicate: {op.name} is no sum; "
                             "after cache_write the stage that it makes is")
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
