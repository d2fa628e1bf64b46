"""Which weights of a graph of torch.compile were changed since it was compiled.

A tensor's version counter tells of changes, but not of those by way of `weight.data`, which have a
counter of their own: of these some elements of each weight tell, spread over its memory. On a GPU
only versions are looked at: elements would have to be waited for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sterna.relay.arrays import Array

# Of how many elements of all weights together, and of each, a change is noticed that no version
# counter tells of.
SAMPLES, FEWEST, MOST = 1024, 4, 32

# What is equal for weights as long as none is changed: their memory, their versions, elements.
State = tuple[tuple[int, ...], tuple[int, ...], bytes]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is looked at in weights that lie in this memory, which it holds on to."""

    memory: tuple[int, ...]
    counted: bool
    """Whether all have versions, which tensors of inference mode lack."""
    elements: tuple[tuple[Array, ...], ...]
    """Views of some elements, by their type."""


class Weights:
    """The weights among the inputs of a graph, by their places."""

    def __init__(self, places: Sequence[int]) -> None:
        self.places = tuple(places)
        self._seen = _Seen((), True, ())

    def state(self, inputs: Sequence[Any]) -> State:
        """What says whether these weights are those of another call."""
        tensors = [inputs[place] for place in self.places]
        memory = tuple([tensor.data_ptr() for tensor in tensors])
        seen = self._seen
        if memory != seen.memory:
            seen = self._seen = _seen_of(tensors, memory)
        versions: tuple[int, ...] = ()
        if seen.counted:
            versions = tuple([tensor._version for tensor in tensors])
        else:
            versions = tuple(0 if each.is_inference() else each._version for each in tensors)
        found = b"".join([np.concatenate(views).tobytes() for views in seen.elements])
        return memory, versions, found


def _seen_of(tensors: Sequence[Any], memory: tuple[int, ...]) -> _Seen:
    by_type: dict[str, list[Array]] = {}
    samples = max(FEWEST, min(MOST, SAMPLES // max(len(tensors), 1)))
    for tensor in tensors:
        view = _elements(tensor, samples)
        by_type.setdefault(view.dtype.str, []).append(view)
    counted = not any(tensor.is_inference() for tensor in tensors)
    return _Seen(memory, counted, tuple(map(tuple, by_type.values())))


def _elements(tensor: Any, samples: int) -> Array:
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
    found: Array = every[:: -(-len(every) // samples)]
    return found
