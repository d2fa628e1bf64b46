"""The loops of a workload while steps are taken: stages, their loops, and the schedule so far."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sterna.auto_scheduler.own_schedule import own_schedule
from sterna.auto_scheduler.steps import (
    ANNOTATIONS,
    Annotate,
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    FollowFusedSplit,
    FollowSplit,
    Fuse,
    OwnKernel,
    Pragma,
    Reorder,
    RFactor,
    Split,
    Step,
    StorageAlign,
)
from sterna.ir.expr import IntImm
from sterna.target import Target
from sterna.te import IterVar, Operation, Schedule, Tensor, thread_axis

AT_ROOT, INLINED, AT_LOOP = "root", "inlined", "iter"


class Graph(Protocol):
    """The operations whose loops these are."""

    ops: list[Operation]
    tensors: list[Tensor]

    def new_schedule(self) -> Schedule:
        """A schedule of all outputs."""


class StageState:
    """One stage: what it computes, where, and its loops from the outermost on."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.iters: list[IterVar] = [*tensor.op.axis, *getattr(tensor.op, "reduce_axis", [])]
        self.compute_at = AT_ROOT

    @property
    def op(self) -> Operation:
        """What it computes."""
        return self.tensor.op


class State:
    """A workload with the steps that were taken; each method takes one more.

    Stages are named by their number, by a tensor or by an operation, loops by their place in the
    stage or as `state[stage].iters` has them.
    """

    def __init__(self, graph: "Graph | State", steps: "Sequence[Step] | Graph" = ()) -> None:
        """A workload and steps; or a state and its workload, for another state with its steps."""
        if isinstance(graph, State):
            steps = graph.transform_steps
        assert isinstance(steps, Sequence), "steps of a workload"
        self._graph: Graph = graph._graph if isinstance(graph, State) else graph
        own = self._graph
        self._schedule, self._tensors = own.new_schedule(), list(own.tensors)
        self.stages = [StageState(op.output(0)) for op in own.ops]
        self.transform_steps: list[Step] = []
        self._lines: list[str] = []
        self._names: dict[IterVar, str] = {}
        self._lengths: dict[IterVar, int] = {}
        for stage in self.stages:
            self._name_loops(stage)
        for step in steps:
            self.take(step)

    def __getitem__(self, key: int | Tensor | Operation) -> StageState:
        return self.stages[self._number(key)]

    @property
    def state_object(self) -> "State":
        """Itself, which is what rules of sketches give."""
        return self

    @property
    def stage_ops(self) -> list[Operation]:
        """What the stages compute, in their order."""
        return [stage.op for stage in self.stages]

    def copy(self) -> "State":
        """Another state with the same steps."""
        return State(self._graph, self.transform_steps)

    def apply(self) -> tuple[Schedule, list[Tensor]]:
        """The schedule, and the tensors that its function takes."""
        return self._schedule, list(self._tensors)

    def length(self, axis: IterVar) -> int | None:
        """How often a loop runs, where that is known."""
        return self._lengths[axis] if axis in self._lengths else _extent(axis)

    def lines(self) -> list[str]:
        """The steps as calls of te."""
        return list(self._lines)

    # ---- steps by name ----

    def split(
        self, stage: Any, loop: Any, lengths: Sequence[int | None], inner_to_outer: bool = True
    ) -> list[IterVar]:
        """A loop in several; lengths are of the inner ones, or of the outer ones.

        A length of None is left to the search of a sketch.
        """
        number, place = self._places(stage, loop)
        extent = self.length(self.stages[number].iters[place])
        self.take(Split(number, place, extent, tuple(lengths), int(inner_to_outer)))
        return self.stages[number].iters[place : place + len(lengths) + 1]

    def follow_split(self, stage: Any, loop: Any, src_step_id: int, n_split: int) -> list[IterVar]:
        """A loop split as the step of that number split another, into n_split + 1 loops."""
        number, place = self._places(stage, loop)
        self.take(FollowSplit(number, place, src_step_id, n_split))
        return self.stages[number].iters[place : place + n_split + 1]

    def follow_fused_split(
        self, stage: Any, loop: Any, src_step_ids: Sequence[int], level: int,
        factor_or_nparts: bool,
    ) -> list[IterVar]:
        """A loop in two, by the product of the lengths that several splits have at a level."""
        number, place = self._places(stage, loop)
        self.take(FollowFusedSplit(
            number, place, tuple(src_step_ids), level, int(factor_or_nparts)
        ))
        return self.stages[number].iters[place : place + 2]

    def fuse(self, stage: Any, loops: Sequence[Any]) -> IterVar:
        """Neighbouring loops as one."""
        number = self._number(stage)
        places = tuple(self._place(number, loop) for loop in loops)
        self.take(Fuse(number, places))
        return self.stages[number].iters[places[0]]

    def reorder(self, stage: Any, order: Sequence[Any]) -> None:
        """All loops of a stage in another order."""
        number = self._number(stage)
        self.take(Reorder(number, tuple(self._place(number, loop) for loop in order)))

    def annotate(self, stage: Any, loop: Any, how: str) -> None:
        """How a loop runs; see ANNOTATIONS."""
        self.take(Annotate(*self._places(stage, loop), ANNOTATIONS.index(how)))

    def parallel(self, stage: Any, loop: Any) -> None:
        """A loop shared among threads."""
        self.annotate(stage, loop, "parallel")

    def vectorize(self, stage: Any, loop: Any) -> None:
        """A loop as lanes of a vector."""
        self.annotate(stage, loop, "vectorize")

    def unroll(self, stage: Any, loop: Any, max_unroll: int | None = None) -> None:
        """A loop written out, unless it is longer than max_unroll."""
        number, place = self._places(stage, loop)
        if max_unroll is None or (self.length(self.stages[number].iters[place]) or 0) <= max_unroll:
            self.annotate(number, place, "unroll")

    def bind(self, stage: Any, loop: Any, thread_name: str) -> None:
        """A loop as threads or blocks of a GPU."""
        self.annotate(stage, loop, thread_name)

    def pragma(self, stage: Any, loop: Any, text: str) -> None:
        """A pragma of a loop: its name, $ and its value."""
        self.take(Pragma(*self._places(stage, loop), text))

    def storage_align(self, stage: Any, loop: Any, factor: int, offset: int) -> None:
        """Rows of memory that begin at multiples of a factor plus an offset."""
        self.take(StorageAlign(*self._places(stage, loop), factor, offset))

    def compute_at(self, stage: Any, target: Any, loop: Any) -> None:
        """A stage inside of a loop of another."""
        self.take(ComputeAt(self._number(stage), *self._places(target, loop)))

    def compute_inline(self, stage: Any) -> None:
        """A stage that its readers compute."""
        self.take(ComputeInline(self._number(stage)))

    def compute_root(self, stage: Any) -> None:
        """A stage with loops of its own again."""
        self.take(ComputeRoot(self._number(stage)))

    def cache_write(self, stage: Any, scope: str) -> Tensor:
        """The computation of a stage into memory of its own."""
        number = self._number(stage)
        self.take(CacheWrite(number, scope))
        return self.stages[number].tensor

    def cache_read(self, stage: Any, scope: str, readers: Sequence[Any]) -> Tensor:
        """A copy of a stage's result for some readers."""
        number = self._number(stage)
        self.take(CacheRead(number, scope, tuple(self._number(each) for each in readers)))
        return self.stages[number + 1].tensor

    def rfactor(self, stage: Any, loop: Any, factor_axis: int) -> Tensor:
        """A reduction in two: partial sums over one loop, then their sum."""
        number, place = self._places(stage, loop)
        self.take(RFactor(number, place, factor_axis))
        return self.stages[number].tensor

    # ---- taking steps ----

    def take(self, step: Step) -> None:
        """Take one step. Raises ValueError where it does not fit the loops that there are."""
        for what, number in (("stage", step.stage), ("at_stage", getattr(step, "at_stage", 0))):
            if not 0 <= number < len(self.stages):
                raise ValueError(f"{step.to_json()}: there is no {what} {number}")
        stage = self.stages[step.stage]
        for place in (getattr(step, "loop", 0), *getattr(step, "loops", ())):
            if not 0 <= place <= max(0, len(stage.iters) - 1):
                raise ValueError(f"{step.to_json()}: {stage.op.name} has no loop {place}")
        _TAKE[type(step)](self, stage, step)
        self.transform_steps.append(step)

    def _take_split(self, stage: StageState, step: Split) -> None:
        self._split(stage, step.loop, step.sizes, bool(step.inner_to_outer))

    def _take_follow(self, stage: StageState, step: FollowSplit) -> None:
        source = self._split_step(step, step.source)
        if not 1 <= step.parts <= len(source.lengths) + 1:
            raise ValueError(f"{step.to_json()}: step {step.source} makes fewer loops")
        first = source.sizes[: step.parts - 1]
        last = math.prod(source.sizes[step.parts - 1 :])
        self._split(stage, step.loop, (*first, last), bool(source.inner_to_outer))

    def _take_follow_fused(self, stage: StageState, step: FollowFusedSplit) -> None:
        sources = [self._split_step(step, number) for number in step.sources]
        if any(step.level >= len(source.lengths) for source in sources):
            raise ValueError(f"{step.to_json()}: a step that it follows makes fewer loops")
        length = math.prod(source.sizes[step.level] for source in sources)
        self._split(stage, step.loop, (length,), bool(step.is_factor))

    def _split_step(self, step: Step, number: int) -> Split:
        found = self.transform_steps[number] if 0 <= number < len(self.transform_steps) else None
        if not isinstance(found, Split):
            raise ValueError(f"{step.to_json()}: step {number} is no split")
        return found

    def _split(
        self, stage: StageState, place: int, lengths: Sequence[int], from_inside: bool
    ) -> None:
        if place >= len(stage.iters):
            raise ValueError(f"{stage.op.name} has no loop {place} that could be split")
        axis, made = stage.iters[place], []
        own = self._schedule[stage.tensor]
        if any(length < 1 for length in lengths):
            raise ValueError(f"a loop of {stage.op.name} is split by {list(lengths)}")
        for length in reversed(lengths) if from_inside else lengths:
            before = self._names[axis]
            outer, inner = own.split(axis, length) if from_inside else own.split(axis, None, length)
            how = "factor" if from_inside else "nparts"
            names = self._name(outer, f"{before}_o"), self._name(inner, f"{before}_i")
            self._say(f"{', '.join(names)} = s[{stage.op.name}].split({before}, {how}={length})")
            made.append(inner if from_inside else outer)
            self._lengths[made[-1]] = length
            axis = outer if from_inside else inner
        stage.iters[place : place + 1] = [axis, *made[::-1]] if from_inside else [*made, axis]

    def _take_reorder(self, stage: StageState, step: Reorder) -> None:
        if sorted(step.order) != list(range(len(stage.iters))):
            raise ValueError(f"{step.to_json()}: {stage.op.name} has {len(stage.iters)} loops")
        stage.iters = [stage.iters[place] for place in step.order]
        self._schedule[stage.tensor].reorder(*stage.iters)
        told = ", ".join(self._names[axis] for axis in stage.iters)
        self._say(f"s[{stage.op.name}].reorder({told})")

    def _take_fuse(self, stage: StageState, step: Fuse) -> None:
        first = step.loops[0] if step.loops else -1
        if list(step.loops) != list(range(first, first + len(step.loops))) or first < 0:
            raise ValueError(f"{step.to_json()}: only neighbouring loops are fused")
        fused = [stage.iters[place] for place in step.loops]
        made = self._schedule[stage.tensor].fuse(*fused) if len(fused) > 1 else fused[0]
        told = ", ".join(self._names[axis] for axis in fused)
        name = self._name(made, "_".join(self._names[axis] for axis in fused) + "_fused")
        self._say(f"{name} = s[{stage.op.name}].fuse({told})")
        stage.iters[first : first + len(fused)] = [made]

    def _take_annotate(self, stage: StageState, step: Annotate) -> None:
        if not 0 <= step.annotation < len(ANNOTATIONS):
            raise ValueError(f"{step.to_json()}: there is no annotation {step.annotation}")
        how, axis = ANNOTATIONS[step.annotation], stage.iters[step.loop]
        if how == "tensorize":
            raise ValueError(f"{step.to_json()}: loops are tensorized by hand, not by a log")
        own, name = self._schedule[stage.tensor], f"s[{stage.op.name}]"
        if how in ("unroll", "vectorize", "parallel"):
            getattr(own, how)(axis)
            self._say(f"{name}.{how}({self._names[axis]})")
        elif how != "none":
            own.bind(axis, thread_axis(how))
            self._say(f'{name}.bind({self._names[axis]}, te.thread_axis("{how}"))')

    def _take_pragma(self, stage: StageState, step: Pragma) -> None:
        name, _, value = step.text.partition("$")
        own, axis = self._schedule[stage.tensor], stage.iters[step.loop]
        if name == "auto_unroll_max_step":
            own.pragma(axis, name, int(value or 0))
            own.pragma(axis, "unroll_explicit", True)
        else:
            own.pragma(axis, name, int(value) if value.lstrip("-").isdigit() else value or None)
        self._say(f's[{stage.op.name}].pragma({self._names[axis]}, "{name}", {value or None})')

    def _take_align(self, stage: StageState, step: StorageAlign) -> None:
        axis = stage.iters[step.loop]
        self._schedule[stage.tensor].storage_align(axis, step.factor, step.offset)
        told = f"{self._names[axis]}, {step.factor}, {step.offset}"
        self._say(f"s[{stage.op.name}].storage_align({told})")

    def _take_at(self, stage: StageState, step: ComputeAt) -> None:
        target = self.stages[step.at_stage]
        if not 0 <= step.at_loop < len(target.iters):
            raise ValueError(f"{step.to_json()}: {target.op.name} has no loop {step.at_loop}")
        axis = target.iters[step.at_loop]
        self._schedule[stage.tensor].compute_at(self._schedule[target.tensor], axis)
        stage.compute_at = AT_LOOP
        self._say(f"s[{stage.op.name}].compute_at(s[{target.op.name}], {self._names[axis]})")

    def _take_inline(self, stage: StageState, step: ComputeInline) -> None:
        self._schedule[stage.tensor].compute_inline()
        stage.compute_at = INLINED
        self._say(f"s[{stage.op.name}].compute_inline()")

    def _take_root(self, stage: StageState, step: ComputeRoot) -> None:
        self._schedule[stage.tensor].compute_root()
        stage.compute_at = AT_ROOT
        self._say(f"s[{stage.op.name}].compute_root()")

    def _take_cache_write(self, stage: StageState, step: CacheWrite) -> None:
        name = stage.op.name
        made = self._schedule.cache_write(stage.tensor, step.scope)
        self._say(f'{_told(made.op.name)} = s.cache_write({name}, "{step.scope}")')
        self._renew(step.stage, self._schedule[stage.tensor].op.output(0))
        self._insert(step.stage, made)

    def _take_cache_read(self, stage: StageState, step: CacheRead) -> None:
        if not all(0 <= reader < len(self.stages) for reader in step.readers):
            raise ValueError(f"{step.to_json()}: there is no such reader")
        readers = [self.stages[reader] for reader in step.readers]
        made = self._schedule.cache_read(
            stage.tensor, step.scope, [self._schedule[each.tensor].op for each in readers]
        )
        told = ", ".join(each.op.name for each in readers)
        call = f's.cache_read({stage.op.name}, "{step.scope}", [{told}])'
        self._say(f"{_told(made.op.name)} = {call}")
        for number in step.readers:
            own = self.stages[number]
            own.tensor = self._schedule[own.tensor].op.output(0)
        self._insert(step.stage + 1, made)

    def _take_rfactor(self, stage: StageState, step: RFactor) -> None:
        axis = stage.iters[step.loop]
        made = self._schedule.rfactor(stage.tensor, axis, step.factor_axis)
        made = made[0] if isinstance(made, list | tuple) else made
        self._say(f"{_told(made.op.name)} = s.rfactor({stage.op.name}, {self._names[axis]}, "
                  f"{step.factor_axis})")
        self._renew(step.stage, self._schedule[stage.tensor].op.output(0))
        self._insert(step.stage, made)

    def _take_own(self, stage: StageState, step: OwnKernel) -> None:
        answers = dict(answer.split("=", 1) for answer in step.answers if "=" in answer)
        made = own_schedule(self._graph.tensors, Target(step.target), answers)
        if made is None or self.transform_steps:
            raise ValueError(f"{step.to_json()}: it is the only step of a workload that it knows")
        self._schedule, self._tensors, self.stages = made.schedule, made.tensors, []
        told = ", ".join(_told(tensor.name) for tensor in self._tensors)
        self._lines = [f's = own_schedule([{told}], Target("{step.target}"), {answers}).schedule']

    # ---- names and places ----

    def _renew(self, number: int, tensor: Tensor) -> None:
        self.stages[number] = StageState(tensor)
        self._name_loops(self.stages[number])

    def _insert(self, number: int, tensor: Tensor) -> None:
        self.stages.insert(number, StageState(tensor))
        self._name_loops(self.stages[number])

    def _name_loops(self, stage: StageState) -> None:
        if not stage.iters:
            return
        name = _told(stage.op.name)
        names = [self._name(axis, f"{name}_{axis.var.name}") for axis in stage.iters]
        self._say(f"{', '.join(names)} = tuple({name}.op.axis) + tuple({name}.op.reduce_axis)")

    def _name(self, axis: IterVar, name: str) -> str:
        self._names[axis] = _told(name)
        return self._names[axis]

    def _say(self, line: str) -> None:
        self._lines.append(line)

    def _number(self, key: Any) -> int:
        if isinstance(key, int):
            return key
        op = key.op if isinstance(key, Tensor | StageState) else key
        for number, stage in enumerate(self.stages):
            if stage.op is op:
                return number
        raise ValueError(f"{op} is no stage here")

    def _place(self, number: int, loop: Any) -> int:
        return loop if isinstance(loop, int) else self.stages[number].iters.index(loop)

    def _places(self, stage: Any, loop: Any) -> tuple[int, int]:
        number = self._number(stage)
        return number, self._place(number, loop)

    def __str__(self) -> str:
        return "\n".join(self._lines)


def _told(name: str) -> str:
    return name.replace(".", "_")


def _extent(axis: IterVar) -> int | None:
    extent = axis.dom.extent if axis.dom is not None else None
    return int(extent.value) if isinstance(extent, IntImm) else None


_TAKE: dict[type[Step], Callable[[State, StageState, Any], None]] = {
    Split: State._take_split, FollowSplit: State._take_follow,
    FollowFusedSplit: State._take_follow_fused, Reorder: State._take_reorder,
    Fuse: State._take_fuse, Annotate: State._take_annotate, Pragma: State._take_pragma,
    StorageAlign: State._take_align, ComputeAt: State._take_at,
    ComputeInline: State._take_inline, ComputeRoot: State._take_root,
    CacheWrite: State._take_cache_write, CacheRead: State._take_cache_read,
    RFactor: State._take_rfactor, OwnKernel: State._take_own,
}
