"""What a fuzzer is: a generator, a check, and a program that shows what was found."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from sterna.support.discovery import load_name, modules_of
from sterna.testing.fuzz.tape import Tape

FUZZERS = "sterna.testing.fuzz.fuzzers"


class Fuzzer(ABC):
    """One of them, in a worker's process; a file of fuzzers/ has it as FUZZER."""

    name: ClassVar[str]
    about: ClassVar[str]
    seconds: ClassVar[float] = 60.0
    """What one case may take."""
    memory: ClassVar[int | None] = 6 << 30
    """What the process may take; None where a child's own limits count."""
    faults_of_others: ClassVar[dict[str, str]] = {}
    """What a driver says when it ends its process by a fault of its own: how such a case ended."""

    def missing(self) -> str | None:
        """What it needs and what is not installed here."""
        return None

    def prepare(self, folder: Path, corpus: Path | None) -> None:
        """What is done once: folder is its own, corpus what users give."""
        return

    @property
    def place(self) -> str:
        """The module that has it as FUZZER."""
        return type(self).__module__

    @abstractmethod
    def check(self, tape: Tape) -> str:
        """Draw a case and try it: how it ended. What is raised is a finding."""

    def program(self, values: list[int], error: str) -> str:
        """A program that shows a finding."""
        comment = "\n".join(f"# {line}" for line in error.splitlines()[-12:])
        return (
            f"{comment}\nfrom sterna.testing.fuzz.worker import replay\n\n"
            f"replay({self.place!r}, {values})\n"
        )


def find_fuzzer(place: str) -> Fuzzer:
    """The fuzzer of a module."""
    found = load_name(f"{place}:FUZZER")
    if not isinstance(found, Fuzzer):
        raise TypeError(f"FUZZER of {place} is a {type(found).__name__}")
    return found


def all_fuzzers() -> dict[str, Fuzzer]:
    """Every fuzzer by its name."""
    found = [module.FUZZER for module in modules_of(FUZZERS)]
    return {fuzzer.name: fuzzer for fuzzer in sorted(found, key=lambda each: each.name)}
