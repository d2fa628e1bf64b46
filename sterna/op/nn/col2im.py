"""nn.col2im, which undoes im2col: images put together from the columns of their blocks."""

import math
from itertools import product
from typing import Any

import numpy as np

from sterna.ir.build import const
from sterna.ir.expr import Expr
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import TensorType, Type
from sterna.op.checks import expect_dim, of_kind, tensor
from sterna.op.indexing import ravel
from sterna.op.windows import Padding, Windowed, positive, window_result
from sterna.relay.arrays import Array
from sterna.relay.attributes import attributes
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, register
from sterna.schedule.products import narrowed, wide, widened
from sterna.te import Tensor, compute, if_then_else, reduce_axis
from sterna.te import all as all_of
from sterna.te import sum as te_sum

ASKED_AT_ONCE = 8
"""Places that vectors ask while one element finds its own."""


@attributes
class Col2ImAttrs(Windowed):
    """Of nn.col2im."""

    image_shape: tuple[int, ...]
    block_shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    padding: Padding = 0
    dilation: tuple[int, ...] = ()

    def normalize(self) -> None:
        rank = len(self.image_shape)
        expect_dim(len(self.block_shape), rank, "the number of extents of block_shape")
        self.strides = self.strides or (1,) * rank
        self.dilation = self.dilation or (1,) * rank
        for name in ("strides", "dilation"):
            expect_dim(len(getattr(self, name)), rank, f"the number of {name}")
        positive(self.block_shape, "block_shape")
        Windowed.normalize(self)

    def blocks(self) -> list[int]:
        """The number of blocks along each axis of the image."""
        return [
            int(window_result(size, block, stride, before + after, dilation))  # type: ignore[arg-type]
            for size, block, stride, before, after, dilation in zip(
                self.image_shape, self.block_shape, self.strides, self.before, self.after,
                self.dilation, strict=True,
            )
        ]


def _infer(attrs: Col2ImAttrs, data: Type) -> TensorType:
    kind = of_kind(tensor(data, "data", 3), "data", "float", "int", "uint")
    batch, rows, columns = kind.shape
    size = math.prod(attrs.block_shape)
    if type(rows) is int and rows % size:
        raise ValueError(f"data's {rows} rows are not whole blocks of {attrs.block_shape}")
    expect_dim(columns, math.prod(attrs.blocks()), "the number of blocks in data")
    channels = rows // size if type(rows) is int else AnyDim()
    return TensorType((batch, channels, *attrs.image_shape), kind.dtype)


def _apart(attrs: Col2ImAttrs) -> list[int]:
    """Of strided blocks an element of the image meets every stride-th place of each alone: the
    steps from one to the next. 1 where vectors that ask all places are through sooner."""
    steps = [
        stride if dilation == 1 else 1
        for stride, dilation in zip(attrs.strides, attrs.dilation, strict=True)
    ]
    met = math.prod(
        -(-extent // step) for extent, step in zip(attrs.block_shape, steps, strict=True))
    return steps if math.prod(attrs.block_shape) > ASKED_AT_ONCE * met else [1] * len(steps)


def _compute(attrs: Col2ImAttrs, out: TensorType, data: Tensor) -> Tensor:
    blocks, size = attrs.blocks(), math.prod(attrs.block_shape)
    dtype = wide(out.dtype)
    apart = _apart(attrs)
    taps = [
        reduce_axis((0, -(-extent // step)), name=f"k{i}")
        for i, (extent, step) in enumerate(zip(attrs.block_shape, apart, strict=True))
    ]

    def element(n: Expr, c: Expr, *place: Expr) -> Any:
        conditions, block, within = [], [], []
        for axis, at in enumerate(place):
            stride, step = attrs.strides[axis], apart[axis]
            tap: Expr = taps[axis].var
            framed = at + attrs.before[axis]
            if step > 1:
                tap, own = framed % step + tap * step, framed // step - tap
                if attrs.block_shape[axis] % step:
                    conditions.append(tap < attrs.block_shape[axis])
            else:
                offset = framed - tap * attrs.dilation[axis]
                own = offset // stride
                if stride > 1:
                    conditions.append((offset % stride).equal(0))
            conditions += [own >= 0, own < blocks[axis]]
            block.append(own)
            within.append(tap)
        row = c * size + ravel(within, attrs.block_shape)
        value = data(n, row, ravel(block, blocks)).astype(dtype)
        return te_sum(if_then_else(all_of(*conditions), value, const(0, dtype)), axis=taps)

    made: Tensor = compute(out.shape, element, name="T_col2im")
    return narrowed(made, out.dtype, "T_narrow")


def _reference(attrs: Col2ImAttrs, data: Array) -> Array:
    batch = data.shape[0]
    columns = data.reshape(batch, -1, *attrs.block_shape, *attrs.blocks())
    framed = [
        size + before + after
        for size, before, after in zip(attrs.image_shape, attrs.before, attrs.after, strict=True)
    ]
    made = np.zeros((batch, columns.shape[1], *framed), widened(data, str(data.dtype)).dtype)
    for tap in product(*map(range, attrs.block_shape)):
        reach: Any = tuple(
            slice(k * dilation, k * dilation + (count - 1) * stride + 1, stride)
            for k, dilation, count, stride in zip(
                tap, attrs.dilation, attrs.blocks(), attrs.strides, strict=True
            )
        )
        own: Any = (slice(None), slice(None), *tap)
        made[(..., *reach)] += columns[own].astype(made.dtype)
    inner: Any = tuple(
        slice(before, before + size)
        for before, size in zip(attrs.before, attrs.image_shape, strict=True)
    )
    return made[(..., *inner)].astype(data.dtype)


register(OpRecord(
    "nn.col2im",
    inputs=("data",),
    attrs=Col2ImAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    pattern=OUT_ELEMWISE_FUSABLE,
    cases=[
        Case(((2, 12, 15),), {"image_shape": (4, 5), "block_shape": (2, 3), "padding": (0, 1)}),
        Case(((1, 6, 3),), {"image_shape": (8,), "block_shape": (3,), "strides": (3,),
                            "dilation": (2,), "padding": (0, 3)}),
        Case(((1, 8, 8),), {"image_shape": (3, 3, 3), "block_shape": (2, 2, 2)}),
        Case((((1, 4, 4), "int8"),), {"image_shape": (4, 4), "block_shape": (2, 2),
                                        "strides": (2, 2)}),
        Case(((1, 70, 9),), {"image_shape": (12, 14), "block_shape": (5, 7), "strides": (4, 5),
                             "padding": (1, 2)}),
        Case((((1, 4, 9), "float16"),), {"image_shape": (4, 4), "block_shape": (2, 2)}, 1e-2),
    ],
    doc="Images of image_shape whose blocks are columns of data: (batch, channels times the "
        "elements of a block, blocks). Blocks of block_shape, with their elements dilation apart, "
        "lie strides apart in the image with its padding; what overlaps is added, and what falls "
        "on the padding is dropped.",
))
