"""Reductions along axes."""

from sterna.frontend.calls import axes_below, call, cast, dtype_of, rank_of
from sterna.frontend.node import Result
from sterna.frontend.onnx.node import Node, converter
from sterna.relay.expr import RelayExpr
from sterna.support.dtype import DataType

_REDUCE = {
    "ReduceMax": "max", "ReduceMean": "mean", "ReduceMin": "min", "ReduceProd": "prod",
    "ReduceSum": "sum", "ReduceL1": "sum", "ReduceL2": "sum", "ReduceLogSum": "sum",
    "ReduceSumSquare": "sum",
}

# Which version made the axes an operand.
_SINCE = {"ReduceSum": 13}


def _axes(node: Node) -> list[int] | None:
    """The axes to reduce; an empty list says that there are none."""
    axes = node.ints_of(1, "axes", _SINCE.get(node.kind, 18))
    if axes:
        return axes_below(axes, rank_of(node[0]))
    return [] if node.attr("noop_with_empty_axes", 0) else list(range(rank_of(node[0])))


def _before(kind: str, data: RelayExpr) -> RelayExpr:
    if kind == "ReduceL1":
        return call("abs", data)
    return call("multiply", data, data) if kind in ("ReduceL2", "ReduceSumSquare") else data


def _after(kind: str, made: RelayExpr) -> RelayExpr:
    """What follows the sum; of integers in float32, as ONNX says, without the fraction."""
    name = {"ReduceL2": "sqrt", "ReduceLogSum": "log"}.get(kind)
    if name is None:
        return made
    own = dtype_of(made)
    return cast(call(name, made if _is_float(own) else cast(made, "float32")), own)


def _is_float(dtype: str) -> bool:
    return DataType(dtype).is_float


@converter(*_REDUCE)
def reduction(node: Node) -> Result:
    axes, keep = _axes(node), bool(node.attr("keepdims", 1))
    data = _before(node.kind, node[0])
    if axes:
        data = _reduced(_REDUCE[node.kind], data, axes, keep)
    return _after(node.kind, data)


def _reduced(name: str, data: RelayExpr, axes: list[int], keep: bool) -> RelayExpr:
    if dtype_of(data) == "bool":
        name = {"max": "any", "min": "all"}[name]
    return call(name, data, axis=tuple(axes), keepdims=keep)


@converter("ReduceLogSumExp")
def reduce_log_sum_exp(node: Node) -> Result:
    """By the largest element, so that no exponential overflows."""
    axes, keep = _axes(node), bool(node.attr("keepdims", 1))
    data = node[0]
    if not axes:
        return data
    own = dtype_of(data)
    data = data if _is_float(own) else cast(data, "float64")
    kind = dtype_of(data)
    top = call("max", data, axis=tuple(axes), keepdims=True)
    top = call("where", call("isfinite", top), top, cast(call("zeros_like", top), kind))
    total = call("sum", call("exp", call("subtract", data, top)), axis=tuple(axes), keepdims=True)
    made = cast(call("add", call("log", total), top), own)
    return made if keep else call("squeeze", made, tuple(axes))
