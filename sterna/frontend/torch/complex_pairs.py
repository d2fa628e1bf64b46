"""Complex values: tuples of their real and their imaginary parts."""

import numpy as np

from sterna.frontend.calls import call, cast, constant, fields_of, rank_of
from sterna.frontend.torch.promotion import as_float
from sterna.ir.types import TupleType
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr, Tuple

# The elements of the parts, by PyTorch's name of the type.
PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}


def pair(real: RelayExpr, imaginary: RelayExpr) -> RelayExpr:
    """A complex value."""
    return Tuple((real, imaginary))


def is_complex(value: object) -> bool:
    """Whether a value is complex."""
    return isinstance(value, RelayExpr) and isinstance(value.checked_type, TupleType)


def stacked(value: RelayExpr) -> RelayExpr:
    """Both parts along a last axis."""
    parts = fields_of(value)
    return call("stack", parts, axis=rank_of(parts[0]))


def unstacked(value: RelayExpr) -> RelayExpr:
    """The complex value whose parts lie along the last axis."""
    last = rank_of(value) - 1
    places = (constant(place, "int32") for place in (0, 1))
    return pair(*(call("take", value, place, axis=last, mode="clip") for place in places))


def in_parts(array: Array) -> Array:
    """Both parts of an array of complex numbers along a last axis."""
    held = np.ascontiguousarray(array)
    return held.view(held.real.dtype).reshape(*array.shape, 2)


def both_parts(value: RelayExpr) -> list[RelayExpr]:
    """The parts of a complex value, or of a real one."""
    if is_complex(value):
        return fields_of(value)
    real = as_float(value)
    return [real, call("zeros_like", real)]


def as_complex(value: RelayExpr, dtype: str) -> RelayExpr:
    """A value as elements of a complex type."""
    real, imaginary = (
        fields_of(value) if is_complex(value) else (value, call("zeros_like", value))
    )
    return pair(cast(real, PARTS[dtype]), cast(imaginary, PARTS[dtype]))
