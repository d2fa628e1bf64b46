"""Sums of convolutions of the same data, as one convolution by the sum of their weights.

    add(nn.conv2d(%x, w3), nn.conv2d(%x, w1))  ->  nn.conv2d(%x, w3 + w1)

So networks that were trained with several branches (RepVGG, MobileOne) and were not joined since
compute one. A smaller window lies within the largest, at the place that its padding gives it.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sterna.ir.structural import structural_equal
from sterna.ir.transform import Pass, function_pass
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.expr import Call, Constant, Function, RelayExpr, const
from sterna.relay.op import call, is_call_of
from sterna.relay.traverse import not_primitive, post_order, rewrite

CONV, ADD, BIAS = "nn.conv2d", "add", "nn.bias_add"
# What branches have in common, beside what they read and give.
ALIKE = (
    "strides", "dilation", "groups", "data_layout", "kernel_layout", "out_layout", "out_dtype",
    "border", "implementation",
)


@dataclass(slots=True)
class _Sum:
    """The terms of a sum, as they were and as they are now."""

    others: list[RelayExpr] = field(default_factory=list)
    biases: list[tuple[int, Array]] = field(default_factory=list)
    branches: list[tuple[Call, Call]] = field(default_factory=list)


def AddUpParallelConv2D() -> Pass:
    """Compute sums of convolutions of the same data as one."""
    made: Pass = function_pass(
        lambda func, mod, context: add_up_parallel(func),
        opt_level=3, name="AddUpParallelConv2D", kind=Function,
    )
    return made


def add_up_parallel(func: Function) -> Function:
    """The function with one convolution for each sum of several that read the same."""
    order = post_order(func, not_primitive)
    uses = Counter(id(part) for expr in order for part in _parts(expr))
    uses[id(func.body)] += 1
    inner = {
        id(part) for expr in order if is_call_of(expr, ADD) or is_call_of(expr, BIAS)
        for part in _parts(expr) if uses[id(part)] == 1
    }

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        if id(old) in inner or not is_call_of(old, ADD):
            return new
        found = _terms(new, old, uses)
        groups = [group for group in _groups(found.branches) if len(group) > 1]
        return _added(found, groups, old) if groups else new

    made = rewrite(func, change, not_primitive)
    assert isinstance(made, Function)
    return made


def _parts(expr: RelayExpr) -> tuple[RelayExpr, ...]:
    if isinstance(expr, Call):
        return expr.args
    parts: tuple[RelayExpr, ...] = tuple(expr.operands()) if hasattr(expr, "operands") else ()
    return parts


def _terms(new: RelayExpr, old: RelayExpr, uses: Counter[int]) -> _Sum:
    """What is added up; what is used elsewhere too stays whole."""
    found, left = _Sum(), [(new, old, True)]
    while left:
        now, before, top = left.pop()
        own = top or uses[id(before)] == 1
        if own and isinstance(now, Call) and isinstance(before, Call):
            if is_call_of(before, ADD) and is_call_of(now, ADD):
                left += [(a, b, False) for a, b in zip(now.args, before.args, strict=True)][::-1]
                continue
            bias = before.args[1] if is_call_of(before, BIAS) else None
            if is_call_of(now, BIAS) and isinstance(bias, Constant):
                ndim = len(before.checked_type.shape)  # type: ignore[attr-defined]
                axis = int(before.attrs.axis) % ndim  # type: ignore[union-attr]
                found.biases.append((axis, to_numpy(bias.data)))
                left.append((now.args[0], before.args[0], False))
                continue
            if is_call_of(before, CONV) and is_call_of(now, CONV) and _is_known(before, old):
                found.branches.append((now, before))
                continue
        found.others.append(now)
    return found


def _is_known(conv: Call, whole: RelayExpr) -> bool:
    """Whether a convolution of constant floats gives what is as large as the sum."""
    weight = conv.args[1]
    is_float = isinstance(weight, Constant) and to_numpy(weight.data).dtype.kind == "f"
    return is_float and structural_equal(conv.checked_type, whole.checked_type)


def _groups(branches: list[tuple[Call, Call]]) -> Iterator[list[Call]]:
    """Branches that read the same, those with the largest window first."""
    left = sorted(branches, key=lambda both: -to_numpy(_weight(both[1]).data).size)
    while left:
        first = left[0][1]
        fitting = [both for both in left if _place(both[1], first) is not None]
        yield [now for now, _ in fitting]
        left = [both for both in left if both not in fitting]


def _weight(conv: Call) -> Constant:
    weight = conv.args[1]
    assert isinstance(weight, Constant)
    return weight


def _place(conv: Call, largest: Call) -> tuple[int, ...] | None:
    """Where a window begins within another, along all axes of the weights; None: it does not."""
    own: Any = conv.attrs
    other: Any = largest.attrs
    if conv.args[0] is not largest.args[0] or any(
        getattr(own, name) != getattr(other, name) for name in ALIKE
    ):
        return None
    small, large = (to_numpy(_weight(each).data) for each in (conv, largest))
    layout, begin = str(other.kernel_layout), [0] * small.ndim
    for place, letter in enumerate("HW"):
        axis = layout.index(letter)
        begin[axis], rest = divmod(other.before[place] - own.before[place], other.dilation[place])
        if rest:
            return None
    fits = all(
        at >= 0 and at + short <= long
        for at, short, long in zip(begin, small.shape, large.shape, strict=True)
    )
    channels = all(
        a == b for a, b, letter in zip(small.shape, large.shape, layout, strict=True)
        if letter not in "HW"
    )
    return tuple(begin) if fits and channels and small.dtype == large.dtype else None


def _added(found: _Sum, groups: list[list[Call]], old: RelayExpr) -> RelayExpr:
    """The sum again, with one convolution for each group."""
    joined = {id(conv) for group in groups for conv in group}
    terms: list[RelayExpr] = [_joined(group) for group in groups]
    terms += [now for now, _ in found.branches if id(now) not in joined]
    made = terms[0]
    for axis in sorted({axis for axis, _ in found.biases}):
        bias = np.sum([bias for own, bias in found.biases if own == axis], axis=0)
        made = call(BIAS, made, const(bias), axis=axis)
    for term in (*terms[1:], *found.others):
        made = call(ADD, made, term)
    made.span = old.span
    return made


def _joined(group: list[Call]) -> Call:
    largest = group[0]
    total = to_numpy(_weight(largest).data).copy()
    for conv in group[1:]:
        begin, weight = _place(conv, largest), to_numpy(_weight(conv).data)
        assert begin is not None
        inside = tuple(
            slice(at, at + extent) for at, extent in zip(begin, weight.shape, strict=True))
        total[inside] += weight
    return Call(largest.op, (largest.args[0], const(total)), largest.attrs)
