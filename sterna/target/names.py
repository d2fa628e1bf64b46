"""The processors and features of LLVM by architecture, from the lists in sterna/target/processors.

Nothing here loads LLVM: reading a target stays quick.
"""

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from sterna.isa import instruction_sets


@dataclass(frozen=True, slots=True)
class Names:
    """What LLVM knows of one architecture."""

    architecture: str
    cpus: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Processors with the features that they have."""
    features: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Features with those that they bring along."""
    triples: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The first parts of triples with the features that they bring along."""

    def closure(self, names: Iterable[str]) -> frozenset[str]:
        """The features and all that they bring along."""
        done: set[str] = set()
        left = list(names)
        while left:
            name = left.pop()
            if name not in done:
                done.add(name)
                left.extend(self.features.get(name, ()))
        return frozenset(done)

    def apply(self, base: Iterable[str], changes: Iterable[str]) -> frozenset[str]:
        """Features after +this and -that; what needs a removed feature goes with it."""
        held = set(base)
        for change in changes:
            name = change[1:]
            if change.startswith("+"):
                held |= self.closure([name])
            else:
                held = {kept for kept in held if name not in self.closure([kept])}
        return frozenset(held)


@cache
def names_of(architecture: str) -> Names:
    """The names of an architecture."""
    text: str = importlib.import_module(f"sterna.target.processors.{architecture}").TEXT
    entries: dict[str, dict[str, frozenset[str]]] = {"cpu": {}, "feature": {}, "arch": {}}
    for line in text.replace("\n  ", " ").splitlines():
        head, _, tail = line.partition(":")
        sort, *heads = head.split()
        if sort in ("cpus", "features"):
            entries[sort[:-1]].update(dict.fromkeys(tail.split(), frozenset()))
        else:
            entries[sort].update(dict.fromkeys(heads, frozenset(tail.split())))
    made = Names(architecture, {}, entries["feature"], {})
    return Names(
        architecture,
        {name: made.closure(held) for name, held in entries["cpu"].items()},
        entries["feature"],
        {name: made.closure(held) for name, held in entries["arch"].items()},
    )


def architectures_of_cpu(cpu: str) -> list[str]:
    """The architectures that have a processor of this name."""
    return [name for name in instruction_sets() if cpu in names_of(name).cpus]


def all_cpus() -> set[str]:
    """The processors of every architecture."""
    return {cpu for name in instruction_sets() for cpu in names_of(name).cpus}


@cache
def all_features() -> frozenset[str]:
    """The features of every architecture."""
    return frozenset(feature for name in instruction_sets() for feature in names_of(name).features)
