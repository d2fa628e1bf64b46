"""Lp and local response normalisation: nn.l2_normalize, nn.lp_normalize, nn.lrn."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir.build import const, maximum
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import axis_of, of_kind, tensor
from sterna.op.nn.pool import to_power, to_root
from sterna.op.rows import Rows, axes_of
from sterna.op.windows import positive
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, register
from sterna.schedule.products import wide, widened
from sterna.schedule.rows_in_cache import schedule_rows
from sterna.te import Tensor, compute, if_then_else, power, reduce_axis, select, sqrt
from sterna.te import all as all_of
from sterna.te import sum as te_sum


@attributes
class L2NormalizeAttrs(Attrs):
    """Of nn.l2_normalize."""

    eps: float
    axis: int | tuple[int, ...] | None = None


@attributes
class LpNormalizeAttrs(Attrs):
    """Of nn.lp_normalize."""

    axis: int = -1
    p: int = 2


@attributes
class LRNAttrs(Attrs):
    """Of nn.lrn."""

    size: int = 5
    axis: int = 1
    bias: float = 2
    alpha: float = 1e-5
    beta: float = 0.75


def _floats(data: Type, axis: int | Sequence[int] | None) -> TensorType:
    kind = of_kind(tensor(data, "data"), "data", "float")
    axes_of(axis, kind.ndim)
    return kind


def _infer_lp(attrs: LpNormalizeAttrs, data: Type) -> TensorType:
    positive([attrs.p], "p")
    return _floats(data, attrs.axis)


def _infer_lrn(attrs: LRNAttrs, data: Type) -> TensorType:
    positive([attrs.size], "size")
    return _floats(data, attrs.axis)


def _compute_l2(attrs: L2NormalizeAttrs, out: TensorType, data: Tensor) -> Tensor:
    dtype = wide(data.dtype)
    rows = Rows(data, axes_of(attrs.axis, data.ndim))
    total = rows.reduced(
        te_sum, lambda i: to_power(data(*i).astype(dtype), 2), "T_l2_normalize_sum"
    )
    length = compute(
        total.shape,
        lambda *i: sqrt(maximum(total(*i), const(attrs.eps, dtype))),
        name="T_l2_normalize_length",
    )
    made: Tensor = compute(
        out.shape,
        lambda *i: (data(*i).astype(dtype) / length(*rows.row(i))).astype(out.dtype),
        name="T_l2_normalize",
    )
    return made


def _compute_lp(attrs: LpNormalizeAttrs, out: TensorType, data: Tensor) -> Tensor:
    dtype = wide(data.dtype)
    rows = Rows(data, axes_of(attrs.axis, data.ndim))
    total = rows.reduced(
        te_sum, lambda i: to_power(data(*i).astype(dtype), attrs.p), "T_lp_normalize_sum"
    )
    length = compute(
        total.shape, lambda *i: to_root(total(*i), attrs.p), name="T_lp_normalize_length"
    )

    def element(*i: Expr) -> Any:
        whole = length(*rows.row(i))
        quotient = data(*i).astype(dtype) / select(whole == 0, const(1, dtype), whole)
        return quotient.astype(out.dtype)

    made: Tensor = compute(out.shape, element, name="T_lp_normalize")
    return made


def _compute_lrn(attrs: LRNAttrs, out: TensorType, data: Tensor) -> Tensor:
    dtype, axis = wide(data.dtype), axis_of(attrs.axis, data.ndim)
    before = (attrs.size - 1) // 2
    k = reduce_axis((0, attrs.size), "k")

    def squares(*i: Expr) -> Any:
        near = i[axis] + (k.var - before)
        value = data(*i[:axis], near, *i[axis + 1 :]).astype(dtype)
        inside = all_of(near >= 0, near < data.shape[axis])
        return te_sum(if_then_else(inside, value * value, const(0, dtype)), axis=k)

    total = compute(out.shape, squares, name="T_lrn_sum")
    coefficient = attrs.alpha / attrs.size

    def element(*i: Expr) -> Any:
        divisor = power(total(*i) * coefficient + attrs.bias, attrs.beta)
        return (data(*i).astype(dtype) / divisor).astype(out.dtype)

    made: Tensor = compute(out.shape, element, name="T_lrn")
    return made


def _reference_l2(attrs: L2NormalizeAttrs, data: Array) -> Array:
    x = widened(data, str(data.dtype))
    total = np.sum(x * x, tuple(axes_of(attrs.axis, data.ndim)), keepdims=True)
    made: Array = x / np.sqrt(np.maximum(total, x.dtype.type(attrs.eps)))
    return made.astype(data.dtype)


def _reference_lp(attrs: LpNormalizeAttrs, data: Array) -> Array:
    x = widened(data, str(data.dtype))
    total = np.sum(np.abs(x) ** attrs.p, attrs.axis, keepdims=True) ** (1.0 / attrs.p)
    made: Array = x / np.where(total == 0, 1, total)
    return made.astype(data.dtype)


def _reference_lrn(attrs: LRNAttrs, data: Array) -> Array:
    x = np.moveaxis(widened(data, str(data.dtype)), attrs.axis, -1)
    before = (attrs.size - 1) // 2
    border = [(0, 0)] * (x.ndim - 1) + [(before, attrs.size - 1 - before)]
    near = np.lib.stride_tricks.sliding_window_view(np.pad(x, border), attrs.size, -1)
    total = (near**2).sum(-1)
    made: Array = x / (attrs.bias + attrs.alpha / attrs.size * total) ** attrs.beta
    return np.moveaxis(made, -1, attrs.axis).astype(data.dtype)


register(OpRecord(
    "nn.l2_normalize",
    inputs=("data",),
    attrs=L2NormalizeAttrs,
    infer=lambda attrs, data: _floats(data, attrs.axis),
    compute=_compute_l2,
    reference=_reference_l2,
    pattern=OUT_ELEMWISE_FUSABLE,
    schedules={"cpu": schedule_rows},
    mixed_precision="never",
    cases=[
        Case(((2, 3, 4),), {"eps": 1e-6, "axis": (1,)}),
        Case(((2, 3, 4),), {"eps": 20.0}),
        Case((((2, 8), "float16"),), {"eps": 1e-3, "axis": -1}, 2e-3),
    ],
    doc="data over the root of the sum of its squares along some axes, or of eps if that is more.",
))

register(OpRecord(
    "nn.lp_normalize",
    inputs=("data",),
    attrs=LpNormalizeAttrs,
    infer=_infer_lp,
    compute=_compute_lp,
    reference=_reference_lp,
    pattern=OUT_ELEMWISE_FUSABLE,
    schedules={"cpu": schedule_rows},
    mixed_precision="never",
    cases=[
        Case(((2, 3, 4),)),
        Case(((2, 3, 4),), {"axis": 1, "p": 1}),
        Case((np.array([[3, 4], [0, 0]], "float32"),), {"p": 3}),
    ],
    doc="data over its length by the p-th power along an axis; where that is 0 data stays.",
))

register(OpRecord(
    "nn.lrn",
    inputs=("data",),
    attrs=LRNAttrs,
    infer=_infer_lrn,
    compute=_compute_lrn,
    reference=_reference_lrn,
    pattern=OUT_ELEMWISE_FUSABLE,
    mixed_precision="never",
    cases=[
        Case(((2, 7, 3),), {"alpha": 0.5}),
        Case(((1, 3, 4, 6),), {"axis": 3, "size": 4, "bias": 1.0, "alpha": 1.0, "beta": 0.5}),
    ],
    doc="Local response normalisation: data / (bias + alpha / size * squares nearby) ** beta.",
))
