"""Many machines of one kind that time trials at once, whatever connects them.

Each comparison runs whole on one machine, so that its ratio holds whatever that machine's speed.
The untuned network is the anchor: every machine times it first, beside itself. One that does not
time it alike twice is left out, and so is one that is far from its kind; the others' seconds are
scaled to the middle one's. A machine that is lost loses its trial, which another one makes instead.
"""

import math
import warnings
from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from statistics import median
from typing import Protocol

from sterna.tune.measure import Measured, Times
from sterna.tune.network import Answers
from sterna.tune.statistics import CERTAIN, compare
from sterna.tune.workers import (
    Crashed,
    Lost,
    NoWorkersError,
    Request,
    TrialError,
    Workers,
)

# How long the anchor is timed on each machine.
ANCHOR_SECONDS = 0.5
# A machine whose anchor takes so many times as long beside itself does not measure.
UNEQUAL = 1.1
# A machine that is so many times faster or slower than the middle of three or more is of another
# kind, or does something else.
FAR = 2.0


class Machine(Protocol):
    """A place that builds and times one comparison at a time."""

    @property
    def name(self) -> str:
        """What users know it by."""

    def compare(self, request: Request, timeout: float) -> Measured:
        """Raises TrialError; Lost if its process is gone."""

    def renew(self) -> bool:
        """Start its process anew; whether there is still a machine."""

    def refresh(self) -> None:
        """Let a process that has seen nothing yet time what comes next."""

    def close(self) -> None:
        """End its processes."""


@dataclass(eq=False, slots=True)
class _Member:
    machine: Machine
    scale: float = 1.0
    is_there: bool = True

    def compare(self, request: Request, timeout: float) -> Measured:
        """In a thread of its own; after Lost there is another process, or no machine."""
        try:
            return _scaled(self.machine.compare(request, timeout), self.scale)
        except Lost:
            self.is_there = self.machine.renew()
            raise


@dataclass(frozen=True, slots=True)
class _Job:
    place: int
    request: Request
    lost_on: str = ""


class Pool(Workers):
    """The machines."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._members = [_Member(machine) for machine in machines]
        self._threads = ThreadPoolExecutor(max(len(machines), 1), "tuning machine")

    @property
    def width(self) -> int:
        """How many machines there are."""
        return len(self._members)

    @property
    def machines(self) -> list[Machine]:
        """Those that time."""
        return [member.machine for member in self._members]

    def calibrate(self, timeout: float) -> None:
        """Time the untuned network on every machine, and see who can be believed."""
        seen = self._everywhere(Request({}, {}, ANCHOR_SECONDS), timeout)
        seconds = {member: median(found.total.incumbent) for member, found in seen.items()}
        middle = median(seconds.values())
        for member, found in seen.items():
            itself = compare(found.total.incumbent, found.total.challenger)
            off = abs(itself.log_ratio)
            if off > math.log(UNEQUAL) and off > CERTAIN * itself.error:
                self._leave_out(member, f"it times one network {math.exp(off):.1f} times as long "
                                        "as itself")
            elif len(seen) > 2 and abs(math.log(seconds[member] / middle)) > math.log(FAR):
                self._leave_out(member, f"the untuned network takes {seconds[member] / middle:.2g} "
                                        "times as long as on the others")
            member.scale = middle / seconds[member]
        self._expect_some()

    def compare(
        self, incumbent: Answers, challenger: Answers, seconds: float, timeout: float
    ) -> Measured:
        """On one of the machines; raises TrialError."""
        (found,) = self.compare_all([Request(incumbent, challenger, seconds)], timeout)
        if isinstance(found, TrialError):
            raise found
        return found

    def compare_all(
        self, requests: Sequence[Request], timeout: float
    ) -> list[Measured | TrialError]:
        """What came of each; one whose machine was lost is made once more, on another if it can."""
        found: dict[int, Measured | TrialError] = {}
        waiting = deque(_Job(place, request) for place, request in enumerate(requests))
        flying: dict[Future[Measured], tuple[_Job, _Member]] = {}
        while waiting or flying:
            self._send(waiting, flying, timeout)
            for future in wait(flying, return_when=FIRST_COMPLETED).done:
                job, member = flying.pop(future)
                error = future.exception()
                if isinstance(error, Lost):
                    self._drop_if_gone(member)
                    if job.lost_on:
                        found[job.place] = Crashed(str(error))
                    else:
                        waiting.append(replace(job, lost_on=member.machine.name))
                else:
                    found[job.place] = error if isinstance(error, TrialError) else future.result()
        return [found[place] for place in range(len(requests))]

    def compare_everywhere(self, request: Request, timeout: float) -> list[Measured]:
        """On every machine; who is alone with what it says is left out. Raises TrialError."""
        found = self._everywhere(request, timeout)
        ratios = {member: compare(each.changed.incumbent, each.changed.challenger).log_ratio
                  for member, each in found.items() if any(each.changed.challenger)}
        if len(ratios) > 2:
            middle = median(ratios.values())
            for member, ratio in ratios.items():
                if abs(ratio - middle) > math.log(FAR):
                    self._leave_out(member, f"what it timed took {math.exp(ratio):.2g} of the time "
                                            f"before, and {math.exp(middle):.2g} on the others")
                    del found[member]
        return list(found.values())

    def refresh(self) -> None:
        """Let processes that have seen nothing yet time what comes next."""
        for member in self._members:
            member.machine.refresh()

    def close(self) -> None:
        """End the processes, and what waits for them."""
        for member in self._members:
            member.machine.close()
        self._threads.shutdown(cancel_futures=True)

    def _send(
        self, waiting: deque[_Job], flying: dict[Future[Measured], tuple[_Job, _Member]],
        timeout: float,
    ) -> None:
        """Give what waits to the machines that do nothing."""
        self._expect_some()
        busy = {id(member) for _, member in flying.values()}
        idle = [member for member in self._members if id(member) not in busy]
        while waiting and idle:
            job = waiting.popleft()
            idle.sort(key=lambda member: member.machine.name == job.lost_on)
            member = idle.pop(0)
            flying[self._threads.submit(member.compare, job.request, timeout)] = job, member

    def _everywhere(self, request: Request, timeout: float) -> dict[_Member, Measured]:
        self._expect_some()
        asked = {m: self._threads.submit(m.compare, request, timeout) for m in self._members}
        wait(asked.values())
        found = {}
        for member, future in asked.items():
            error = future.exception()
            if isinstance(error, Lost):
                self._drop_if_gone(member)
            else:
                found[member] = future.result()
        self._expect_some()
        if not found:
            raise Crashed("the processes of all machines ended")
        return found

    def _drop_if_gone(self, member: _Member) -> None:
        if not member.is_there and member in self._members:
            self._leave_out(member, "it is gone")

    def _leave_out(self, member: _Member, why: str) -> None:
        self._members.remove(member)
        member.machine.close()
        warnings.warn(f"tuning goes on without {member.machine.name}: {why}", stacklevel=3)

    def _expect_some(self) -> None:
        if not self._members:
            raise NoWorkersError("no machine is left to time trials on; what was found is kept, "
                                 "and the same command goes on from there")


def _scaled(found: Measured, scale: float) -> Measured:
    def times(of: Times) -> Times:
        return Times([s * scale for s in of.incumbent], [s * scale for s in of.challenger])

    layers = {scope: times(of) for scope, of in found.layers.items()}
    return replace(found, layers=layers, changed=times(found.changed), total=times(found.total))
