"""Losses, which files keep whole: distances of results from what was wanted, and their means."""

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of, like, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.checks import within_axis
from sterna.frontend.torch.convert_activations import log_softmax
from sterna.frontend.torch.convert_index import gathered
from sterna.frontend.torch.convert_reduce import mean, sum_
from sterna.frontend.torch.convert_shape import broadcast_tensors, shape_of, unsqueeze
from sterna.frontend.torch.extents import dims_of
from sterna.frontend.torch.promotion import in_float32, is_float, together
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr

# PyTorch's numbers for what is made of the losses of all samples.
NONE, MEAN, SUM = range(3)


def _reduced(losses: RelayExpr, reduction: int) -> RelayExpr:
    if reduction == NONE:
        return losses
    return mean(losses) if reduction == MEAN else sum_(losses)


@aten("mse_loss")
@in_float32
def mse_loss(x: RelayExpr, target: RelayExpr, reduction: int = MEAN) -> RelayExpr:
    a, b = broadcast_tensors(together(x, target))
    apart = call("subtract", a, b)
    return _reduced(call("multiply", apart, apart), reduction)


@aten("l1_loss")
@in_float32
def l1_loss(x: RelayExpr, target: RelayExpr, reduction: int = MEAN) -> RelayExpr:
    a, b = broadcast_tensors(together(x, target))
    return _reduced(call("abs", call("subtract", a, b)), reduction)


@aten("cross_entropy_loss")
@in_float32
def cross_entropy_loss(
    x: RelayExpr, target: RelayExpr, weight: RelayExpr | None = None, reduction: int = MEAN,
    ignore_index: int = -100, label_smoothing: float = 0.0,
) -> RelayExpr:
    """Of classes by their numbers, or by their probabilities where the target is of floats."""
    classes = 0 if rank_of(x) == 1 else 1
    logs = log_softmax(x, classes)
    if is_float(target):
        return _of_probabilities(logs, target, weight, reduction, label_smoothing, classes)
    counts = call("not_equal", target, constant(ignore_index, dtype_of(target)))
    labels = cast(call("where", counts, target, like(0, target)), "int64")
    text = "Target {} is out of bounds."
    labels = within_axis(labels, dims_of(logs)[classes], classes, text=text)
    at_label = gathered(logs, classes, unsqueeze(labels, classes))
    own = reshaped(call("negative", at_label), shape_of(labels))
    share = cast(counts, dtype_of(logs))
    scaled = logs
    if weight is not None:
        share = call("multiply", share, call("take", weight, labels))
        scaled = call("multiply", logs, _by_class(weight, rank_of(x), classes))
    losses = call("multiply", own, share)
    if label_smoothing:
        others = call("negative", sum_(scaled, classes))
        others = call("multiply", others, cast(counts, dtype_of(logs)))
        even = label_smoothing / shape_of(x)[classes]
        losses = call("add", call("multiply", losses, like(1 - label_smoothing, losses)),
                      call("multiply", others, like(even, others)))
    if reduction != MEAN:
        return _reduced(losses, reduction)
    return call("divide", sum_(losses), sum_(share))


def _of_probabilities(
    logs: RelayExpr, target: RelayExpr, weight: RelayExpr | None, reduction: int,
    label_smoothing: float, classes: int,
) -> RelayExpr:
    if label_smoothing:
        even = label_smoothing / shape_of(logs)[classes]
        kept = call("multiply", target, like(1 - label_smoothing, target))
        target = call("add", kept, like(even, target))
    product = call("multiply", logs, target)
    if weight is not None:
        product = call("multiply", product, _by_class(weight, rank_of(logs), classes))
    losses = call("negative", sum_(product, classes))
    if reduction != MEAN or not rank_of(losses):
        return _reduced(losses, reduction)
    return mean(losses)


def _by_class(weight: RelayExpr, rank: int, classes: int) -> RelayExpr:
    return reshaped(weight, [-1 if axis == classes else 1 for axis in range(rank)])


@aten("multi_margin_loss")
@in_float32
def multi_margin_loss(
    x: RelayExpr, target: RelayExpr, p: float = 1, margin: float = 1,
    weight: RelayExpr | None = None, reduction: int = MEAN,
) -> RelayExpr:
    """How far other classes come within a margin of the wanted one, by sample."""
    rows = x if rank_of(x) == 2 else reshaped(x, (1, shape_of(x)[0] if rank_of(x) else 1))
    count, classes = shape_of(rows)
    labels = reshaped(cast(target, "int64"), (count, 1))
    labels = within_axis(labels, classes, 1, "RuntimeError", text="target out of range")
    apart = call("subtract", like(margin, rows), gathered(rows, 1, labels))
    near = call("maximum", call("add", rows, apart), like(0, rows))
    near = call("multiply", near, near) if p == 2 else near
    if weight is not None:
        near = call("multiply", near, call("take", weight, labels))
    is_other = call("not_equal", constant(np.arange(classes)[None]), labels)
    near = call("where", is_other, near, like(0, near))
    losses = call("divide", sum_(near, 1), like(classes, near))
    return _reduced(reshaped(losses, shape_of(target)) if reduction == NONE else losses, reduction)
