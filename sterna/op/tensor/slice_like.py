"""The part of a tensor that another one covers."""

from sterna.ir.types import TensorType, Type, show_shape
from sterna.op.checks import axis_of, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.indexing import taken_from
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import RelayExpr
from sterna.relay.op import INJECTIVE, Case, OpRecord, call, register


@attributes
class SliceLikeAttrs(Attrs):
    """Of slice_like."""

    axes: tuple[int, ...] | None = None


def _like_axes(attrs: SliceLikeAttrs, ndim: int, like_ndim: int) -> list[int]:
    if attrs.axes is not None:
        return [axis_of(axis, min(ndim, like_ndim), "axes") for axis in attrs.axes]
    if ndim != like_ndim:
        raise ValueError(
            f"data has {ndim} dimensions, shape_like has {like_ndim}; say by axes which are cut"
        )
    return list(range(ndim))


def _infer_like(attrs: SliceLikeAttrs, data: Type, shape_like: Type) -> TensorType:
    kind, like = tensor(data, "data"), tensor(shape_like, "shape_like")
    shape = list(kind.shape)
    for axis in _like_axes(attrs, kind.ndim, like.ndim):
        have, want = shape[axis], like.shape[axis]
        if type(have) is int and type(want) is int and want > have:
            raise ValueError(
                f"shape_like is {want} along axis {axis}, where data of shape "
                f"{show_shape(kind.shape)} has only {have}"
            )
        shape[axis] = want
    return TensorType(tuple(shape), kind.dtype)


def _static_like(attrs: SliceLikeAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    kind = _infer_like(attrs, tensor_type(args[0]), tensor_type(args[1]))
    if not kind.is_static:
        return None
    return call("strided_slice", args[0], begin=(0,) * kind.ndim, end=kind.concrete_shape)


register(OpRecord(
    "slice_like",
    inputs=("data", "shape_like"),
    attrs=SliceLikeAttrs,
    infer=_infer_like,
    compute=lambda attrs, out, data, like: taken_from(data, out.shape, lambda i: i, "T_slice_like"),
    reference=lambda attrs, data, like: data[tuple(
        slice(like.shape[axis]) if axis in _like_axes(attrs, data.ndim, like.ndim) else slice(None)
        for axis in range(data.ndim))],
    simplify=_static_like,
    pattern=INJECTIVE,
    cases=[Case(((4, 5), (2, 3))), Case(((4, 5, 2), (9, 3)), {"axes": (1,)})],
    doc="The first part of data, as much of every axis or of some as another tensor has.",
))
