"""Sums, means and other reductions along axes; where the largest element is."""

import math

from sterna.frontend.calls import axes_below, call, cast, parts, rank_of
from sterna.frontend.tflite.convert_shape import type_at
from sterna.frontend.tflite.node import TFLM, Node, converter
from sterna.frontend.tflite.sums import by_floats, by_fractions, product
from sterna.relay.expr import RelayExpr

_PLAIN = {
    "SUM": "sum", "MEAN": "mean", "REDUCE_PROD": "prod", "REDUCE_MAX": "max", "REDUCE_MIN": "min",
    "REDUCE_ANY": "any", "REDUCE_ALL": "all",
}


@converter(*_PLAIN)
def reduce(node: Node) -> RelayExpr:
    axes = tuple(axes_below(node.ints(1, "the axes"), rank_of(node[0])))
    attrs = {"axis": axes, "keepdims": bool(node.attr("keep_dims"))}
    if not axes and rank_of(node[0]):
        return node[0]
    if node.kind in ("MEAN", "SUM", "REDUCE_PROD"):
        node.expect_scale()
    is_whole = node.is_quantized() and node.dtype() in ("int8", "uint8", "int16")
    if not is_whole or node.kind in ("REDUCE_MAX", "REDUCE_MIN"):  # whatever the scales are
        return call(_PLAIN[node.kind], node[0], **attrs)
    if node.kind == "REDUCE_PROD":
        return product(node, axes, bool(attrs["keepdims"]))
    return _of_whole_numbers(node, axes, attrs)


def _of_whole_numbers(
    node: Node, axes: tuple[int, ...], attrs: dict[str, object]
) -> RelayExpr:
    count = math.prod(node.shape()[axis] for axis in axes)
    total = call("sum", cast(node[0], "int32"), **attrs)
    rule = by_fractions if node.rounding == TFLM or node.dtype() == "int16" else by_floats
    return rule(node, total, count, count if node.kind == "MEAN" else 1)


_WHERE = {"ARG_MAX": "argmax", "ARG_MIN": "argmin"}


@converter(*_WHERE)
def arg(node: Node) -> RelayExpr:
    axis = int(node.number(1, "the axis"))
    made = call(_WHERE[node.kind], node[0], axis=axis)
    return cast(made, type_at(int(node.attr("output_type"))))


@converter("TOPK_V2")
def top_k(node: Node) -> list[RelayExpr]:
    made = call("topk", node[0], int(node.number(1, "k")), -1, "both", False, "int32")
    return parts(made, 2)


@converter("CUMSUM")
def cumsum(node: Node) -> RelayExpr:
    axis = int(node.number(1, "the axis"))
    exclusive, backwards = bool(node.attr("exclusive")), bool(node.attr("reverse"))
    return call("cumsum", node[0], axis=axis, exclusive=exclusive, reverse=backwards)
