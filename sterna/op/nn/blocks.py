"""Space-to-depth, space-to-batch and back: blocks of a picture as channels or batches."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import at_least, map_dims, tensor
from sterna.op.indexing import Index, dims_of, ravel, taken_from, unravel
from sterna.op.tensor.convert import converted
from sterna.op.tensor.reshape import product
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.layout import expect_axes, layout_of
from sterna.relay.layout_rules import LayoutPlan, Operands, with_layout
from sterna.relay.op import INJECTIVE, Case, OpRecord, register
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute
from sterna.tir import op as t

T = TypeVar("T")

# ---- depth ----


@attributes
class DepthAttrs(Attrs):
    """Of nn.space_to_depth and nn.depth_to_space."""

    block_size: int
    layout: str = "NCHW"
    mode: str = "DCR"

    def normalize(self) -> None:
        if self.mode not in ("DCR", "CRD"):
            raise ValueError(f"mode is 'DCR' or 'CRD', not {self.mode!r}")


def _axes(layout: str) -> list[int]:
    """The places of N, C, H and W."""
    found = expect_axes(layout_of(layout), "NCHW", "layout")
    if found.is_blocked:
        raise ValueError(f"layout '{layout}' has blocks; transform it first")
    return [found.index_of(axis) for axis in "NCHW"]


def _plain(attrs: DepthAttrs, shape: Sequence[Dim]) -> list[Dim]:
    if attrs.block_size < 1:
        raise ValueError(f"block_size is at least 1, not {attrs.block_size}")
    return [shape[place] for place in _axes(attrs.layout)]


def _in_layout(values: Sequence[T], layout: str) -> list[T]:
    places = _axes(layout)
    return [values[places.index(axis)] for axis in range(4)]


def _divided(dim: Dim, divisor: int, what: str) -> Dim:
    if type(dim) is int and dim % divisor:
        raise ValueError(f"{what} is a multiple of {divisor}, as {dim} is not")
    return map_dims(lambda d: d // divisor, dim)


def _infer_to_depth(attrs: DepthAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data", 4)
    n, c, h, w = _plain(attrs, kind.shape)
    block = attrs.block_size
    deep = map_dims(lambda d: d * block * block, c)
    shape = [n, deep, _divided(h, block, "the height"), _divided(w, block, "the width")]
    return TensorType(tuple(_in_layout(shape, attrs.layout)), kind.dtype)


def _infer_to_space(attrs: DepthAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data", 4)
    n, c, h, w = _plain(attrs, kind.shape)
    block = attrs.block_size
    shallow = _divided(c, block * block, "the number of channels")
    shape = [n, shallow, *[map_dims(lambda d: d * block, dim) for dim in (h, w)]]
    return TensorType(tuple(_in_layout(shape, attrs.layout)), kind.dtype)


def _moved(
    attrs: DepthAttrs, out: TensorType, data: Tensor,
    where: Callable[[Expr, Expr, Expr, Expr], list[Expr]], name: str,
) -> Tensor:
    def source(i: Index) -> Index:
        return _in_layout(where(*[i[place] for place in _axes(attrs.layout)]), attrs.layout)

    return taken_from(data, out.shape, source, name)


def _compute_to_depth(attrs: DepthAttrs, out: TensorType, data: Tensor) -> Tensor:
    block = attrs.block_size
    depth = dims_of(data)[_axes(attrs.layout)[1]]

    def where(n: Expr, c: Expr, h: Expr, w: Expr) -> list[Expr]:
        if attrs.mode == "DCR":
            channel, offset = c % depth, c // depth
        else:
            channel, offset = c // (block * block), c % (block * block)
        return [n, channel, h * block + offset // block, w * block + offset % block]

    return _moved(attrs, out, data, where, "T_space_to_depth")


def _compute_to_space(attrs: DepthAttrs, out: TensorType, data: Tensor) -> Tensor:
    block = attrs.block_size
    depth = out.shape[_axes(attrs.layout)[1]]

    def where(n: Expr, c: Expr, h: Expr, w: Expr) -> list[Expr]:
        offset = h % block * block + w % block
        channel = offset * depth + c if attrs.mode == "DCR" else c * (block * block) + offset
        return [n, channel, h // block, w // block]

    return _moved(attrs, out, data, where, "T_depth_to_space")


def _layout(attrs: DepthAttrs, old: DepthAttrs, operands: Operands) -> LayoutPlan | None:
    laid = operands[0].laid
    return with_layout(attrs, old, operands) if laid is None or laid.is_permutation else None


def _plain_array(attrs: DepthAttrs, data: Array) -> Array:
    return data.transpose(_axes(attrs.layout))


def _to_depth(attrs: DepthAttrs, data: Array) -> Array:
    plain, block = _plain_array(attrs, data), attrs.block_size
    n, c, h, w = plain.shape
    cut = plain.reshape(n, c, h // block, block, w // block, block)
    order = (0, 3, 5, 1, 2, 4) if attrs.mode == "DCR" else (0, 1, 3, 5, 2, 4)
    deep = cut.transpose(order).reshape(n, c * block * block, h // block, w // block)
    return deep.transpose(np.argsort(_axes(attrs.layout)))


def _to_space(attrs: DepthAttrs, data: Array) -> Array:
    plain, block = _plain_array(attrs, data), attrs.block_size
    n, c, h, w = plain.shape
    shallow = c // (block * block)
    if attrs.mode == "DCR":
        cut = plain.reshape(n, block, block, shallow, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        cut = plain.reshape(n, shallow, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    wide = cut.reshape(n, shallow, h * block, w * block)
    return wide.transpose(np.argsort(_axes(attrs.layout)))


register(OpRecord(
    "nn.space_to_depth",
    inputs=("data",),
    attrs=DepthAttrs,
    infer=_infer_to_depth,
    compute=_compute_to_depth,
    reference=_to_depth,
    pattern=INJECTIVE,
    layout=_layout,
    cases=[
        Case(((2, 3, 4, 6),), {"block_size": 2}),
        Case(((2, 3, 4, 6),), {"block_size": 2, "mode": "CRD"}),
        Case((((1, 3, 6, 2), "int8"),), {"block_size": 3, "layout": "NHWC"}),
    ],
    doc="Every block of a picture as more channels of one place; the channels of one pixel stay "
        "together (DCR), or the pixels of one channel do (CRD).",
))
register(OpRecord(
    "nn.depth_to_space",
    inputs=("data",),
    attrs=DepthAttrs,
    infer=_infer_to_space,
    compute=_compute_to_space,
    reference=_to_space,
    pattern=INJECTIVE,
    layout=_layout,
    cases=[
        Case(((2, 8, 2, 3),), {"block_size": 2}),
        Case(((2, 8, 2, 3),), {"block_size": 2, "mode": "CRD"}),
        Case((((1, 2, 3, 18), "int8"),), {"block_size": 3, "layout": "NHWC"}),
    ],
    doc="Channels as blocks of a larger picture: those of one pixel stay together (DCR), or those "
        "of one result's channel do (CRD).",
))


# ---- batch ----


@attributes
class SpaceToBatchAttrs(Attrs):
    """Of nn.space_to_batch_nd."""

    block_shape: tuple[int, ...]
    paddings: tuple[tuple[int, int], ...]
    pad_value: float = 0.0


@attributes
class BatchToSpaceAttrs(Attrs):
    """Of nn.batch_to_space_nd."""

    block_shape: tuple[int, ...]
    crops: tuple[tuple[int, int], ...]


def _checked(
    kind: Type, blocks: tuple[int, ...], borders: Sequence[tuple[int, int]], name: str
) -> TensorType:
    found = at_least(kind, "data", len(blocks) + 1)
    if any(block < 1 for block in blocks):
        raise ValueError(f"block_shape is at least 1, as {blocks} is not")
    if len(borders) != len(blocks) or any(min(pair) < 0 for pair in borders):
        raise ValueError(
            f"{name} has a pair of numbers of at least 0 for each of the {len(blocks)} blocks"
        )
    return found


def _infer_to_batch(attrs: SpaceToBatchAttrs, data: Type) -> TensorType:
    kind = _checked(data, attrs.block_shape, attrs.paddings, "paddings")
    first, *rest = kind.shape
    count = len(attrs.block_shape)
    batch = map_dims(lambda d: d * int(product(attrs.block_shape)), first)
    spatial = [
        _divided(map_dims(lambda d, b=b, a=a: d + b + a, dim), block, "a padded dimension")
        for dim, block, (b, a) in zip(rest, attrs.block_shape, attrs.paddings, strict=False)
    ]
    return TensorType((batch, *spatial, *rest[count:]), kind.dtype)


def _compute_to_batch(attrs: SpaceToBatchAttrs, out: TensorType, data: Tensor) -> Tensor:
    count, batch = len(attrs.block_shape), data.shape[0]
    value = build.const(attrs.pad_value, "float64")

    def element(*i: Expr) -> Expr:
        offsets = unravel(i[0] // batch, attrs.block_shape)
        places = [
            index * block + offset - before
            for index, block, offset, (before, _) in zip(
                i[1 : count + 1], attrs.block_shape, offsets, attrs.paddings, strict=True)
        ]
        inside = []
        for place, dim, pair in zip(places, data.shape[1:], attrs.paddings, strict=False):
            inside += [place >= 0, place < dim] if max(pair) else []
        read = data(i[0] % batch, *places, *i[count + 1 :])
        return build.if_then_else(t.all(*inside), read, build.cast(out.dtype, value))

    made: Tensor = compute(out.shape, element, name="T_space_to_batch_nd")
    return made


def _to_batch(attrs: SpaceToBatchAttrs, data: Array) -> Array:
    count = len(attrs.block_shape)
    rest = data.ndim - count - 1
    value = converted(np.array(attrs.pad_value), DataType(str(data.dtype)))
    wide = np.pad(data, ((0, 0), *attrs.paddings, *((0, 0),) * rest), constant_values=value)
    cut, order = [wide.shape[0]], []
    for place, block in enumerate(attrs.block_shape):
        cut += [wide.shape[place + 1] // block, block]
        order.append(2 + 2 * place)
    blocks = wide.reshape(*cut, *wide.shape[count + 1 :])
    places = [1 + 2 * place for place in range(count)]
    tail = range(2 * count + 1, blocks.ndim)
    turned = blocks.transpose(*order, 0, *places, *tail)
    shape = [turned.shape[count + 1 + place] for place in range(count)]
    return turned.reshape(-1, *shape, *wide.shape[count + 1 :])


register(OpRecord(
    "nn.space_to_batch_nd",
    inputs=("data",),
    attrs=SpaceToBatchAttrs,
    infer=_infer_to_batch,
    compute=_compute_to_batch,
    reference=_to_batch,
    pattern=INJECTIVE,
    cases=[
        Case(((2, 4, 3, 2),), {"block_shape": (2, 2), "paddings": ((0, 0), (1, 2)),
                               "pad_value": 1.5}),
        Case((((1, 6), "int8"),), {"block_shape": (3,), "paddings": ((0, 0),)}),
    ],
    doc="Every place of a block as a batch of its own: the batch grows, the padded space shrinks.",
))


def _infer_to_image(attrs: BatchToSpaceAttrs, data: Type) -> TensorType:
    kind = _checked(data, attrs.block_shape, attrs.crops, "crops")
    first, *rest = kind.shape
    count = len(attrs.block_shape)
    batch = _divided(first, int(product(attrs.block_shape)), "the batch")
    spatial = [
        map_dims(lambda d, n=n, less=b + a: _cropped(d * n, less), dim)
        for dim, n, (b, a) in zip(rest, attrs.block_shape, attrs.crops, strict=False)
    ]
    return TensorType((batch, *spatial, *rest[count:]), kind.dtype)


def _cropped(dim: Dim, less: int) -> Dim:
    if type(dim) is int and dim < less:
        raise ValueError(f"crops take {less} elements of {dim} away")
    return dim - less


def _compute_to_image(attrs: BatchToSpaceAttrs, out: TensorType, data: Tensor) -> Tensor:
    count = len(attrs.block_shape)

    def where(i: Index) -> Index:
        places = [
            index + before
            for index, (before, _) in zip(i[1 : count + 1], attrs.crops, strict=True)
        ]
        pairs = list(zip(places, attrs.block_shape, strict=True))
        block = ravel([place % n for place, n in pairs], attrs.block_shape)
        return [block * out.shape[0] + i[0], *[place // n for place, n in pairs], *i[count + 1 :]]

    return taken_from(data, out.shape, where, "T_batch_to_space_nd")


def _to_image(attrs: BatchToSpaceAttrs, data: Array) -> Array:
    count = len(attrs.block_shape)
    batch = data.shape[0] // int(product(attrs.block_shape))
    blocks = data.reshape(*attrs.block_shape, batch, *data.shape[1:])
    order = [count]
    for place in range(count):
        order += [count + 1 + place, place]
    tail = range(2 * count + 1, blocks.ndim)
    turned = blocks.transpose(*order, *tail)
    spatial = [d * n for d, n in zip(data.shape[1:], attrs.block_shape, strict=False)]
    wide = turned.reshape(batch, *spatial, *data.shape[count + 1 :])
    kept = [slice(b, d - a) for d, (b, a) in zip(spatial, attrs.crops, strict=True)]
    return wide[(slice(None), *kept)]


register(OpRecord(
    "nn.batch_to_space_nd",
    inputs=("data",),
    attrs=BatchToSpaceAttrs,
    infer=_infer_to_image,
    compute=_compute_to_image,
    reference=_to_image,
    pattern=INJECTIVE,
    cases=[
        Case(((8, 2, 3, 2),), {"block_shape": (2, 2), "crops": ((0, 0), (1, 2))}),
        Case((((3, 2), "int8"),), {"block_shape": (3,), "crops": ((0, 1),)}),
    ],
    doc="What space_to_batch_nd has moved, back to its place and cropped.",
))
