"""Integer-only inference: how quantised numbers pass through operators; see relay/quantized.py.

Sums of products are exact in 32 bits; where weights and data are so large that they might not be,
there is no rule. A bias counts in the units of the sums only if it has their scale.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from sterna.relay.arrays import Array, to_numpy
from sterna.relay.attributes import Attrs
from sterna.relay.expr import Call, Constant, RelayExpr, Tuple, const
from sterna.relay.layout import layout_of
from sterna.relay.op import AttrsType, Op, call, find
from sterna.relay.passes.fold_constant import fold_one
from sterna.relay.quantized import (
    INT32,
    Quantized,
    QuantizedLike,
    QuantizedPair,
    QuantizedResult,
    Scheme,
    int_range,
    scheme_of,
)
from sterna.support.dtype import DataType

if TYPE_CHECKING:
    from sterna.op.nn._conv_shape import ConvAttrs
    from sterna.op.nn.adaptive_pool import GlobalAttrs
    from sterna.op.nn.bias_add import BiasAddAttrs
    from sterna.op.nn.dense import DenseAttrs, MatmulAttrs
    from sterna.op.qnn.quantize import DequantizeAttrs, QuantizeAttrs
    from sterna.op.tensor.clip import ClipAttrs
    from sterna.op.tensor.transpose import TransposeAttrs

Rule = Callable[[AttrsType, Sequence[QuantizedLike]], QuantizedResult]

# Two scales are the same if they differ by rounding alone.
SAME_SCALE = 2.0**-20


def carried(name: str) -> Rule[Attrs | None]:
    """Operators that move elements, or choose by their order: they do so with integers as well."""

    def rule(attrs: Attrs | None, operands: Sequence[QuantizedLike]) -> QuantizedResult:
        data, *others = operands
        if not isinstance(data, Quantized) or not data.scheme.is_single or others:
            return None
        return replace(data, data=fold_one(Call(Op(name), (data.data,), attrs)))

    return rule


def taken(attrs: Attrs | None, operands: Sequence[QuantizedLike]) -> QuantizedResult:
    """Elements at indices, which are integers of the same scheme."""
    data, indices = operands
    if not isinstance(data, Quantized) or not data.scheme.is_single:
        return None
    if not isinstance(indices, RelayExpr):
        return None
    return replace(data, data=fold_one(Call(Op("take"), (data.data, indices), attrs)))


def transposed(attrs: "TransposeAttrs", operands: Sequence[QuantizedLike]) -> QuantizedResult:
    """Axes in another order, that of the channels with them."""
    (data,) = operands
    if not isinstance(data, Quantized):
        return None
    rank = len(data.shape)
    order = [axis % rank for axis in attrs.axes or range(rank - 1, -1, -1)]
    scheme = data.scheme
    if not scheme.is_single:
        scheme = replace(scheme, axis=order.index(scheme.axis % rank))
    moved = fold_one(Call(Op("transpose"), (data.data,), attrs))
    return replace(data, data=moved, scheme=scheme)


def joined(attrs: Attrs, operands: Sequence[QuantizedLike]) -> QuantizedResult:
    """Tensors side by side that have one scheme."""
    (parts,) = operands
    if not isinstance(parts, list):
        return None
    narrow = [part for part in parts if isinstance(part, Quantized) and part.is_narrow]
    if len(narrow) < len(parts) or not all(p.scheme.is_like(narrow[0].scheme) for p in narrow):
        return None
    made = Call(Op("concatenate"), (Tuple(tuple(part.data for part in narrow)),), attrs)
    return Quantized(made, narrow[0].scheme)


def rectified(attrs: object, operands: Sequence[QuantizedLike]) -> QuantizedResult:
    """Numbers below 0 become 0."""
    (data,) = operands
    return data.held(0.0, math.inf) if isinstance(data, Quantized | QuantizedPair) else None


def clipped(attrs: "ClipAttrs", operands: Sequence[QuantizedLike]) -> QuantizedResult:
    """Numbers between two bounds."""
    (data,) = operands
    if not isinstance(data, Quantized | QuantizedPair) or not attrs.a_min <= attrs.a_max:
        return None
    return data.held(float(attrs.a_min), float(attrs.a_max))


def with_bias(attrs: "BiasAddAttrs", operands: Sequence[QuantizedLike]) -> QuantizedResult:
    """A bias for each channel."""
    data, bias = operands
    if not isinstance(data, Quantized) or not _is_total(data) or not _is_bias(bias, data):
        return None
    axis = attrs.axis % len(data.shape)
    column = call("reshape", bias.data, newshape=(-1, *[1] * (len(data.shape) - 1 - axis)))
    return replace(data, data=call("add", data.data, fold_one(column)))


def pair(name: str) -> Rule[None]:
    """Two tensors element by element; of sums also what is added to those of products."""

    def rule(attrs: None, operands: Sequence[QuantizedLike]) -> QuantizedResult:
        a, b = operands
        if not isinstance(a, Quantized) or not isinstance(b, Quantized):
            return None
        if a.is_narrow and b.is_narrow:
            return QuantizedPair(name, a, b)
        data, bias = (b, a) if isinstance(a.data, Constant) else (a, b)
        if name == "add" and _is_total(data) and _is_bias(bias, data):
            return replace(data, data=call("add", data.data, bias.data))
        return None

    return rule


def _largest(bias: Quantized) -> int:
    assert isinstance(bias.data, Constant)
    return int(np.abs(to_numpy(bias.data.data).astype(np.int64)).max(initial=0))


def _is_total(data: QuantizedLike) -> TypeGuard[Quantized]:
    """Sums of products, before anything else has happened to them."""
    if not isinstance(data, Quantized) or data.low != -math.inf or data.high != math.inf:
        return False
    return data.scheme.dtype == INT32 and data.parts == 1


def _is_bias(bias: QuantizedLike, data: Quantized) -> TypeGuard[Quantized]:
    """A constant that counts in the units of the sums and leaves them in 32 bits."""
    if not _is_total(bias) or not isinstance(bias.data, Constant) or np.any(bias.scheme.zero):
        return False
    if bias.scheme.scale.size not in (1, data.scheme.scale.size):
        return False
    if len(bias.shape) > len(data.shape) or _largest(bias) > 1 << 30:
        return False
    near = np.abs(bias.scheme.scale / data.scheme.scale - 1)
    return bool(np.all(near <= SAME_SCALE))


# ---- floats to integers and back ----


def dequantized(attrs: "DequantizeAttrs", operands: Sequence[QuantizedLike]) -> QuantizedResult:
    """Integers whose scheme is known."""
    data, scale, zero = operands
    if not isinstance(data, RelayExpr) or attrs.block_size or attrs.out_dtype != "float32":
        return None
    dtype: DataType = data.checked_type.dtype  # type: ignore[attr-defined]
    scheme = scheme_of(scale, zero, attrs.axis, dtype) if dtype.bits in (8, 16, 32) else None
    return None if scheme is None else Quantized(data, scheme)


def quantized(attrs: "QuantizeAttrs", operands: Sequence[QuantizedLike]) -> QuantizedResult:
    """The integers of numbers that are integers already."""
    data, scale, zero = operands
    if not isinstance(data, Quantized | QuantizedPair) or attrs.block_size:
        return None
    if attrs.out_dtype not in ("int8", "uint8", "int16", "uint16"):
        return None
    scheme = scheme_of(scale, zero, attrs.axis, attrs.out_dtype)
    return None if scheme is None else data.quantized(scheme, attrs.rounding)


# ---- sums of products ----


def convolved(attrs: "ConvAttrs", operands: Sequence[QuantizedLike]) -> QuantizedResult:
    """Convolutions with constant weights."""
    layouts = [layout_of(name) for name in (attrs.data_layout, attrs.kernel_layout)]
    out = layout_of(attrs.out_layout or attrs.data_layout)
    if any(layout.is_blocked for layout in (*layouts, out)) or attrs.out_dtype or attrs.border:
        return None
    factors = _factors(operands, layouts[1].index_of("O"))
    if factors is None:
        return None
    data, weight, scale, scheme = factors
    rank = len(attrs.strides)
    own = find(f"qnn.conv{rank}d").attrs
    assert own is not None
    given = {name: value for name, value in attrs.items() if name in own.FIELDS}
    given["out_dtype"] = INT32
    multiplier = attrs.groups > 1 and weight.shape[layouts[1].index_of("I")] > 1
    if scheme.scale.size > 1 and multiplier and layouts[0].dims(data.shape)["C"] == attrs.groups:
        return None
    made = call(f"qnn.conv{rank}d", data.data, const(weight), *_parameters(data, scale),
                **given)
    return Quantized(made, replace(scheme, axis=out.index_of("C")))


def multiplied(
    attrs: "DenseAttrs | MatmulAttrs", operands: Sequence[QuantizedLike]
) -> QuantizedResult:
    """Dense layers, whose weights are (units, depth), and products with a constant matrix."""
    turned = getattr(attrs, "transpose_b", True)
    if getattr(attrs, "transpose_a", False) or attrs.out_dtype:
        return None
    factors = _factors(operands, 0 if turned else 1)
    if factors is None or len(factors[0].shape) < 2:
        return None
    data, weight, scale, scheme = factors
    weight = weight if turned else np.ascontiguousarray(weight.T)
    made = call("qnn.dense", data.data, const(weight), *_parameters(data, scale),
                units=weight.shape[0])
    return Quantized(made, replace(scheme, axis=len(data.shape) - 1))


def averaged(attrs: "GlobalAttrs", operands: Sequence[QuantizedLike]) -> QuantizedResult:
    """Means over all of an image: sums, and how many they are of."""
    (data,) = operands
    layout = layout_of(attrs.layout)
    if not isinstance(data, Quantized) or not data.is_narrow or layout.is_blocked:
        return None
    axes = tuple(place for place in range(len(layout)) if layout[place] not in "NC")
    sizes = [data.shape[axis] for axis in axes]
    if not all(isinstance(size, int) for size in sizes):
        return None
    count = math.prod(sizes)
    if not 0 < count < 1 << 22:
        return None
    total = call("sum", call("cast", data.data, dtype=INT32), axis=axes, keepdims=True)
    moved = call("subtract", total, const(np.int32(data.scheme.zero.item() * count)))
    scheme = Scheme(data.scheme.scale, np.zeros((), np.int32), -1, INT32)
    return Quantized(moved, scheme, parts=count)


def _factors(
    operands: Sequence[QuantizedLike], axis: int
) -> tuple[Quantized, Array, Array, Scheme] | None:
    """Data, weights without zero point, their scale, and the scheme of sums of their products."""
    data, weight = operands
    if not isinstance(data, Quantized) or not isinstance(weight, Quantized):
        return None
    data = _settled(data)
    usual = data.is_narrow and weight.scheme.dtype.bits == 8 and weight.low == -math.inf
    if not usual or not isinstance(weight.data, Constant) or weight.high != math.inf:
        return None
    own = weight.scheme
    if not own.is_single and own.axis % len(weight.shape) != axis:
        return None
    along = [-1 if place == axis else 1 for place in range(len(weight.shape))]
    zero = own.zero.reshape(along if own.zero.size > 1 else ())
    plain = to_numpy(weight.data.data).astype(np.int64) - zero
    low, high = int_range(DataType("int8"))
    if plain.size == 0 or plain.min() < low or plain.max() > high:
        return None
    low, high = int_range(data.scheme.dtype)
    reach = max(high - int(data.scheme.zero), int(data.scheme.zero) - low)
    others = tuple(place for place in range(plain.ndim) if place != axis)
    most = int(np.abs(plain).sum(axis=others).max())
    if most * max(reach, 255) >= 1 << 30:
        return None
    scale = (data.scheme.scale * own.scale).astype(np.float32)
    scheme = Scheme(scale, np.zeros((), np.int32), -1, INT32)
    return data, plain.astype(np.int8), own.scale, scheme


def _settled(data: Quantized) -> Quantized:
    """Data whose lower bound is 0, as integers that are not below its zero point."""
    if data.low != 0 or data.high != math.inf or data.parts > 1 or not data.scheme.is_single:
        return data
    zero = const(data.scheme.zero.astype(str(data.scheme.dtype)))
    return Quantized(call("maximum", data.data, zero), data.scheme)


def _parameters(data: Quantized, scale: Array) -> list[RelayExpr]:
    """The zero points and scales that follow the operands of quantised products."""
    return [const(data.scheme.zero), const(np.int32(0)), const(data.scheme.scale),
            const(scale)]
