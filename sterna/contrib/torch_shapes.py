"""Graphs of torch.compile as functions of tensors of any shape."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.convert_frame import compile_lock

from sterna.contrib.torch_weights import Weights

Tensors = Sequence[Any]
Graph = Callable[..., Any]

# How many shapes are kept of a graph with open extents that no program serves.
MOST_SHAPES = 32


class Compiled:
    """A graph that is compiled when it is first called, and when a weight was changed.

    Where extents are open, one program over symbols serves all; if there cannot be one, the graph
    is compiled for every shape that it meets. Where none is open, torch's guards have seen to the
    shapes before a call arrives here.
    """

    def __init__(
        self, compile_for: Callable[[Tensors], Graph], static: Sequence[int], examples: Tensors,
        compile_open: Callable[[Tensors], Graph | None],
    ) -> None:
        self.compile_for, self.weights = compile_for, Weights(static)
        self.compile_open = compile_open
        self.is_open = any(map(is_open, examples))
        self.by_shape = False
        """Whether extents are open and no program serves them all."""
        self.compiled: dict[tuple[Any, ...], Graph] = {}

    def __call__(self, *inputs: Any) -> Any:
        return self.find(inputs)(*inputs)

    def find(self, inputs: Tensors) -> Graph:
        """The code for inputs of these shapes; any number of threads may ask.

        What records a graph changes what all threads of PyTorch share: one at a time, as Dynamo.
        """
        found = self.compiled.get(self._key(inputs))
        if found is not None:
            return found
        with compile_lock:
            key = self._key(inputs)
            if key not in self.compiled:
                made = self._made(inputs)
                key = self._key(inputs)
                if len(self.compiled) >= MOST_SHAPES:
                    self.compiled.pop(next(iter(self.compiled)))
                self.compiled[key] = made
            return self.compiled[key]

    def _key(self, inputs: Tensors) -> tuple[Any, ...]:
        shapes = tuple(map(_shape_key, inputs)) if self.by_shape else ()
        return (*shapes, *self.weights.state(inputs))

    def _made(self, inputs: Tensors) -> Graph:
        if self.is_open and not self.by_shape:
            made = self.compile_open(inputs)
            if made is not None:
                return made
            self.by_shape = True
        return self.compile_for(inputs)


def is_open(value: Any) -> bool:
    """Whether an example has extents that each call decides."""
    if isinstance(value, torch.Tensor):
        return any(isinstance(extent, torch.SymInt) for extent in value.shape)
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def _shape_key(value: Any) -> Any:
    return (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else value
