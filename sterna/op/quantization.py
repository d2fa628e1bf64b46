"""Scales and zero points: one of a tensor, of each index along an axis, or of each block there."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr, FloatImm, IntImm
from sterna.ir.types import Dim, TensorType, Type, show_shape
from sterna.op.checks import axis_of, expect_dim, map_dims, of_kind, tensor
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.expr import Constant, RelayExpr
from sterna.relay.layout_rules import LayoutPlan, Operands, along_axis
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType
from sterna.te import ComputeOp, Tensor

INT32 = DataType("int32")


def is_single(shape: Sequence[Dim]) -> bool:
    """Whether a parameter belongs to a whole tensor."""
    return not shape or (len(shape) == 1 and build.int_value(shape[0]) == 1)


def expect_parameter(
    kind: Type, name: str, data: TensorType, axis: int = -1, block_size: int = 0
) -> TensorType:
    """A scale or a zero point that fits a tensor."""
    found = tensor(kind, name)
    if is_single(found.shape) and not block_size:
        return found
    along = axis_of(axis, data.ndim)
    if not block_size:
        vector = tensor(kind, name, 1)
        expect_dim(vector.shape[0], data.shape[along], f"the length of {name}, along axis {axis}")
        return vector
    blocks = tensor(kind, name, data.ndim)
    for place, (have, extent) in enumerate(zip(blocks.shape, data.shape, strict=True)):
        want = _blocks(extent, block_size) if place == along else extent
        expect_dim(have, want, f"dimension {place} of {name} {show_shape(blocks.shape)}")
    return blocks


def _blocks(extent: Dim, block_size: int) -> Dim:
    return map_dims(lambda size: (size + block_size - 1) // block_size, extent)


def expect_scale(kind: Type, name: str, data: TensorType, axis: int = -1, block: int = 0) -> None:
    """A scale that fits a tensor."""
    of_kind(expect_parameter(kind, name, data, axis, block), name, "float")


def expect_zero_point(
    kind: Type, name: str, data: TensorType, axis: int = -1, block: int = 0
) -> None:
    """A zero point of whole numbers that fits a tensor."""
    of_kind(expect_parameter(kind, name, data, axis, block), name, "int", "uint")


def read_parameter(
    parameter: Tensor, indices: Sequence[Expr], axis: int = -1, block_size: int = 0
) -> Expr:
    """What belongs to the element at these indices."""
    along = axis % len(indices) if indices else 0
    if block_size:
        place = list(indices)
        place[along] = indices[along] // block_size
        return parameter(*place)
    if is_single(parameter.shape):
        return parameter(*[build.const(0) for _ in parameter.shape])
    return parameter(indices[along])


def constant_of(parameter: Tensor) -> float | int | None:
    """The number that a parameter is, if a kernel knows it."""
    op = parameter.op
    if parameter.shape or not isinstance(op, ComputeOp):
        return None
    body = op.body[0]
    return body.value if isinstance(body, IntImm | FloatImm) else None


def spread(parameter: Array, data: Array, axis: int = -1, block_size: int = 0) -> Array:
    """`read_parameter` for all elements: an array that broadcasts against the data."""
    if block_size:
        repeated = np.repeat(parameter, block_size, axis)
        return np.take(repeated, np.arange(data.shape[axis]), axis)
    if parameter.size == 1 and parameter.ndim <= 1:
        return parameter.reshape(())
    shape = [1] * data.ndim
    shape[axis] = -1
    return parameter.reshape(shape)


def saturated(whole: Array, dtype: DataType) -> Array:
    """Whole numbers held within the range of a type."""
    low, high = int_range(dtype)
    return np.clip(whole, low, high)


def held_within(whole: Expr, dtype: DataType) -> Expr:
    """`saturated` of an expression, in the type that it has."""
    low, high = (build.const(end, whole.dtype) for end in int_range(dtype))
    return build.minimum(high, build.maximum(low, whole))


def is_zero(expr: RelayExpr) -> bool:
    """Whether an operand is known to be 0 throughout."""
    return isinstance(expr, Constant) and not np.any(to_numpy(expr.data).astype(np.float64))


def round_half_away(x: Array) -> Array:
    """To the nearest whole number, halves away from zero, as C's round: no sum is rounded."""
    low = np.trunc(x)
    return np.where(np.abs(x - low) >= 0.5, low + np.copysign(1, x), low).astype(x.dtype)


def along_channels(attrs: Any, old: Any, operands: Operands) -> LayoutPlan | None:
    """How layouts pass through operators that read a parameter for each index along an axis."""
    return None if getattr(attrs, "block_size", 0) else along_axis(attrs, old, operands)
