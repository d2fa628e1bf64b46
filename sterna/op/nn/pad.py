"""Tensors with borders: pad, mirror_pad."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, Type, same_dim, show_shape
from sterna.op.checks import map_dims, of_kind, tensor
from sterna.op.dynamic import known, tensor_type, told_by_shape, unknown_shape
from sterna.op.indexing import Index, as_index, dims_of, taken_from
from sterna.op.tensor.convert import convert, converted
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import Call, RelayExpr, RelayExprLike, Tuple, as_expr, const
from sterna.relay.layout_rules import LayoutPlan, Operands
from sterna.relay.op import INJECTIVE, Case, OpRecord, call, register
from sterna.relay.symbolic_values import is_extent, reads_open_shapes, symbolic_value
from sterna.relay.symbols import simplified_dim
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute
from sterna.tir import op as t

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


@attributes
class PadAttrs(Attrs):
    """Of nn.pad."""

    pad_width: tuple[tuple[Dim, Dim], ...]
    pad_mode: str = "constant"

    def normalize(self) -> None:
        _expect_mode(self.pad_mode)


@attributes
class DynPadAttrs(Attrs):
    """Of dyn.nn.pad."""

    pad_mode: str = "constant"

    def normalize(self) -> None:
        _expect_mode(self.pad_mode)


def _expect_mode(mode: str) -> None:
    if mode not in MODES:
        raise ValueError(f"pad_mode is one of {', '.join(MODES)}, not {mode!r}")


def _infer(attrs: PadAttrs, data: Type, pad_value: Type) -> TensorType:
    kind = tensor(data, "data")
    tensor(pad_value, "pad_value", 0)
    if len(attrs.pad_width) != kind.ndim:
        raise ValueError(
            f"pad_width has a pair for each of the {kind.ndim} dimensions, not "
            f"{len(attrs.pad_width)} pairs"
        )
    shape = [
        _extent(dim, pair, attrs.pad_mode, kind)
        for dim, pair in zip(kind.shape, attrs.pad_width, strict=True)
    ]
    return TensorType(tuple(shape), kind.dtype)


def _extent(dim: Dim, pair: tuple[Dim, Dim], mode: str, kind: TensorType) -> Dim:
    before, after = pair
    if not isinstance(before, int) or not isinstance(after, int):
        return map_dims(lambda d: _at_least_none(d + before + after), dim)
    if type(dim) is int and dim + before + after < 0:
        raise ValueError(f"pad_width {pair} takes more than the {dim} elements of a dimension")
    if type(dim) is int and dim == 0 and mode != "constant" and (before > 0 or after > 0):
        raise ValueError(
            f"data of shape {show_shape(kind.shape)} has nothing to pad by {mode} with"
        )
    return map_dims(lambda d: d + before + after, dim)


def _at_least_none(extent: Dim) -> Dim:
    made = simplified_dim(extent)
    if isinstance(made, int) or is_extent(made):
        return made
    return build.maximum(made, 0)


# ---- where the border comes from ----


def _source(index: Expr, dim: Dim, mode: str, near: bool) -> Expr:
    """The element that one of the border repeats; near: no further away than the data is long."""
    last = build.as_expr(dim) - 1
    if mode == "edge":
        return build.maximum(0, build.minimum(last, index))
    if mode == "wrap":
        if not near:
            return index % dim
        left = build.select(index < 0, index + dim, index)
        return build.select(index > last, index - dim, left)
    if type(dim) is int and dim == 1:
        return build.const(0)
    shift = 1 if mode == "symmetric" else 0  # whether the edge itself is repeated
    if near:
        left = build.select(index < 0, -shift - index, index)
        return build.select(index > last, last * 2 + shift - index, left)
    period = (last + shift) * 2
    if type(dim) is not int:
        period = build.maximum(period, 1)  # a single element is mirrored into itself
    inside = index % period
    return build.select(inside > last, period - shift - inside, inside)


def _padded(data: Tensor, out: TensorType, before: Sequence[Dim], mode: str, near: bool,
            value: Expr) -> Tensor:
    dims = dims_of(data)
    moved = [axis for axis, pad in enumerate(before) if not _unmoved(pad, out, dims, axis)]

    def element(*indices: Expr) -> Expr:
        own = [i - pad if axis in moved else i for axis, (i, pad) in enumerate(
            zip(indices, before, strict=True))]
        inside = []
        for axis in moved:
            inside += [own[axis] >= 0, own[axis] < dims[axis]]
        return build.if_then_else(t.all(*inside), data(*own), value)

    def where(indices: Index) -> Index:
        return [
            _source(i - before[axis], dims[axis], mode, near) if axis in moved else i
            for axis, i in enumerate(indices)
        ]

    if mode != "constant":
        return taken_from(data, out.shape, where, "T_pad")
    made: Tensor = compute(out.shape, element, name="T_pad")
    return made


def _unmoved(pad: Dim, out: TensorType, dims: list[Dim], axis: int) -> bool:
    """Whether an axis has no border."""
    return type(pad) is int and pad == 0 and same_dim(out.shape[axis], dims[axis])


def _is_plain(pair: tuple[Dim, Dim]) -> bool:
    """Whether a border is of known width."""
    return all(isinstance(number, int) for number in pair)


def _compute(attrs: PadAttrs, out: TensorType, data: Tensor, pad_value: Tensor) -> Tensor:
    before = [pair[0] for pair in attrs.pad_width]
    near = all(
        type(dim) is int and _is_plain(pair) and max(pair) < dim
        for pair, dim in zip(attrs.pad_width, dims_of(data), strict=True)
    )
    return _padded(
        data, out, before, attrs.pad_mode, near, convert(pad_value(), out.dtype)
    )


def _reference(attrs: PadAttrs, data: Array, pad_value: Array) -> Array:
    return _padded_array(data, attrs.pad_width, attrs.pad_mode, pad_value)


def _padded_array(data: Array, width: Sequence[Sequence[Any]], mode: Any, value: Array) -> Array:
    more = [(max(before, 0), max(after, 0)) for before, after in width]
    filled = {"constant_values": converted(value, DataType(str(data.dtype)))}
    wide = np.pad(data, more, mode, **(filled if mode == "constant" else {}))
    return wide[tuple(
        slice(max(-before, 0), dim - max(-after, 0))
        for (before, after), dim in zip(width, wide.shape, strict=True)
    )]


def _no_border(bordered: Call) -> RelayExpr | None:
    """nn.pad(x) by nothing -> x"""
    assert isinstance(bordered.attrs, PadAttrs)
    wide = any(not _is_plain(pair) or pair != (0, 0) for pair in bordered.attrs.pad_width)
    return None if wide else bordered.args[0]


def _pad(
    data: RelayExprLike, pad_width: Any, pad_value: RelayExprLike = 0, pad_mode: str = "constant"
) -> Any:
    """data with a border: for every dimension so many elements before and after.

    The border is pad_value ("constant"), the nearest element ("edge"), the data mirrored without
    ("reflect") or with its edge ("symmetric"), or the data repeated ("wrap"). Widths below 0 take
    elements away.
    """
    operand = as_expr(data)
    if not isinstance(pad_value, RelayExpr):
        kind = operand._type
        pad_value = const(pad_value, kind.dtype if isinstance(kind, TensorType) else None)
    width = known(pad_width) if isinstance(pad_width, RelayExpr) else pad_width
    if width is None:
        return make("dyn.nn.pad", operand, pad_width, pad_value, pad_mode=pad_mode)
    return make("nn.pad", operand, pad_value, pad_width=width, pad_mode=pad_mode)


def _layout(attrs: PadAttrs, old: PadAttrs, operands: Operands) -> LayoutPlan | None:
    laid = operands[0].laid
    if laid is None or not laid.is_permutation:
        return None
    moved = attrs.replace(pad_width=laid.permuted(attrs.pad_width))
    return LayoutPlan((laid, None), (laid,), moved)


_VALUE = np.array(1.5, "float32")

register(OpRecord(
    "nn.pad",
    inputs=("data", "pad_value"),
    attrs=PadAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    builder=_pad,
    rewrites=[_no_border],
    pattern=INJECTIVE,
    layout=_layout,
    cases=[
        Case(((2, 3), _VALUE), {"pad_width": ((1, 2), (0, 1))}),
        Case((((2, 3), "int8"), np.array(-3, "int8")), {"pad_width": ((-1, 1), (2, -2))}),
        Case(((0, 2), _VALUE), {"pad_width": ((1, 0), (0, 0))}),
        Case(((3, 4), _VALUE), {"pad_width": ((1, 2), (3, 0)), "pad_mode": "reflect"}),
        Case(((2, 1), _VALUE), {"pad_width": ((5, 3), (2, 1)), "pad_mode": "reflect"}),
        Case(((3, 2), _VALUE), {"pad_width": ((2, 1), (5, 3)), "pad_mode": "symmetric"}),
        Case(((3, 4), _VALUE), {"pad_width": ((2, 5), (-1, 0)), "pad_mode": "edge"}),
        Case(((3, 4), _VALUE), {"pad_width": ((2, 7), (0, 1)), "pad_mode": "wrap"}),
    ],
    doc=_pad.__doc__ or "",
))


# ---- with widths that are computed ----


def _infer_dyn(attrs: DynPadAttrs, data: Type, pad_width: Type, pad_value: Type) -> TensorType:
    kind = tensor(data, "data")
    width = of_kind(tensor(pad_width, "pad_width", 2), "pad_width", "int", "uint")
    tensor(pad_value, "pad_value", 0)
    if width.shape != (kind.ndim, 2):
        raise ValueError(
            f"pad_width has the shape ({kind.ndim}, 2), not {show_shape(width.shape)}"
        )
    return TensorType(unknown_shape(kind.ndim), kind.dtype)


def _compute_dyn(
    attrs: DynPadAttrs, out: TensorType, data: Tensor, pad_width: Tensor, pad_value: Tensor
) -> Tensor:
    before = [as_index(pad_width(axis, 0)) for axis in range(data.ndim)]
    return _padded(data, out, before, attrs.pad_mode, False, convert(pad_value(), out.dtype))


def _dyn_to_static(attrs: DynPadAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    width = known(args[1])
    if width is None:
        width = _open_width(args[1])
    if width is None:
        return None
    return call("nn.pad", args[0], args[2], pad_width=width, pad_mode=attrs.pad_mode)


def _open_width(width: RelayExpr) -> tuple[tuple[Dim, Dim], ...] | None:
    """Widths that are computed from extents."""
    found = symbolic_value(width)
    return None if found is None else tuple((before, after) for before, after in found)


def _measured(attrs: DynPadAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    """First cut by the widths below 0, then padded by those above: all are extents."""
    data, width, value = args
    if _open_width(width) is not None or reads_open_shapes(width):
        return None
    rank, zero = tensor_type(data).ndim, const(0, "int64")
    wide = call("reshape", call("cast", width, dtype="int64"), newshape=(2 * rank,))
    signed = [call("maximum", each, zero) for each in (call("negative", wide), wide)]
    found = told_by_shape(call("concatenate", Tuple(tuple(signed)), axis=0))
    if found is None:
        return None
    halves = [call("strided_slice", found, begin=(first,), end=(first + 2 * rank,))
              for first in (0, 2 * rank)]
    less, more = (call("reshape", half, newshape=(rank, 2)) for half in halves)
    begin, after = (call("take", less, const(side, "int64"), axis=1) for side in (0, 1))
    end = call("subtract", call("shape_of", data, dtype="int64"), after)
    ones = const(np.ones(rank, np.int64))
    cut = call("dyn.strided_slice", data, begin, end, ones)
    return call("dyn.nn.pad", cut, more, value, pad_mode=attrs.pad_mode)


register(OpRecord(
    "dyn.nn.pad",
    inputs=("data", "pad_width", "pad_value"),
    attrs=DynPadAttrs,
    infer=_infer_dyn,
    compute=_compute_dyn,
    reference=lambda attrs, data, width, value: _padded_array(
        data, width.tolist(), attrs.pad_mode, value),
    to_static=_dyn_to_static,
    measured=_measured,
    pattern=INJECTIVE,
    cases=[
        Case(((2, 3), np.array([[1, 2], [-1, 1]]), _VALUE)),
        Case(((2, 3), np.array([[3, 1], [0, 4]], "int32"), _VALUE), {"pad_mode": "reflect"}),
    ],
    doc="nn.pad by widths that are computed.",
))


# ---- mirror_pad ----


@attributes
class MirrorPadAttrs(Attrs):
    """Of nn.mirror_pad."""

    pad_width: tuple[tuple[int, int], ...]
    mode: str = "SYMMETRIC"

    def normalize(self) -> None:
        if self.mode not in ("SYMMETRIC", "REFLECT"):
            raise ValueError(f"mode is 'SYMMETRIC' or 'REFLECT', not {self.mode!r}")


def _as_pad(attrs: MirrorPadAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr:
    zero = const(0, tensor_type(args[0]).dtype)
    width, mode = attrs.pad_width, attrs.mode.lower()
    return call("nn.pad", args[0], zero, pad_width=width, pad_mode=mode)


def _infer_mirror(attrs: MirrorPadAttrs, data: Type) -> TensorType:
    scalar = TensorType((), tensor(data, "data").dtype)
    return _infer(PadAttrs(attrs.pad_width, attrs.mode.lower()), data, scalar)


register(OpRecord(
    "nn.mirror_pad",
    inputs=("data",),
    attrs=MirrorPadAttrs,
    infer=_infer_mirror,
    reference=lambda attrs, data: np.pad(data, attrs.pad_width, attrs.mode.lower()),
    simplify=_as_pad,
    pattern=INJECTIVE,
    cases=[
        Case(((2, 3),), {"pad_width": ((1, 1), (2, 0))}),
        Case(((2, 3),), {"pad_width": ((1, 1), (2, 0)), "mode": "REFLECT"}),
    ],
    doc="data with a border that mirrors it, with its edge or (REFLECT) without.",
))
