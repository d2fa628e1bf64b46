"""Attributes and inputs that a graph of Dynamo writes to, such as the state of an optimiser.

Recording a graph runs it on tensors without data, which attributes are not: one that is written to
becomes an input, as all others that a graph may change are. An input that is written to is no
constant, whatever Dynamo says of it.
"""

import operator
from collections.abc import Sequence
from typing import Any

import torch

# x += y and its kin, and x[i] = y.
_WRITING_OPERATORS = {
    getattr(operator, name) for name in (
        "iadd", "isub", "imul", "imatmul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior",
        "ixor", "ilshift", "irshift", "setitem",
    )
}


def changing_attributes(gm: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors among a graph's attributes, by name, that it or the program around it may write.

    Dynamo marks those that are the program's own; others are constants that the graph brings along.
    """
    found: dict[str, torch.Tensor] = {}
    writes = any(map(_writes, gm.graph.nodes))
    for node in gm.graph.find_nodes(op="get_attr"):
        value = operator.attrgetter(node.target)(gm)
        own = getattr(value, "_dynamo_static_input_type", None) is not None
        if isinstance(value, torch.Tensor) and (own or writes):
            found[node.target] = value
    return list(found.items())


def written_inputs(gm: Any) -> set[int]:
    """The places of inputs that something in a graph writes to, or to a view of."""
    places = {node: place for place, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
    stack = [operand for node in filter(_writes, gm.graph.nodes) for operand in _changed(node)]
    found: set[int] = set()
    seen: set[Any] = set()
    while stack:
        node = stack.pop()
        if node in places:
            found.add(places[node])
        elif node not in seen:
            seen.add(node)
            stack += _nodes_of(node.args[:1])  # what a view is one of
    return found


def _changed(node: Any) -> list[Any]:
    return _nodes_of([*node.args[:1], node.kwargs.get("out")])


def _nodes_of(given: Any) -> list[Any]:
    """The nodes among operands, lists of them included."""
    found: list[Any] = []
    torch.fx.node.map_arg(given, found.append)
    return found


def _writes(node: Any) -> bool:
    """Whether a node may change one of its operands."""
    if "out" in node.kwargs or node.kwargs.get("inplace"):
        return True
    if node.op == "call_method":
        return _names_a_change(node.target)
    if node.op != "call_function":
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return bool(node.target._schema.is_mutable)
    return node.target in _WRITING_OPERATORS or _names_a_change(
        getattr(node.target, "__name__", "")
    )


def _names_a_change(name: str) -> bool:
    """add_, but not __add__; __iadd__ and __setitem__."""
    return (name.endswith("_") and not name.endswith("__")) or (
        name == "__setitem__" or (name.startswith("__i") and name[3:-2] in _IN_PLACE)
    )


_IN_PLACE = {each.__name__[1:] for each in _WRITING_OPERATORS if each is not operator.setitem}


def with_inputs_for(gm: Any, names: Sequence[str]) -> Any:
    """The graph with inputs, behind its own, in place of some of its attributes."""
    graph = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    inputs = gm.graph.find_nodes(op="placeholder")
    for node in inputs:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    lifted = {name: graph.placeholder(f"attribute{place}") for place, name in enumerate(names)}
    for node in gm.graph.nodes:
        if node.op == "get_attr" and node.target in lifted:
            copies[node] = lifted[node.target]
        elif node.op != "placeholder":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return torch.fx.GraphModule(gm, graph)
