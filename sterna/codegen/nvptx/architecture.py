"""GPUs by their names (sm_90a), and the versions of PTX that speak of them."""

import re
from dataclasses import dataclass

# The least version of PTX, in tenths, that knows a GPU. A letter behind the number means all that
# this very GPU has (a) or its family (f), which some versions learnt later.
_LEAST_VERSION = {
    "20": 32, "21": 32, "30": 32, "32": 40, "35": 32, "37": 41, "50": 40, "52": 41, "53": 42,
    "60": 50, "61": 50, "62": 50, "70": 60, "72": 61, "75": 63, "80": 70, "86": 71, "87": 74,
    "88": 90, "89": 78, "90": 78, "90a": 80, "100": 86, "100f": 88, "101": 86, "101f": 88,
    "103": 88, "110": 90, "120": 87, "120f": 88, "121": 88,
}
# The shared memory that a launch may give to a block, in KiB, by compute capability.
_MOST_SHARED = {
    70: 96, 72: 96, 75: 64, 80: 163, 86: 99, 87: 163, 88: 163, 89: 99, 90: 227, 100: 227, 101: 227,
    103: 227, 110: 227, 120: 99, 121: 99,
}
ALIGNMENT = 16
"""Of all arrays, in bytes: the most that a thread reads or writes at once."""
STATIC_SHARED_BYTES = 48 << 10
"""What a kernel may declare itself, on any GPU."""
_NAME = re.compile(r"sm_(\d+)([af]?)")


@dataclass(frozen=True, slots=True)
class Architecture:
    """A GPU that code is made for."""

    number: int
    """Its compute capability: 90 for 9.0."""
    letter: str = ""
    """a: with what no later GPU is sure to have; f: what its family has; empty: neither."""

    @classmethod
    def of(cls, name: str) -> "Architecture":
        """The GPU of a name such as sm_90a."""
        found = _NAME.fullmatch(name)
        if found is None or found[1] not in _LEAST_VERSION:
            raise ValueError(f"PTX knows no GPU '{name}'; give one such as -arch=sm_80")
        return cls(int(found[1]), found[2])

    @property
    def name(self) -> str:
        """As LLVM and PTX write it."""
        return f"sm_{self.number}{self.letter}"

    @property
    def least_version(self) -> int:
        """The least version of PTX that knows it, in tenths."""
        exact = _LEAST_VERSION.get(f"{self.number}{self.letter}")
        return exact if exact is not None else _LEAST_VERSION[str(self.number)]

    @property
    def most_shared(self) -> int:
        """The shared memory that a launch may give to a block, in bytes."""
        return _MOST_SHARED.get(self.number, 48) * 1024

    @property
    def starts_early(self) -> bool:
        """Whether kernels may start before the one in front of them has ended, and wait for it."""
        return self.number >= 90

    @property
    def features(self) -> frozenset[str]:
        """The names of all GPUs whose plain code runs on it, and its own."""
        older = {f"sm_{number}" for number in _LEAST_VERSION
                 if number.isdigit() and int(number) <= self.number}
        return frozenset(older | {self.name})


@dataclass(frozen=True, slots=True)
class Needs:
    """What an instruction asks for."""

    least: int = 0
    """The least compute capability."""
    version: int = 0
    """The least version of PTX, in tenths."""
    only: tuple[str, ...] = ()
    """The GPUs that have it, where later ones need not."""

    def missing_in(self, architecture: Architecture) -> str:
        """The GPU that would be needed, if this one is not enough."""
        if self.only and architecture.name not in self.only:
            return " or ".join(self.only)
        return f"sm_{self.least} or later" if architecture.number < self.least else ""


NOTHING = Needs()
