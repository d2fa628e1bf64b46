"""What long work tells those who watch it: its stages, and the steps of each.

    with watching(bar):                        in a program that shows something
        relay.build(...)

    with stage("compile kernels", 12) as at:   in the work; bar.begin_stage("compile kernels", 12)
        at.begin("conv")                       bar.begin_step("conv")
        at.end("conv")                         bar.end_step("conv")
                                               bar.end_stage("compile kernels", 3.5)

Work that nobody watches says the same to nobody. Steps may come from any thread.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


class Watcher:
    """Does nothing at each of the moments; subclasses do something at some."""

    def begin_stage(self, name: str, steps: int | None) -> None:
        """A stage begins; steps is how many it has, if that is known."""

    def begin_step(self, what: str) -> None:
        """A step of the stage begins; several may be under way at once."""

    def end_step(self, what: str) -> None:
        """A step is done."""

    def end_stage(self, name: str, seconds: float) -> None:
        """The stage is done and took so long."""


class StageTimes(Watcher):
    """The seconds of each stage by its name, in their order."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def end_stage(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Let a watcher, beside those that watch already, know of what this thread does."""
    token = _watchers.set((*_watchers.get(), watcher))
    try:
        yield
    finally:
        _watchers.reset(token)


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that is under way."""

    watchers: Sequence[Watcher]

    def begin(self, what: str) -> None:
        """A step begins."""
        for watcher in self.watchers:
            watcher.begin_step(what)

    def end(self, what: str) -> None:
        """A step is done."""
        for watcher in self.watchers:
            watcher.end_step(what)


@contextmanager
def stage(name: str, steps: int | None = None) -> Iterator[Stage]:
    """A part of long work; its end is told if it ends well."""
    watchers = _watchers.get()
    for watcher in watchers:
        watcher.begin_stage(name, steps)
    start = time.perf_counter()
    yield Stage(watchers)
    for watcher in watchers:
        watcher.end_stage(name, time.perf_counter() - start)
