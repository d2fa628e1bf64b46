"""Which devices the parts of a compiled graph run on, and what is copied between them."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sterna.runtime.device import device_kind
from sterna.support.dtype import DataType


@dataclass(frozen=True, slots=True)
class CopyReport:
    """A value that is copied from one device to another in each run."""

    source: str
    target: str
    bytes: int
    what: str
    """The nodes of the imported model that give it, or the kernel, or the input."""


@dataclass(frozen=True, slots=True)
class GraphDevices:
    """The kinds of devices of a graph's kernels, and what they need there."""

    kernels: dict[str, str]
    copies: list[CopyReport]
    activations: int
    """The bytes of the arenas of all devices."""


def devices_of(graph: Mapping[str, Any]) -> GraphDevices:
    """What a graph, as executors read it, says of its devices."""
    attrs, nodes, rows = graph["attrs"], graph["nodes"], graph["node_row_ptr"]
    kinds = attrs.get("device_index", ("list_int", [1] * rows[-1]))[1]
    names = {kind: device_kind(kind) or "cpu" for kind in set(kinds)}
    found = GraphDevices({}, [], _activations(attrs, kinds))
    for node, entry in zip(nodes, rows, strict=False):
        if node["op"] == "null":
            continue
        called = node["attrs"]["func_name"]
        found.kernels[called] = names[kinds[entry]]
        if called == "__copy":
            origin, index, *_ = node["inputs"][0]
            source, target = names[kinds[rows[origin] + index]], names[kinds[entry]]
            what = _words(node) or _words(nodes[origin]) or nodes[origin]["name"]
            found.copies.append(CopyReport(source, target, _bytes(attrs, entry), what))
    return found


def _words(node: Mapping[str, Any]) -> str:
    return ", ".join(json.loads(node.get("attrs", {}).get("sources", "[]")))


def _bytes(attrs: Mapping[str, Any], entry: int) -> int:
    shape, dtype = attrs["shape"][1][entry], attrs["dltype"][1][entry]
    return int(math.prod(shape) * DataType(dtype).bits + 7) // 8


def _activations(attrs: Mapping[str, Any], kinds: list[int]) -> int:
    """The graph's arena, and on every other device the storage that is its arena."""
    own = int(attrs.get("arena_bytes", ["int", 0])[1])
    offsets = attrs.get("storage_offset", ["list_int", []])[1]
    ends: dict[int, int] = {}
    for entry, offset in enumerate(offsets):
        if offset >= 0 and kinds[entry] != kinds[0]:
            ends[kinds[entry]] = max(ends.get(kinds[entry], 0), offset + _bytes(attrs, entry))
    return own + sum(ends.values())
