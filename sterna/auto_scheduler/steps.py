"""The steps that turn plain loops into a schedule, as log lines hold them.

A step names a stage by its number among the operations and a loop by its place in the stage.
"""

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any, ClassVar

ANNOTATIONS = (
    "none", "unroll", "vectorize", "parallel", "vthread", "blockIdx.x", "threadIdx.x",
    "blockIdx.y", "threadIdx.y", "blockIdx.z", "threadIdx.z", "tensorize",
)


@dataclass(frozen=True)
class Step:
    """One change of the loops of a stage."""

    code: ClassVar[str]
    stage: int

    def to_json(self) -> list[Any]:
        """As log lines hold it."""
        return [self.code, *(list(v) if isinstance(v, tuple) else v for v in astuple(self))]


@dataclass(frozen=True)
class Split(Step):
    """A loop in several; lengths are of the inner ones, or with inner_to_outer=0 of the outer.

    A length that a sketch leaves open is None, and counts as 1 until a search fills it in.
    """

    code = "SP"
    loop: int
    extent: int | None
    lengths: tuple[int | None, ...]
    inner_to_outer: int = 1

    @property
    def sizes(self) -> list[int]:
        """The lengths, with 1 for those that are open."""
        return [1 if length is None else length for length in self.lengths]


@dataclass(frozen=True)
class FollowSplit(Step):
    """A loop split as another was, into parts loops: the last has what the others leave."""

    code = "FSP"
    loop: int
    source: int
    parts: int


@dataclass(frozen=True)
class FollowFusedSplit(Step):
    """A loop in two, by the product of one length of several splits."""

    code = "FFSP"
    loop: int
    sources: tuple[int, ...]
    level: int
    is_factor: int


@dataclass(frozen=True)
class Reorder(Step):
    """The loops of a stage in another order."""

    code = "RE"
    order: tuple[int, ...]


@dataclass(frozen=True)
class Fuse(Step):
    """Neighbouring loops as one."""

    code = "FU"
    loops: tuple[int, ...]


@dataclass(frozen=True)
class Annotate(Step):
    """How a loop runs; see ANNOTATIONS."""

    code = "AN"
    loop: int
    annotation: int


@dataclass(frozen=True)
class Pragma(Step):
    """A pragma of a loop: its name, $ and its value."""

    code = "PR"
    loop: int
    text: str


@dataclass(frozen=True)
class StorageAlign(Step):
    """Rows of a stage's memory that begin at multiples of a factor plus an offset."""

    code = "SA"
    loop: int
    factor: int
    offset: int


@dataclass(frozen=True)
class ComputeAt(Step):
    """A stage inside of a loop of another."""

    code = "CA"
    at_stage: int
    at_loop: int


@dataclass(frozen=True)
class ComputeInline(Step):
    """A stage that its readers compute."""

    code = "CI"


@dataclass(frozen=True)
class ComputeRoot(Step):
    """A stage with loops of its own again."""

    code = "CR"


@dataclass(frozen=True)
class CacheRead(Step):
    """A copy of a stage's result for some readers; it is the stage behind."""

    code = "CHR"
    scope: str
    readers: tuple[int, ...]


@dataclass(frozen=True)
class CacheWrite(Step):
    """The computation of a stage into memory of its own; it is the stage before the copy."""

    code = "CHW"
    scope: str


@dataclass(frozen=True)
class RFactor(Step):
    """A reduction in two: partial sums over one loop, a stage before the sum of them."""

    code = "RF"
    loop: int
    factor_axis: int


@dataclass(frozen=True)
class OwnKernel(Step):
    """All stages by the compiler's own schedule for a target, under answers: question=answer.

    Others have no such step: it is the only one of its schedule.
    """

    code = "OWN"
    target: str
    answers: tuple[str, ...]


KINDS: dict[str, type[Step]] = {
    kind.code: kind for kind in (
        Split, FollowSplit, FollowFusedSplit, Reorder, Fuse, Annotate, Pragma, StorageAlign,
        ComputeAt, ComputeInline, ComputeRoot, CacheRead, CacheWrite, RFactor,
        OwnKernel,
    )
}

_CHECKS: dict[str, Callable[[Any], bool]] = {
    "int": lambda v: type(v) is int,
    "int | None": lambda v: v is None or type(v) is int,
    "str": lambda v: isinstance(v, str),
    "tuple[str, ...]": lambda v: isinstance(v, list) and all(type(each) is str for each in v),
    "tuple[int | None, ...]": lambda v: isinstance(v, list) and all(type(n) is int for n in v),
    "tuple[int, ...]": lambda v: isinstance(v, list) and all(type(each) is int for each in v),
}


def step_of_json(row: Sequence[Any]) -> Step:
    """What to_json gave. Raises ValueError for what is no step."""
    kind = KINDS.get(row[0]) if isinstance(row, list) and row and isinstance(row[0], str) else None
    if kind is None:
        raise ValueError(f"{row!r} is no step of a schedule; steps are {', '.join(KINDS)}")
    wanted = {each.name: each.type.__name__ if isinstance(each.type, type) else str(each.type)
              for each in fields(kind)}
    values = list(row[1:])
    if len(values) != len(wanted) or not all(
        _CHECKS[each](value) for each, value in zip(wanted.values(), values, strict=True)
    ):
        raise ValueError(f"{row!r} is no step {kind.code}: it takes {', '.join(wanted)}")
    made: Callable[..., Step] = kind
    return made(*(tuple(v) if isinstance(v, list) else v for v in values))
