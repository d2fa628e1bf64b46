"""Losses: cross entropy and negative log likelihood, how far predictions are from targets."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.ir.build import const
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import at_least, expect_dim, not_empty, of_kind, same_dtype, tensor
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, register
from sterna.schedule.products import wide, widened
from sterna.te import Tensor, compute, if_then_else, log, reduce_axis
from sterna.te import all as all_of
from sterna.te import sum as te_sum

# ---- cross entropy ----


def _infer_cross(attrs: None, predictions: Type, targets: Type) -> TensorType:
    x = of_kind(tensor(predictions, "predictions", 2), "predictions", "float")
    y = tensor(targets, "targets", 2)
    same_dtype([x, y], ["predictions", "targets"])
    for i in range(2):
        expect_dim(y.shape[i], x.shape[i], f"extent {i} of targets, as predictions has it,")
    return TensorType((), x.dtype)


def _compute_cross(name: str, logits: bool) -> Any:
    def build(attrs: None, out: TensorType, x: Tensor, y: Tensor) -> Tensor:
        dtype = wide(out.dtype)
        n, c = reduce_axis((0, x.shape[0]), "n"), reduce_axis((0, x.shape[1]), "c")

        def term() -> Any:
            value = x(n, c).astype(dtype)
            return te_sum((value if logits else log(value)) * y(n, c).astype(dtype), axis=[n, c])

        total = compute((), term, name=f"{name}_sum")
        batch = x.shape[0].astype(dtype)
        made: Tensor = compute((), lambda: (-total() / batch).astype(out.dtype), name=name)
        return made

    return build


def _reference_cross(logits: bool) -> Any:
    def reference(attrs: None, x: Array, y: Array) -> Array:
        wide_x, wide_y = widened(x, str(x.dtype)), widened(y, str(y.dtype))
        terms = (wide_x if logits else np.log(wide_x)) * wide_y
        return np.asarray(-terms.sum() / len(x)).astype(x.dtype)

    return reference


_PREDICTED = np.array([[0.1, 0.7, 0.2], [0.5, 0.25, 0.25]], "float32")

for _name, _logits in {"cross_entropy": False, "cross_entropy_with_logits": True}.items():
    register(OpRecord(
        f"nn.{_name}",
        inputs=("predictions", "targets"),
        infer=_infer_cross,
        compute=_compute_cross(f"T_{_name}", _logits),
        reference=_reference_cross(_logits),
        pattern=OUT_ELEMWISE_FUSABLE,
        mixed_precision="never",
        cases=[
            Case((_PREDICTED, (2, 3))),
            Case((_PREDICTED.astype("float16"), ((2, 3), "float16")), tolerance=2e-3),
        ],
        doc="The mean over the batch of -sum(targets * "
        f"{'predictions' if _logits else 'log(predictions)'}).",
    ))


# ---- negative log likelihood ----


@attributes
class NLLLossAttrs(Attrs):
    """Of nn.nll_loss."""

    reduction: str = "mean"
    ignore_index: int = -100


def _infer_nll(attrs: NLLLossAttrs, predictions: Type, targets: Type, weights: Type) -> TensorType:
    x = of_kind(at_least(predictions, "predictions", 2), "predictions", "float")
    y = of_kind(tensor(targets, "targets", x.ndim - 1), "targets", "int")
    w = tensor(weights, "weights", 1)
    same_dtype([x, w], ["predictions", "weights"])
    expect_dim(w.shape[0], x.shape[1], "the length of weights")
    not_empty(x, "predictions", [1], "its classes are")
    for have, want in zip(y.shape, (x.shape[0], *x.shape[2:]), strict=True):
        expect_dim(have, want, "an extent of targets, as predictions has it,")
    if attrs.reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction is none, mean or sum, not {attrs.reduction!r}")
    return TensorType(y.shape if attrs.reduction == "none" else (), x.dtype)


def _compute_nll(
    attrs: NLLLossAttrs, out: TensorType, x: Tensor, y: Tensor, w: Tensor
) -> Tensor:
    dtype = wide(out.dtype)
    zero = const(0, dtype)

    def counted(i: tuple[Expr, ...]) -> Expr:
        target = y(*i)
        return all_of(target != attrs.ignore_index, target >= 0, target < x.shape[1])

    def weight(i: tuple[Expr, ...]) -> Expr:
        return if_then_else(counted(i), w(y(*i)).astype(dtype), zero)

    def element(*i: Expr) -> Expr:
        value = x(i[0], y(*i), *i[1:]).astype(dtype) * w(y(*i)).astype(dtype)
        return if_then_else(counted(i), -value, zero)

    losses = compute(y.shape, element, name="T_nll_loss_element")

    def total(name: str, term: Callable[[tuple[Expr, ...]], Expr]) -> Tensor:
        axes = [reduce_axis((0, extent), f"k{i}") for i, extent in enumerate(y.shape)]
        places = tuple(axis.var for axis in axes)
        made: Tensor = compute((), lambda: te_sum(term(places), axis=axes), name=name)
        return made

    if attrs.reduction == "none":
        result = losses
    else:
        result = total("T_nll_loss_sum", lambda i: losses(*i))
        if attrs.reduction == "mean":
            whole, weights = result, total("T_nll_loss_weights", weight)
            result = compute((), lambda: whole() / weights(), name="T_nll_loss_mean")
    made: Tensor = compute(
        result.shape, lambda *i: result(*i).astype(out.dtype), name="T_nll_loss"
    )
    return made


def _reference_nll(attrs: NLLLossAttrs, x: Array, y: Array, w: Array) -> Array:
    classes = x.shape[1]
    rows = np.moveaxis(widened(x, str(x.dtype)), 1, -1).reshape(-1, classes)
    targets = y.reshape(-1).astype("int64")
    counted = (targets != attrs.ignore_index) & (targets >= 0) & (targets < classes)
    picked = np.where(counted, targets, 0)
    weights = np.where(counted, widened(w, str(w.dtype))[picked], 0).astype(rows.dtype)
    losses: Array = -rows[np.arange(len(rows)), picked] * weights
    if attrs.reduction == "none":
        return losses.reshape(y.shape).astype(x.dtype)
    with np.errstate(invalid="ignore"):
        total = losses.sum() / weights.sum() if attrs.reduction == "mean" else losses.sum()
    return np.asarray(total).astype(numpy_dtype(str(x.dtype)))


_CLASSES = np.array([[0, 2], [1, -100]], "int32")

register(OpRecord(
    "nn.nll_loss",
    inputs=("predictions", "targets", "weights"),
    attrs=NLLLossAttrs,
    infer=_infer_nll,
    compute=_compute_nll,
    reference=_reference_nll,
    pattern=OUT_ELEMWISE_FUSABLE,
    mixed_precision="never",
    cases=[
        Case(((2, 3, 2), _CLASSES, (3,))),
        Case(((2, 3, 2), _CLASSES, (3,)), {"reduction": "sum", "ignore_index": 2}),
        Case(((2, 3, 2), _CLASSES, (3,)), {"reduction": "none"}),
        Case(((2, 3), np.array([2, 0], "int64"), (3,)), {"reduction": "mean"}),
    ],
    doc="Minus the prediction of the target's class times that class's weight; targets equal to "
    "ignore_index do not count.",
))
