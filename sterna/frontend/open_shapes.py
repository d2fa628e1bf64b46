"""Inputs whose dimensions a model leaves open."""

import re
from collections.abc import Mapping, Sequence

from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim

# A dimension: its size, or what the model calls it; OPEN for one without a name.
NamedDim = int | str
OPEN = "?"


def open_dim(dim: NamedDim) -> Dim:
    """A dimension as types have it; one name is one dimension."""
    if isinstance(dim, int):
        return dim
    return AnyDim() if dim == OPEN else AnyDim(re.sub(r"\W", "_", dim))


class UndecidedError(ValueError):
    """A value decides about the graph, and only a run can tell it."""


class OpenShapeError(ValueError):
    """A model leaves dimensions of its inputs open, and nobody said which sizes to compile for."""

    def __init__(self, inputs: Mapping[str, Sequence[NamedDim]]) -> None:
        self.inputs = {name: tuple(dims) for name, dims in inputs.items()}
        listed = [f"  {name}: ({', '.join(map(str, dims))})" for name, dims in self.inputs.items()]
        example = ", ".join(f'"{name}": {shape}' for name, shape in self.example.items())
        super().__init__(
            "the model leaves dimensions of its inputs open:\n" + "\n".join(listed)
            + f"\nsay which sizes to compile for, such as shapes={{{example}}}"
        )

    @property
    def example(self) -> dict[str, tuple[int, ...]]:
        """Shapes that fit: 1 for what is open."""
        return {
            name: tuple(dim if isinstance(dim, int) else 1 for dim in dims)
            for name, dims in self.inputs.items()
        }
