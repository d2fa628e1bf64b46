"""The inputs of a model: their types by what it declares and by what the user gives."""

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorShapeProto, ValueInfoProto

from sterna.frontend.onnx.tensors import count_of, element_type
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType
from sterna.support.dtype import DataType
from sterna.support.errors import OpNotImplemented

Shape = Sequence[Dim]


class Inputs:
    """What the user says about inputs: shapes by input, extents by dimension, element types."""

    def __init__(
        self, shape: Mapping[str, Shape | int] | None, dtype: str | Mapping[str, str]
    ) -> None:
        self.shapes: dict[str, Shape] = {}
        self.extents: dict[str, int] = {}
        self.dtypes: dict[str, str] = {} if isinstance(dtype, str) else dict(dtype)
        for name, given in (shape or {}).items():
            if _is_whole(given):
                self.extents[name] = int(given)  # type: ignore[arg-type]
            elif isinstance(given, Sequence | np.ndarray) and not isinstance(given, str | bytes):
                self.shapes[name] = given
            else:
                raise TypeError(f"shape gives '{name}' {given!r}, which is no shape and no extent")

    def expect_known(self, inputs: Iterable[ValueInfoProto], weights: Collection[str]) -> None:
        """Every name is one of the model's."""
        given = list(inputs)
        names = {entry.name for entry in given}
        dims = {
            dim.dim_param
            for entry in given for dim in entry.type.tensor_type.shape.dim if dim.dim_param
        }
        free = ", ".join(entry.name for entry in given if entry.name not in weights)
        for own, what in ((self.shapes, "shape"), (self.dtypes, "dtype")):
            for name in own:
                if name not in names:
                    raise ValueError(
                        f"{what} names '{name}', which is no input of the model; its inputs are "
                        f"{free}"
                    )
        for name, extent in self.extents.items():
            if name not in dims:
                named = ", ".join(sorted(dims)) or "none"
                raise ValueError(
                    f"shape gives '{name}' one extent, and the model has no dimension of that "
                    f"name; its dimensions' names are {named}, its inputs {free}"
                )
            if extent < 0:
                raise ValueError(f"shape gives the dimension '{name}' the extent {extent}")

    def type_of(self, entry: ValueInfoProto) -> TensorType:
        """The type of an input."""
        what = f"input '{entry.name}'"
        if not entry.type.HasField("tensor_type"):
            kind = entry.type.WhichOneof("value")
            if kind is None:
                raise ValueError(f"{what} has no type")
            raise OpNotImplemented(f"{what} is a {kind.removesuffix('_type')}, no tensor")
        tensor = entry.type.tensor_type
        dtype = DataType(self.dtypes.get(entry.name) or element_type(tensor.elem_type, what))
        declared = list(tensor.shape.dim) if tensor.HasField("shape") else None
        shape = self._shape(entry.name, declared, what)
        count_of((dim for dim in shape if isinstance(dim, int)), dtype.bits, what)
        return TensorType(shape, dtype)

    def _shape(
        self, name: str, declared: list[TensorShapeProto.Dimension] | None, what: str
    ) -> tuple[Dim, ...]:
        given = self.shapes.get(name)
        if given is None:
            if declared is None:
                raise ValueError(f"{what} has no shape in the model; give it by shape=")
            return tuple(self._extent(dim, what) for dim in declared)
        if declared is not None and len(declared) != len(given):
            raise ValueError(
                f"{what} has {len(declared)} dimensions in the model; shape= gives it {len(given)}"
            )
        for place, have in enumerate(given):
            if not isinstance(have, AnyDim) and not (_is_whole(have) and have >= 0):
                raise ValueError(f"{what}: dimension {place} of shape= is {have!r}")
        for place, (have, want) in enumerate(zip(given, declared or [], strict=False)):
            if want.dim_value > 0 and not isinstance(have, AnyDim) and have != want.dim_value:
                warnings.warn(
                    f"{what}: dimension {place} is {want.dim_value} in the model and {have} by "
                    "shape=", stacklevel=7,
                )
        return tuple(dim if isinstance(dim, AnyDim) else int(dim) for dim in given)  # type: ignore[arg-type]

    def _extent(self, dim: TensorShapeProto.Dimension, what: str) -> Dim:
        """A declared dimension; 0 and -1 are how some exporters write one that is open."""
        if dim.dim_param in self.extents:
            return self.extents[dim.dim_param]
        if dim.dim_value < -1:
            raise ValueError(f"{what} has a dimension of the extent {dim.dim_value}")
        return dim.dim_value if dim.dim_value > 0 else AnyDim()


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
