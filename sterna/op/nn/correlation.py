"""nn.correlation: patches of two images compared at displacements from each other."""

from typing import Any

import numpy as np

from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import expect_dim, map_dims, of_kind, same_dtype, tensor
from sterna.op.windows import Padding, full_padding, pad_array, padded, positive
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.layout import layout_of
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, register
from sterna.schedule.products import narrowed, wide, widened
from sterna.te import Tensor, abs, compute, reduce_axis
from sterna.te import sum as te_sum


@attributes
class CorrelationAttrs(Attrs):
    """Of nn.correlation."""

    kernel_size: int = 1
    max_displacement: int = 1
    stride1: int = 1
    stride2: int = 1
    padding: Padding = (0, 0)
    is_multiply: bool = True
    layout: str = "NCHW"

    def normalize(self) -> None:
        """Padding before both axes, then after both."""
        positive([self.kernel_size, self.stride1, self.stride2], "kernel_size, stride1, stride2")
        self.padding = full_padding(self.padding, 2)

    @property
    def border(self) -> int:
        """How far from the edge the centre of a patch stays."""
        return self.max_displacement + (self.kernel_size - 1) // 2

    @property
    def radius(self) -> int:
        """How many displacements there are to each side."""
        return self.max_displacement // self.stride2


def _infer(attrs: CorrelationAttrs, data1: Type, data2: Type) -> TensorType:
    if attrs.layout != "NCHW":
        raise ValueError(f"layout is NCHW, not {attrs.layout}")
    if attrs.max_displacement < 0:
        raise ValueError(f"max_displacement is not negative: {attrs.max_displacement}")
    first = of_kind(tensor(data1, "data1", 4), "data1", "float")
    second = tensor(data2, "data2", 4)
    same_dtype([first, second], ["data1", "data2"])
    for have, want in zip(second.shape, first.shape, strict=True):
        expect_dim(have, want, "an extent of data2, as data1 has it,")
    side = 2 * attrs.radius + 1
    sizes = [_result(attrs, i, first.shape[2 + i]) for i in range(2)]
    return TensorType((first.shape[0], side * side, *sizes), first.dtype)


def _result(attrs: CorrelationAttrs, i: int, extent: Dim) -> Dim:
    border = full_padding(attrs.padding, 2)
    rest = border[i] + border[2 + i] - 2 * attrs.border
    if isinstance(extent, int) and extent + rest < 1:
        raise ValueError(
            f"patches of {attrs.kernel_size} displaced by {attrs.max_displacement} do not fit into "
            f"an extent of {extent} padded by {border[i] + border[2 + i]}"
        )
    return map_dims(lambda n: (n + (rest + attrs.stride1 - 1)) // attrs.stride1, extent)


def _compute(attrs: CorrelationAttrs, out: TensorType, data1: Tensor, data2: Tensor) -> Tensor:
    layout, border = layout_of("NCHW"), full_padding(attrs.padding, 2)
    dtype, size = wide(out.dtype), attrs.kernel_size
    first = padded(data1, layout, "HW", border[:2], border[2:], name="pad_temp1")
    second = padded(data2, layout, "HW", border[:2], border[2:], name="pad_temp2")
    rc = reduce_axis((0, data1.shape[1]), "rc")
    ry, rx = reduce_axis((0, size), "ry"), reduce_axis((0, size), "rx")
    side = 2 * attrs.radius + 1

    def compared(n: Expr, q: Expr, i: Expr, j: Expr) -> Any:
        y = i * attrs.stride1 + attrs.max_displacement + ry.var
        x = j * attrs.stride1 + attrs.max_displacement + rx.var
        down = (q // side - attrs.radius) * attrs.stride2
        right = (q % side - attrs.radius) * attrs.stride2
        a = first(n, rc, y, x).astype(dtype)
        b = second(n, rc, y + down, x + right).astype(dtype)
        return te_sum(a * b if attrs.is_multiply else abs(a - b), axis=[rc, ry, rx])

    total = compute(out.shape, compared, name="T_correlation_sum")
    count = (data1.shape[1] * (size * size)).astype(dtype)
    mean = compute(out.shape, lambda *i: total(*i) / count, name="T_correlation")
    return narrowed(mean, out.dtype, "T_correlation_cast")


def _reference(attrs: CorrelationAttrs, data1: Array, data2: Array) -> Array:
    border, size, step = full_padding(attrs.padding, 2), attrs.kernel_size, attrs.stride1
    a, b = (
        pad_array(widened(part, str(part.dtype)), border[:2], border[2:])
        for part in (data1, data2)
    )
    kind = _infer(attrs, TensorType(data1.shape), TensorType(data2.shape))
    made = np.zeros(kind.concrete_shape, a.dtype)
    reach = range(-attrs.radius, attrs.radius + 1)
    moves = [(y * attrs.stride2, x * attrs.stride2) for y in reach for x in reach]
    for q, (down, right) in enumerate(moves):
        for i, j in np.ndindex(*made.shape[2:]):
            y, x = i * step + attrs.max_displacement, j * step + attrs.max_displacement
            one = a[:, :, y : y + size, x : x + size]
            two = b[:, :, y + down : y + down + size, x + right : x + right + size]
            both = one * two if attrs.is_multiply else np.abs(one - two)
            made[:, q, i, j] = both.mean((1, 2, 3))
    return made.astype(data1.dtype)


register(OpRecord(
    "nn.correlation",
    inputs=("data1", "data2"),
    attrs=CorrelationAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    pattern=OUT_ELEMWISE_FUSABLE,
    cases=[
        Case(((1, 3, 6, 7), (1, 3, 6, 7)), {"padding": 1}),
        Case(((2, 2, 10, 10), (2, 2, 10, 10)), {
            "kernel_size": 3, "max_displacement": 2, "stride1": 2, "stride2": 2,
            "padding": (2, 1, 0, 1), "is_multiply": False,
        }),
    ],
    doc="The mean product, or absolute difference, of patches of two images at displacements.",
))
