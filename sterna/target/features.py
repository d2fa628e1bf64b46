"""Questions to a target's features: target.features.has_dotprod."""

from collections.abc import Iterator
from functools import cache

from sterna.isa import instruction_sets
from sterna.isa.aarch64 import AARCH64
from sterna.target.machine import Described, instructions_of
from sterna.target.names import all_features
from sterna.target.wording import unknown


@cache
def _aliases() -> dict[str, str]:
    """Names that users of the classic API know, by LLVM's."""
    every = instruction_sets().values()
    return {name: feature for isa in every for name, feature in isa.aliases.items()}


def _spelling(name: str) -> str:
    return name.replace("-", "_").replace(".", "_").lower()


class Features:
    """The features of a target: has_<feature> for each that LLVM knows, and is_aarch64."""

    __slots__ = ("_target",)

    def __init__(self, target: Described) -> None:
        self._target = target

    def _names(self) -> frozenset[str]:
        return instructions_of(self._target).features

    @property
    def is_aarch64(self) -> bool:
        """Whether the processor runs 64-bit ARM code."""
        return instructions_of(self._target).architecture == AARCH64.name

    def __getattr__(self, name: str) -> bool:
        if not name.startswith("has_"):
            raise AttributeError(f"a target's features are asked by has_<feature>, not by {name}")
        asked = name.removeprefix("has_")
        wanted = _spelling(_aliases().get(asked, asked))
        if any(_spelling(held) == wanted for held in self._names()):
            return True
        known = {_spelling(feature) for feature in all_features()} | set(_aliases())
        if wanted not in known:
            raise AttributeError(str(unknown(asked, known, f"It is asked as features.{name}")))
        return False

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names()))

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __repr__(self) -> str:
        return f"Features({', '.join(self)})"
