"""The inputs of a model: their types by what it declares and by what the user gives."""

import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from sterna.frontend.limits import count_of
from sterna.frontend.open_shapes import OPEN, NamedDim, OpenShapeError, open_dim
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType
from sterna.relay.arrays import numpy_dtype
from sterna.support.dtype import DataType

Shape = Sequence[Dim]
Shapes = Mapping[str, Shape | int]
"""Shapes by input, or extents by the names that a model gives to dimensions."""

Declared = Mapping[str, Sequence[NamedDim] | None]
"""What a model says of its inputs: extents, names or ? where they are open; None for no shape."""


class Inputs:
    """What the user says about inputs: shapes by input, extents by dimension, element types.

    argument is where the user says shapes, for messages; all_known tells that none may stay open.
    """

    def __init__(
        self, shapes: Shapes | None, dtypes: str | Mapping[str, str] = "",
        argument: str = "shape", all_known: bool = False, fixed: Mapping[str, Any] | None = None,
    ) -> None:
        """fixed: values of inputs, which become constants."""
        self.fixed = {name: np.asarray(value) for name, value in (fixed or {}).items()}
        self.shapes: dict[str, Shape] = {}
        self.extents: dict[str, int] = {}
        self.dtypes: dict[str, str] = {} if isinstance(dtypes, str) else dict(dtypes)
        self.argument, self.all_known = argument, all_known
        for name, given in (shapes or {}).items():
            if _is_whole(given):
                self.extents[name] = int(given)  # type: ignore[arg-type]
            elif isinstance(given, Sequence | np.ndarray) and not isinstance(given, str | bytes):
                self.shapes[name] = given
            else:
                raise TypeError(
                    f"{argument} gives '{name}' {given!r}, which is no shape and no extent"
                )

    def expect_fitting(self, declared: Declared, weights: Collection[str] = ()) -> None:
        """What the user says fits what the model declares.

        Every name is one of the model's, and where all must be known, no dimension stays open.
        weights are inputs that have a value already.
        """
        dims = {
            dim for shape in declared.values() for dim in shape or ()
            if isinstance(dim, str) and dim != OPEN
        }
        self._sort_out_dimensions(declared, dims)
        free = ", ".join(name for name in declared if name not in weights)
        for own, what in (
            (self.shapes, self.argument), (self.dtypes, "dtype"), (self.fixed, "fixed"),
        ):
            for name in own:
                if name not in declared:
                    raise ValueError(
                        f"{what} names '{name}', which is no input of the model; its inputs are "
                        f"{free}"
                    )
        for name, extent in self.extents.items():
            if name not in dims:
                named = ", ".join(sorted(dims)) or "none"
                raise ValueError(
                    f"{self.argument} gives '{name}' one extent, and the model has no dimension "
                    f"of that name; its dimensions' names are {named}, its inputs {free}"
                )
            if extent < 0:
                raise ValueError(
                    f"{self.argument} gives the dimension '{name}' the extent {extent}"
                )
        if self.all_known:
            self._expect_closed(declared, weights)

    def _sort_out_dimensions(self, declared: Declared, dims: Collection[str]) -> None:
        """A list of one number may be the extent of a dimension, as a command line gives it.

        Of two it is the range in which the dimension stays open.
        """
        for name, given in list(self.shapes.items()):
            if name in dims and name not in declared:
                if is_range(given):
                    del self.shapes[name]
                    continue
                if len(given) != 1 or not _is_whole(given[0]):
                    raise ValueError(
                        f"{self.argument} gives the dimension '{name}' {given!r}; it takes one "
                        "number, or two between which it stays open"
                    )
                self.extents[name] = int(given[0])  # type: ignore[arg-type]
                del self.shapes[name]

    def _expect_closed(self, declared: Declared, weights: Collection[str]) -> None:
        """All dimensions are known, by the model or by the user."""
        opened: dict[str, list[NamedDim]] = {}
        for name, shape in declared.items():
            if name in weights or name in self.shapes or name in self.fixed:
                continue
            dims = [self.extents.get(str(dim), dim) for dim in ([OPEN] if shape is None else shape)]
            if any(isinstance(dim, str) for dim in dims):
                opened[name] = dims
        if opened:
            raise OpenShapeError(opened)

    def constant(self, name: str, kind: TensorType) -> Any:
        """The value that an input of a type is fixed to; one number may stand for all elements."""
        given = self.fixed[name]
        try:
            shape = kind.concrete_shape if kind.is_static else given.shape
            value = np.broadcast_to(given, shape).astype(numpy_dtype(kind.dtype))
        except ValueError as error:
            raise ValueError(f"fixed gives input '{name}' of {kind!r} a value of shape "
                             f"{given.shape}") from error
        is_whole = kind.dtype.kind in ("int", "uint", "bool")
        if is_whole and not np.array_equal(value, np.broadcast_to(given, shape)):
            raise ValueError(f"fixed gives input '{name}' of {kind!r} {given}, which is none")
        return value

    def type_of(self, name: str, declared: Sequence[NamedDim] | None, dtype: str) -> TensorType:
        """The type of an input of a declared shape and an element type."""
        what = f"input '{name}'"
        kind = DataType(dtype)
        shape = self._shape(name, declared, what)
        count_of((dim for dim in shape if isinstance(dim, int)), kind.bits, what)
        return TensorType(shape, kind)

    def _shape(
        self, name: str, declared: Sequence[NamedDim] | None, what: str
    ) -> tuple[Dim, ...]:
        given = self.shapes.get(name)
        if given is None:
            if declared is None:
                raise ValueError(f"{what} has no shape in the model; give it by {self.argument}=")
            return tuple(self._extent(dim, what) for dim in declared)
        if declared is not None and len(declared) != len(given):
            raise ValueError(
                f"{what} has {len(declared)} dimensions in the model; {self.argument}= gives it "
                f"{len(given)}"
            )
        for place, have in enumerate(given):
            if not isinstance(have, Expr) and not (_is_whole(have) and have >= 0):
                raise ValueError(f"{what}: dimension {place} of {self.argument}= is {have!r}")
        for place, (have, want) in enumerate(zip(given, declared or [], strict=False)):
            if isinstance(want, int) and not isinstance(have, Expr) and have != want:
                warnings.warn(
                    f"{what}: dimension {place} is {want} in the model and {have} by "
                    f"{self.argument}=", stacklevel=_level_of_caller(),
                )
        return tuple(
            dim if isinstance(dim, Expr) else int(dim) for dim in given
        )

    def _extent(self, dim: NamedDim, what: str) -> Dim:
        if isinstance(dim, str):
            return self.extents[dim] if dim in self.extents else open_dim(dim)
        if dim < 0:
            raise ValueError(f"{what} has a dimension of the extent {dim}")
        return dim


def _level_of_caller() -> int:
    """How far up the stack a warning finds the line of the user's program."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("sterna."):
        level, frame = level + 1, frame.f_back
    return level


def is_range(given: Any) -> bool:
    """Whether two numbers are the least and the greatest extent of a dimension."""
    return len(given) == 2 and all(map(_is_whole, given)) and 0 <= given[0] <= given[1]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
