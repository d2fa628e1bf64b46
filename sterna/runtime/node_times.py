"""What each node of a graph takes: a table, and a trace that Chrome and Perfetto show."""

import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sterna.support.table import lay_out
from sterna.support.write_aside import write_text_aside

# A kernel that takes over so many times its bound is marked, in profiles and in build reports.
FAR = 3.0
# Shorter ones are not: the call and the clock are a good part of what is measured.
SHORT_SECONDS = 5e-6
MORE_THAN_THREE_TIMES = "Over three times their bound"


@dataclass(frozen=True, slots=True)
class NodeTime:
    """One node and how long it took."""

    name: str
    function: str
    seconds: float
    inputs: int
    shapes: tuple[tuple[int, ...], ...]
    """Of its outputs."""
    flops: int | None = None
    """Floating-point operations that it does, if the graph says so."""
    bytes: int | None = None
    """Bytes that it reads and writes, if the graph says so."""
    constant_bytes: int = 0
    """Those of them that are parameters of the model."""
    written_bytes: int = 0
    """Those of them that are its results."""
    dtype: str = "float32"
    """Of its first output."""
    function_steps: int = 0
    """Instructions for each lane of functions such as exp, at the least, beside the operations."""
    sources: tuple[str, ...] = ()
    """The nodes that it computes, as the model that was imported calls them."""
    spared_flops: int = 0
    """Those of the model's operations that a transform of Winograd's spares it."""
    way: str = ""
    """Which transform that is: Winograd F(4, 3)."""
    product_flops: int = 0
    """Those of the operations that multiply and add another type than that of the output."""
    product_type: str = ""
    """Which type that is: int8."""

    def gflops(self) -> float | None:
        """Billions of the model's operations per second, with those that a transform spares."""
        return self.flops / self.seconds * 1e-9 if self.flops and self.seconds else None

    def gbytes(self) -> float | None:
        """Billions of bytes per second."""
        return self.bytes / self.seconds * 1e-9 if self.bytes and self.seconds else None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a machine can do at most, all of its threads together."""

    gflops: float | None = None
    """Billions of float32 operations per second."""
    gbytes: Sequence[tuple[float, float]] = ()
    """Billions of bytes per second of copies that move so many bytes or more, from few to many:
    what fits into a cache moves faster."""
    read_gbytes: Sequence[tuple[float, float]] = ()
    """The same of reads."""
    half_gflops: float | None = None
    """Billions of float16 operations per second, where they are computed as they are."""
    byte_gflops: float | None = None
    """Billions of operations per second on bytes, where an instruction adds several products."""

    def seconds(self, node: NodeTime, all_constants: int = 0) -> float | None:
        """The shortest time for what a node does, if a bound says something about it.

        all_constants is what the nodes of the network read of its parameters together: it passes
        through the caches between two runs of a node, so that those of the node are as far away as
        so many bytes are. An instruction of a function takes the place of a multiply-add, which is
        two operations; what a transform spares is not computed.
        """
        found = []
        if node.flops is not None:
            products = node.product_flops and node.product_flops - node.spared_flops
            others = node.flops - node.spared_flops - products + 2 * node.function_steps
            parts = [(others, node.dtype), (products, node.product_type)]
            known = [(count, rate) for count, kind in parts if (rate := self._gflops_of(kind))]
            if known:
                found.append(sum(count / (rate * 1e9) for count, rate in known))
        if node.bytes is not None:
            read = node.bytes - node.written_bytes
            copied = 2 * min(read, node.written_bytes)
            if self.gbytes:
                found.append(copied / _rate(self.gbytes, copied))
            if self.read_gbytes:
                found.append(read / _rate(self.read_gbytes, read))
                found.append(node.constant_bytes / _rate(self.read_gbytes, all_constants))
        return max(found, default=None)

    def _gflops_of(self, kind: str) -> float | None:
        if kind in ("float16", "bfloat16"):
            return self.half_gflops
        in_bytes = kind in ("int8", "uint8", "int32")
        return self.byte_gflops if in_bytes else self.gflops if kind == "float32" else None


def _rate(rates: Sequence[tuple[float, float]], size: int) -> float:
    """Bytes per second for work on so many bytes: never less than they allow."""
    reached = [rate for least, rate in rates if least <= size]
    return (reached or [rates[0][1]])[-1] * 1e9


@dataclass(frozen=True, slots=True)
class NodeTimes:
    """The times of one run, in the order of the run."""

    nodes: Sequence[NodeTime]
    bounds: Bounds | None = None

    @property
    def seconds(self) -> float:
        """What all nodes took together."""
        return sum(node.seconds for node in self.nodes)

    def share_of_bound(self, node: NodeTime) -> float | None:
        """The shortest time that the bounds allow, as a share of the time that it took."""
        constants = sum(each.constant_bytes for each in self.nodes)
        shortest = None if self.bounds is None else self.bounds.seconds(node, constants)
        return None if shortest is None or not node.seconds else shortest / node.seconds

    def is_far(self, node: NodeTime) -> bool:
        """Whether it was measured to take over three times the shortest time."""
        share = self.share_of_bound(node)
        return share is not None and share * FAR < 1 and node.seconds >= SHORT_SECONDS

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, in the order of the run."""
        return {
            "seconds": self.seconds,
            "bounds": None if self.bounds is None else asdict(self.bounds),
            "nodes": [
                {**asdict(node), "gflops": node.gflops(), "gbytes": node.gbytes(),
                 "share_of_time": node.seconds / self.seconds if self.seconds else 0.0,
                 "share_of_bound": self.share_of_bound(node),
                 "over_three_times_bound": self.is_far(node)}
                for node in self.nodes
            ],
        }

    def table(self, sort: bool = True) -> str:
        """The nodes as a table, those that take longest first unless sort is off."""
        nodes = sorted(self.nodes, key=lambda n: -n.seconds) if sort else list(self.nodes)
        columns = [
            ("Node Name", [n.name for n in nodes]),
            ("Ops", [n.function for n in nodes]),
            ("Time(us)", [f"{n.seconds * 1e6:.3f}" for n in nodes]),
            ("Time(%)", [_percent(n.seconds / self.seconds if self.seconds else 0) for n in nodes]),
            ("Shape", [", ".join(map(str, n.shapes)) for n in nodes]),
            ("Inputs", [str(n.inputs) for n in nodes]),
            ("Outputs", [str(len(n.shapes)) for n in nodes]),
        ]
        for title, values in (
            ("GFLOP/s", [_number(n.gflops()) for n in nodes]),
            ("GB/s", [_number(n.gbytes()) for n in nodes]),
            ("Bound(%)", [_percent(self.share_of_bound(n)) for n in nodes]),
            ("By", [n.way for n in nodes]),
            ("From", [", ".join(n.sources) for n in nodes]),
        ):
            if any(values):
                columns.append((title, values))
        total = {"Node Name": "Total", "Time(us)": f"{self.seconds * 1e6:.3f}"}
        return lay_out(columns, total)

    def __str__(self) -> str:
        return self.table()

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The nodes as plain values, in the order of the run."""
        nodes: list[dict[str, Any]] = self.to_dict()["nodes"]
        return nodes

    def json(self) -> str:
        """All of it as JSON."""
        return json.dumps(self.to_dict())

    def csv(self) -> str:
        """The nodes as comma-separated values, in the order of the run, with a line of names."""
        text = io.StringIO()
        rows = self.calls
        writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()

    def trace(self) -> str:
        """The run as JSON in Chrome's trace format."""
        events, at = [], 0.0
        for node in self.nodes:
            details: dict[str, Any] = {
                "function": node.function, "shapes": [list(s) for s in node.shapes],
                "flops": node.flops, "bytes": node.bytes, "sources": list(node.sources) or None,
            }
            details = {key: value for key, value in details.items() if value is not None}
            events.append({
                "name": node.name, "cat": "node", "ph": "X", "pid": 0, "tid": 0,
                "ts": round(at * 1e6, 3), "dur": round(node.seconds * 1e6, 3), "args": details,
            })
            at += node.seconds
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the trace to a file, for chrome://tracing or ui.perfetto.dev."""
        write_text_aside(path, self.trace())


def tell_far(kernels: Sequence[tuple[str, float]]) -> str:
    """Kernels and how many times their bounds they take: conv2d_add 33 x, max_pool2d 15.7 x"""
    return ", ".join(f"{name} {times:.3g} x" for name, times in kernels)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{fraction * 100:.1f}"
