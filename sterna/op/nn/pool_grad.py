"""The gradients of poolings: nn.max_pool2d_grad, nn.avg_pool2d_grad.

What a window's result is worth goes to the element that was its largest, or is shared by all that
it counted.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import expect_dim, of_kind, same_dtype, tensor
from sterna.op.indexing import INT32
from sterna.op.nn.pool import AvgPool2DAttrs, Pool2DAttrs, infer_pool
from sterna.op.statements import filled, loops, variable
from sterna.op.windows import Padding, spatial_layout
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.layout import Layout
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.schedule.products import narrowed, wide, widened
from sterna.te import Tensor
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder


@attributes
class MaxPool2DGradAttrs(Attrs):
    """Of nn.max_pool2d_grad."""

    pool_size: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0)
    layout: str = "NCHW"
    out_layout: str = ""
    ceil_mode: bool = False

    def pooling(self) -> Pool2DAttrs:
        """The attributes of the pooling itself."""
        return Pool2DAttrs(**dict(self.items()))


@attributes
class AvgPool2DGradAttrs(Attrs):
    """Of nn.avg_pool2d_grad."""

    pool_size: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0)
    layout: str = "NCHW"
    out_layout: str = ""
    ceil_mode: bool = False
    count_include_pad: bool = True

    def pooling(self) -> AvgPool2DAttrs:
        """The attributes of the pooling itself."""
        return AvgPool2DAttrs(**dict(self.items()))


_GradAttrs = MaxPool2DGradAttrs | AvgPool2DGradAttrs
G = TypeVar("G", MaxPool2DGradAttrs, AvgPool2DGradAttrs)


def _layouts(attrs: _GradAttrs) -> tuple[Layout, Layout]:
    names = (attrs.layout, attrs.out_layout or attrs.layout)
    data, out = (spatial_layout(name, "NCHW", "layout") for name in names)
    if data.is_blocked or out.is_blocked:
        raise ValueError(f"layouts {data} and {out} have blocks; transform them first")
    return data, out


def _infer(attrs: _GradAttrs, out_grad: Type, data: Type) -> TensorType:
    _layouts(attrs)
    kind = of_kind(tensor(data, "data", 4), "data", "float")
    grad = tensor(out_grad, "out_grad", 4)
    same_dtype([kind, grad], ["data", "out_grad"])
    for have, want in zip(grad.shape, infer_pool(attrs.pooling(), kind).shape, strict=True):
        expect_dim(have, want, "an extent of out_grad, as the pooling of data gives it,")
    return kind


class _Window:
    """The part of an image that one result is computed from, by statements."""

    def __init__(
        self, ib: IRBuilder, attrs: _GradAttrs, extents: list[Dim], place: list[Expr]
    ) -> None:
        pooling = attrs.pooling()
        self.bounds = []
        counted: Any = 1
        for axis in (0, 1):
            first = place[axis] * attrs.strides[axis] - pooling.before[axis]
            end = build.minimum(
                first + attrs.pool_size[axis], extents[axis] + pooling.after[axis]
            )
            counted = counted * (end - first)
            begin = ib.let(f"begin{axis}", build.maximum(first, 0))
            self.bounds.append((begin, ib.let(f"end{axis}", build.minimum(end, extents[axis]))))
        self.counted = counted
        """How many elements it holds with the padding."""

    @property
    def inside(self) -> Any:
        """How many elements it holds without the padding."""
        (top, bottom), (left, right) = self.bounds
        return build.maximum((bottom - top) * (right - left), 1)


Read = Callable[[Expr, Expr], Expr]
Add = Callable[[Expr, Expr, Expr], None]
Spread = Callable[[IRBuilder, G, _Window, Read, Add, Expr], None]


def _compute(spread: Spread[G]) -> Callable[[G, TensorType, Tensor, Tensor], Tensor]:
    def compute(attrs: G, out: TensorType, out_grad: Tensor, data: Tensor) -> Tensor:
        layout, out_layout = _layouts(attrs)
        dtype = wide(out.dtype)
        sizes = layout.dims(TensorType(data.shape).shape)
        counts = out_layout.dims(TensorType(out_grad.shape).shape)

        def fill(ib: IRBuilder, result: BufferVar, ins: list[BufferVar]) -> None:
            worth, source = ins
            with loops(ib, result.shape, "z") as place:
                result[tuple(place)] = build.const(0, dtype)
            around = [counts[axis] for axis in "NCHW"]
            with loops(ib, around, "o") as (n, c, y, x):
                window = _Window(ib, attrs, [sizes[axis] for axis in "HW"], [y, x])

                def index(row: Expr, column: Expr) -> tuple[Expr, ...]:
                    return tuple(layout.index({"N": n, "C": c, "H": row, "W": column}))

                def read(row: Expr, column: Expr) -> Expr:
                    return build.cast(dtype, source[index(row, column)])

                def add(value: Expr, row: Expr, column: Expr) -> None:
                    result[index(row, column)] = result[index(row, column)] + value

                own = worth[tuple(out_layout.index({"N": n, "C": c, "H": y, "W": x}))]
                given = ib.let("given", build.cast(dtype, own))
                spread(ib, attrs, window, read, add, given)

        made = filled(TensorType(out.shape, dtype), [out_grad, data], fill, "T_pool_grad")
        return narrowed(made, out.dtype, "T_narrow")

    return compute


def _to_largest(
    ib: IRBuilder, attrs: MaxPool2DGradAttrs, window: _Window, read: Read, add: Add, given: Expr
) -> None:
    """The first of the largest elements gets all; NaN is larger than any number."""
    (top, bottom), (left, right) = window.bounds
    best = variable(ib, given.dtype, "best", build.const(float("-inf"), given.dtype))
    places = [variable(ib, INT32, name, at) for name, at in (("row", top), ("column", left))]
    with ib.for_range(top, bottom, name="y") as y, ib.for_range(left, right, name="x") as x:
        value = ib.let("value", read(y, x))
        larger = build.logical_or(value > best.get(), build.logical_and(
            t.isnan(value), build.logical_not(t.isnan(best.get()))
        ))
        with ib.if_scope(larger):
            best.set(value)
            for held, at in zip(places, (y, x), strict=True):
                held.set(at)
    with ib.if_scope(build.logical_and(top < bottom, left < right)):
        add(given, *(held.get() for held in places))


def _to_all(
    ib: IRBuilder, attrs: AvgPool2DGradAttrs, window: _Window, read: Read, add: Add, given: Expr
) -> None:
    (top, bottom), (left, right) = window.bounds
    count = window.counted if attrs.count_include_pad else window.inside
    part = ib.let("part", given / build.cast(given.dtype, build.as_expr(count)))
    with ib.for_range(top, bottom, name="y") as y, ib.for_range(left, right, name="x") as x:
        add(part, y, x)


def _reference(attrs: _GradAttrs, out_grad: Array, data: Array) -> Array:
    layout, out_layout = _layouts(attrs)
    order = [layout.index_of(axis) for axis in "NCHW"]
    grads = out_grad.transpose([out_layout.index_of(axis) for axis in "NCHW"])
    x = widened(data, str(data.dtype)).transpose(order)
    made, pooling = np.zeros_like(x), attrs.pooling()
    for n, c, y, z in np.ndindex(*grads.shape):
        first = [(y, z)[i] * attrs.strides[i] - pooling.before[i] for i in (0, 1)]
        ends = [min(first[i] + attrs.pool_size[i], x.shape[2 + i] + pooling.after[i])
                for i in (0, 1)]
        window = tuple(slice(max(first[i], 0), min(ends[i], x.shape[2 + i])) for i in (0, 1))
        part, given = x[n, c][window], grads[n, c, y, z].astype(x.dtype)
        if not part.size:
            continue
        if isinstance(attrs, AvgPool2DGradAttrs):
            whole = (ends[0] - first[0]) * (ends[1] - first[1])
            made[n, c][window] += given / (whole if attrs.count_include_pad else part.size)
        else:
            made[n, c][window][np.unravel_index(part.argmax(), part.shape)] += given
    return made.astype(data.dtype).transpose(np.argsort(order))


register(OpRecord(
    "nn.max_pool2d_grad",
    inputs=("out_grad", "data"),
    attrs=MaxPool2DGradAttrs,
    infer=_infer,
    compute=_compute(_to_largest),
    reference=_reference,
    pattern=OPAQUE,
    cases=[
        Case(((1, 2, 2, 3), (1, 2, 5, 6)), {"pool_size": (3, 2), "strides": (2, 2)}),
        Case(((2, 3, 3, 1), (2, 5, 5, 1)), {"pool_size": (3, 3), "strides": (2, 2),
                                            "padding": (1, 1), "layout": "NHWC"}),
        Case((((1, 1, 3, 3), "float16"), ((1, 1, 4, 4), "float16")), {"pool_size": (2, 2)}, 1e-2),
    ],
    doc="What the elements of data are worth when out_grad says what the results of nn.max_pool2d "
        "are worth: the first of a window's largest gets all.",
))

register(OpRecord(
    "nn.avg_pool2d_grad",
    inputs=("out_grad", "data"),
    attrs=AvgPool2DGradAttrs,
    infer=_infer,
    compute=_compute(_to_all),
    reference=_reference,
    pattern=OPAQUE,
    cases=[
        Case(((1, 2, 2, 3), (1, 2, 5, 6)), {"pool_size": (3, 2), "strides": (2, 2)}),
        Case(((2, 3, 3, 1), (2, 5, 5, 1)), {"pool_size": (3, 3), "strides": (2, 2),
                                            "padding": (1, 1), "layout": "NHWC"}),
        Case(((1, 2, 3, 3), (1, 2, 5, 5)), {"pool_size": (2, 2), "strides": (2, 2),
                                            "ceil_mode": True, "count_include_pad": False}),
    ],
    doc="What the elements of data are worth when out_grad says what the results of nn.avg_pool2d "
        "are worth: all that a window counted share it.",
))
