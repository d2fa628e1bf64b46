"""Complex values: tuples of their real and their imaginary parts."""

from sterna.frontend.calls import call, cast, fields_of, rank_of
from sterna.ir.types import TupleType
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


def as_complex(value: RelayExpr, dtype: str) -> RelayExpr:
    """A value as elements of a complex type."""
    real, imaginary = (
        fields_of(value) if is_complex(value) else (value, call("zeros_like", value))
    )
    return pair(cast(real, PARTS[dtype]), cast(imaginary, PARTS[dtype]))
