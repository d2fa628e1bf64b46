"""What every lowering starts from: a schedule in which each stage that is kept has its place."""

from sterna.te.group import groups_of
from sterna.te.inline import inline_stages
from sterna.te.scan import place_scans
from sterna.te.schedule import Fuse, Schedule, Split, Stage
from sterna.te.tensor import COMM_REDUCE, DATA_PAR, IterVar


def normalize(schedule: Schedule) -> Schedule:
    """A copy of a schedule without inlined stages, in which attached stages are at loops that run.

    b.compute_at(c, i); c.split(i)  ->  b.compute_at(c, i.inner)

    Where threads share a reduction, the loops over other threads come first.
    """
    own = schedule.copy()
    inline_stages(own)
    for stage in own.stages:
        if stage.attach_type == "root":
            _follow_group(stage)
        if stage.attach_type == "scope":
            _follow_loop(own, stage)
        _put_threads_first(stage)
    place_scans(own)
    return own


def _put_threads_first(stage: Stage) -> None:
    """for k:  # thread threadIdx.x          for j:  # thread threadIdx.y
        for j: b[j] += a[k, j]  # thread ->      for k: b[j] += a[k, j]  # thread threadIdx.x
    """
    bound = [x for x in stage.leaf_iter_vars if _is_bound(stage, x)]
    if any(x.iter_type == COMM_REDUCE for x in bound):
        data = [x for x in bound if x.iter_type == DATA_PAR]
        rest = [x for x in stage.leaf_iter_vars if x not in data]
        first = next(i for i, x in enumerate(rest) if x.iter_type == COMM_REDUCE)
        before = [x for x in stage.leaf_iter_vars if x in data or x in rest[:first]]
        stage.leaf_iter_vars = [*before, *rest[first:]]


def _is_bound(stage: Stage, axis: IterVar) -> bool:
    attributes = stage.iter_var_attrs.get(axis)
    return attributes is not None and attributes.is_launched


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
