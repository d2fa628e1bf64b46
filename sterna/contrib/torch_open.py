"""Graphs of torch.compile with open extents, exported once for all sizes."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._guards import tracing

from sterna.contrib.torch_record import with_autocast

# Of a number among a graph's inputs: the tensor and the axis whose extent it is.
Extents = Mapping[int, tuple[int, int]]


class _OfTensors(torch.nn.Module):  # type: ignore[misc]
    """A graph as a function of its tensors, from which its other inputs follow."""

    def __init__(self, graph: Any, extents: Extents, count: int) -> None:
        super().__init__()
        self.graph, self.extents, self.count = graph, extents, count

    def forward(self, *tensors: Any) -> Any:
        rest = iter(tensors)
        given: list[Any] = [
            None if place in self.extents else next(rest) for place in range(self.count)
        ]
        for place, (tensor, axis) in self.extents.items():
            given[place] = given[tensor].shape[axis]
        return self.graph(*given)


def export_open(gm: Any, inputs: Sequence[Any]) -> Any | None:
    """The graph as an exported program whose open extents are those that Dynamo found.

    None where a number is no tensor's extent, or where torch.export fixes an extent.
    """
    examples = [node.meta["example_value"] for node in gm.graph.find_nodes(op="placeholder")]
    extents = _extents(examples)
    if extents is None:
        return None
    places = [place for place in range(len(examples)) if place not in extents]
    dims = [
        {axis: torch.export.Dim.AUTO for axis, extent in enumerate(examples[place].shape)
         if isinstance(extent, torch.SymInt)}
        for place in places
    ]
    module = _OfTensors(with_autocast(gm), extents, len(examples))
    try:
        with tracing(None), torch.no_grad():
            exported = torch.export.export(
                module, tuple(inputs[place] for place in places), dynamic_shapes=(tuple(dims),)
            )
    except Exception:
        return None  # what torch.export says of open extents; it is asked again for known ones
    made = [node.meta["val"] for node in exported.graph.nodes if node.op == "placeholder"]
    shapes = [each.shape for each in made if isinstance(each, torch.Tensor)][-len(places) :]
    is_whole = all(
        isinstance(shape[axis], torch.SymInt)
        for shape, opened in zip(shapes, dims, strict=True) for axis in opened
    )
    return exported if is_whole else None


def _extents(examples: Sequence[Any]) -> Extents | None:
    """Where the numbers among a graph's inputs stand in its tensors' shapes."""
    known = {
        str(extent): (place, axis) for place, each in enumerate(examples)
        if isinstance(each, torch.Tensor)
        for axis, extent in enumerate(each.shape) if isinstance(extent, torch.SymInt)
    }
    found: dict[int, tuple[int, int]] = {}
    for place, each in enumerate(examples):
        if isinstance(each, torch.Tensor):
            continue
        if not isinstance(each, torch.SymInt) or str(each) not in known:
            return None
        found[place] = known[str(each)]
    return found
