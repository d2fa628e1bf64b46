"""What every lowering starts from: a schedule in which each stage that is kept has its place."""

from sterna.te.group import groups_of
from sterna.te.inline import inline_stages
from sterna.te.scan import place_scans
from sterna.te.schedule import Fuse, Schedule, Split, Stage
from sterna.te.tensor import IterVar


def normalize(schedule: Schedule) -> Schedule:
    """A copy of a schedule without inlined stages, in which attached stages are at loops that run.

    b.compute_at(c, i); c.split(i)  ->  b.compute_at(c, i.inner)
    """
    own = schedule.copy()
    inline_stages(own)
    for stage in own.stages:
        if stage.attach_type == "root":
            _follow_group(stage)
        if stage.attach_type == "scope":
            _follow_loop(own, stage)
    place_scans(own)
    return own


def _follow_group(stage: Stage) -> None:
    """Compute a stage of a group where the group is computed."""
    group = next((g for g in groups_of(stage) if g.attach_type == "scope"), None)
    if group is not None:
        stage.attach_type = "scope"
        stage.attach_stage, stage.attach_ivar = group.attach_stage, group.attach_ivar


def _follow_loop(schedule: Schedule, stage: Stage) -> None:
    """Move a stage along if the loop that it is computed at was split or fused since."""
    parent, axis = stage.attach_stage, stage.attach_ivar
    assert parent is not None and axis is not None
    if not any(parent is s for s in schedule.stages):
        raise ValueError(
            f"{stage.op.name} is computed at {axis.name} of {parent.op.name}, which is inlined; "
            "compute it at a stage that has loops"
        )
    while not any(axis is leaf for leaf in parent.leaf_iter_vars):
        axis = _moved_to(stage, parent, axis)
    stage.attach_ivar = axis


def _moved_to(stage: Stage, parent: Stage, axis: IterVar) -> IterVar:
    for relation in parent.relations:
        if isinstance(relation, Split) and relation.parent is axis:
            return relation.inner
        if isinstance(relation, Fuse) and relation.inner is axis:
            return relation.fused
        if isinstance(relation, Fuse) and relation.outer is axis:
            raise ValueError(
                f"{stage.op.name} is computed at {axis.name} of {parent.op.name}, which was fused "
                f"with the loop inside it; compute it at {relation.fused.name}"
            )
    raise ValueError(
        f"{stage.op.name} is computed at {axis.name} of {parent.op.name}, which has no such loop "
        "any more; compute it at one of "
        + ", ".join(leaf.name for leaf in parent.leaf_iter_vars)
    )
