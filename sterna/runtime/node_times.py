"""What each node of a graph takes: a table, and a trace that Chrome and Perfetto show."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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

    def gflops(self) -> float | None:
        """Billions of operations per second."""
        return self.flops / self.seconds * 1e-9 if self.flops and self.seconds else None

    def gbytes(self) -> float | None:
        """Billions of bytes per second."""
        return self.bytes / self.seconds * 1e-9 if self.bytes and self.seconds else None


@dataclass(frozen=True, slots=True)
class NodeTimes:
    """The times of one run, in the order of the run."""

    nodes: Sequence[NodeTime]
    peak_gflops: float | None = None
    peak_gbytes: float | None = None

    @property
    def seconds(self) -> float:
        """What all nodes took together."""
        return sum(node.seconds for node in self.nodes)

    def share_of_peak(self, node: NodeTime) -> float | None:
        """The shortest time that the given peaks allow, as a share of the time that it took."""
        bounds = []
        if self.peak_gflops and node.flops is not None:
            bounds.append(node.flops / (self.peak_gflops * 1e9))
        if self.peak_gbytes and node.bytes is not None:
            bounds.append(node.bytes / (self.peak_gbytes * 1e9))
        return max(bounds) / node.seconds if bounds and node.seconds else None

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
            ("Peak(%)", [_percent(self.share_of_peak(n)) for n in nodes]),
        ):
            if any(values):
                columns.append((title, values))
        total = {"Node Name": "Total", "Time(us)": f"{self.seconds * 1e6:.3f}"}
        return _lay_out(columns, total)

    def __str__(self) -> str:
        return self.table()

    def trace(self) -> str:
        """The run as JSON in Chrome's trace format."""
        events, at = [], 0.0
        for node in self.nodes:
            details: dict[str, Any] = {
                "function": node.function, "shapes": [list(s) for s in node.shapes],
                "flops": node.flops, "bytes": node.bytes,
            }  # fmt: skip
            details = {key: value for key, value in details.items() if value is not None}
            events.append({
                "name": node.name, "cat": "node", "ph": "X", "pid": 0, "tid": 0,
                "ts": round(at * 1e6, 3), "dur": round(node.seconds * 1e6, 3), "args": details,
            })  # fmt: skip
            at += node.seconds
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the trace to a file, for chrome://tracing or ui.perfetto.dev."""
        Path(path).write_text(self.trace(), "utf-8")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share * 100:.1f}"


def _lay_out(columns: Iterable[tuple[str, list[str]]], total: dict[str, str]) -> str:
    """Columns with a rule under their titles and a last row."""
    padded = []
    for title, values in columns:
        cells = [title, "-" * len(title), *values, total.get(title, "")]
        width = max(map(len, cells))
        padded.append([cell.ljust(width) for cell in cells])
    return "\n".join("  ".join(row).rstrip() for row in zip(*padded, strict=True))
