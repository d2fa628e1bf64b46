"""Einsum as products of matrices, where two operands share letters that are summed over.

    einsum(%a, %b, "bqd,bkd->bqk")  ->  nn.batch_matmul(%a, %b, transpose_b=True)

Letters fall into four sorts: those of both operands and the result are a batch, those of both that
the result lacks are summed over, and each operand has some of its own. Each sort becomes one axis.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from sterna.op.dynamic import tensor_type
from sterna.relay.expr import RelayExpr
from sterna.relay.op import call

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sorts:
    """The letters of a product of two operands."""

    batch: Labels
    summed: Labels
    left: Labels
    right: Labels


def sorts_of(first: Labels, second: Labels, result: Labels) -> Sorts | None:
    """The sorts of letters; None where it is no product of matrices."""
    if any(len({*labels}) < len(labels) for labels in (first, second)):
        return None  # a diagonal
    both = {*first} & {*second}
    made = Sorts(
        tuple(s for s in result if s in both),
        tuple(s for s in first if s in both and s not in result),
        tuple(s for s in result if s in first and s not in both),
        tuple(s for s in result if s in second and s not in both),
    )
    own = {*made.batch, *made.summed}
    whole = {*first} == own | {*made.left} and {*second} == own | {*made.right}
    return made if made.summed and whole else None


def product(
    first: tuple[Labels, RelayExpr], second: tuple[Labels, RelayExpr], result: Labels,
    sorts: Sorts, extents: Mapping[str, int], on_device: bool = False,
) -> RelayExpr:
    """The product of two operands, with its letters in the order of the result.

    on_device: whether it is for a GPU, whose tiles have one matrix of each operand, and rows of the
    first that are as long as the sums.
    """
    for wide, narrow, own in ((first, second, sorts.right), (second, first, sorts.left)):
        if on_device and own:
            continue
        if (made := _of_planes(wide, narrow, own, result, sorts, extents)) is not None:
            return made
    ends = {s: place for place, s in enumerate(result)}
    if sorts.left and sorts.right and ends[sorts.left[-1]] > ends[sorts.right[-1]]:
        first, second = second, first  # what is innermost in the result is so in the product
        sorts = Sorts(sorts.batch, sorts.summed, sorts.right, sorts.left)
    begin = (*sorts.batch, *sorts.summed)
    turned = first[0][-1] not in sorts.summed and first[0][: len(begin)] == begin
    turned = turned and not on_device
    along = second[0][-1] in sorts.summed
    groups = (sorts.batch, sorts.summed, sorts.left) if turned else (
        sorts.batch, sorts.left, sorts.summed
    )
    others = (sorts.batch, sorts.right, sorts.summed) if along else (
        sorts.batch, sorts.summed, sorts.right
    )
    made = call(
        "nn.batch_matmul", _as_matrices(first, groups, extents),
        _as_matrices(second, others, extents), transpose_a=turned, transpose_b=along,
    )
    order = (*sorts.batch, *sorts.left, *sorts.right)
    whole: RelayExpr = call("reshape", made, newshape=tuple(extents[s] for s in order))
    return _in_order(whole, order, result)


def _of_planes(
    wide: tuple[Labels, RelayExpr], narrow: tuple[Labels, RelayExpr], own: Labels,
    result: Labels, sorts: Sorts, extents: Mapping[str, int],
) -> RelayExpr | None:
    """One matrix and each of many, whose rows stay where they are; None where it is not so.

        einsum(%x, %w, "bchw,cd->bdhw")  ->  %w' of (1, d, c) times %x of (b, c, h*w)
        einsum(%x, %w, "bchw,cd->bhwd")  ->  %x' of (b, h*w, c) times %w of (1, c, d)
    """
    labels = wide[0]
    begin = labels.index(sorts.summed[0])
    outer, rest = labels[:begin], labels[begin + len(sorts.summed) :]
    if sorts.batch or not outer or not rest or labels != (*outer, *sorts.summed, *rest):
        return None
    if result not in ((*outer, *own, *rest), (*outer, *rest, *own)):
        return None
    along = narrow[0][-1] in sorts.summed
    groups: tuple[Labels, ...] = ((), own, sorts.summed) if along else ((), sorts.summed, own)
    matrix = _as_matrices(narrow, groups, extents)
    planes = _as_matrices(wide, (outer, sorts.summed, rest), extents)
    if result == (*outer, *own, *rest):
        made = call("nn.batch_matmul", matrix, planes, transpose_a=not along, transpose_b=False)
    else:
        made = call("nn.batch_matmul", planes, matrix, transpose_a=True, transpose_b=along)
    whole: RelayExpr = call("reshape", made, newshape=tuple(extents[s] for s in result))
    return whole


def _as_matrices(
    operand: tuple[Labels, RelayExpr], groups: Sequence[Labels], extents: Mapping[str, int]
) -> RelayExpr:
    """An operand of three axes, each of some letters."""
    labels, value = operand
    moved = _in_order(value, labels, tuple(s for group in groups for s in group))
    made: RelayExpr = call(
        "reshape", moved, newshape=tuple(prod(extents[s] for s in group) for group in groups)
    )
    return made


def _in_order(value: RelayExpr, labels: Labels, wanted: Labels) -> RelayExpr:
    if labels == wanted:
        return value
    made: RelayExpr = call("transpose", value, axes=tuple(labels.index(s) for s in wanted))
    return made


def is_known(values: Sequence[RelayExpr], labels: Sequence[Labels],
             extents: Mapping[str, object]) -> bool:
    """Whether all extents are numbers and no axis of one element stands for more."""
    return all(
        tensor_type(value).is_static
        and all(extents[s] == n for s, n in
                zip(own, tensor_type(value).concrete_shape, strict=True))
        for value, own in zip(values, labels, strict=True)
    )
