"""A tensor in another layout of its axes."""

from typing import Any

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import tensor
from sterna.op.indexing import dims_of
from sterna.op.tensor.transpose import moved_nothing
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.layout import bijective_layout, from_plain, layout_of, to_plain
from sterna.relay.op import INJECTIVE, Case, OpRecord, call, is_call_of, register
from sterna.te import Tensor, compute
from sterna.tir import op as t


@attributes
class LayoutTransformAttrs(Attrs):
    """Of layout_transform."""

    src_layout: str
    dst_layout: str


def _infer(attrs: LayoutTransformAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    way = bijective_layout(attrs.src_layout, attrs.dst_layout)
    return TensorType(way.forward_shape(kind.shape), kind.dtype)


def _compute(attrs: LayoutTransformAttrs, out: TensorType, data: Tensor) -> Tensor:
    source, target = layout_of(attrs.src_layout), layout_of(attrs.dst_layout)
    extents = source.dims(dims_of(data))

    def element(*indices: Expr) -> Expr:
        places = target.coordinates(indices)
        value = data(*source.index(places))
        inside = []
        for axis, extent in extents.items():
            blocks = max(target.factor_of(axis), 1)
            if type(extent) is not int or extent % blocks:  # the last block may be padded
                inside += [places[axis] < extent] if blocks > 1 else []
        return build.if_then_else(t.all(*inside), value, build.const(0, out.dtype))

    made: Tensor = compute(out.shape, element, name="T_layout_trans")
    return made


def _reference(attrs: LayoutTransformAttrs, data: Array) -> Array:
    source, target = layout_of(attrs.src_layout), layout_of(attrs.dst_layout)
    return from_plain(to_plain(data, source), source.primal, target)


def _same_layout(laid: Call) -> RelayExpr | None:
    """layout_transform(x, A, A) -> x"""
    attrs: Any = laid.attrs
    return laid.args[0] if attrs.src_layout == attrs.dst_layout else None


def _twice(laid: Call) -> RelayExpr | None:
    """layout_transform(layout_transform(x, A, B), B, C) -> layout_transform(x, A, C)"""
    (data,) = laid.args
    if not (isinstance(data, Call) and is_call_of(data, "layout_transform")):
        return None
    first: Any = data.attrs
    second: Any = laid.attrs
    if first.dst_layout != second.src_layout:
        return None
    made = call(
        "layout_transform", data.args[0],
        src_layout=first.src_layout, dst_layout=second.dst_layout,
    )
    # blocks that B pads are longer than what A has
    return made if made.checked_type == laid.checked_type else None


def _order(laid: Call) -> list[int] | None:
    attrs: Any = laid.attrs
    source, target = layout_of(attrs.src_layout), layout_of(attrs.dst_layout)
    if source.is_blocked or target.is_blocked:
        return None
    return [source.primal.index(axis) for axis in target.primal]


register(OpRecord(
    "layout_transform",
    inputs=("data",),
    attrs=LayoutTransformAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    rewrites=[_same_layout, _twice, moved_nothing],
    pattern=INJECTIVE,
    order=_order,
    cases=[
        Case(((1, 4, 3, 5),), {"src_layout": "NCHW", "dst_layout": "NHWC"}),
        Case(((1, 8, 3, 2),), {"src_layout": "NCHW", "dst_layout": "NCHW4c"}),
        Case(((1, 6, 2),), {"src_layout": "NCW", "dst_layout": "NWC4c"}),
        Case(((1, 2, 3, 4),), {"src_layout": "NCH4c", "dst_layout": "NHC"}),
        Case((((8, 8, 1, 1), "int8"),), {"src_layout": "OIHW", "dst_layout": "OIHW2i4o2i"}),
        Case(((2, 1, 3, 4),), {"src_layout": "NCH4c", "dst_layout": "NCH2c"}),
    ],
    doc="data with its axes laid out in another way, such as from NCHW to NCHW16c; blocks that "
        "are not full are padded with zeros.",
))
