"""Ensembles of decision trees: all conditions at once, then a walk from the roots by gathers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of, like
from sterna.frontend.onnx.node import Node, converter
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented

_COMPARISONS = ("less_equal", "less", "greater_equal", "greater", "equal", "not_equal")
_MEMBER = len(_COMPARISONS)
_AVERAGE, _SUM, _MIN, _MAX = range(4)
_TRANSFORMS: dict[int, Callable[[RelayExpr], RelayExpr]] = {
    0: lambda scores: scores,
    1: lambda scores: call("nn.softmax", scores, axis=-1),
    2: lambda scores: call("sigmoid", scores),
}


@converter("TreeEnsemble", domain="ai.onnx.ml", since=5)
def tree_ensemble(node: Node) -> RelayExpr:
    transform = _TRANSFORMS.get(node.attr("post_transform", 0))
    if transform is None:
        raise OpNotImplemented(f"post_transform {node.attr('post_transform')} of TreeEnsemble")
    data, nodes = node[0], len(node.attr("nodes_featureids"))
    ends = len(node.attr("leaf_targetids"))
    following = [_following(node, way, nodes, ends) for way in ("true", "false")]
    roots = np.asarray(node.attr("tree_roots"), "int64")
    alone = np.asarray([following[0][r] == following[1][r] >= nodes for r in roots])
    state = constant(np.where(alone, following[0][roots], roots))
    holds = _conditions(node, data, ends)
    at = call("broadcast_to_like", call("expand_dims", state, 0), _rows_of(data, len(roots)))
    for _ in range(_depth(roots, following, nodes)):
        taken = call("gather", holds, 1, at)
        ways = [call("take", constant(way), at) for way in following]
        at = call("where", taken, *ways)
    return transform(_aggregated(node, data, call("subtract", at, like(nodes, at))))


def _following(node: Node, way: str, nodes: int, ends: int) -> Array:
    """Where each node leads to; leaves come behind the nodes, and lead to themselves."""
    next_ones = np.asarray(node.attr(f"nodes_{way}nodeids"), "int64")
    is_leaf = np.asarray(node.attr(f"nodes_{way}leafs"), bool)
    found = next_ones + nodes * is_leaf
    if not ((found >= 0) & (found < np.where(is_leaf, nodes + ends, nodes))).all():
        raise ValueError(f"nodes_{way}nodeids leads to nodes that are not there")
    return np.concatenate([found, np.arange(nodes, nodes + ends)])


def _depth(roots: Array, following: list[Array], nodes: int) -> int:
    """The most steps from a root to a leaf; an error if a walk would not end."""
    here, steps = set(roots.tolist()), 0
    while here := {int(way[n]) for n in here if n < nodes for way in following}:
        steps += 1
        if steps > nodes:
            raise ValueError("the nodes of TreeEnsemble lead to one another in a circle")
    return steps


def _conditions(node: Node, data: RelayExpr, ends: int) -> RelayExpr:
    """For each row and node whether its condition holds; leaves have none."""
    features = np.asarray(node.attr("nodes_featureids"), "int64")
    modes = np.asarray(node.attr("nodes_modes"))
    kind = dtype_of(data)
    values = call("take", data, constant(features), axis=1)
    splits = constant(np.asarray(node.attr("nodes_splits")).astype(kind))
    holds: RelayExpr | None = None
    for number, comparison in enumerate(_COMPARISONS):
        if (modes == number).any():
            own = call(comparison, values, splits)
            here = constant(modes == number)
            holds = own if holds is None else call("where", here, own, holds)
    if (modes == _MEMBER).any():
        own = _members(node, modes, values, kind)
        holds = own if holds is None else call("where", constant(modes == _MEMBER), own, holds)
    assert holds is not None
    missing = node.attr("nodes_missing_value_tracks_true")
    if missing is not None and any(missing):
        lost = call("logical_and", call("isnan", values), constant(np.asarray(missing, bool)))
        holds = call("logical_or", holds, lost)
    padded = call("nn.pad", cast(holds, "uint8"), ((0, 0), (0, ends)), constant(np.uint8(0)))
    return cast(padded, "bool")


def _members(node: Node, modes: Array, values: RelayExpr, kind: str) -> RelayExpr:
    """Whether values are among those of their nodes' sets, which end with NaN each."""
    given = np.asarray(node.attr("membership_values"), "float64")
    ends = np.flatnonzero(np.isnan(given))
    sets = np.split(given, ends + 1)[: len(ends)]
    if len(sets) != int((modes == _MEMBER).sum()):
        raise ValueError("membership_values has a set, which ends with NaN, for each member node")
    widest = max(map(len, sets))
    table = np.full((len(modes), widest), np.nan)
    for place, members in zip(np.flatnonzero(modes == _MEMBER), sets, strict=True):
        table[place, : len(members)] = members
    each = call("equal", call("expand_dims", values, 2), constant(table.astype(kind)))
    return call("any", each, axis=2)


def _aggregated(node: Node, data: RelayExpr, leaves: RelayExpr) -> RelayExpr:
    """The leaves of all trees by their targets: (rows, trees) to (rows, targets)."""
    how, kind = node.attr("aggregate_function", _SUM), dtype_of(data)
    weights = np.asarray(node.attr("leaf_weights")).astype(kind)
    if how == _AVERAGE:
        weights = (weights / len(node.attr("tree_roots"))).astype(kind)
    info = np.finfo(kind)
    neutral: Any = {_MIN: info.max, _MAX: info.min}.get(how, 0)
    targets = constant(np.arange(node.attr("n_targets"), dtype="int64"))
    given = np.asarray(node.attr("leaf_targetids"), "int64")
    own = call("expand_dims", call("take", constant(given), leaves), 2)
    worth = call("expand_dims", call("take", constant(weights), leaves), 2)
    sorted_out = call("where", call("equal", own, targets), worth, like(neutral, worth))
    return call({_MIN: "min", _MAX: "max"}.get(how, "sum"), sorted_out, axis=1)


def _rows_of(data: RelayExpr, columns: int) -> RelayExpr:
    """A tensor of so many columns and the data's rows."""
    first = call("take", data, constant(np.zeros(columns, "int64")), axis=1)
    return cast(first, "int64")
