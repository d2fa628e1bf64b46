"""Threads of a device that run in any order and wait: at meetings, and for what others do.

Each thread is a generator that stops where it waits. At a *meeting* a number of threads wait for
each other, and what they do there together is done when the last one has come. What runs beside
the threads, such as copies, is done now or as late as it may be, as a seed picks.
"""

import random
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass, field
from typing import Any


class DataRaceError(RuntimeError):
    """Two threads touch an element, and nothing says in which order; or they wait for ever."""


Given = list[tuple["Thread", Any]]
"""Who has come to a meeting, with what."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where a number of threads wait for each other."""

    key: Hashable
    count: int
    what: str
    """What is waited at, and whose threads must come, as errors say it."""
    whose: str
    given: Any = None
    finish: Callable[[Given], list[Any] | None] | None = None
    """What they do together; gives each one's answer."""


@dataclass(frozen=True, slots=True)
class Until:
    """What a thread waits for."""

    holds: Callable[[], bool]
    what: str


Stop = Meeting | Until
Steps = Generator[Stop, Any, None]


@dataclass(slots=True, eq=False)
class Thread:
    """A thread of a block."""

    number: int
    block: Any
    values: dict[int, Any]
    steps: Steps = field(init=False)
    answer: Any = None


class Threads:
    """The threads of all blocks that have begun."""

    def __init__(self, name: str, order: random.Random, enter: Callable[[Thread], None]) -> None:
        self.name, self.random, self.enter = name, order, enter
        self.ready: list[Thread] = []
        self.waiting: list[tuple[Thread, Until]] = []
        self.meetings: dict[Hashable, list[tuple[Thread, Meeting]]] = {}
        self.absent: dict[Hashable, int] = {}
        """Those who have come to a meeting and gone on."""
        self.beside: list[Callable[[], None]] = []

    def run_beside(self, work: Callable[[], None]) -> None:
        """Do something now, or when nobody else can go on."""
        if self.random.random() < 0.5:
            work()
        else:
            self.beside.append(work)

    def run(self, begin: Callable[[], list[Thread]]) -> None:
        """Run all threads to their ends. begin: those of the next blocks, none when all are in."""
        while True:
            if not self.ready and not self._wake():
                more = begin()
                if not more:
                    break
                self.ready += more
            turn, self.ready = self.ready, []
            self.random.shuffle(turn)
            for thread in turn:
                self._go_on(thread)
        self._check_ended()

    def _wake(self) -> bool:
        """Those who have what they waited for, if need be after something that runs beside."""
        while True:
            held = [thread for thread, until in self.waiting if until.holds()]
            self.waiting = [(t, until) for t, until in self.waiting if t not in held]
            self.ready += held
            if self.ready or not self.beside:
                return bool(self.ready)
            self.beside.pop(self.random.randrange(len(self.beside)))()

    def _go_on(self, thread: Thread) -> None:
        self.enter(thread)
        answer, thread.answer = thread.answer, None
        try:
            stop = thread.steps.send(answer)
        except StopIteration:
            return
        if isinstance(stop, Until):
            self.waiting.append((thread, stop))
            return
        self.meetings.setdefault(stop.key, []).append((thread, stop))
        self._meet(stop)

    def arrive(self, meeting: Meeting) -> None:
        """Come to a meeting, but do not wait there."""
        self.absent[meeting.key] = self.absent.get(meeting.key, 0) + 1
        self._meet(meeting)

    def _meet(self, meeting: Meeting) -> None:
        there = self.meetings.get(meeting.key, [])
        if len(there) + self.absent.get(meeting.key, 0) < meeting.count:
            return
        self.meetings.pop(meeting.key, None)
        self.absent.pop(meeting.key, None)
        answers = None
        if meeting.finish is not None:
            answers = meeting.finish([(thread, own.given) for thread, own in there])
        for place, (thread, _) in enumerate(there):
            thread.answer = None if answers is None else answers[place]
            self.ready.append(thread)

    def _check_ended(self) -> None:
        for there in self.meetings.values():
            meeting = there[0][1]
            raise DataRaceError(
                f"{self.name}: {len(there)} of {meeting.count} threads of a {meeting.whose} wait "
                f"at {meeting.what} that the others do not come to"
            )
        for thread, until in self.waiting:
            raise DataRaceError(
                f"{self.name}: thread {thread.number} waits for {until.what}, which never comes"
            )
