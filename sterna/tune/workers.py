"""Who builds and times trials, one at a time or many at once, and how a trial can fail."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sterna.tune.measure import Measured, Times
from sterna.tune.network import Answers, Questions


class TrialError(RuntimeError):
    """A trial gave no time; its text says why."""


class Crashed(TrialError):
    """The process ended."""


class Hung(TrialError):
    """The process did not answer in time."""


class Wrong(TrialError):
    """The build gave other numbers than the default."""


class Refused(TrialError):
    """The build could not be made."""


class Lost(TrialError):
    """The worker is gone, which may not be the trial's doing."""


OUTCOMES: dict[type[TrialError], str] = {
    Wrong: "wrong", Crashed: "crashed", Hung: "hung", Refused: "refused"
}
_KINDS: dict[str, type[TrialError]] = {"wrong": Wrong, "refused": Refused}


Found = TypeVar("Found")


def once_more(ask: Callable[[], Found]) -> Found:
    """What is asked; once more if the process ended, which something else may have done to it."""
    try:
        return ask()
    except Crashed:
        return ask()


class NoWorkersError(ConnectionError):
    """There is no machine left to time anything."""


@dataclass(frozen=True, slots=True)
class Request:
    """Two sets of answers, to be built and timed in turns for some seconds."""

    incumbent: Answers
    challenger: Answers
    seconds: float


class Workers(ABC):
    """What a search asks for times."""

    @property
    def width(self) -> int:
        """How many comparisons it makes at once."""
        return 1

    @abstractmethod
    def compare(
        self, incumbent: Answers, challenger: Answers, seconds: float, timeout: float
    ) -> Measured:
        """Both in turns; raises TrialError."""

    def compare_all(
        self, requests: Sequence[Request], timeout: float
    ) -> list[Measured | TrialError]:
        """What came of each request."""
        found: list[Measured | TrialError] = []
        for each in requests:
            try:
                found.append(self.compare(each.incumbent, each.challenger, each.seconds, timeout))
            except TrialError as error:
                found.append(error)
        return found

    def compare_everywhere(self, request: Request, timeout: float) -> list[Measured]:
        """One comparison on every machine that there is; raises TrialError where one fails."""
        return [self.compare(request.incumbent, request.challenger, request.seconds, timeout)]

    @abstractmethod
    def refresh(self) -> None:
        """Let what is asked next be done by processes that have seen nothing yet."""

    @abstractmethod
    def close(self) -> None:
        """End the processes."""


def measured_of(answer: Mapping[str, Any]) -> Measured:
    """What a process answered as plain values; raises TrialError if it says so."""
    if "error" in answer:
        raise _KINDS[answer["kind"]](answer["error"])
    return Measured(
        {scope: Times(**times) for scope, times in answer["layers"].items()},
        Times(**answer["changed"]), Times(**answer["total"]), Questions(**answer["questions"]),
        answer["fractions"], answer["gone"],
    )
