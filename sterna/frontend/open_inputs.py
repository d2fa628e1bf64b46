"""Inputs whose shapes only runs know: what a model says of them, and what it is given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sterna.frontend.open_shapes import NamedDim
from sterna.relay.arrays import Array
from sterna.runtime import NDArray

Given = Array | NDArray | list[Array | NDArray] | None
"""A tensor, also one on a device, a sequence of them, or an optional input that is not there."""


@dataclass(frozen=True, slots=True)
class OpenInput:
    """What a model says of an input; what it leaves open is known when it is called."""

    name: str
    shape: Sequence[NamedDim] | None
    """Extents, names, or ? where they are open; None if even their number is."""
    dtype: str | None
    """None for text."""
    is_sequence: bool = False
    is_optional: bool = False
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Which extents a model allows for its open dimensions, by name."""

    def __str__(self) -> str:
        if self.is_sequence:
            return f"{self.name}: a sequence of tensors"
        inner = "..." if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.name}: {self.dtype or 'text'}[{inner}]"


def is_tensor(given: object) -> bool:
    """Whether an input is a single tensor."""
    return isinstance(given, np.ndarray | np.generic | NDArray)


def tensors_of(inputs: Mapping[str, Given]) -> "dict[str, Array | NDArray]":
    """The tensors of inputs by name; those of a sequence have their numbers behind."""
    found: dict[str, Array | NDArray] = {}
    for name, given in inputs.items():
        if isinstance(given, list):
            found.update({f"{name}.{place}": each for place, each in enumerate(given)})
        elif given is not None:
            found[name] = given
    return found
