"""Scans: recurrences over time.

A scan makes tensors whose first axis is time. Its init gives the first rows; its update gives row t
as an expression of placeholders that stand for the rows before t. In the loops, the stages that
depend on those placeholders are computed inside the loop over time, and init and update store
straight into the scan's own memory.
"""

from collections.abc import Sequence
from typing import Any

from sterna.arith import Analyzer
from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.te.schedule import Schedule, Stage
from sterna.te.tag import tag_in_scope
from sterna.te.tensor import (
    OPAQUE,
    ORDERED,
    ComputeOp,
    IterVar,
    Operation,
    PlaceholderOp,
    Range,
    Tensor,
)


class ScanOp(Operation):
    """Tensors made row by row, each row from those before it."""

    body: tuple[Expr, ...] = ()
    """Its update computes for it."""

    def __init__(
        self,
        name: str,
        scan_axis: IterVar,
        init: Sequence[Tensor],
        update: Sequence[Tensor],
        state_placeholder: Sequence[Tensor],
        inputs: Sequence[Tensor],
        tag: str = "",
        attrs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(name, tag, attrs)
        self.scan_axis = scan_axis
        self.init = list(init)
        self.update = list(update)
        self.state_placeholder = list(state_placeholder)
        self.inputs = list(inputs)
        self.axis = [scan_axis]
        self.outputs = [Tensor(self, i, t.shape, t.dtype) for i, t in enumerate(update)]
        self.spatial_axis_ = [
            IterVar(Range.from_min_extent(build.const(0), extent), f"{name}.out{i}.i{dim}", OPAQUE)
            for i, tensor in enumerate(update)
            for dim, extent in enumerate(tensor.shape[1:], 1)
        ]

    @property
    def input_tensors(self) -> list[Tensor]:
        return list(dict.fromkeys([*self.init, *self.update]))


def scan(
    init: Tensor | Sequence[Tensor],
    update: Tensor | Sequence[Tensor],
    state_placeholder: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor] | None = None,
    name: str = "scan",
    tag: str = "",
    attrs: dict[str, Any] | None = None,
) -> Any:
    """A recurrence, of one state or several: cumulative sums over the rows of X are

    state = te.placeholder((m, n))
    init = te.compute((1, n), lambda _, i: X[0, i])
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i])
    sums = te.scan(init, update, state, inputs=[X])
    """
    first, later, states, known = (
        _tensors(name, what, given)
        for what, given in (
            ("init", init), ("update", update), ("state_placeholder", state_placeholder),
            ("inputs", [] if inputs is None else inputs),
        )
    )
    if not first or not len(first) == len(later) == len(states):
        raise ValueError(
            f"scan {name}: init, update and state_placeholder need a tensor for each state, not "
            f"{len(first)}, {len(later)} and {len(states)}"
        )
    for one in zip(first, later, states, strict=True):
        _check_state(name, *one, first[0].shape[0], later[0].shape[0])
    begin, end = build.match_types(first[0].shape[0], later[0].shape[0])
    if Analyzer().can_prove(build.greater(begin, end)):
        raise ValueError(f"scan {name}: init has {begin} rows, more than the {end} of the update")
    axis = IterVar(Range.from_min_extent(begin, build.sub(end, begin)), f"{name}.idx", ORDERED)
    op = ScanOp(name, axis, first, later, states, known, tag_in_scope(tag), attrs)
    return op.output(0) if len(op.outputs) == 1 else list(op.outputs)


def _tensors(name: str, what: str, given: Tensor | Sequence[Tensor]) -> list[Tensor]:
    tensors: list[Any] = list(given) if isinstance(given, tuple | list) else [given]
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"scan {name}: {what} is made of tensors, not of {tensor!r}")
    return tensors


def _check_state(
    name: str, init: Tensor, update: Tensor, state: Tensor, begin: Expr, end: Expr
) -> None:
    """The three tensors of a state fit together, and their times to those of the first state."""
    if not isinstance(state.op, PlaceholderOp):
        raise ValueError(f"scan {name}: the state {state.name} is no placeholder")
    if not init.dtype == update.dtype == state.dtype:
        raise TypeError(
            f"scan {name}: {init.name}, {update.name} and {state.name} have different types: "
            f"{init.dtype}, {update.dtype} and {state.dtype}"
        )
    if state.ndim < 1 or not init.ndim == update.ndim == state.ndim:
        raise ValueError(
            f"scan {name}: {init.name}, {update.name} and {state.name} must have the same "
            "dimensions, the first of which is time"
        )
    same = Analyzer().can_prove_equal
    rows = [(init.shape[0], begin), (update.shape[0], end), (state.shape[0], end)]
    columns = [*zip(init.shape[1:], state.shape[1:], strict=True),
               *zip(update.shape[1:], state.shape[1:], strict=True)]
    if not all(same(a, b) for a, b in [*rows, *columns]):
        shown = ", ".join(f"{t.name} {list(t.shape)}" for t in (init, update, state))
        raise ValueError(
            f"scan {name}: the shapes of {shown} do not fit: update and state are alike, init has "
            "fewer rows, and all states have the same times"
        )


def readers_of(schedule: Schedule, stage: Stage) -> list[Stage]:
    """The stages that read what this one makes."""
    return [s for s in schedule.stages if any(schedule[t] is stage for t in s.op.input_tensors)]


def is_update(schedule: Schedule, scan: Stage, stage: Stage) -> bool:
    """Whether a stage makes the rows of a scan."""
    return isinstance(scan.op, ScanOp) and any(schedule[t] is stage for t in scan.op.update)


# ---- before lowering ----


def place_scans(schedule: Schedule) -> None:
    """Computes what a scan's step needs inside its loop over time, and its init before that loop.

    Where an init or update cannot store into the scan's memory itself (it is an input, an output,
    or somebody else needs it), a stage that copies it does.
    """
    scans = [(stage, stage.op) for stage in schedule.stages if isinstance(stage.op, ScanOp)]
    states = [state for _, op in scans for state in op.state_placeholder]
    for state in states:
        if states.count(state) > 1:
            raise ValueError(f"{state.name} is the state of two recurrences; make another")
    for stage, op in scans:
        _Step(schedule, stage, op).place()


class _Step:
    """The stages of one scan."""

    def __init__(self, schedule: Schedule, stage: Stage, op: ScanOp) -> None:
        self.schedule, self.stage, self.op = schedule, stage, op
        self.states = [s for s in map(self.find, op.state_placeholder) if s is not None]
        self.last_loop = stage.leaf_iter_vars[-1]

    def find(self, tensor: Tensor) -> Stage | None:
        return self.schedule.stage_map.get(tensor.op)

    def place(self) -> None:
        body = self.dependents()
        needed = self.needed()
        for stage in body:
            self.check(stage, needed)
        self.check_init(body)
        init = [self.storing(i, t, body, "init") for i, t in enumerate(self.op.init)]
        update = [self.storing(i, t, body, "update") for i, t in enumerate(self.op.update)]
        op = self.op
        placed = ScanOp(op.name, op.scan_axis, init, update, op.state_placeholder, op.inputs,
                        op.tag, op.attrs)
        self.schedule.replace_op(self.stage, placed)
        for tensor in init:
            stage = self.schedule[tensor]
            stage.attach_type, stage.attach_stage, stage.attach_ivar = "init", self.stage, None
        step = list(dict.fromkeys([*body, *map(self.schedule.__getitem__, update)]))
        for stage in step:
            stage.step_of = self.stage
            if stage.attach_type == "root":
                stage.attach_type, stage.attach_stage = "scope", self.stage
                stage.attach_ivar = self.last_loop
        for stage in step:
            self.check_inside(stage)

    def dependents(self) -> list[Stage]:
        """The stages that depend on the state, in order."""
        moving = set(self.states)
        found: list[Stage] = []
        for stage in self.schedule.stages:
            read = (self.schedule[tensor] for tensor in stage.op.input_tensors)
            if stage is not self.stage and not moving.isdisjoint(read):
                moving.add(stage)
                found.append(stage)
        return found

    def needed(self) -> set[Stage]:
        """The stages that the update needs, itself among them."""
        found: set[Stage] = set()
        rest = [self.schedule[t] for t in self.op.update]
        while rest:
            stage = rest.pop()
            if stage not in found:
                found.add(stage)
                rest += [self.schedule[t] for t in stage.op.input_tensors]
        return found

    def check(self, stage: Stage, needed: set[Stage]) -> None:
        """A stage that depends on the state can only be part of the step."""
        name, scan = stage.op.name, self.op.name
        if stage not in needed or stage.is_output:
            raise ValueError(
                f"{name} depends on the state of the scan {scan}, which exists only while that "
                "runs; compute it from the scan's result"
            )
        if not isinstance(stage.op, ComputeOp):
            raise ValueError(
                f"{name} depends on the state of the scan {scan}: only what te.compute makes can"
            )

    def check_init(self, body: Sequence[Stage]) -> None:
        for tensor in self.op.init:
            if self.schedule[tensor] in body:
                raise ValueError(
                    f"the init {tensor.name} of the scan {self.op.name} depends on its state"
                )

    def storing(self, index: int, tensor: Tensor, body: Sequence[Stage], what: str) -> Tensor:
        """The tensor, if its stage can store into the scan's memory; else a copy of it."""
        stage = self.schedule[tensor]
        given = [t for t in [*self.op.init, *self.op.update] if self.schedule[t] is stage]
        inside = [self.stage, *(body if what == "update" else ())]
        if (
            isinstance(stage.op, ComputeOp)
            and not stage.is_output
            and sorted(t.value_index for t in given) == list(range(stage.op.num_outputs))
            and all(reader in inside for reader in readers_of(self.schedule, stage))
            and (stage.attach_type == "root" or stage.attach_stage is self.stage)
        ):
            return tensor
        return self.copy(tensor, f"{self.op.name}.{what}{index}")

    def copy(self, tensor: Tensor, name: str) -> Tensor:
        axes = [IterVar(Range(0, e), f"i{n}") for n, e in enumerate(tensor.shape)]
        stage = Stage(ComputeOp(name, axes, [tensor(*[axis.var for axis in axes])]))
        self.schedule.insert(self.schedule.stages.index(self.stage), stage)
        return stage.op.output(0)

    def check_inside(self, stage: Stage) -> None:
        """What depends on the state is computed anew at every time."""
        outer = stage
        while outer.attach_stage is not None and outer.attach_stage is not self.stage:
            outer = outer.attach_stage
        if outer.attach_stage is not self.stage or outer.attach_ivar is not self.last_loop:
            raise ValueError(
                f"{stage.op.name} depends on the state of the scan {self.op.name}; compute it in "
                f"the loop {self.last_loop.name} of that"
            )
