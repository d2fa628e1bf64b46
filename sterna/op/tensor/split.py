"""One tensor cut into several along an axis."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, TupleType, Type
from sterna.op.checks import axis_of, map_dims, tensor
from sterna.op.dynamic import DimsLike, known
from sterna.op.indexing import taken_from
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExprLike
from sterna.relay.layout_rules import LayoutPlan, Operands, along_axis
from sterna.relay.op import INJECTIVE, Case, OpRecord, register
from sterna.te import Tensor


@attributes
class SplitAttrs(Attrs):
    """Of split."""

    indices_or_sections: int | tuple[int, ...]
    axis: int = 0


def _extents(attrs: SplitAttrs, dim: Dim) -> list[Dim]:
    given = attrs.indices_or_sections
    if not isinstance(given, int):
        return [_extent(begin, end, dim) for begin, end in pairwise((0, *given, dim))]
    if given < 1:
        raise ValueError(f"indices_or_sections is at least 1, not {given}")
    if type(dim) is int and dim % given:
        raise ValueError(f"a dimension of {dim} cannot be split into {given} equal parts")
    return [map_dims(lambda d: d // given, dim)] * given


def _extent(begin: Dim, end: Dim, dim: Dim) -> Dim:
    if type(begin) is int and type(end) is int and not 0 <= begin <= end:
        raise ValueError(
            f"indices_or_sections has places in rising order within the dimension of {dim}; "
            f"{end} comes after {begin}"
        )
    return map_dims(lambda last: last - begin, end)


def _infer(attrs: SplitAttrs, data: Type) -> TupleType:
    kind = tensor(data, "data")
    axis = axis_of(attrs.axis, kind.ndim)
    before, after = kind.shape[:axis], kind.shape[axis + 1 :]
    return TupleType(tuple(
        TensorType((*before, extent, *after), kind.dtype)
        for extent in _extents(attrs, kind.shape[axis])
    ))


def _compute(attrs: SplitAttrs, out: TupleType, data: Tensor) -> list[Tensor]:
    axis = attrs.axis % data.ndim
    made, begin = [], build.const(0)
    for number, kind in enumerate(out.fields):
        shape = tensor(kind, "a part").shape
        made.append(_from(data, axis, begin, shape, f"T_split_{number}"))
        begin = begin + shape[axis]
    return made


def _from(data: Tensor, axis: int, begin: Expr, shape: Sequence[Dim], name: str) -> Tensor:
    return taken_from(
        data, shape, lambda i: [*i[:axis], i[axis] + begin, *i[axis + 1 :]], name
    )


def _count(attrs: SplitAttrs) -> int:
    given = attrs.indices_or_sections
    return given if isinstance(given, int) else len(given) + 1


def _layout(attrs: SplitAttrs, old: SplitAttrs, operands: Operands) -> LayoutPlan | None:
    plan = along_axis(attrs, old, operands)
    return plan and LayoutPlan(plan.operands, plan.results * _count(attrs), plan.attrs)


def _split(data: RelayExprLike, indices_or_sections: DimsLike, axis: int = 0) -> Any:
    """Parts of data along an axis: so many equal ones, or divided at some places."""
    places = known(indices_or_sections)
    if places is None:
        raise ValueError("split: indices_or_sections is not known before the run; give numbers")
    return make("split", data, indices_or_sections=places, axis=axis)


register(OpRecord(
    "split",
    inputs=("data",),
    attrs=SplitAttrs,
    infer=_infer,
    compute=_compute,
    reference=lambda attrs, data: np.split(data, attrs.indices_or_sections, attrs.axis),
    builder=_split,
    num_outputs=_count,
    pattern=INJECTIVE,
    layout=_layout,
    cases=[
        Case(((2, 6),), {"indices_or_sections": 3, "axis": -1}),
        Case((((5, 2), "int8"),), {"indices_or_sections": (1, 1, 4)}),
        Case(((4,),), {"indices_or_sections": 1}),
    ],
    doc=_split.__doc__ or "",
))
