"""Horizontal fusion: calls that read the same data, as one call of all the weights.

    nn.conv2d(%x, %w1), nn.conv2d(%x, %w2), nn.conv2d(%x, %w3)
        -> %1 = nn.conv2d(%x, concatenate((%w1, %w2, %w3)))
           strided_slice(%1, ...), strided_slice(%1, ...), strided_slice(%1, ...)

What follows element by element in every branch alike, such as a bias and a rectifier, is done
before the parts are taken. Only calls of one depth are joined, so no circle can arise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.ir.structural import structural_equal
from sterna.ir.transform import Pass, function_pass
from sterna.ir.types import TensorType
from sterna.relay.arrays import from_numpy, to_numpy
from sterna.relay.attributes import Attrs
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple
from sterna.relay.op import BROADCAST, ELEMWISE, call, record_of, rules_of
from sterna.relay.passes.canonicalize_ops import canonical_call
from sterna.relay.traverse import not_primitive, post_order, rebuild


@dataclass(frozen=True, slots=True)
class ParallelRule:
    """How calls of an operator that read the same data are joined.

    result(attrs) and weight(attrs) are the axes along which results and weights lie side by side,
    None if they cannot; joined(attrs, extent) are the attributes of the joined call.
    """

    result: Callable[[Any], int | None]
    weight: Callable[[Any], int | None]
    joined: Callable[[Any, int], Attrs]


def CombineParallelConv2D(min_num_branches: int = 3) -> Pass:
    """Horizontal fusion: join convolutions of the same data."""
    return _pass("CombineParallelConv2d", "nn.conv2d", min_num_branches)


def CombineParallelDense(min_num_branches: int = 3, to_batch: bool = True) -> Pass:
    """Horizontal fusion: join dense layers of the same data, whatever to_batch says."""
    return _pass("CombineParallelDense", "nn.dense", min_num_branches)


def CombineParallelBatchMatmul(min_num_branches: int = 3) -> Pass:
    """Horizontal fusion: join products of the same first matrices."""
    return _pass("CombineParallelBatchMatmul", "nn.batch_matmul", min_num_branches)


def _pass(name: str, operator: str, least: int) -> Pass:
    if least < 2:
        raise ValueError(f"{name}: min_num_branches is at least 2, not {least}")
    made: Pass = function_pass(
        lambda func, mod, context: combine_parallel(func, operator, least),
        opt_level=4, name=name, kind=Function,
    )
    return made


def combine_parallel(func: Function, operator: str, least: int) -> Function:
    """The function with calls of an operator joined where at least so many read the same."""
    func.checked_type  # noqa: B018  (weights are compared by shape)
    order = post_order(func, not_primitive)
    users = _users(order)
    stands_for: dict[int, RelayExpr] = {}
    for branches in _groups(order, operator):
        if len(branches) >= least:
            _join(branches, users, stands_for)
    if not stands_for:
        return func
    made = _replace(func, stands_for)
    assert isinstance(made, Function)
    return made


def _users(order: list[RelayExpr]) -> dict[int, list[RelayExpr]]:
    users: dict[int, list[RelayExpr]] = {}
    for expr in order:
        for part in expr.operands() if not_primitive(expr) else ():  # type: ignore[attr-defined]
            users.setdefault(id(part), []).append(expr)
    return users


def _groups(order: list[RelayExpr], operator: str) -> list[list[Call]]:
    """Calls that read the same data at the same depth, with attributes and weights that fit."""
    depth: dict[int, int] = {}
    found: dict[Any, list[list[Call]]] = {}
    for expr in order:
        inner = expr.operands() if not_primitive(expr) else ()  # type: ignore[attr-defined]
        depth[id(expr)] = 1 + max([depth[id(part)] for part in inner], default=0)
        record = rules_of(expr)
        if record is None or record.name != operator or record.contraction.parallel is None:
            continue
        assert isinstance(expr, Call)
        key = _key(expr, record.contraction.parallel)
        if key is not None:
            same = found.setdefault((id(expr.args[0]), depth[id(expr)], *key), [])
            alike = [g for g in same if _alike(g[0], expr, record.contraction.parallel)]
            alike[0].append(expr) if alike else same.append([expr])
    return [group for groups in found.values() for group in groups]


def _key(expr: Call, rule: ParallelRule) -> tuple[Any, ...] | None:
    kind, weight = expr.checked_type, expr.args[1].checked_type
    if not isinstance(kind, TensorType) or not isinstance(weight, TensorType):
        return None
    axis = rule.weight(expr.attrs)
    if axis is None or rule.result(expr.attrs) is None:
        return None
    if not kind.is_static or not weight.is_static:
        return None
    rest = list(weight.concrete_shape)
    rest[axis] = 0
    return (kind.dtype, weight.dtype, *rest)


def _alike(a: Call, b: Call, rule: ParallelRule) -> bool:
    return structural_equal(rule.joined(a.attrs, 1), rule.joined(b.attrs, 1))


def _join(
    branches: list[Call], users: dict[int, list[RelayExpr]], stands_for: dict[int, RelayExpr]
) -> None:
    first = branches[0]
    record = record_of(first)
    assert record is not None
    rule = record.contraction.parallel
    assert rule is not None
    axis = _place(first, rule.result(first.attrs))
    extents = [_extent(branch, axis) for branch in branches]
    weights = Tuple(tuple(branch.args[1] for branch in branches))
    weight = call("concatenate", weights, axis=_place(first.args[1], rule.weight(first.attrs)))
    whole = Call(first.op, (first.args[0], weight), rule.joined(first.attrs, sum(extents)))
    ends: list[Call] = list(branches)
    while True:
        following = _following(ends, users, whole, axis)
        if following is None:
            break
        ends, whole = following
    begin = 0
    for end, extent in zip(ends, extents, strict=True):
        part = call("strided_slice", whole, begin=(begin,), end=(begin + extent,), axes=(axis,))
        part.span = end.span
        stands_for[id(end)] = part
        begin += extent


def _place(expr: RelayExpr, axis: int | None) -> int:
    kind = expr.checked_type
    assert isinstance(kind, TensorType) and axis is not None
    return axis % kind.ndim


def _extent(expr: RelayExpr, axis: int) -> int:
    kind = expr.checked_type
    assert isinstance(kind, TensorType)
    return kind.concrete_shape[axis]


def _following(
    ends: list[Call], users: dict[int, list[RelayExpr]], whole: Call, axis: int
) -> tuple[list[Call], Call] | None:
    """The next call of every branch and the one call that does the same for all; None if none."""
    nexts: list[Call] = []
    forms: list[Call] = []
    for end in ends:
        after = users.get(id(end), [])
        if len(after) != 1 or not isinstance(after[0], Call) or record_of(after[0]) is None:
            return None
        form = _plain_form(after[0])
        if form is None or form.checked_type != end.checked_type or end not in form.args:
            return None
        nexts.append(after[0])
        forms.append(form)
    joined = _joined_call(ends, forms, whole, axis)
    return None if joined is None else (nexts, joined)


def _plain_form(expr: Call) -> Call | None:
    """A call as one of an operator that works element by element, if it is such a call."""
    expr = canonical_call(expr)
    record = rules_of(expr)
    assert record is not None
    alone = record.pattern == ELEMWISE and len(record.inputs) == 1
    with_others = record.pattern <= BROADCAST and record.attrs is None
    return expr if alone or with_others else None


def _joined_call(ends: list[Call], forms: list[Call], whole: Call, axis: int) -> Call | None:
    first = forms[0]
    kind = ends[0].checked_type
    assert isinstance(kind, TensorType)
    args: list[RelayExpr] = []
    for place in range(len(first.args)):
        mine = [form.args[place] for form in forms if len(form.args) > place]
        if all(own is end for own, end in zip(mine, ends, strict=False)):
            args.append(whole)
            continue
        constants = [own for own in mine if isinstance(own, Constant)]
        joined = _joined_constants(constants, ends, axis, kind.ndim)
        if len(constants) != len(ends) or joined is None:
            return None
        args.append(joined)
    same = all(
        form.op is first.op and len(form.args) == len(args)
        and structural_equal(form.attrs, first.attrs)
        for form in forms
    )
    return Call(first.op, tuple(args), first.attrs) if same and whole in args else None


def _joined_constants(
    constants: list[Constant], ends: list[Call], axis: int, ndim: int
) -> Constant | None:
    """Operands per channel one after another."""
    arrays = []
    for constant, end in zip(constants, ends, strict=False):
        array = to_numpy(constant.data)
        array = array.reshape((1,) * (ndim - array.ndim) + array.shape)
        shape = list(array.shape)
        shape[axis] = _extent(end, axis)
        arrays.append(np.broadcast_to(array, shape))
    if len({(*a.shape[:axis], *a.shape[axis + 1 :]) for a in arrays}) != 1:
        return None
    return Constant(from_numpy(np.concatenate(arrays, axis)))


def _replace(root: RelayExpr, stands_for: dict[int, RelayExpr]) -> RelayExpr:
    """The graph in which expressions give way to others, which may contain more such."""
    memo: dict[int, RelayExpr] = {}
    stack = [root]
    while stack:
        expr = stack[-1]
        if id(expr) in memo:
            stack.pop()
            continue
        other = stands_for.get(id(expr))
        inner = (other,) if other is not None else (
            expr.operands() if not_primitive(expr) else ())  # type: ignore[attr-defined]
        waiting = [part for part in inner if id(part) not in memo]
        if waiting:
            stack += reversed(waiting)
            continue
        stack.pop()
        memo[id(expr)] = memo[id(other)] if other is not None else (
            rebuild(expr, memo) if not_primitive(expr) else expr)
    return memo[id(root)]
