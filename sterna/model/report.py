"""What there is to tell about a compiled model: kernels, memory, the time that compiling took."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from sterna.model.graph_devices import CopyReport, devices_of
from sterna.model.sizes import SIZES
from sterna.runtime.needed_processor import needs_of
from sterna.runtime.node_times import FAR, MORE_THAN_THREE_TIMES, tell_far
from sterna.support.dtype import DataType
from sterna.support.table import count, lay_out, show_bytes, show_seconds

if TYPE_CHECKING:
    from sterna.driver.kernel import KernelNotes
    from sterna.model.arguments import TensorSpec
    from sterna.model.compiled_model import CompiledModel


# Kernels of fewer cycles, some microseconds, are not marked: their calls cost as much.
SHORT_CYCLES = 15_000
# How many kernels are named whose weights grew.
NAMED_KERNELS = 3


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What compiling a model leaves to tell about a kernel."""

    operators: tuple[str, ...] = ()
    notes: "KernelNotes | None" = None


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One kernel: what was fused into it and how it was scheduled."""

    name: str
    calls: int
    """How often a run of the model calls it."""
    operators: tuple[str, ...]
    """What was fused into it, in order; empty for a model from a file."""
    sources: tuple[str, ...]
    """The nodes of the imported model that it computes, as far as they are known."""
    anchor: str
    """The operator whose loops it follows."""
    schedule: str
    why: str
    choices: Mapping[str, str]
    decisions: Mapping[str, str]
    """What was asked for it, by name: what was taken, and what else was offered."""
    flops: int
    """Of one call."""
    bytes: int
    workspace_bytes: int
    """Memory that one call takes beside its operands, on all threads together."""
    seconds: float
    """What compiling it took, now or when it was put into the cache."""
    predicted_cycles: float | None = None
    """Of the thread that ends last, by a static model of its loops; None where the run tells."""
    bound_cycles: float | None = None
    """The fewest that the processor needs for its operations and its bytes."""
    packing_overhead: int = 0
    """Bytes by which the weights of all its calls grew when they were transformed."""
    device: str = "cpu"
    """The kind of device that runs it."""
    host_only: str = ""
    """Why the processor runs it in a model of a GPU."""

    @property
    def times_bound(self) -> float | None:
        """How many times its bound it is predicted to take."""
        if self.predicted_cycles is None or not self.bound_cycles:
            return None
        return self.predicted_cycles / self.bound_cycles

    @property
    def is_far(self) -> bool:
        """Whether it is predicted to take over three times its bound; short kernels are not."""
        times, cycles = self.times_bound, self.predicted_cycles or 0.0
        return times is not None and times > FAR and cycles >= SHORT_CYCLES


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """The bytes that a model needs to run."""

    weights: int
    packing_overhead: int
    """The part of these that is there because packed weights are larger."""
    activations: int
    """One arena on each device for everything between inputs and outputs, these included."""
    inputs: int
    workspace: int
    """The most that a kernel takes for itself."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.activations + self.inputs + self.workspace


@dataclass(frozen=True, slots=True)
class Report:
    """What compiling did; print() shows it, to_dict and to_json give it to programs."""

    target: str
    opt_level: int | None
    inputs: Sequence[str]
    outputs: Sequence[str]
    kernels: Sequence[KernelReport]
    memory: MemoryReport
    stages: Mapping[str, float]
    """Seconds by stage of the compilation."""
    copies: Sequence[CopyReport] = ()
    """What crosses between devices."""

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        made = asdict(self)
        made["memory"]["total"] = self.memory.total
        for kernel, held in zip(self.kernels, made["kernels"], strict=True):
            held["over_three_times_bound"] = kernel.is_far
        return made

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        parts = [*self._far(), *self._devices(), *self._memory(), *self._stages()]
        return "\n".join([*self._head(), "", self._table(), "", *parts])

    @property
    def counts(self) -> str:
        """21 calls of 14 kernels"""
        calls = sum(kernel.calls for kernel in self.kernels)
        return f"{count(calls, 'call')} of {count(len(self.kernels), 'kernel')}"

    def _head(self) -> list[str]:
        level = "" if self.opt_level is None else f", level {self.opt_level}"
        return [
            f"{', '.join(self.inputs)} -> {', '.join(self.outputs)}",
            f"for {self.target}{level}: {self.counts}",
        ]

    def _table(self) -> str:
        """Of a model from a file less is known: what nothing is told in is left out."""
        kernels = self.kernels
        columns = [
            ("Calls", [str(k.calls) for k in kernels]),
            ("Fused", [" + ".join(k.operators) or k.name for k in kernels]),
            ("Schedule", [k.schedule for k in kernels]),
            ("Why", [", ".join(f"{n}: {v}" for n, v in k.choices.items()) or k.why
                     for k in kernels]),
            ("MFLOP", [f"{k.flops * 1e-6:.1f}" for k in kernels]),
            ("x bound", [_times(k) for k in kernels]),
            ("Workspace", [show_bytes(k.workspace_bytes) for k in kernels]),
        ]
        return lay_out([(title, told) for title, told in columns if any(told) or not kernels])

    def _devices(self) -> list[str]:
        """What runs where, if that is on several devices, and what is copied between them."""
        by_device: dict[str, list[KernelReport]] = {}
        for kernel in self.kernels:
            by_device.setdefault(kernel.device, []).append(kernel)
        if len(by_device) < 2 and not self.copies:
            return []
        told = [
            f"{kind}: {count(sum(k.calls for k in own), 'call')} of {count(len(own), 'kernel')}"
            for kind, own in by_device.items()
        ]
        hosted = [
            f"On the processor: {_sources(kernel)}: {kernel.host_only}"
            for kernel in self.kernels if kernel.host_only
        ]
        copied = [
            f"Copied from {c.source} to {c.target}: {show_bytes(c.bytes)} of {c.what}"
            for c in self.copies
        ]
        return [f"On {', '.join(told)}", *hosted, *copied]

    def _far(self) -> list[str]:
        far = [(k.name, k.times_bound or 0.0) for k in self.kernels if k.is_far]
        return [f"{MORE_THAN_THREE_TIMES}, as predicted: {tell_far(far)}"] if far else []

    def _memory(self) -> list[str]:
        memory = self.memory
        parts = {
            "weights": memory.weights, "activations": memory.activations,
            "inputs": memory.inputs, "workspace": memory.workspace,
        }
        listed = ", ".join(f"{show_bytes(size)} {what}" for what, size in parts.items())
        return [f"Memory: {show_bytes(memory.total)} ({listed})", *self.growth]

    @property
    def growth(self) -> list[str]:
        """Which weights grew, why, and what keeps them smaller; nothing where none did."""
        memory = self.memory
        if not memory.packing_overhead:
            return []
        before = max(1, memory.weights - memory.packing_overhead)
        allowed = SIZES["balanced"]["relay.weights.max_growth"]
        smaller = "balanced or small" if memory.weights > allowed * before else "small"
        sizes = {_sources(k): k.packing_overhead for k in self.kernels if k.packing_overhead}
        largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:NAMED_KERNELS]
        named = [f"{show_bytes(sizes[source])} of {source}" for source in largest]
        return [
            f"Weights grew from {show_bytes(before)} to {show_bytes(memory.weights)} "
            f"({memory.weights / before:.1f} x) by Winograd's transform, most of all "
            f"{', '.join(named)}; --size {smaller} keeps them smaller"
        ]

    def _stages(self) -> list[str]:
        if not self.stages:
            return []
        listed = ", ".join(f"{show_seconds(s)} to {name}" for name, s in self.stages.items())
        return [f"Compiled in {show_seconds(sum(self.stages.values()))} ({listed})"]


def make_report(model: "CompiledModel", threads: int) -> Report:
    """The report of a model whose parallel loops run on so many threads."""
    build = model.build
    facts = {} if build is None else build.kernels()
    nodes = [node for node in model.graph["nodes"] if node["op"] == "tvm_op"]
    calls: dict[str, list[dict[str, str]]] = {}
    for node in nodes:
        calls.setdefault(node["attrs"]["func_name"], []).append(node["attrs"])
    places = devices_of(model.graph)
    kernels = [
        replace(_kernel(name, made, facts.get(name, KernelFacts()), threads),
                device=places.kernels[name])
        for name, made in calls.items()
        if name not in ("__nop", "__copy")
    ]
    memory = MemoryReport(
        weights=sum(array.nbytes for array in model.weights.values()),
        packing_overhead=sum(kernel.packing_overhead for kernel in kernels),
        activations=places.activations,
        inputs=sum(map(_bytes, model.inputs)),
        workspace=max((kernel.workspace_bytes for kernel in kernels), default=0),
    )
    return Report(
        target=_file(model) if build is None else build.target,
        opt_level=None if build is None else build.opt_level,
        inputs=[str(spec) for spec in model.inputs],
        outputs=[str(spec) for spec in model.outputs],
        kernels=kernels,
        memory=memory,
        stages={} if build is None else dict(build.stages),
        copies=places.copies,
    )


def _file(model: "CompiledModel") -> str:
    """A model's file, and the processor that it needs, or of a portable one the level here."""
    _, (level, *levels) = model.graph["attrs"].get("level", ("list_str", [""]))
    if level:
        return f"the file {model.path} ({level} of {', '.join(levels)})"
    cpu, _, features = needs_of(model.path).partition(" ")
    with_features = f" with {features.replace(' ', ', ')}" if features else ""
    return f"the file {model.path}" + (f" (needs {cpu}{with_features})" if cpu else "")


def _kernel(
    name: str, calls: Sequence[Mapping[str, str]], facts: KernelFacts, threads: int
) -> KernelReport:
    notes, attrs = facts.notes, calls[0]
    sources = [source for call in calls for source in json.loads(call.get("sources", "[]"))]
    return KernelReport(
        name=name,
        calls=len(calls),
        operators=facts.operators,
        sources=tuple(dict.fromkeys(sources)),
        anchor="" if notes is None else notes.anchor,
        schedule="" if notes is None else notes.schedule,
        why="" if notes is None else notes.why,
        choices={} if notes is None else notes.choices,
        decisions={} if notes is None else notes.decisions,
        flops=int(attrs.get("flops", 0)),
        bytes=int(attrs.get("bytes", 0)),
        workspace_bytes=int(attrs.get("workspace", 0))
        + threads * int(attrs.get("workspace_of_thread", 0)),
        packing_overhead=sum(int(call.get("packing_overhead", 0)) for call in calls),
        seconds=0.0 if notes is None else notes.seconds,
        predicted_cycles=None if notes is None else notes.predicted_cycles,
        bound_cycles=None if notes is None else notes.bound_cycles,
        host_only=attrs.get("host_only", ""),
    )


def _sources(kernel: KernelReport) -> str:
    """The nodes of the user's model that a kernel computes, in short; else its own name."""
    own = [source for source in kernel.sources if "conv" in source.lower()] or kernel.sources
    if not own:
        return kernel.name
    return own[0] if len(own) == 1 else f"{own[0]} and {len(own) - 1} more"


def _times(kernel: KernelReport) -> str:
    """How many times its bound a kernel takes; marked if that is far."""
    times = kernel.times_bound
    return "" if times is None else f"{times:.1f}{'!' if kernel.is_far else ''}"


def _bytes(spec: "TensorSpec") -> int:
    return (math.prod(spec.shape) * DataType(spec.dtype).bits + 7) // 8
