"""Groups: stages that are computed at one place together."""

from collections.abc import Iterator, Sequence
from typing import Any

from sterna.te.schedule import Schedule, Stage, find_scope
from sterna.te.tensor import IterVar, Tensor


class Group:
    """Stages of a schedule of which those at the root move together."""

    def __init__(self, schedule: Schedule, group: "Group | None") -> None:
        self.schedule = schedule
        self.group = group
        self.attach_type = "root"
        self.attach_stage: Stage | None = None
        self.attach_ivar: IterVar | None = None

    @property
    def stages(self) -> list[Stage]:
        """Its stages, those of groups inside it included."""
        return [s for s in self.schedule.stages if any(g is self for g in groups_of(s))]

    def compute_at(self, parent: Stage, scope: IterVar) -> None:
        """Compute what a loop of a stage outside needs of the group inside that loop.

        compute b; compute c; for i in n: d[i] = c[i]
        ->  for i in n: compute what c[i] needs of b; compute c[i]; d[i] = c[i]
        """
        name = ", ".join(stage.op.name for stage in self.stages)
        find_scope(parent, scope)
        if any(parent is stage for stage in self.stages):
            raise ValueError(f"the group of {name} cannot be computed at {parent.op.name} in it")
        if self.group is not None:
            self.group.check_holds(parent)
        for stage in self.stages:
            if stage.is_output:
                raise ValueError(
                    f"the output {stage.op.name} must be computed at the root; leave it out of the "
                    "group"
                )
        self.attach_type, self.attach_stage, self.attach_ivar = "scope", parent, scope

    def compute_root(self) -> None:
        """Compute it where the group around it is computed, or before everything."""
        self.attach_type, self.attach_stage, self.attach_ivar = "root", None, None

    def check_holds(self, parent: Stage) -> None:
        """What is in the group may be computed only at stages in it."""
        if not any(self is around for around in groups_of(parent)):
            raise ValueError(
                "Can only assign compute_at to stages within the same group: "
                f"{parent.op.name} is outside of {self!r}"
            )

    def __repr__(self) -> str:
        return f"group({', '.join(stage.op.name for stage in self.stages)})"


def groups_of(member: Stage | Group) -> Iterator[Group]:
    """The groups around a stage or a group, innermost first."""
    group = member.group
    while group is not None:
        yield group
        group = group.group


def create_group(
    schedule: Schedule,
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    include_inputs: bool = False,
) -> Group:
    """Group the stages that lie between inputs and outputs, so that they move together."""
    members = _region(schedule, _stages(schedule, outputs), _stages(schedule, inputs))
    if not include_inputs:
        inner = _stages(schedule, inputs)
        members = [stage for stage in members if not any(stage is s for s in inner)]
    if not members:
        raise ValueError("no stage lies between the inputs and the outputs of the group")
    for stage in members:
        parent = stage.attach_stage
        if parent is not None and not any(parent is member for member in members):
            raise ValueError(
                f"{stage.op.name} is computed at {parent.op.name}, outside of the group to be; "
                "group stages before computing them elsewhere"
            )
    around: Group | None = None
    inside: list[Group] = []
    for other in schedule.groups:
        theirs = other.stages
        shared = sum(any(stage is s for s in theirs) for stage in members)
        if theirs and shared == len(theirs):
            inside.append(other)
        elif shared == len(members):
            if around is None or len(theirs) < len(around.stages):
                around = other
        elif shared:
            raise ValueError(
                "Trying to group region that intersect with an already existed group: "
                f"{', '.join(s.op.name for s in members)} and {other!r}"
            )
    made = Group(schedule, around)
    parts: list[Stage | Group] = [*inside, *members]
    for part in parts:
        if part.group is around:
            part.group = made
    schedule.groups.append(made)
    return made


def _stages(schedule: Schedule, tensors: Any) -> list[Stage]:
    given = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    return [schedule[tensor] for tensor in given]


def _region(schedule: Schedule, outputs: list[Stage], inputs: list[Stage]) -> list[Stage]:
    """The stages on the ways from inputs to outputs, both ends included."""
    needed, reached = set(outputs), set(inputs)
    for stage in reversed(schedule.stages):
        if stage in needed and stage not in reached:
            needed.update(schedule[tensor] for tensor in stage.op.input_tensors)
    for stage in schedule.stages:
        if any(schedule[tensor] in reached for tensor in stage.op.input_tensors):
            reached.add(stage)
    return [stage for stage in schedule.stages if stage in needed and stage in reached]
