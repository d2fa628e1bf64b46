"""Transforms of torch.func in graphs of torch.compile: grad, vmap, jvp and what is made of them.

Dynamo writes the levels of a transform into the graph, as calls that begin and end them. A tracer
that stops in between leaves them open, which every later call of PyTorch would see.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import _functorch
from torch.autograd import forward_ad

_HOMES = ("torch._functorch", "torch._C._functorch", "torch.autograd.forward_ad")


def has_transforms(gm: Any) -> bool:
    """Whether a graph, or one inside of it, begins or ends transforms."""
    graphs = [part.graph for part in gm.modules() if isinstance(part, torch.fx.GraphModule)]
    return any(_is_level(node.target) for graph in graphs for node in graph.nodes)


def _is_level(target: Any) -> bool:
    return callable(target) and str(getattr(target, "__module__", "")).startswith(_HOMES)


@contextmanager
def ended_transforms() -> Iterator[None]:
    """Ends the transforms that were begun inside and not ended, where something is raised."""
    depth = _functorch.get_dynamic_layer_stack_depth()
    level = forward_ad._current_level
    try:
        yield
    except BaseException:
        _functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        while forward_ad._current_level > level:
            forward_ad.exit_dual_level()
        raise
