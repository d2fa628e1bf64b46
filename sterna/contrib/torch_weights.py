"""Which weights of a graph of torch.compile were changed since it was compiled.

A tensor's version counter tells of changes, but not of those by way of `weight.data`, which have a
counter of their own: of these some elements of each weight tell, spread over its memory.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from sterna.relay.arrays import Array

# Of how many elements of a weight a change is noticed that its version counter does not tell of.
SAMPLES = 32

# What is equal for a weight as long as it is not changed: its memory, its version, elements of it.
State = tuple[int, int, bytes]


class Weights:
    """The weights among the inputs of a graph, by their places."""

    def __init__(self, places: Sequence[int]) -> None:
        self.places = tuple(places)
        self.views: dict[int, tuple[int, Array]] = {}
        """The elements that are looked at, which hold on to their memory."""

    def state(self, inputs: Sequence[Any]) -> list[State]:
        """What says whether these weights are those of another call."""
        return [self._state(place, inputs[place]) for place in self.places]

    def _state(self, place: int, tensor: Any) -> State:
        memory = tensor.data_ptr()
        known, view = self.views.get(place, (None, None))
        if view is None or known != memory:
            view = _elements(tensor)
            self.views[place] = memory, view
        # Versions of tensors of inference mode are not counted.
        return memory, 0 if tensor.is_inference() else tensor._version, view.tobytes()


def _elements(tensor: Any) -> Array:
    """Some bits of a tensor in a processor's memory, where they lie."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.numel():
        return np.empty(0)
    sizes, strides = tensor.shape, tensor.stride()
    span = 1 + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
    width = min(tensor.element_size(), 8)
    parts = tensor.element_size() // width
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    with torch.no_grad():
        bits = torch.empty(0, dtype=kinds[width]).set_(
            tensor.untyped_storage(), tensor.storage_offset() * parts, (span * parts,), (1,)
        )
    every = bits.numpy()
    found: Array = every[:: -(-len(every) // SAMPLES)]
    return found
