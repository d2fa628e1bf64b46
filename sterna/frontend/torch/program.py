"""A program of ATen operators: what every reader makes, and all that the importer knows of a model.

Arguments have the names of the operators' schemas. A value is known by its name; one that stands
where a schema wants a number is a `NumberRef`, so that a converter gets the number itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from sterna.frontend.open_shapes import NamedDim
from sterna.relay.arrays import Array

T = TypeVar("T")

# No dimension has more elements.
LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Ref:
    """The tensor of that name."""

    name: str


@dataclass(frozen=True, slots=True)
class NumberRef:
    """The number of that name: an extent, or what was computed from extents."""

    name: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An argument that no reader understands; a converter that ignores it may go on."""

    what: str


# The arguments of operators that take functions; one with a star takes all that follow, and those
# without a name are read by nobody.
HIGHER_ORDER = {
    "ops.higher_order.cond": ["pred", "true_fn", "false_fn", "operands"],
    "ops.higher_order.while_loop": ["cond_fn", "body_fn", "carried", "additional"],
    "ops.higher_order.while_loop_stack_output": ["cond_fn", "body_fn", "carried", "additional"],
    "ops.higher_order.scan": ["combine_fn", "init", "xs", "additional"],
    "ops.higher_order.map_impl": ["f", "xs", "additional"],
    "ops.higher_order.invoke_quant_packed": ["f", "*operands"],
    "ops.higher_order.with_effects": ["token", "op", "*operands"],
    "ops.higher_order.flat_apply": ["", "", "name", "*operands"],
    "ops.higher_order.flex_attention": [
        "query", "key", "value", "score_mod", "block_mask", "scale", "", "score_buffers",
        "mask_buffers",
    ],
}


def named_arguments(target: str, given: Sequence[T]) -> "dict[str, T | list[T]]":
    """Arguments of an operator that takes functions, or of Python's own, by their names."""
    names = HIGHER_ORDER.get(target, ["a", "b", "c"])
    takes_rest = names[-1].startswith("*")
    plain = names[:-1] if takes_rest else names
    found: dict[str, T | list[T]] = {
        name: each for name, each in zip(plain, given, strict=False) if name
    }
    if takes_rest:
        found[names[-1][1:]] = list(given[len(plain) :])
    return found


@dataclass(frozen=True, slots=True)
class Body:
    """A branch of a condition, or what a loop does in a round: a program of its operands."""

    inputs: list[str]
    steps: "list[Step]"
    outputs: "list[Argument]"


Argument: TypeAlias = (
    "Ref | NumberRef | Unreadable | Body | int | float | complex | bool | str | list[Argument]"
    " | None"
)


@dataclass(frozen=True, slots=True)
class Step:
    """One call of an operator."""

    target: str
    """The operator with its overload: aten.add.Tensor."""
    name: str
    arguments: dict[str, Argument]
    outputs: list[str]
    """The names of its results, those of lists one by one; an empty one is not wanted."""
    trace: str = ""
    """The stack of the user's program when the call was recorded."""


@dataclass(frozen=True, slots=True)
class ProgramInput:
    """What a caller gives to a program."""

    name: str
    dtype: str
    shape: Sequence[NamedDim] | None
    is_number: bool = False
    symbol: str = ""
    """Of a number: the open extent that it is."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter, a buffer or another tensor that lies in the model."""

    value: str
    """The name by which steps read it."""
    name: str
    """The name in the model's state: layer1.0.conv.weight."""
    read: Callable[[str], Array]
    """Its elements; it is told how messages name the weight."""


OutputKind = Literal["result", "buffer", "input"]


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """What a program gives back: a result, or the new value of a buffer or of an input."""

    value: Argument
    kind: OutputKind = "result"
    target: str = ""
    """The buffer or the input that changes."""
    is_complex: bool = False
    """Whether its tensor has both parts of complex numbers along a last axis."""
    device: str = ""
    """Where PyTorch has its tensor, if that is known: cuda:0."""


@dataclass(frozen=True, slots=True)
class Program:
    """A model as its reader found it."""

    inputs: list[ProgramInput]
    weights: list[Weight]
    steps: list[Step]
    outputs: list[ProgramOutput]
    output_names: list[str] = field(default_factory=list)
    """What the user calls the results, if anything."""
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Which extents open dimensions may have, by name."""


def range_of(least: int | None, most: int | None) -> tuple[int, int] | None:
    """The extents that a constraint of torch.export allows, as PyTorch itself checks them.

    A least of 2 says that graphs were recorded with more than one element: 0 and 1 are allowed.
    """
    least = 0 if least is None or least <= 2 else least
    most = LARGEST if most is None else min(most, LARGEST)
    return None if (least, most) == (0, LARGEST) else (least, most)


def refs_of(argument: Argument) -> list[str]:
    """The names of the values that an argument reads."""
    found: list[str] = []
    stack = [argument]
    while stack:
        part = stack.pop()
        if isinstance(part, Ref | NumberRef):
            found.append(part.name)
        elif isinstance(part, list):
            stack.extend(reversed(part))
    return found


# What a program checks itself by in a run.
CHECKS = (
    "aten._assert_scalar", "aten._assert_async", "aten.sym_constrain_range",
    "aten.sym_constrain_range_for_size",
)


def is_check(target: str) -> bool:
    """Whether an operator is a check, which gives nothing."""
    return target.rpartition(".")[0] in CHECKS


# Where tensors lie, which is the compiler's own business.
_PLACES = ("aten.sym_storage_offset", "aten.sym_stride", "aten.storage_offset", "aten.stride")


def _told_by_places(steps: list[Step]) -> set[str]:
    """The names of numbers that follow from where tensors lie."""
    found: set[str] = set()
    for step in steps:
        reads = (name for each in step.arguments.values() for name in refs_of(each))
        if step.target.rpartition(".")[0] in _PLACES or not found.isdisjoint(reads):
            found.update(step.outputs)
    return found


def live_steps(program: Program) -> list[Step]:
    """The steps that results come from, and those that a program checks itself by in a run.

    A check of where tensors lie is none of them.
    """
    places = _told_by_places(program.steps)
    needed = {name for output in program.outputs for name in refs_of(output.value)}
    kept: list[Step] = []
    for step in reversed(program.steps):
        reads = [name for each in step.arguments.values() for name in refs_of(each)]
        is_kept = is_check(step.target) and places.isdisjoint(reads)
        if is_kept or not needed.isdisjoint(step.outputs):
            kept.append(step)
            needed.update(reads)
    return kept[::-1]
