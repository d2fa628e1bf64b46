"""Thread environments: threads that are launched around everything that a stage does."""

from collections.abc import Sequence

from sterna.ir import build
from sterna.te.scan import ScanOp
from sterna.te.schedule import Stage
from sterna.te.tensor import THREAD_INDEX, IterVar


def env_threads(stage: Stage, threads: IterVar | Sequence[IterVar]) -> None:
    """Launch threads around a scan; loops inside that are bound to them share their work.

    init; for t in n: update
    ->  for threadIdx.x in 32:  # thread threadIdx.x
            init; for t in n: update
    """
    if not isinstance(stage.op, ScanOp):
        raise ValueError(
            "env_threads is only valid for composite ops such as ScanOp, and "
            f"{stage.op.name} is none; bind its loops instead"
        )
    given = [threads] if isinstance(threads, IterVar) else list(threads)
    if launched(stage):
        raise ValueError(f"Already set env_threads of {stage.op.name}")
    for thread in given:
        if not isinstance(thread, IterVar) or thread.iter_type != THREAD_INDEX:
            raise ValueError(f"env_threads takes axes made by te.thread_axis, not {thread!r}")
        if thread.dom is None or not build.is_const(thread.dom.min, 0):
            raise ValueError(
                f"env_threads launches {thread.thread_tag}, so it needs a range from 0 on: "
                f'te.thread_axis((0, 32), "{thread.thread_tag}")'
            )
    tags = [thread.thread_tag for thread in given]
    if len(set(tags)) < len(tags):
        raise ValueError(f"env_threads launches each thread once, not {', '.join(tags)}")
    stage.leaf_iter_vars[:0] = given
    stage.all_iter_vars += given


def launched(stage: Stage) -> list[IterVar]:
    """The threads that are launched around a stage."""
    return [leaf for leaf in stage.leaf_iter_vars if leaf.iter_type == THREAD_INDEX]
