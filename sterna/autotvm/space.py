"""The space of a template: knobs with candidates, and points in it.

A template runs twice: once with a ConfigSpace, which collects what it defines, and then with a
ConfigEntity, one point of the space, which gives what was chosen.
"""

import itertools
import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sterna.ir.expr import IntImm
from sterna.te import IterVar, Schedule

# A loop that nobody would write has more factors than this; the search takes no longer for it.
MOST_ENTITIES = 100_000
# Points of a large space that are drawn before none is believed to pass the filters.
POINTS_DRAWN = 10_000


class InstantiationError(ValueError):
    """A point of a space of which no schedule can be made."""


class VirtualAxis:
    """A loop that a template will split: its length is known before there is a loop."""

    def __init__(self, length: Any, name: str = "axis") -> None:
        self.length, self.name = _length(length), name

    def __repr__(self) -> str:
        return f"{self.name}({self.length})"


def _length(axis: Any) -> int:
    if isinstance(axis, VirtualAxis):
        return axis.length
    extent = axis.dom.extent if isinstance(axis, IterVar) and axis.dom is not None else axis
    value = extent.value if isinstance(extent, IntImm) else extent
    if not isinstance(value, int):
        raise InstantiationError(f"the length of {axis} is not known; knobs need known lengths")
    return value


# ---- what is chosen ----


class SplitEntity:
    """How a loop is split: the lengths of the parts, the first left open."""

    def __init__(self, size: Sequence[int]) -> None:
        self.size = list(size)

    def apply(self, sch: Schedule, op: Any, axis: IterVar) -> list[IterVar]:
        """Split a loop of a stage; the parts, from the outermost on."""
        made = []
        for place in range(1, len(self.size)):
            outer, axis = sch[op].split(axis, factor=math.prod(self.size[place:]))
            made.append(outer)
        return [*made, axis]

    def to_json(self) -> list[Any]:
        """As log lines hold it."""
        return ["sp", self.size]

    def features(self) -> list[float]:
        """What a model of times is told about it."""
        return [math.log2(max(1, size)) for size in self.size[1:]]

    def __repr__(self) -> str:
        return str(self.size)


class ReorderEntity:
    """The order of loops."""

    def __init__(self, perm: Sequence[int]) -> None:
        self.perm = list(perm)

    def apply(self, sch: Schedule, op: Any, axes: Sequence[IterVar]) -> list[IterVar]:
        """Reorder loops of a stage; the loops in their new order."""
        if len(axes) != len(self.perm):
            raise InstantiationError(f"there are {len(axes)} loops; {self.perm} orders others")
        ordered = [axes[place] for place in self.perm]
        sch[op].reorder(*ordered)
        return ordered

    def to_json(self) -> list[Any]:
        """As log lines hold it."""
        return ["re", self.perm]

    def features(self) -> list[float]:
        """What a model of times is told about it."""
        return [float(place) for place in self.perm]

    def __repr__(self) -> str:
        return str(self.perm)


class AnnotateEntity:
    """How loops run: unrolled, as vectors, bound to threads."""

    def __init__(self, anns: Sequence[str]) -> None:
        self.anns = list(anns)

    def apply(
        self, sch: Schedule, op: Any, axes: Sequence[IterVar],
        axis_lens: Sequence[int] | None = None, max_unroll: int | None = None,
        vec_size: Sequence[int] | None = None, cfg: Any = None, source: Any = None,
    ) -> list[IterVar]:
        """Annotate loops of a stage."""
        for place, (axis, what) in enumerate(zip(axes, self.anns, strict=True)):
            length = axis_lens[place] if axis_lens is not None else None
            if what == "unroll":
                if max_unroll is not None and length is not None and length > max_unroll:
                    raise InstantiationError(f"{length} steps are more than {max_unroll} unrolled")
                sch[op].unroll(axis)
            elif what == "vec":
                if vec_size is not None and length is not None and length not in vec_size:
                    raise InstantiationError(f"{length} lanes are none of {list(vec_size)}")
                sch[op].vectorize(axis)
            elif what == "parallel":
                sch[op].parallel(axis)
        return list(axes)

    def to_json(self) -> list[Any]:
        """As log lines hold it."""
        return ["an", self.anns]

    def features(self) -> list[float]:
        """What a model of times is told about it."""
        return [float(ann == kind) for ann in self.anns for kind in ("unroll", "vec")]

    def __repr__(self) -> str:
        return str(self.anns)


class OtherOptionEntity:
    """Any other choice."""

    def __init__(self, val: Any, place: int = 0, of: int = 1) -> None:
        self.val, self.place, self.of = val, place, of

    def to_json(self) -> list[Any]:
        """As log lines hold it."""
        return ["ot", self.val]

    def features(self) -> list[float]:
        """What a model of times is told about it."""
        if isinstance(self.val, int | float) and not isinstance(self.val, bool) and self.of > 4:
            return [math.log2(1 + abs(self.val))]
        return [float(self.place == place) for place in range(min(self.of, 16))]

    def __repr__(self) -> str:
        return str(self.val)


Entity = SplitEntity | ReorderEntity | AnnotateEntity | OtherOptionEntity


def entity_of_json(row: Sequence[Any]) -> Entity:
    """What to_json gave."""
    kind, value = row
    if kind == "ot":
        return OtherOptionEntity(value)
    made: dict[str, Callable[[Any], Entity]] = {
        "sp": SplitEntity, "re": ReorderEntity, "an": AnnotateEntity
    }
    if kind not in made:
        raise ValueError(f"an entity is sp, re, an or ot, not {kind!r}")
    return made[kind](value)


# ---- what is offered ----


def split_candidates(
    length: int, num_outputs: int = 2, policy: str = "factors", max_factor: int | None = None,
    no_tail: bool = True, filter: Callable[[SplitEntity], bool] | None = None,
    candidate: Sequence[Sequence[int]] | None = None,
) -> list[SplitEntity]:
    """All ways to split a loop."""
    if policy == "candidate":
        found = [SplitEntity([-1, *list(sizes)[1:]]) for sizes in candidate or ()]
    elif policy in ("factors", "power2", "verbose"):
        found = [SplitEntity([-1, *sizes]) for sizes in
                 _sizes(length, num_outputs - 1, policy, max_factor or length)]
    else:
        raise ValueError(
            f"policy '{policy}' is unknown; loops are split by factors, power2, verbose, candidate"
        )
    return [entity for entity in found if filter is None or filter(entity)]


def _sizes(length: int, parts: int, policy: str, largest: int) -> Iterator[tuple[int, ...]]:
    factors = {f for f in range(1, length + 1) if length % f == 0}
    powers = {1 << bit for bit in range(length.bit_length())}
    steps = {"factors": factors, "power2": powers, "verbose": factors | powers}[policy]
    usable = sorted(step for step in steps if step <= largest)
    made = (sizes for sizes in itertools.product(usable, repeat=parts)
            if math.prod(sizes) <= length and (policy != "factors" or
                                               length % math.prod(sizes) == 0))
    return itertools.islice(made, MOST_ENTITIES)


def reorder_candidates(
    axes: Sequence[Any], policy: str = "identity", candidate: Sequence[Sequence[Any]] = (),
    interval: tuple[int, int] | None = None, spatial: Sequence[Sequence[Any]] = (),
    reduce: Sequence[Sequence[Any]] = (),
) -> list[ReorderEntity]:
    """All orders of some loops that a policy allows.

    interval: the places whose loops change places. spatial, reduce: chains of loops that were split
    from one, which keep their order among themselves; the last of a spatial chain runs innermost.
    """

    def places(chain: Sequence[Any]) -> list[int]:
        return [each if isinstance(each, int) else _place(each, axes) for each in chain]

    found: Iterable[Sequence[int]]
    if policy == "identity":
        found = [range(len(axes))]
    elif policy == "all":
        found = itertools.permutations(range(len(axes)))
    elif policy == "interval_all":
        begin, end = interval or (0, len(axes))
        found = ([*range(begin), *middle, *range(end, len(axes))]
                 for middle in itertools.permutations(range(begin, end)))
    elif policy == "candidate":
        found = (places(each) for each in candidate)
    elif policy in ("interleave", "interleave_cuda"):
        chains, sums = [places(each) for each in spatial], [places(each) for each in reduce]
        last = [chain[-1:] for chain in chains]
        inner = (merged_chains([*last, *sums]) if policy == "interleave" else
                 ([*own, *(place for chain in last for place in chain)]
                  for own in merged_chains(sums)))
        found = ([*before, *after] for before, after in itertools.product(
            merged_chains([chain[:-1] for chain in chains]), list(inner)))
    else:
        raise ValueError(f"policy '{policy}' is unknown; loops are ordered by identity, all, "
                         "interval_all, candidate, interleave, interleave_cuda")
    return [ReorderEntity(perm) for perm in itertools.islice(found, MOST_ENTITIES)]


def _place(axis: Any, axes: Sequence[Any]) -> int:
    found = [place for place, own in enumerate(axes) if own is axis]
    if not found:
        raise ValueError(f"{axis} is none of the loops that are ordered")
    return found[0]


def merged_chains(chains: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """All orders in which every chain keeps its own."""
    left = [chain for chain in chains if chain]
    if not left:
        yield []
    for number, chain in enumerate(left):
        rest = [*left[:number], chain[1:], *left[number + 1 :]]
        for merged in merged_chains(rest):
            yield [chain[0], *merged]


def annotate_candidates(count: int, policy: str = "none") -> list[AnnotateEntity]:
    """All ways to annotate some loops, the innermost last."""
    if policy == "none":
        return [AnnotateEntity(["none"] * count)]
    unrolled = [AnnotateEntity([*["none"] * (count - n), *["unroll"] * n])
                for n in range(count + 1)]
    lanes = [AnnotateEntity([*["none"] * (count - n - 1), *["unroll"] * n, "vec"])
             for n in range(count)]
    offered = {
        "unroll": [AnnotateEntity(["unroll"] * count)], "try_unroll": unrolled,
        "try_vec": [AnnotateEntity(["none"] * count), lanes[0]],
        "try_unroll_vec": [*unrolled, *lanes],
    }
    if policy not in offered:
        raise ValueError(
            f"policy '{policy}' is unknown; loops are annotated by none, {', '.join(offered)}"
        )
    return offered[policy]


class Config:
    """What a template asks, whether it collects a space or is given a point of one."""

    is_fallback = False

    def __init__(self) -> None:
        self.entities: dict[str, Entity] = {}
        self.flop = 0.0
        self.filters: list[Callable[[Any], bool]] = []

    def offer(self, name: str, candidates: Callable[[], Sequence[Entity]]) -> None:
        """A knob of the space."""
        raise NotImplementedError

    def define_knob(self, name: str, candidate: Sequence[Any]) -> None:
        """A choice among any values."""
        self.offer(name, lambda: [OtherOptionEntity(value, place, len(candidate))
                                  for place, value in enumerate(candidate)])

    def define_split(self, name: str, axis: Any, policy: str = "factors",
                     **options: Any) -> list[VirtualAxis]:
        """How a loop is split into num_outputs parts."""
        length, parts = _length(axis), options.get("num_outputs", 2)
        self.offer(name, lambda: split_candidates(length, policy=policy, **options))
        return [VirtualAxis(length, f"{name}.{place}") for place in range(parts)]

    def define_reorder(self, name: str, axes: Sequence[Any], policy: str = "identity",
                       **options: Any) -> list[Any]:
        """In which order loops run."""
        self.offer(name, lambda: reorder_candidates(axes, policy, **options))
        return list(axes)

    def define_annotate(self, name: str, axes: Sequence[Any], policy: str = "none",
                        **options: Any) -> list[Any]:
        """How loops run."""
        self.offer(name, lambda: annotate_candidates(len(axes), policy))
        return list(axes)

    @staticmethod
    def axis(length: Any) -> VirtualAxis:
        """A loop that is not there yet, by its length."""
        return VirtualAxis(length)

    reduce_axis = axis

    def add_flop(self, flop: float) -> None:
        """Count operations that the template's function does."""
        self.flop += float(flop.value if isinstance(flop, IntImm) else flop)

    def raise_error(self, message: str) -> None:
        """Refuse this point of the space."""
        raise InstantiationError(message)

    def multi_filter(self, filter: Callable[[Any], bool]) -> None:
        """Refuse points for which a function of the whole point is false."""
        self.filters.append(filter)

    def __getitem__(self, name: str) -> Any:
        """What was chosen for a knob: an entity, with apply or val as its kind has it."""
        if name not in self.entities:
            known = ", ".join(self.entities) or "none"
            raise KeyError(f"there is no knob '{name}'; there are {known}")
        return self.entities[name]

    def __setitem__(self, name: str, entity: Any) -> None:
        """Choose something for a knob, as templates do where no configuration is known."""
        self.entities[name] = entity

    def valid(self) -> bool:
        """Whether a schedule can be made of it; one that cannot raises an InstantiationError."""
        return True

    def __contains__(self, name: str) -> bool:
        return name in self.entities


class ConfigSpace(Config):
    """All points of a template; the point of the first candidates while it is collected."""

    def __init__(self) -> None:
        super().__init__()
        self.space_map: dict[str, list[Entity]] = {}

    def offer(self, name: str, candidates: Callable[[], Sequence[Entity]]) -> None:
        if name not in self.space_map:
            found = list(candidates())
            if not found:
                raise InstantiationError(f"the knob '{name}' has no candidates")
            self.space_map[name] = found
            self.entities[name] = found[0]

    @property
    def dims(self) -> list[int]:
        """How many candidates each knob has."""
        return [len(entities) for entities in self.space_map.values()]

    def __len__(self) -> int:
        return math.prod(self.dims)

    @property
    def range_length(self) -> int:
        """How many points there are."""
        return len(self)

    def point2knob(self, point: int) -> list[int]:
        """Which candidate each knob has at a point; the first knob changes fastest."""
        knobs = []
        for dim in self.dims:
            point, place = divmod(point, dim)
            knobs.append(place)
        return knobs

    def knob2point(self, knobs: Sequence[int]) -> int:
        """The point that has these candidates."""
        point = 0
        for place, dim in zip(reversed(knobs), reversed(self.dims), strict=True):
            point = point * dim + place
        return point

    def get(self, index: int) -> "ConfigEntity":
        """The configuration of a point."""
        if not 0 <= index < len(self):
            raise IndexError(f"the space has the points 0 to {len(self) - 1}, not {index}")
        chosen = zip(self.space_map.items(), self.point2knob(index), strict=True)
        return ConfigEntity(index, {name: own[place] for (name, own), place in chosen})

    def is_index_valid(self, index: int) -> bool:
        """Whether the filters let a point pass."""
        point = self.get(index)
        return all(each(point) for each in self.filters)

    def get_next_index(self, index: int, n: int = 1, start: int | None = None,
                       end: int | None = None) -> int | None:
        """The n-th point behind another one that the filters let pass; None if there is none."""
        low, high = start or 0, len(self) if end is None else end
        points = range(max(index + 1, low), high) if n > 0 else range(min(index, high) - 1, low - 1,
                                                                      -1)
        valid = (point for point in points if self.is_index_valid(point))
        return next(itertools.islice(valid, abs(n) - 1, None), None) if n else index

    def get_rand_index(self, start: int | None = None, end: int | None = None,
                       to_exclude: Collection[int] = ()) -> int:
        """A point at random that the filters let pass."""
        points = range(start or 0, len(self) if end is None else end)
        drawn = random.sample(points, min(len(points), POINTS_DRAWN))
        for point in drawn:
            if point not in to_exclude and self.is_index_valid(point):
                return point
        raise InstantiationError("the filters let no point pass that was drawn")

    def sample_ints(self, count: int) -> list[int]:
        """Some points at random, none twice."""
        return random.sample(range(len(self)), min(count, len(self)))

    def random_walk(self, point: int) -> int:
        """A point that differs in one knob."""
        knobs, dims = self.point2knob(point), self.dims
        movable = [place for place, dim in enumerate(dims) if dim > 1]
        if movable:
            place = random.choice(movable)
            knobs[place] = random.choice([k for k in range(dims[place]) if k != knobs[place]])
        return self.knob2point(knobs)

    def __repr__(self) -> str:
        rows = [f"{place:3} {name}: {len(own)} candidates, {own[0]} .. {own[-1]}"
                for place, (name, own) in enumerate(self.space_map.items())]
        return "\n".join([f"ConfigSpace of {len(self)} points", *rows])


class ConfigEntity(Config):
    """One point of a space."""

    def __init__(self, index: int, entities: Mapping[str, Entity]) -> None:
        super().__init__()
        self.index, self.entities = index, dict(entities)
        self.code_hash: str | None = None

    def offer(self, name: str, candidates: Callable[[], Sequence[Entity]]) -> None:
        if name not in self.entities:
            raise InstantiationError(f"this configuration has no knob '{name}'")

    def get_flatten_feature(self) -> list[float]:
        """What a model of times is told about it."""
        return [value for entity in self.entities.values() for value in entity.features()]

    def to_json_dict(self) -> dict[str, Any]:
        """As log lines hold it."""
        entity = [[name, *each.to_json()] for name, each in self.entities.items()]
        return {"index": self.index, "code_hash": self.code_hash, "entity": entity}

    @classmethod
    def from_json_dict(cls, row: Mapping[str, Any]) -> "ConfigEntity":
        """What to_json_dict gave."""
        return cls(int(row["index"]), {name: entity_of_json(each) for name, *each in row["entity"]})

    def __repr__(self) -> str:
        return f"{list(self.entities.items())},{self.code_hash},{self.index}"


class FallbackConfigEntity(Config):
    """What a template gets where no configuration is known: the first candidates."""

    is_fallback = True

    def offer(self, name: str, candidates: Callable[[], Sequence[Entity]]) -> None:
        if name not in self.entities:
            self.entities[name] = next(iter(candidates()))

    def fallback_split(self, name: str, constraints: Sequence[int]) -> None:
        """Split a loop by these lengths, the first left open."""
        self.entities[name] = SplitEntity([-1, *list(constraints)[1:]])
