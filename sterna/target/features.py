"""Questions to a target's features: target.features.has_dotprod."""

from collections.abc import Iterator

from sterna.target.machine import Described, machine_of
from sterna.target.names import all_features
from sterna.target.wording import unknown

# Names that users of the classic API know, by LLVM's.
_ALIASES = {
    "asimd": "neon",
    "fp16_simd": "fullfp16",
    "matmul_i8": "i8mm",
    "mve_fp": "mve.fp",
    "rvv": "v",
    "vnni": "avx512vnni",
}


def _spelling(name: str) -> str:
    return name.replace("-", "_").replace(".", "_").lower()


class Features:
    """The features of a target: has_<feature> for each that LLVM knows, and is_aarch64."""

    __slots__ = ("_target",)

    def __init__(self, target: Described) -> None:
        self._target = target

    def _names(self) -> frozenset[str]:
        if not (self._target.attrs.get("mtriple") or self._target.kind.triple):
            return frozenset()
        return machine_of(self._target).feature_set

    @property
    def is_aarch64(self) -> bool:
        """Whether the processor runs 64-bit ARM code."""
        kind, attrs = self._target.kind, self._target.attrs
        if not (attrs.get("mtriple") or kind.triple):
            return False
        return machine_of(self._target).architecture == "aarch64"

    def __getattr__(self, name: str) -> bool:
        if not name.startswith("has_"):
            raise AttributeError(f"a target's features are asked by has_<feature>, not by {name}")
        asked = name.removeprefix("has_")
        wanted = _spelling(_ALIASES.get(asked, asked))
        if any(_spelling(held) == wanted for held in self._names()):
            return True
        known = {_spelling(feature) for feature in all_features()} | set(_ALIASES)
        if wanted not in known:
            raise AttributeError(str(unknown(asked, known, f"It is asked as features.{name}")))
        return False

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names()))

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __repr__(self) -> str:
        return f"Features({', '.join(self)})"
