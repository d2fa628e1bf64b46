"""Matches that become something else: what a callback makes of them, or calls of functions."""

from collections.abc import Mapping, Sequence
from typing import Any

from sterna.ir.module import IRModule
from sterna.ir.structural import structural_equal
from sterna.relay.dataflow_pattern.groups import Group, find_groups
from sterna.relay.dataflow_pattern.pattern import Check, DFPattern
from sterna.relay.expr import (
    Call,
    Function,
    RelayExpr,
    Tuple,
    TupleGetItem,
    TupleWrapper,
    Var,
)
from sterna.relay.op import Op
from sterna.relay.traverse import post_order, rebuild

# Rewritings that change something again and again undo each other.
_MOST_PASSES = 100

NodeMap = dict[DFPattern, list[RelayExpr]]


class DFPatternCallback:
    """What becomes of matches: derive from it, set self.pattern and define callback.

    require_type: kept for programs that say so; expressions always know their types.
    rewrite_once: go through the graph once, and not until nothing changes any more.
    """

    pattern: DFPattern

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.require_type = require_type
        self.rewrite_once = rewrite_once

    def rewrite(self, expr: RelayExpr) -> RelayExpr:
        """The expression with what the callback makes of each match."""
        return rewrite(self, expr)

    def callback(self, pre: RelayExpr, post: RelayExpr, node_map: NodeMap) -> RelayExpr:
        """What stands for a match.

        pre: its last expression as it was; post: the same over inputs that are rewritten already.
        node_map: what each pattern stands for, rewritten, as a list.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method callback")


def rewrite(
    callbacks: DFPatternCallback | Sequence[DFPatternCallback],
    expr: RelayExpr,
    mod: IRModule | None = None,
) -> RelayExpr:
    """The expression with what callbacks make of their matches, until nothing changes any more."""
    every = [callbacks] if isinstance(callbacks, DFPatternCallback) else list(callbacks)
    for each in every:
        if not isinstance(getattr(each, "pattern", None), DFPattern):
            name = type(each).__name__
            raise TypeError(f"{name} sets no pattern: self.pattern = is_op(...)(...)")
    for _ in range(_MOST_PASSES):
        before = expr
        for each in every:
            expr = _rewritten(each, expr)
        if expr is before or all(each.rewrite_once for each in every):
            return expr
        if structural_equal(expr, before):
            return expr
    names = ", ".join(type(each).__name__ for each in every)
    raise ValueError(
        f"{names}: the graph still changes after {_MOST_PASSES} passes; rewrite_once=True stops "
        "after one"
    )


def _rewritten(callback: DFPatternCallback, expr: RelayExpr) -> RelayExpr:
    groups = find_groups(callback.pattern, expr, lambda root: True)
    if not groups:
        return expr
    memo: dict[int, RelayExpr] = {}
    for each in post_order(expr):
        new = rebuild(each, memo)
        group = groups.get(id(each))
        memo[id(each)] = new if group is None else _called_back(callback, group, new, memo)
    return memo[id(expr)]


def _called_back(
    callback: DFPatternCallback, group: Group, post: RelayExpr, memo: dict[int, RelayExpr]
) -> RelayExpr:
    def renewed(expr: RelayExpr) -> RelayExpr:
        if expr is group.root:
            return post
        return memo[id(expr)] if id(expr) in memo else rebuild(expr, memo)

    found = {pattern: [renewed(each) for each in exprs] for pattern, exprs in group.found.items()}
    made: Any = callback.callback(group.root, post, found)
    if isinstance(made, TupleWrapper):
        made = made.tuple_value
    if not isinstance(made, RelayExpr):
        raise TypeError(
            f"the callback of {type(callback).__name__} gives {type(made).__name__}, which is no "
            "expression of a graph; return post where nothing changes"
        )
    return made


def partition(
    pattern: DFPattern,
    expr: RelayExpr,
    attrs: Mapping[str, Any] | None = None,
    check: Check | None = None,
) -> RelayExpr:
    """The expression with each match as a call of a function of its own.

    attrs: attributes of the functions, beside PartitionedFromPattern, which names their operators.
    check(root): whether a match becomes a function.
    """
    groups = find_groups(pattern, expr, check or (lambda root: True))
    memo: dict[int, RelayExpr] = {}
    number = 0
    for each in post_order(expr):
        new = rebuild(each, memo)
        group = groups.get(id(each))
        if group is not None:
            new = _call_of(group, memo, number, attrs or {})
            number += 1
        memo[id(each)] = new
    return memo[id(expr)]


def _call_of(
    group: Group, memo: dict[int, RelayExpr], number: int, attrs: Mapping[str, Any]
) -> Call:
    """A function of what goes into a match, and its call."""
    order = post_order(group.root, lambda expr: id(expr) in group.inside)
    inside: dict[int, RelayExpr] = {}
    params: list[Var] = []
    given: list[RelayExpr] = []
    name = ""
    for each in order:
        if isinstance(each, Op):
            continue
        if id(each) in group.inside:
            inside[id(each)] = rebuild(each, inside)
            name += _name_of(each)
            continue
        var = Var(f"FunctionVar_{number}_{len(params)}", each._type)
        inside[id(each)] = var
        params.append(var)
        given.append(memo[id(each)])
    told = {"PartitionedFromPattern": name, **attrs}
    return Call(Function(tuple(params), inside[id(group.root)], None, (), told), tuple(given))


def _name_of(expr: RelayExpr) -> str:
    if isinstance(expr, Call):
        return f"{expr.op.name}_" if isinstance(expr.op, Op) else "Call_"
    if isinstance(expr, TupleGetItem):
        return f"TupleGetItem{expr.index}_"
    return "Tuple_" if isinstance(expr, Tuple) else ""


DFPattern.cut = staticmethod(partition)
