"""Graphs of PyTorch in parts: what has converters is compiled, the rest runs as PyTorch runs it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from sterna.contrib.torch_random import is_random
from sterna.frontend.torch.read_exported import functional, target_name
from sterna.frontend.torch.table import converter_of

Graph = Callable[..., Any]
# Compiles a part: its graph, its inputs (tensors, or what they are like), and which are constants.
CompilePart = Callable[[Any, Sequence[Any], Sequence[int]], Graph]

_PREFIX = "compiled_"


@dataclass(frozen=True, slots=True)
class FunctionalGraph:
    """A functional graph of ATen operators, and the tensors that some of its inputs always are."""

    module: Any
    constants: Mapping[int, Any]
    # What a call gives, as inputs of the graph.
    arrange: Callable[[Sequence[Any]], Sequence[Any]]


def graph_of_exported(
    exported: Any, inputs: Sequence[Any], static: Sequence[int]
) -> FunctionalGraph | None:
    """The graph of an exported program; None for one that writes to what it is given."""
    made = functional(exported)
    signature = made.graph_signature
    if any(spec.kind.name != "USER_OUTPUT" for spec in signature.output_specs):
        return None
    held = {**made.state_dict, **made.constants}
    constants, places = {}, []
    own = iter(range(len(inputs)))
    for number, spec in enumerate(signature.input_specs):
        place = next(own) if spec.kind.name == "USER_INPUT" else None
        if place is None:
            constants[number] = held[spec.target]
        elif place in static:
            constants[number] = inputs[place]
        places.append(place)

    def arrange(given: Sequence[Any]) -> list[Any]:
        return [
            constants[number] if place is None else given[place]
            for number, place in enumerate(places)
        ]

    return FunctionalGraph(made.graph_module, constants, arrange)


def compile_parts(graph: FunctionalGraph, compile_part: CompilePart) -> Graph | None:
    """The graph with its known parts compiled; None where there is none of two operators."""
    nodes = torch.fx.Graph()
    nodes.output(nodes.graph_copy(graph.module.graph, {}))
    whole = torch.fx.GraphModule(graph.module, nodes)
    if any(_is_open(node) for node in whole.graph.nodes):
        return None
    parts = CapabilityBasedPartitioner(whole, _Known(), allows_single_node_partition=False)
    parts.partition_and_fuse(_PREFIX)
    held = dict(zip(whole.graph.find_nodes(op="placeholder"), range(len(whole.graph.nodes)),
                    strict=False))
    count = 0
    for node in whole.graph.find_nodes(op="call_module"):
        if not str(node.target).startswith(_PREFIX):
            continue
        known = {
            place: graph.constants[held[arg]] for place, arg in enumerate(node.args)
            if held.get(arg) in graph.constants
        }
        examples = [known.get(place, arg.meta["val"]) for place, arg in enumerate(node.args)]
        part = getattr(whole, node.target)
        setattr(whole, node.target, _Part(compile_part, part, examples, tuple(known)))
        count += 1
    if not count:
        return None
    return lambda *given: whole(*graph.arrange(given))


class _Part(torch.nn.Module):  # type: ignore[misc]
    """A compiled part in the place of its graph; one result stands alone."""

    def __init__(
        self, compile_part: CompilePart, part: Any, examples: Sequence[Any],
        constants: Sequence[int],
    ) -> None:
        super().__init__()
        (output,) = part.graph.find_nodes(op="output")
        self.is_single = not isinstance(output.args[0], tuple | list)
        if self.is_single:
            output.args = ((output.args[0],),)
            part.recompile()
        self.run = compile_part(part, examples, constants)

    def forward(self, *given: Any) -> Any:
        made = self.run(*given)
        return made[0] if self.is_single else made


class _Known(OperatorSupportBase):  # type: ignore[misc]
    """Operators that have a converter and give tensors of known shapes."""

    def is_node_supported(self, submodules: Any, node: Any) -> bool:
        """Whether a node may be part of compiled code."""
        if node.op != "call_function" or is_random(node):
            return False
        if not all(map(_is_real, [node, *node.all_input_nodes])):
            return False
        return converter_of(target_name(node.target)) is not None


def _is_real(node: Any) -> bool:
    """Whether a node gives tensors alone, of real numbers; constants of a graph have no value."""
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else [value]
    return all(isinstance(each, torch.Tensor) and not each.is_complex() for each in values)


def _is_open(node: Any) -> bool:
    """Whether a graph's input is a number, or has extents that each call decides."""
    if node.op != "placeholder":
        return False
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return True
    return any(isinstance(extent, torch.SymInt) for extent in value.shape)
