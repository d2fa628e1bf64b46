"""Spaces by name: that of a kernel is what its schedule asks."""

from typing import Any

from sterna.meta_schedule.names import Named

FROM_TARGET = "from-target"


class SpaceGenerator(Named):
    """Says which schedules there are."""

    what = "space"


class PostOrderApply(SpaceGenerator):
    """By this name in most programs; rules of the user's own have no part in the engine."""

    options_known = ("f_block_filter", "sch_rules", "postprocs", "mutator_probs")

    def __init__(self, f_block_filter: Any = None, sch_rules: Any = FROM_TARGET,
                 postprocs: Any = FROM_TARGET, mutator_probs: Any = FROM_TARGET) -> None:
        super().__init__()
        own = {"f_block_filter": f_block_filter, "sch_rules": sch_rules, "postprocs": postprocs,
               "mutator_probs": mutator_probs}
        given = [name for name, value in own.items() if value not in (None, FROM_TARGET)]
        if given:
            raise ValueError(f"{', '.join(given)}: spaces are what the compiler's schedules ask; "
                             "auto_scheduler.PreloadCustomSketchRule takes rules of one's own")


SpaceGenerator.kinds = {"post-order-apply": PostOrderApply}
create = SpaceGenerator.create
