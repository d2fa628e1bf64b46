"""Worker processes started ahead: they load the compiler while a graph is still optimised.

    with workers_ahead(target, contractions):   at the beginning of a build
        ... passes over the graph ...
        compile_kernels(...)                    takes them over; those that it leaves are ended
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sterna.driver.kernel_worker import Worker
from sterna.target import Target
from sterna.target.code_generator import KernelCodeGenerator

# What it costs to start a process that compiles.
START_SECONDS = 1.0
# What the kernel of a contraction takes, of which a network may have several equal ones.
SECONDS_OF_CONTRACTION = 0.2

_ready: ContextVar[list[Worker] | None] = ContextVar("ready", default=None)


@contextmanager
def workers_ahead(target: Target, contractions: int) -> Iterator[None]:
    """Start as many processes as pay for a graph of so many different contractions."""
    alone = isinstance(target.kind.code_generator(), KernelCodeGenerator)
    count = helpers(SECONDS_OF_CONTRACTION * contractions) if alone else 0
    workers = [Worker() for _ in range(count)]
    token = _ready.set(workers)
    try:
        for worker in workers:
            worker.prepare(target)
        yield
    finally:
        _ready.reset(token)
        for worker in workers:
            worker.close()


def workers_ready() -> list[Worker]:
    """The processes that were started ahead, which are the caller's to end now."""
    workers = _ready.get() or []
    taken = list(workers)
    workers.clear()
    return taken


def helpers(seconds: float) -> int:
    """How many processes pay for work that takes so long here.

    Each of them, and this one, is left as much work as a start costs.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(0, min(cores or 1, int(seconds / START_SECONDS)) - 1)
