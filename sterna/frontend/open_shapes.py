"""Inputs whose dimensions a model leaves open."""

import re
from collections.abc import Mapping, Sequence

from sterna.ir import build
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, same_dim

# A dimension: its size, or what the model calls it; OPEN for one without a name.
NamedDim = int | str
OPEN = "?"


def open_dim(dim: NamedDim) -> Dim:
    """A dimension as types have it; one name is one dimension."""
    if isinstance(dim, int):
        return dim
    return AnyDim() if dim == OPEN else AnyDim(re.sub(r"\W", "_", dim))


def broadcast_shapes(a: Sequence[Dim], b: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape of two tensors combined element by element; what runs tell may be 1."""
    size = max(len(a), len(b))
    left, right = ((1,) * (size - len(each)) + tuple(each) for each in (a, b))
    return tuple(map(_broadcast, left, right))


def _broadcast(a: Dim, b: Dim) -> Dim:
    if same_dim(a, b) or (isinstance(b, int) and b == 1):
        return a
    if isinstance(a, int) and a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        raise ValueError(f"extents {a} and {b} do not broadcast")
    if isinstance(a, int) or isinstance(b, int):
        return a if isinstance(a, int) else b
    return build.select(build.equal(a, 1), b, a)


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
