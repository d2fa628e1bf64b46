"""Einstein's summation: products of tensors summed over the letters that the result lacks.

Several operands are contracted two at a time, the pair with the smallest product first, so that
the work stays near the least possible. Each contraction is a product of matrices where it can be,
and a stage of its own elsewhere.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from sterna.ir.build import const, int_value
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, TupleType, Type
from sterna.op.checks import broadcast_dims, same_dtype, tensors
from sterna.op.dynamic import tensor_type
from sterna.op.tensor._einsum_products import is_known, product, sorts_of
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import RelayExpr, Tuple
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, call, register
from sterna.schedule.products import FLOAT32, narrowed, wide, widened
from sterna.target import Target, is_gpu
from sterna.te import IterVar, Tensor, compute, reduce_axis
from sterna.te import sum as te_sum

Labels = tuple[str, ...]

# Products of fewer numbers than these cost more as kernels of their own than as one stage.
LEAST_PRODUCTS = 4096


@attributes
class EinsumAttrs(Attrs):
    """Of einsum."""

    equation: str


def parse(equation: str, ndims: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The labels of every operand's dimensions and of the result's.

    Dimensions that an ellipsis stands for are labelled by their distance from its end.
    """
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise ValueError(
            f"the equation '{equation}' names {len(terms)} operands; there are {len(ndims)}"
        )
    operands = [
        _labels(term, ndim, place, equation)
        for place, (term, ndim) in enumerate(zip(terms, ndims, strict=True))
    ]
    widest = max(sum(label.isdigit() for label in labels) for labels in operands)
    spread = tuple(str(distance) for distance in range(widest, 0, -1))
    if arrow:
        result = _expand(right, spread, equation)
    else:
        count = Counter(label for labels in operands for label in labels)
        single = sorted(s for s, n in count.items() if n == 1 and not s.isdigit())
        result = (*spread, *single)
    known = {label for labels in operands for label in labels}
    for label in result:
        if label not in known or result.count(label) > 1:
            raise ValueError(
                f"the equation '{equation}': every letter of the result occurs there once and in "
                f"an operand; '{label}' does not"
            )
    return operands, result


def _expand(term: str, spread: Labels, equation: str) -> Labels:
    before, dots, after = term.partition("...")
    for letter in before + after:
        if not (letter.isascii() and letter.isalpha()):
            raise ValueError(f"the equation '{equation}' has '{letter}' where letters stand")
    return (*before, *(spread if dots else ()), *after)


def _labels(term: str, ndim: int, place: int, equation: str) -> Labels:
    letters = len(term.replace("...", ""))
    hidden = ndim - letters
    if hidden < 0 or (hidden and "..." not in term):
        raise ValueError(
            f"the equation '{equation}' gives operand {place} {letters} letters; it has {ndim} "
            "dimensions"
        )
    return _expand(term, tuple(str(distance) for distance in range(hidden, 0, -1)), equation)


def _extents(operands: Sequence[Labels], shapes: Sequence[Sequence[Dim]]) -> dict[str, Dim]:
    extents: dict[str, Dim] = {}
    for place, (labels, shape) in enumerate(zip(operands, shapes, strict=True)):
        for label, dim in zip(labels, shape, strict=True):
            found = broadcast_dims(extents.get(label, 1), dim)
            if found is None:
                raise ValueError(
                    f"data[{place}] has the extent {dim} where another operand has "
                    f"{extents[label]}, at the label '{label}'"
                )
            extents[label] = found
    return extents


def _infer(attrs: EinsumAttrs, data: Type) -> TensorType:
    parts = tensors(data, "data")
    same_dtype(parts, [f"data[{place}]" for place in range(len(parts))])
    operands, result = parse(attrs.equation, [part.ndim for part in parts])
    extents = _extents(operands, [part.shape for part in parts])
    return TensorType(tuple(extents[label] for label in result), parts[0].dtype)


@dataclass(frozen=True, slots=True)
class Step:
    """One or two values become a new one; the operands are the first values."""

    values: tuple[int, ...]
    result: Labels


def _plan(operands: Sequence[Labels], result: Labels, extents: Mapping[str, Dim]) -> list[Step]:
    """What concerns one operand alone is summed first; then pairs are contracted."""
    values = list(operands)
    live = list(range(len(values)))
    steps = []

    def kept(some: tuple[int, ...]) -> Labels:
        needed = {*result, *(label for v in live if v not in some for label in values[v])}
        own = [label for v in some for label in values[v]]
        return tuple(dict.fromkeys(label for label in own if label in needed))

    def cost(pair: tuple[int, int]) -> tuple[int, int]:
        return _size(kept(pair), extents), _size({*values[pair[0]], *values[pair[1]]}, extents)

    def contract(some: tuple[int, ...], labels: Labels) -> None:
        steps.append(Step(some, labels))
        values.append(labels)
        live[:] = [v for v in live if v not in some] + [len(values) - 1]

    if len(live) > 1:
        for v in list(live):
            if kept((v,)) != values[v]:
                contract((v,), kept((v,)))
    while len(live) > 2:
        pair = min(combinations(sorted(live), 2), key=cost)
        contract(pair, kept(pair))
    contract(tuple(sorted(live)), result)
    return steps


def _size(labels: Iterable[str], extents: Mapping[str, Dim]) -> int:
    """How many elements the labels span; extents that are not known count once."""
    known = [number for s in labels if (number := int_value(extents[s])) is not None]
    return math.prod(known)


def _as_products(
    attrs: EinsumAttrs, args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """Its contractions of two operands as products of matrices, where all are such.

    Of 16 bits only on GPUs, and only one product, since what lies between several is not rounded.
    """
    if not isinstance(args[0], Tuple):
        return None
    values = list(args[0].fields)
    types = [tensor_type(value) for value in values]
    labels, result = parse(attrs.equation, [kind.ndim for kind in types])
    extents = _extents(labels, [kind.shape for kind in types])
    is_narrow = types[0].dtype.is_float and types[0].dtype.bits == 16
    on_device = target is not None and is_gpu(target)
    if types[0].dtype != FLOAT32 and not (is_narrow and on_device):
        return None
    if not is_known(values, labels, extents):
        return None
    sizes = {s: int_value(extent) or 0 for s, extent in extents.items()}
    work, steps = 0, _plan(labels, result, extents)
    if is_narrow and len(steps) > 1:
        return None
    for step in steps:
        own = [labels[v] for v in step.values]
        labels.append(step.result)
        work += _size({s for some in own for s in some}, extents)
        if len(own) == 1 and len({*own[0]}) < len(own[0]):
            return None
        if len(own) == 2 and sorts_of(own[0], own[1], step.result) is None:
            return None
    if work < LEAST_PRODUCTS or all(len(step.values) == 1 for step in steps):
        return None
    for step in steps:
        own = [labels[v] for v in step.values]
        if len(own) == 1:
            values.append(_summed(values[step.values[0]], own[0], step.result))
            continue
        sorts = sorts_of(own[0], own[1], step.result)
        assert sorts is not None
        first, second = ((labels[v], values[v]) for v in step.values)
        values.append(product(first, second, step.result, sorts, sizes, on_device))
    return values[-1]


def _summed(value: RelayExpr, labels: Labels, result: Labels) -> RelayExpr:
    """One operand without the letters that the rest does not need, in the order of the result."""
    gone = tuple(place for place, s in enumerate(labels) if s not in result)
    made = call("sum", value, axis=gone) if gone else value
    left = [s for s in labels if s in result]
    moved: RelayExpr = call("transpose", made, axes=tuple(left.index(s) for s in result))
    return moved


def _contract(
    operands: Sequence[tuple[Labels, Tensor]], result: Labels, extents: Mapping[str, Dim], name: str
) -> Tensor:
    """The product of one or two operands, summed over all labels that the result lacks."""
    dtype = wide(operands[0][1].dtype)
    inner = dict.fromkeys(s for labels, _ in operands for s in labels if s not in result)
    axes = {s: reduce_axis((0, extents[s]), f"r{place}") for place, s in enumerate(inner)}

    def element(*indices: Expr) -> Any:
        places: dict[str, Expr | IterVar] = {**axes, **dict(zip(result, indices, strict=True))}
        product: Any = None
        for labels, operand in operands:
            where = [
                const(0) if int_value(extent) == 1 else places[label]
                for label, extent in zip(labels, operand.shape, strict=True)
            ]
            read = operand(*where).astype(dtype)
            product = read if product is None else product * read
        return te_sum(product, axis=list(axes.values())) if axes else product

    made: Tensor = compute([extents[label] for label in result], element, name=name)
    return made


def _compute(attrs: EinsumAttrs, out: TensorType, data: list[Tensor]) -> Tensor:
    labels, result = parse(attrs.equation, [part.ndim for part in data])
    extents = _extents(labels, [_dims(part) for part in data])
    values = list(zip(labels, data, strict=True))
    steps = _plan(labels, result, extents)
    for number, step in enumerate(steps):
        name = "T_einsum" if step is steps[-1] else f"T_einsum_step{number}"
        made = _contract([values[v] for v in step.values], step.result, extents, name)
        values.append((step.result, made))
    return narrowed(values[-1][1], out.dtype, "T_einsum_cast")


def _dims(part: Tensor) -> list[Dim]:
    return [extent if (number := int_value(extent)) is None else number for extent in part.shape]


def _reference(attrs: EinsumAttrs, data: list[Array]) -> Array:
    dtype = data[0].dtype
    operands = [widened(part, str(dtype)) for part in data]
    made: Array = np.asarray(np.einsum(attrs.equation, *operands, optimize=len(data) > 2))
    return made.astype(dtype)


def _macs(attrs: EinsumAttrs, out: TensorType, data: TupleType) -> int:
    parts = tensors(data, "data")
    labels, result = parse(attrs.equation, [part.ndim for part in parts])
    extents = _extents(labels, [part.concrete_shape for part in parts])
    values, total = list(labels), 0
    for step in _plan(labels, result, extents):
        if len(step.values) > 1:
            total += _size({s for v in step.values for s in values[v]}, extents)
        values.append(step.result)
    return total


register(OpRecord(
    "einsum",
    inputs=("*data",),
    attrs=EinsumAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    macs=_macs,
    legalize=_as_products,
    pattern=OUT_ELEMWISE_FUSABLE,
    mixed_precision="always",
    cases=[
        Case(([(2, 3), (3, 4)],), {"equation": "ij,jk->ik"}),
        Case(([(2, 3, 4), (4, 2, 5)],), {"equation": "bij , jbk"}),
        Case(([(3, 3)],), {"equation": "ii"}),
        Case(([((3, 3, 2), "int32")],), {"equation": "iij->ji"}),
        Case(([(2, 1, 3, 4), (5, 4, 2)],), {"equation": "...ij,...jk->...ik"}),
        Case(([(2, 3), (3, 4), (4, 5), (2, 6)],), {"equation": "ab,bc,cd,ae->d"}, 1e-4),
        Case(([(2, 3), (4,), ()],), {"equation": "ij,k,->k"}),
    ],
    doc="Products of tensors by an equation such as 'ij,jk->ik', with ellipses and diagonals.",
))
