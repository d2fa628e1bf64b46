"""Numbers of modules in graphs of torch.compile(dynamic=True): eps, slopes, factors.

    group_norm(x, 4, weight, bias, eps.item())  ->  group_norm(x, 4, weight, bias, 1e-05)

Dynamo makes inputs of them, and nothing is recorded that asks how large an unknown number is. They
hardly ever change: a graph is compiled for the values that it is called with.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.convert_frame import compile_lock
from torch._dynamo.source import is_from_unspecialized_nn_module_source

Graph = Callable[..., Any]

# For how many values of its numbers a graph is compiled; each further one forgets the first.
MOST_VALUES = 8


def numbers_of_modules(gm: Any) -> list[int]:
    """The places of inputs that are numbers of modules, which a graph reads as such alone."""
    return [
        place for place, node in enumerate(gm.graph.find_nodes(op="placeholder"))
        if _is_of_module(node)
        and all(user.op == "call_method" and user.target == "item" for user in node.users)
    ]


def _is_of_module(node: Any) -> bool:
    """Whether an input is a number that a module has."""
    value, given = node.meta.get("example_value"), node.meta.get("grapharg")
    if not isinstance(value, torch.Tensor) or value.dim() or value.dtype != torch.float64:
        return False
    return given is not None and is_from_unspecialized_nn_module_source(given.source)


def with_numbers(gm: Any, numbers: dict[int, float]) -> Any:
    """The graph without inputs for numbers that are known."""
    graph = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    known = {
        node: numbers[place] for place, node in enumerate(gm.graph.find_nodes(op="placeholder"))
        if place in numbers
    }
    for node in gm.graph.nodes:
        if node.op == "call_method" and node.target == "item" and node.args[0] in known:
            copies[node] = known[node.args[0]]
        elif node not in known:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return torch.fx.GraphModule(gm, graph)


def for_numbers(
    gm: Any, places: Sequence[int], examples: Sequence[Any],
    compile_graph: Callable[[Any, Sequence[Any]], Graph], other: Callable[[], Graph] | None,
) -> Graph:
    """A graph that is compiled for the values of its numbers.

    other: what runs it with values that it cannot be compiled for; None where it can be for all.
    """
    taken = set(places)

    def values(given: Sequence[Any]) -> tuple[float, ...]:
        return tuple(float(given[place]) for place in places)

    def rest(given: Sequence[Any]) -> list[Any]:
        return [each for place, each in enumerate(given) if place not in taken]

    def made(numbers: tuple[float, ...]) -> Graph:
        return compile_graph(
            with_numbers(gm, dict(zip(places, numbers, strict=True))), rest(examples)
        )

    def key_of(numbers: Sequence[float]) -> tuple[str, ...]:
        """No number is another one: not -0, and what is none is what it was."""
        return tuple(map(float.hex, numbers))

    first = values(examples)
    known = {key_of(first): made(first)}

    def run(*given: Any) -> Any:
        numbers = values(given)
        key = key_of(numbers)
        found = known.get(key)
        if found is None:
            if other is not None:
                return other()(*given)
            with compile_lock:
                if len(known) >= MOST_VALUES:
                    known.pop(next(iter(known)))
                found = known[key] = made(numbers)
        return found(*rest(given))

    return run
