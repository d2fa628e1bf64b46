"""Binary search: where numbers belong in sequences that are in order."""

from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.types import TensorType, Type
from sterna.op.axis_rows import index_type, product
from sterna.op.checks import at_least, expect_dim, same_dtype, tensor
from sterna.op.indexing import as_dims, dims_of, unravel
from sterna.op.ordering import comparable, key_type, less, passes_over
from sterna.op.statements import statements, variable
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.support.dtype import DataType
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder


@attributes
class SearchSortedAttrs(Attrs):
    """Of searchsorted."""

    right: bool = False
    dtype: DataType = DataType("int32")


def _infer(attrs: SearchSortedAttrs, sorted_sequence: Type, values: Type) -> TensorType:
    sequence = at_least(sorted_sequence, "sorted_sequence", 1)
    wanted = tensor(values, "values")
    same_dtype([sequence, wanted], ["sorted_sequence", "values"])
    if sequence.ndim > 1:
        tensor(values, "values, as sorted_sequence has so many,", sequence.ndim)
        for i, (have, want) in enumerate(
            zip(wanted.shape[:-1], sequence.shape[:-1], strict=True)
        ):
            expect_dim(have, want, f"extent {i} of values, as sorted_sequence has it,")
    return TensorType(wanted.shape, attrs.dtype)


def _compute(
    attrs: SearchSortedAttrs, out: TensorType, sorted_sequence: Tensor, values: Tensor
) -> Tensor:
    key = key_type(values.dtype)
    length = as_dims(sorted_sequence.shape)[-1]
    shape = dims_of(values)
    count = product(shape)
    kind = index_type(length)
    size = build.cast(kind, build.as_expr(length))

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        sequence, wanted = ins
        with ib.for_range(0, count, name="i", dtype=index_type(count), kind="parallel") as i:
            indices = [ib.let(f"at{d}", at) for d, at in enumerate(unravel(i, shape))]
            value = ib.let("value", build.cast(key, wanted[tuple(indices)]))
            row = indices[:-1] if sorted_sequence.ndim > 1 else []
            low = variable(ib, kind, "low", 0)
            high = variable(ib, kind, "high", size)
            with (
                ib.for_range(0, passes_over(size + 1), name="step", dtype=kind),
                ib.if_scope(low.get() < high.get()),
            ):
                middle = ib.let("middle", low.get() + (high.get() - low.get()) // 2)
                found = ib.let("found", build.cast(key, sequence[(*row, middle)]))
                passed = less(found, value)
                if attrs.right:
                    passed = build.logical_not(less(value, found))
                with ib.if_scope(passed):
                    low.set(middle + 1)
                with ib.else_scope():
                    high.set(middle)
            outs[0][tuple(indices)] = build.cast(out.dtype, low.get())

    return statements(out, [sorted_sequence, values], fill, "T_searchsorted")[0]


def _reference(attrs: SearchSortedAttrs, sorted_sequence: Array, values: Array) -> Array:
    sequence, wanted = comparable(sorted_sequence), comparable(values)
    side: Any = "right" if attrs.right else "left"
    kind = numpy_dtype(attrs.dtype)
    if sequence.ndim == 1:
        return np.asarray(np.searchsorted(sequence, wanted, side)).astype(kind)
    made = np.zeros(values.shape, kind)
    for row in np.ndindex(*sequence.shape[:-1]):
        made[row] = np.searchsorted(sequence[row], wanted[row], side).astype(kind)
    return made


_ORDERED = np.array([-np.inf, -2, -0.0, 1, 1, 1, 4, np.nan, np.nan], "float32")
_SOUGHT = np.array([[np.nan, 1, 0, -3], [5, np.inf, -np.inf, 1.5]], "float32")

register(OpRecord(
    "searchsorted",
    inputs=("sorted_sequence", "values"),
    attrs=SearchSortedAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    pattern=OPAQUE,
    cases=[
        Case((_ORDERED, _SOUGHT)),
        Case((_ORDERED, _SOUGHT), {"right": True, "dtype": "int64"}),
        Case((np.sort(np.arange(14, dtype="int8").reshape(2, 7) % 5), ((2, 3), "int8"))),
        Case((np.zeros(0, "int32"), ((), "int32"))),
    ],
    doc="The place before which each value belongs in a sequence in order, or behind its equals.\n"
        "A sequence of several dimensions is searched row by row.",
))
