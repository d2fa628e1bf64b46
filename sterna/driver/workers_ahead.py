"""Worker processes started ahead: they load the compiler while a graph is still optimised.

    with workers_ahead(target, calls):     at the beginning of a build
        ... passes over the graph ...
        compile_kernels(...)               takes them over; those that it leaves are ended
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
# What the kernels of a network take at the least, for each call of an operator in its graph.
SECONDS_OF_CALL = 0.025

_ready: ContextVar[list[Worker] | None] = ContextVar("ready", default=None)


@contextmanager
def workers_ahead(target: Target, calls: int) -> Iterator[None]:
    """Start as many processes as pay for a graph of so many calls."""
    alone = isinstance(target.kind.code_generator(), KernelCodeGenerator)
    workers = [Worker() for _ in range(helpers(SECONDS_OF_CALL * calls) if alone else 0)]
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
    """How many processes pay for work that takes so long here."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min((cores or 1) - 1, int(seconds / START_SECONDS))
