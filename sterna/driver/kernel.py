"""One kernel of a graph from its fused function to object code."""

import json
import struct
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Self

from sterna.lowering.lower_kernel import LoweredKernel, lower_kernel
from sterna.lowering.predict import Prediction, predict
from sterna.lowering.workspace import workspace_of
from sterna.relay.expr import Function
from sterna.schedule.caches import with_caches
from sterna.support.collection import without_collection
from sterna.support.recursion import deep_recursion
from sterna.target import Target, plain_of, processor_of
from sterna.target.code_generator import KernelCodeGenerator
from sterna.tir import pipeline
from sterna.tir.in_place import Overlap, let_take_over
from sterna.tir.passes.in_one_thread import in_one_thread
from sterna.tir.passes.lift_allocations import lift_allocations
from sterna.tir.passes.make_packed import make_packed
from sterna.tir.stmt import PrimFunc
from sterna.tir.threads import PLAIN

Pairs = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class KernelNotes:
    """What a build report tells about a kernel."""

    anchor: str
    """The operator whose loops it follows."""
    schedule: str
    """The function that scheduled it."""
    why: str
    choices: dict[str, str] = field(default_factory=dict)
    """What the schedule tells about itself."""
    decisions: dict[str, str] = field(default_factory=dict)
    """What was asked for it, by name: what was taken, and what else was offered."""
    not_offered: list[str] = field(default_factory=list)
    """The questions that were answered from outside with what they do not offer."""
    workspace_bytes: int = 0
    """Memory that it allocates while it runs, beside that of each thread."""
    workspace_thread_bytes: int = 0
    take_over: list[tuple[int, int]] = field(default_factory=list)
    """Inputs whose memory an output may lie in, both by their places."""
    seconds: float = 0.0
    """What compiling it took, when it was compiled."""
    predicted_cycles: float | None = None
    """Of the thread that ends last, by a static throughput model of its loops; None where only the
    run tells."""
    bound_cycles: float | None = None
    """The fewest that the processor needs for its operations and its bytes."""


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel's code and what is told about it."""

    content: bytes
    notes: KernelNotes

    def to_bytes(self) -> bytes:
        """Both as one piece, for other processes and the cache."""
        notes = json.dumps(asdict(self.notes)).encode()
        return struct.pack("<Q", len(notes)) + notes + self.content

    @classmethod
    def from_bytes(cls, packed: bytes) -> Self:
        """What to_bytes packed."""
        (size,) = struct.unpack_from("<Q", packed)
        return cls(packed[8 + size :], KernelNotes(**json.loads(packed[8 : 8 + size])))


def kernel_functions(
    name: str, function: Function, target: Target, packed: bool = True, shares: Pairs = ()
) -> list[PrimFunc]:
    """The loops of a kernel after all passes, and the packed function around them.

    Without that the loops are what other code of the same program calls. shares: inputs and
    outputs, by their places, that may be given the same memory if the loops allow it.
    """
    return annotated_functions(name, function, target, packed, shares)[0]


def annotated_functions(
    name: str, function: Function, target: Target, packed: bool = True, shares: Pairs = ()
) -> tuple[list[PrimFunc], KernelNotes]:
    """The same with what is told about them."""
    start = time.perf_counter()
    with deep_recursion(), without_collection():
        processor = with_caches(processor_of(target))
        lowered = lower_kernel(function, name, processor, target)
        loops, allowed = _sharing(pipeline.run(lowered.function), function, shares)
        loops = _with_plain(loops, name, function, target)
        functions = [loops, make_packed(loops, lowered.arguments)] if packed else [_open(loops)]
        predicted = predict(function, loops, processor)
        notes = _notes(lowered, loops, predicted, time.perf_counter() - start)
        pairs = [(pair.source, pair.target) for pair in allowed if pair.lead == 0]
        return functions, replace(notes, take_over=pairs)


def _with_plain(loops: PrimFunc, name: str, function: Function, target: Target) -> PrimFunc:
    """Loops of a GPU with those for others that cannot run its code, where the target asks so."""
    other = plain_of(target)
    if other is None:
        return loops
    lowered = lower_kernel(function, f"{name}_plain", processor_of(other), other)
    attrs = {**loops.attrs, PLAIN: pipeline.run(lowered.function)}
    return PrimFunc(loops.name, loops.params, loops.buffers, loops.body, attrs)


def _sharing(
    loops: PrimFunc, function: Function, shares: Pairs
) -> tuple[PrimFunc, list[Overlap]]:
    """Loops whose outputs may lie in the memory of inputs, and which of them in which."""
    inputs = len(function.params)
    made, allowed = let_take_over(loops, [(source, inputs + target) for source, target in shares])
    return made, [replace(pair, target=pair.target - inputs) for pair in allowed]


def _notes(
    lowered: LoweredKernel, loops: PrimFunc, predicted: Prediction | None, seconds: float
) -> KernelNotes:
    workspace = workspace_of(loops)
    return KernelNotes(
        anchor=lowered.anchor.name,
        schedule=getattr(lowered.found.apply, "__name__", "a schedule without a name"),
        why=lowered.found.why,
        choices={key: str(value) for key, value in lowered.choices.items()},
        decisions={key: str(value) for key, value in lowered.decisions.items()},
        not_offered=[key for key, value in lowered.decisions.items() if value.is_stale],
        workspace_bytes=workspace.bytes,
        workspace_thread_bytes=workspace.thread_bytes,
        seconds=seconds,
        predicted_cycles=None if predicted is None else round(predicted.cycles, 1),
        bound_cycles=None if predicted is None else round(predicted.bound, 1),
    )


def _open(loops: PrimFunc) -> PrimFunc:
    """A function that other files of the same program may call."""
    attrs = {**loops.attrs, "export": True}
    return PrimFunc(loops.name, loops.params, loops.buffers, loops.body, attrs)


def kernel_in_one_thread(
    name: str, function: Function, target: Target, shares: Pairs = ()
) -> tuple[PrimFunc, list[Overlap]]:
    """The loops of a kernel that is given the memory it works in, and what shares memory."""
    with deep_recursion():
        lowered = lower_kernel(function, name, with_caches(processor_of(target)), target)
        loops = lift_allocations(pipeline.run(in_one_thread(lowered.function)))
        return _sharing(loops, function, shares)


def compile_kernel(
    name: str, function: Function, target: Target, packed: bool = True, shares: Pairs = ()
) -> CompiledKernel:
    """A kernel by itself, for a target whose code generator makes such."""
    start = time.perf_counter()
    generator = target.kind.code_generator()
    assert isinstance(generator, KernelCodeGenerator)
    functions, notes = annotated_functions(name, function, target, packed, shares)
    with deep_recursion(), without_collection():
        content = generator.compile_kernel(functions, target, name)
    return CompiledKernel(content, replace(notes, seconds=time.perf_counter() - start))
