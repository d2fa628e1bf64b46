"""The contraction that a product of matrices is: GEMM, batched or with one matrix for all rows."""

import math
from collections.abc import Sequence
from typing import Protocol

from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, as_dim
from sterna.op.checks import broadcast_shapes
from sterna.relay.layout import Layout
from sterna.schedule.contraction import HINT, Contraction
from sterna.support.dtype import DataType


class Operand(Protocol):
    """A tensor, or the type of one."""

    @property
    def shape(self) -> Sequence[Dim]:
        """Its extents."""

    @property
    def dtype(self) -> object:
        """Its element type."""


def matrix(shape: Sequence[Dim], transposed: bool) -> tuple[Dim, Dim]:
    """The rows and columns of the last two dimensions; a vector is one row."""
    if len(shape) == 1:
        return 1, shape[0]
    return (shape[-1], shape[-2]) if transposed else (shape[-2], shape[-1])


def matrix_contraction(
    first: Operand, second: Operand, out_dtype: str, transposed: tuple[bool, bool],
    packed: Layout | None = None,
) -> Contraction | None:
    """That of the last two dimensions; None if more than the number of rows is not known.

    transposed: which operands hold columns as rows. packed: how the second one's matrices lie.
    """
    shape, other = [as_dim(n) for n in first.shape], [as_dim(n) for n in second.shape]
    rows, depth = matrix(shape, transposed[0])
    columns, beyond = matrix(other, transposed[1])[1], other[:-2]
    if packed is not None:
        extents = packed.dims(other[-len(packed) :])
        columns, beyond = extents["O"], other[: -len(packed)]
    outer = broadcast_shapes(shape[:-2], beyond)
    if not isinstance(depth, int) or not isinstance(columns, int):
        return None
    own = any(extent != 1 for extent in beyond)
    lines = [*outer, *([rows] if len(shape) > 1 else [])]
    if any(isinstance(extent, AnyDim) for extent in lines):
        return None
    known = [extent for extent in lines if isinstance(extent, int)]
    is_open = len(known) < len(lines)
    if is_open:
        known.append(HINT)
    each = rows if own else max(reversed(known), key=lambda n: min(n, 4), default=1)
    pixels, each = math.prod(known), each if isinstance(each, int) else HINT
    kind = DataType(str(first.dtype))
    return Contraction(
        batch=1, image=(1, pixels), inputs=depth, result=(1, pixels), outputs=columns,
        data=kind, weight=DataType(str(second.dtype)), out=DataType(out_dtype or kind),
        data_layout="CN" if transposed[0] else "NC", out_layout="NC",
        weight_layout="OI" if transposed[1] or packed is not None else "IO",
        matrices=pixels // max(1, each) or 1, own_weights=own, is_open=is_open,
    )
