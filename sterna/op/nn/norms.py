"""Normalisation by the mean and the variance of the data itself: layer, group, instance, RMS.

Both are computed in two passes and, for narrow floats, in float32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import axis_of, expect_dim, of_kind, same_dtype, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.rows import Element, Rows, axes_of
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.layout_rules import along_axis
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, call, record_of, register
from sterna.schedule.default import schedule_default
from sterna.schedule.kernel import Kernel
from sterna.schedule.products import wide, widened
from sterna.schedule.rows_in_cache import schedule_rows
from sterna.te import Tensor, compute, sqrt

Axes = int | tuple[int, ...]


@attributes
class LayerNormAttrs(Attrs):
    """Of nn.layer_norm."""

    axis: Axes = -1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


@attributes
class InstanceNormAttrs(Attrs):
    """Of nn.instance_norm."""

    axis: int = 1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


@attributes
class GroupNormAttrs(Attrs):
    """Of nn.group_norm."""

    num_groups: int
    axis: int = 1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


@attributes
class RMSNormAttrs(Attrs):
    """Of nn.rms_norm."""

    axis: Axes = -1
    epsilon: float = 1e-5


@attributes
class MeanVarianceAttrs(Attrs):
    """Of nn.mean_variance_normalization."""

    axis: Axes = (0, 2, 3)
    epsilon: float = 1e-9


AffineAttrs = LayerNormAttrs | InstanceNormAttrs | GroupNormAttrs
NormAttrs = AffineAttrs | RMSNormAttrs | MeanVarianceAttrs


@dataclass(frozen=True, slots=True)
class Over:
    """What is normalised together."""

    reduced: list[int]
    groups: dict[int, int]
    weighted: list[int]
    """The axes along which gamma and beta lie."""


def _over(attrs: NormAttrs, ndim: int) -> Over:
    if isinstance(attrs, LayerNormAttrs | RMSNormAttrs):
        axes = axes_of(attrs.axis, ndim)
        return Over(axes, {}, axes)
    if isinstance(attrs, MeanVarianceAttrs):
        return Over(axes_of(attrs.axis, ndim), {}, [])
    channel = axis_of(attrs.axis, ndim)
    if channel == 0:
        raise ValueError("axis 0 is the batch; channels lie along another axis")
    others = [i for i in range(1, ndim) if i != channel]
    if isinstance(attrs, GroupNormAttrs) and attrs.num_groups == 1:
        return Over(list(range(1, ndim)), {}, [channel])
    if isinstance(attrs, GroupNormAttrs):
        return Over(others, {channel: attrs.num_groups}, [channel])
    return Over(others, {}, [channel])


def _infer(names: Sequence[str]) -> Any:
    def infer(attrs: NormAttrs, *kinds: Type) -> TensorType:
        data = of_kind(tensor(kinds[0], "data"), "data", "float")
        over = _over(attrs, data.ndim)
        ndim = len(over.weighted)
        given = [tensor(k, name, ndim) for k, name in zip(kinds[1:], names[1:], strict=True)]
        same_dtype([data, *given], names)
        for kind, name in zip(given, names[1:], strict=True):
            for have, axis in zip(kind.shape, over.weighted, strict=True):
                expect_dim(have, data.shape[axis], f"{name}'s extent for axis {axis} of data")
        for axis, count in over.groups.items():
            channels = data.shape[axis]
            if count < 1 or (isinstance(channels, int) and channels % count):
                raise ValueError(f"{channels} channels do not fall into {count} groups")
        return data

    return infer


def _complete(attrs: NormAttrs, data: Type | None, *others: Type | None) -> list[Type | None]:
    if not isinstance(data, TensorType):
        return [data, *others]
    shape = tuple(data.shape[axis] for axis in _over(attrs, data.ndim).weighted)
    each = TensorType(shape, data.dtype)
    return [data, *[each if kind is None else kind for kind in others]]


class _Statistics:
    """The stages that both kinds of normalisation are made of."""

    def __init__(self, attrs: NormAttrs, data: Tensor, name: str) -> None:
        self.data, self.name = data, name
        self.dtype = wide(data.dtype)
        self.over = _over(attrs, data.ndim)
        self.rows = Rows(data, self.over.reduced, self.over.groups)

    def element(self, indices: Sequence[Expr]) -> Expr:
        """An element in the type that is computed in."""
        return self.data(*indices).astype(self.dtype)

    def centred(self) -> Element[Expr]:
        """Elements less the mean of their row."""
        mean = self.rows.mean(self.element, f"{self.name}_mean")
        return lambda i: self.element(i) - mean(*self.rows.row(i))

    def mean_square(self, element: Element[Expr]) -> Tensor:
        """The mean of the squares of a row's elements."""
        def square(i: Sequence[Expr]) -> Expr:
            value = element(i)
            return value * value

        return self.rows.mean(square, f"{self.name}_var")

    def per_row(self, values: Tensor, function: Callable[[Expr], Expr]) -> Tensor:
        """A stage with a function of each row's value."""
        made: Tensor = compute(
            values.shape, lambda *i: function(values(*i)), name=f"{self.name}_factor"
        )
        return made

    def weight(self, tensor_of_weights: Tensor, indices: Sequence[Expr]) -> Any:
        """The element of gamma or beta that belongs to one of data."""
        picked = [indices[axis] for axis in self.over.weighted]
        return tensor_of_weights(*picked).astype(self.dtype)


def _compute_affine(name: str) -> Callable[..., Tensor]:
    def build(
        attrs: AffineAttrs, out: TensorType, data: Tensor, gamma: Tensor, beta: Tensor
    ) -> Tensor:
        stats = _Statistics(attrs, data, name)
        centred = stats.centred()
        variance = stats.mean_square(centred)
        factor = stats.per_row(variance, lambda v: 1.0 / sqrt(v + attrs.epsilon))

        def element(*i: Expr) -> Any:
            made = centred(i) * factor(*stats.rows.row(i))
            made = made * stats.weight(gamma, i) if attrs.scale else made
            made = made + stats.weight(beta, i) if attrs.center else made
            return made.astype(out.dtype)

        made: Tensor = compute(out.shape, element, name=name)
        return made

    return build


def _compute_rms(attrs: RMSNormAttrs, out: TensorType, data: Tensor, weight: Tensor) -> Tensor:
    stats = _Statistics(attrs, data, "T_rms_norm")
    square = stats.mean_square(stats.element)
    factor = stats.per_row(square, lambda v: 1.0 / sqrt(v + attrs.epsilon))

    def element(*i: Expr) -> Any:
        made = stats.element(i) * factor(*stats.rows.row(i))
        return (made * stats.weight(weight, i)).astype(out.dtype)

    made: Tensor = compute(out.shape, element, name="T_rms_norm")
    return made


def _compute_mvn(attrs: MeanVarianceAttrs, out: TensorType, data: Tensor) -> Tensor:
    stats = _Statistics(attrs, data, "T_mean_variance")
    centred = stats.centred()
    variance = stats.mean_square(centred)
    deviation = stats.per_row(variance, lambda v: sqrt(v) + attrs.epsilon)
    made: Tensor = compute(
        out.shape,
        lambda *i: (centred(i) / deviation(*stats.rows.row(i))).astype(out.dtype),
        name="T_mean_variance",
    )
    return made


def _grouped(attrs: NormAttrs, data: Array) -> tuple[Array, tuple[int, ...]]:
    """Data in the type that is computed in, with groups as a dimension, and what to reduce."""
    over = _over(attrs, data.ndim)
    x = widened(data, str(data.dtype))
    if not over.groups:
        return x, tuple(over.reduced)
    ((channel, count),) = over.groups.items()
    split = (count, data.shape[channel] // count)
    shape = (*data.shape[:channel], *split, *data.shape[channel + 1 :])
    return x.reshape(shape), (*(i if i < channel else i + 1 for i in over.reduced), channel + 1)


def _spread(attrs: NormAttrs, weight: Array, ndim: int) -> Array:
    """Weights with a dimension for each of data's."""
    shape = [1] * ndim
    for axis, extent in zip(_over(attrs, ndim).weighted, weight.shape, strict=True):
        shape[axis] = extent
    return widened(weight, str(weight.dtype)).reshape(shape)


def _reference_affine(attrs: AffineAttrs, data: Array, gamma: Array, beta: Array) -> Array:
    x, axes = _grouped(attrs, data)
    centred = x - x.mean(axes, keepdims=True)
    variance = (centred**2).mean(axes, keepdims=True)
    deviation = np.sqrt(variance + x.dtype.type(attrs.epsilon))
    made: Array = (centred / deviation).reshape(data.shape)
    made = made * _spread(attrs, gamma, data.ndim) if attrs.scale else made
    made = made + _spread(attrs, beta, data.ndim) if attrs.center else made
    return made.astype(data.dtype)


def _reference_rms(attrs: RMSNormAttrs, data: Array, weight: Array) -> Array:
    x, axes = _grouped(attrs, data)
    square = (x**2).mean(axes, keepdims=True)
    made: Array = x / np.sqrt(square + x.dtype.type(attrs.epsilon))
    made = made * _spread(attrs, weight, data.ndim)
    return made.astype(data.dtype)


def _reference_mvn(attrs: MeanVarianceAttrs, data: Array) -> Array:
    x, axes = _grouped(attrs, data)
    made: Array = (x - x.mean(axes, keepdims=True)) / (
        x.std(axes, keepdims=True) + x.dtype.type(attrs.epsilon)
    )
    return made.astype(data.dtype)


def _register(
    name: str, inputs: tuple[str, ...], attrs: type[Attrs], compute_it: Callable[..., Tensor],
    reference: Callable[..., Array],
    cases: list[Case], doc: str, schedule: Callable[[Kernel], None] = schedule_rows,
    **rules: Any,
) -> None:
    register(OpRecord(
        f"nn.{name}",
        inputs=inputs,
        attrs=attrs,
        infer=_infer(inputs),
        complete=_complete,
        compute=compute_it,
        reference=reference,
        pattern=OUT_ELEMWISE_FUSABLE,
        schedules={"cpu": schedule},
        cases=cases,
        doc=doc,
        **rules,
    ))


def _one_group(norm: Call) -> RelayExpr | None:
    """instance_norm(reshape(x, [batch, 1, -1])) -> reshape(group_norm(x)), of any layout"""
    view, gamma, beta = norm.args
    record = record_of(view)
    attrs: Any = norm.attrs
    if record is None or not record.is_view or not isinstance(view, Call):
        return None
    data, kind = tensor_type(view.args[0]), tensor_type(norm)
    static = data.is_static and kind.is_static and data.ndim > kind.ndim == 3
    if not static or attrs.axis not in (1, -2) or kind.shape[:2] != (data.shape[0], 1):
        return None
    wide = [call("repeat", part, repeats=data.shape[1], axis=0) for part in (gamma, beta)]
    made = call(
        "nn.group_norm", view.args[0], *wide, num_groups=1, epsilon=attrs.epsilon,
        scale=attrs.scale and not _is_all(gamma, 1), center=attrs.center and not _is_all(beta, 0),
    )
    return call("reshape", made, newshape=kind.shape, allowzero=True)


def _is_all(expr: RelayExpr, value: float) -> bool:
    return isinstance(expr, Constant) and bool((to_numpy(expr.data) == value).all())


def _schedule_groups(kernel: Kernel) -> None:
    """Rows in the cache where a sample is one group, else the stages one by one."""
    sums = [stage.op for stage in kernel.schedule.stages if getattr(stage.op, "reduce_axis", ())]
    (schedule_rows if all(len(op.axis) == 1 for op in sums) else schedule_default)(kernel)


_AFFINE = ("data", "gamma", "beta")
# An element is added to the mean, and its difference from it to the variance as a square (2); then
# the difference (1) is scaled twice and shifted (2). A root mean square needs no differences.
ROW_INSTRUCTIONS, RMS_INSTRUCTIONS = 6, 3

_register(
    "layer_norm", _AFFINE, LayerNormAttrs, _compute_affine("T_layer_norm"), _reference_affine,
    [
        Case(((2, 3, 8), (8,), (8,))),
        Case(((2, 3, 4), (3,), (3,)), {"axis": 1, "epsilon": 0.1, "scale": False}),
        Case(((2, 3, 4), (3, 4), (3, 4)), {"axis": (1, 2), "center": False}),
        Case((((2, 16), "float16"), ((16,), "float16"), ((16,), "float16")), {}, 4e-3),
    ],
    "Rows along one or more axes made to have mean 0 and variance 1; then gamma and beta.",
    instructions=ROW_INSTRUCTIONS,
)

_register(
    "instance_norm", _AFFINE, InstanceNormAttrs, _compute_affine("T_instance_norm"),
    _reference_affine,
    [
        Case(((2, 3, 4, 5), (3,), (3,))),
        Case(((2, 4, 5, 3), (3,), (3,)), {"axis": -1, "epsilon": 0.1}),
        Case(((2, 3, 6), (3,), (3,)), {"scale": False, "center": False}),
    ],
    "Every channel of every sample made to have mean 0 and variance 1; then gamma and beta.",
    rewrites=[_one_group], instructions=ROW_INSTRUCTIONS,
)

_register(
    "group_norm", _AFFINE, GroupNormAttrs, _compute_affine("T_group_norm"), _reference_affine,
    [
        Case(((2, 6, 4, 5), (6,), (6,)), {"num_groups": 3}),
        Case(((2, 4, 5, 6), (6,), (6,)), {"num_groups": 2, "axis": 3, "epsilon": 0.1}),
        Case(((2, 4, 5), (4,), (4,)), {"num_groups": 1, "scale": False}),
        Case(((2, 4, 3, 35), (35,), (35,)), {"num_groups": 1, "axis": -1}),
    ],
    "Groups of channels of every sample made to have mean 0 and variance 1; then gamma and beta.",
    schedule=_schedule_groups, layout=along_axis, instructions=ROW_INSTRUCTIONS,
)

_register(
    "rms_norm", ("data", "weight"), RMSNormAttrs, _compute_rms, _reference_rms,
    [
        Case(((2, 3, 8), (8,))),
        Case(((2, 3, 4), (3, 4)), {"axis": (-2, -1), "epsilon": 0.1}),
        Case((((2, 16), "bfloat16"), ((16,), "bfloat16")), {}, 2e-2),
    ],
    "Rows over the root of the mean of their squares, times weight.",
    instructions=RMS_INSTRUCTIONS,
)

_register(
    "mean_variance_normalization", ("data",), MeanVarianceAttrs, _compute_mvn, _reference_mvn,
    [Case(((2, 3, 4, 5),)), Case(((2, 6),), {"axis": 1, "epsilon": 0.5})],
    "(data - mean) / (standard deviation + epsilon) over some axes.",
    instructions=ROW_INSTRUCTIONS,
)
