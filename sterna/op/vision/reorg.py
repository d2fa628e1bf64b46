"""vision.yolo_reorg: channels and places of an image exchanged, as YOLO's second version does."""

import numpy as np

from sterna.ir.types import TensorType, Type
from sterna.op.checks import not_empty, tensor
from sterna.op.dynamic import tensor_type
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import RelayExpr
from sterna.relay.op import OPAQUE, Case, OpRecord, call, register


@attributes
class YoloReorgAttrs(Attrs):
    """Of vision.yolo_reorg."""

    stride: int


def _infer(attrs: YoloReorgAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data", 4)
    step = attrs.stride
    if step < 1:
        raise ValueError(f"stride is at least 1, not {step}")
    if not kind.is_static:
        raise ValueError(f"data's shape must be known, not {kind}")
    batch, channels, height, width = kind.concrete_shape
    not_empty(kind, "data", (1, 2, 3), "the channels and places of an image are")
    if channels % (step * step) or height % step or width % step:
        raise ValueError(
            f"stride {step} divides data's height and width, and its square the channels; they "
            f"are {height}, {width} and {channels}"
        )
    shape = (batch, channels * step * step, height // step, width // step)
    return TensorType(shape, kind.dtype)


def _simplify(attrs: YoloReorgAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr:
    """The image read as one of fewer channels and more places, from which every s-th is taken."""
    (data,) = args
    kind, step = tensor_type(data), attrs.stride
    batch, channels, height, width = kind.concrete_shape
    wide = call("reshape", data, newshape=(batch, channels // step**2, height, step, width, step))
    blocks = call("transpose", wide, axes=(0, 3, 5, 1, 2, 4))
    return call("reshape", blocks, newshape=(batch, channels * step**2, height // step,
                                            width // step))


def _reference(attrs: YoloReorgAttrs, data: Array) -> Array:
    """Where each element comes from, counted in the row of all of an image's elements."""
    step = attrs.stride
    batch, channels, height, width = data.shape
    few = channels // step**2
    k, j, i = np.indices((channels, height, width))
    y = j * step + k // few // step
    x = i * step + k // few % step
    source = x + width * step * (y + height * step * (k % few))
    made = data.reshape(batch, -1)[:, source.ravel()]
    return made.reshape(batch, channels * step**2, height // step, width // step)


register(OpRecord(
    "vision.yolo_reorg",
    inputs=("data",),
    attrs=YoloReorgAttrs,
    infer=_infer,
    simplify=_simplify,
    reference=_reference,
    pattern=OPAQUE,
    cases=[
        Case(((2, 8, 4, 6),), {"stride": 2}),
        Case((((1, 9, 3, 6), "int8"),), {"stride": 3}),
        Case(((1, 2, 3, 3),), {"stride": 1}),
    ],
    doc="An image whose every stride-th place becomes a channel: stride times smaller, with as "
        "many more channels. Elements are taken as Darknet's reorg layer does, which reads the "
        "image as one of fewer channels and more places.",
))
