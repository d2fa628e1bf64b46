"""Convolutions and dense layers of bytes in tiles: nn.conv2d_tiles, nn.dense_tiles."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.types import TensorType, Type
from sterna.op.checks import at_least, expect_dim, tensor
from sterna.op.dot_schedule import GROUP, INT32, LEAST_LANES, are_bytes, dot_lanes
from sterna.op.epilogue import Epilogue, Finish, extern_with
from sterna.op.kernel import Kernel, Processor
from sterna.op.nn._dense_layout import plain_weight
from sterna.op.nn._tile_kernel import (
    COLUMNS,
    Sums,
    TileKernel,
    pack_tiles,
    parts_of,
    unpack_tiles,
)
from sterna.op.schedules import schedule_default
from sterna.op.windows import Padding, full_padding, pad_array, padded
from sterna.relay.arrays import Array, from_numpy, to_numpy
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.layout import layout_of, to_plain
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, register
from sterna.relay.op import call as call_of
from sterna.te import Tensor, compute, reduce_axis
from sterna.te import sum as te_sum
from sterna.tir.ir_builder import BufferVar, IRBuilder

# Instructions that multiply bytes in vectors of sums, of a cycle.
DOTS = 1.6


@attributes
class ConvTilesAttrs(Attrs):
    """Of nn.conv2d_tiles."""

    channels: int
    kernel_size: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    border: int = 0
    """What lies outside of the data: of quantised data its zero point."""
    tiles: bool = False
    """Whether the processor has tiles; plain sums otherwise."""
    threads: int = 1
    """How many share the work."""

    def normalize(self) -> None:
        """Padding before both axes, then after both."""
        self.padding = full_padding(self.padding, 2)


@attributes
class DenseTilesAttrs(Attrs):
    """Of nn.dense_tiles."""

    units: int
    tiles: bool = False
    """Whether the processor has tiles; plain sums otherwise."""
    threads: int = 1
    """How many share the work."""


# ---- who becomes one ----


def conv2d_by_tiles(call: Call, processor: Processor) -> RelayExpr | None:
    """Bytes whose channels lie last, with known weights, where tiles take fewer cycles."""
    attrs: Any = call.attrs
    data, weight = call.args[0].checked_type, call.args[1]
    out = call.checked_type
    if not _suits(call, processor) or attrs.data_layout != "NHWC" or attrs.groups != 1:
        return None
    assert isinstance(out, TensorType) and isinstance(data, TensorType)
    assert isinstance(weight, Constant)
    if attrs.out_layout not in ("", "NHWC"):
        return None
    plain = to_plain(to_numpy(weight.data), layout_of(attrs.kernel_layout), "OHWI")
    made = ConvTilesAttrs(
        len(plain), plain.shape[1:3], attrs.strides, (*attrs.before, *attrs.after),
        attrs.dilation, attrs.border, True, processor.threads,
    )  # fmt: skip
    sums = _conv_sums(made, out.concrete_shape, data.concrete_shape)
    if not _pays(sums, processor):
        return None
    packed = pack_tiles(plain.reshape(len(plain), sums.runs, sums.run))
    constant = Constant(from_numpy(packed, weight.data.dtype))
    return call_of("nn.conv2d_tiles", call.args[0], constant, **dict(made.items()))


def dense_by_tiles(call: Call, processor: Processor) -> RelayExpr | None:
    """Rows of bytes with known weights, where tiles take fewer cycles."""
    weight, data = call.args[1], call.args[0].checked_type
    if not _suits(call, processor):
        return None
    assert isinstance(data, TensorType) and isinstance(weight, Constant)
    plain = plain_weight(call.attrs, to_numpy(weight.data))
    sums = _dense_sums(data.concrete_shape, len(plain))
    if len(data.concrete_shape) < 2 or not _pays(sums, processor):
        return None
    packed = pack_tiles(plain[:, None])
    return call_of(
        "nn.dense_tiles", call.args[0], Constant(from_numpy(packed, weight.data.dtype)),
        units=len(plain), tiles=True, threads=processor.threads,
    )  # fmt: skip


def _suits(call: Call, processor: Processor) -> bool:
    data, weight, out = call.args[0].checked_type, call.args[1], call.checked_type
    if "int8" not in processor.tiles or not isinstance(weight, Constant):
        return False
    assert isinstance(out, TensorType)
    wanted = are_bytes(data, weight.checked_type) and out.dtype == INT32
    return wanted and isinstance(data, TensorType) and data.is_static


def _pays(sums: Sums, processor: Processor) -> bool:
    """Whether tiles take fewer cycles than vectors of sums."""
    if sums.run < GROUP or 0 in (sums.images, sums.height, sums.width, sums.channels):
        return False
    lanes = dot_lanes(sums.channels, processor)
    if lanes < LEAST_LANES or sums.depth % GROUP:
        return True
    vectors = sums.images * sums.height * sums.width * sums.channels // lanes
    return sums.cycles() < vectors * sums.runs * sums.run / GROUP / DOTS


def _conv_sums(attrs: ConvTilesAttrs, out: Sequence[int], data: Sequence[int]) -> Sums:
    images, height, width, _ = out
    padding = full_padding(attrs.padding, 2)
    return Sums(
        images, height, width, attrs.channels, data[1], data[2], data[3], attrs.kernel_size,
        attrs.strides, attrs.dilation, (padding[0], padding[1]), attrs.border, any(padding),
    )  # fmt: skip


def _dense_sums(data: Sequence[int], units: int) -> Sums:
    *outer, depth = data
    rows = math.prod(outer)
    return Sums(1, 1, rows, units, 1, rows, depth)


# ---- types and references ----


def _expect_packed(weight: TensorType, channels: int, runs: int, run: int) -> None:
    count, size = parts_of(run)
    wanted = (-(-channels // COLUMNS), runs * count, size // GROUP, COLUMNS, GROUP)
    for have, want in zip(weight.concrete_shape, wanted, strict=True):
        expect_dim(have, want, f"weight of {wanted}: an extent of weight {weight.shape}")


def _expect_bytes(data: TensorType, weight: TensorType, depth: int) -> None:
    if not are_bytes(data, weight):
        raise ValueError(
            f"data and weight are integers of 8 bits, not {data.dtype} and {weight.dtype}"
        )
    if depth < GROUP:
        raise ValueError(f"a sum is over at least {GROUP} bytes side by side, not {depth}")


def _infer_conv(attrs: ConvTilesAttrs, data: Type, weight: Type) -> TensorType:
    x, w = tensor(data, "data", 4), tensor(weight, "weight", 5)
    batch, height, width, _ = x.concrete_shape
    top, left, bottom, right = full_padding(attrs.padding, 2)
    high, wide = (
        (size - (window - 1) * dilation - 1) // stride + 1
        for size, window, dilation, stride in zip(
            (height + top + bottom, width + left + right), attrs.kernel_size, attrs.dilation,
            attrs.strides, strict=True,
        )
    )  # fmt: skip
    shape = (batch, high, wide, attrs.channels)
    sums = _conv_sums(attrs, shape, x.concrete_shape)
    _expect_bytes(x, w, sums.run)
    _expect_packed(w, attrs.channels, sums.runs, sums.run)
    return TensorType(shape, INT32)


def _infer_dense(attrs: DenseTilesAttrs, data: Type, weight: Type) -> TensorType:
    x, w = at_least(data, "data", 2), tensor(weight, "weight", 5)
    *outer, depth = x.concrete_shape
    _expect_bytes(x, w, depth)
    _expect_packed(w, attrs.units, 1, depth)
    return TensorType((*outer, attrs.units), INT32)


def _reference_conv(attrs: ConvTilesAttrs, data: Array, weight: Array) -> Array:
    """One product of matrices for each place of the window."""
    depth, (rows, columns) = data.shape[3], attrs.kernel_size
    joined = attrs.dilation[1] == 1
    runs, run = (rows, columns * depth) if joined else (rows * columns, depth)
    plain = unpack_tiles(weight, attrs.channels, runs, run)
    kernel = plain.reshape(attrs.channels, rows, columns, depth).astype(np.int32)
    top, left, bottom, right = full_padding(attrs.padding, 2)
    moved = data.transpose(0, 3, 1, 2).astype(np.int32)
    x = pad_array(moved, (top, left), (bottom, right), attrs.border).transpose(0, 2, 3, 1)
    high = (x.shape[1] - (rows - 1) * attrs.dilation[0] - 1) // attrs.strides[0] + 1
    wide = (x.shape[2] - (columns - 1) * attrs.dilation[1] - 1) // attrs.strides[1] + 1
    total = np.zeros((len(data), high, wide, attrs.channels), np.int32)
    for row, column in np.ndindex(rows, columns):
        first = row * attrs.dilation[0], column * attrs.dilation[1]
        down = slice(first[0], first[0] + (high - 1) * attrs.strides[0] + 1, attrs.strides[0])
        right_on = slice(first[1], first[1] + (wide - 1) * attrs.strides[1] + 1, attrs.strides[1])
        total += x[:, down, right_on] @ kernel[:, row, column].T
    return total


def _reference_dense(attrs: DenseTilesAttrs, data: Array, weight: Array) -> Array:
    plain = unpack_tiles(weight, attrs.units, 1, data.shape[-1])[:, 0]
    made: Array = data.astype(np.int32) @ plain.T.astype(np.int32)
    return made


# ---- kernels ----


def _compute_conv(
    attrs: ConvTilesAttrs, out: TensorType, data: Tensor, weight: Tensor
) -> Tensor:
    return _compute_conv_with(attrs, out, None, data, weight) or _plain_conv(
        attrs, out, data, weight
    )


def _compute_conv_with(
    attrs: ConvTilesAttrs, out: TensorType, epilogue: Epilogue | None, data: Tensor, weight: Tensor
) -> Tensor | None:
    if not attrs.tiles:
        return None
    sums = _conv_sums(attrs, out.concrete_shape, _shape(data))
    return _by_tiles(sums, attrs.threads, "T_conv2d_tiles", out, epilogue, data, weight)


def _plain_conv(attrs: ConvTilesAttrs, out: TensorType, data: Tensor, weight: Tensor) -> Tensor:
    sums = _conv_sums(attrs, out.concrete_shape, _shape(data))
    top, left, bottom, right = full_padding(attrs.padding, 2)
    border = build.const(attrs.border, data.dtype)
    x = padded(data, layout_of("NHWC"), "HW", (top, left), (bottom, right), border)
    columns = sums.runs // sums.window[0]

    def seen(place: Sequence[Any], run: Any, byte: Any) -> Any:
        image, row, column = place
        down, along = run // columns * sums.dilation[0], run % columns * sums.dilation[1]
        right = column * sums.strides[1] + along + byte // sums.depth
        return x(image, row * sums.strides[0] + down, right, byte % sums.depth)

    return _plain_sums(sums, out, weight, seen, "T_conv2d_tiles")


def _compute_dense(
    attrs: DenseTilesAttrs, out: TensorType, data: Tensor, weight: Tensor
) -> Tensor:
    made = _compute_dense_with(attrs, out, None, data, weight)
    if made is not None:
        return made
    sums = _dense_sums(_shape(data), attrs.units)
    return _plain_sums(
        sums, out, weight, lambda place, run, byte: data(*place, byte), "T_dense_tiles"
    )


def _compute_dense_with(
    attrs: DenseTilesAttrs, out: TensorType, epilogue: Epilogue | None, data: Tensor, weight: Tensor
) -> Tensor | None:
    if not attrs.tiles:
        return None
    sums = _dense_sums(_shape(data), attrs.units)
    return _by_tiles(sums, attrs.threads, "T_dense_tiles", out, epilogue, data, weight)


def _shape(data: Tensor) -> list[int]:
    return [build.int_value(extent) or 1 for extent in data.shape]


def _plain_sums(
    sums: Sums, out: TensorType, weight: Tensor, seen: Callable[..., Any], name: str
) -> Tensor:
    """The same without tiles; seen: the number of a position at a byte of a run."""
    count, size = parts_of(sums.run)
    step, byte = reduce_axis((0, sums.runs * count), "step"), reduce_axis((0, size), "byte")

    def total(*index: Any) -> Any:
        *place, channel = index
        run, part = step.var // count, step.var % count
        first = build.minimum(part * size, sums.run - size)
        factor = weight(channel // COLUMNS, step.var, byte.var // GROUP, channel % COLUMNS,
                        byte.var % GROUP)  # fmt: skip
        value = seen(place, run, first + byte.var)
        return te_sum(value.astype(INT32) * factor.astype(INT32), axis=[step, byte])

    made: Tensor = compute(out.shape, total, name=name)
    return made


def _by_tiles(
    sums: Sums, threads: int, name: str, out: TensorType, epilogue: Epilogue | None, data: Tensor,
    weight: Tensor,
) -> Tensor:  # fmt: skip
    """What follows is computed while the sums of some tiles are in the innermost cache."""
    kernel = TileKernel(sums, data.dtype, weight.dtype, threads, out.concrete_shape[:-1])

    def write(ib: IRBuilder, buffers: Sequence[BufferVar], finish: Finish | None) -> None:
        kernel.finish = finish
        kernel.write(ib, *buffers)

    return extern_with(epilogue, out, (data, weight), write, name, kernel.describe())


def _schedule(kernel: Kernel) -> None:
    schedule_default(kernel)
    made = kernel.anchor[0].op
    if "schedule" in made.attrs:
        kernel.choices["schedule"] = made.attrs["schedule"]


def _macs_conv(
    attrs: ConvTilesAttrs, out: TensorType, data: TensorType, weight: TensorType
) -> int:
    window = math.prod(attrs.kernel_size) * data.concrete_shape[3]
    return math.prod(out.concrete_shape) * window


def _macs_dense(
    attrs: DenseTilesAttrs, out: TensorType, data: TensorType, weight: TensorType
) -> int:
    return math.prod(out.concrete_shape) * data.concrete_shape[-1]


def _weights(*shape: int) -> Array:
    rng = np.random.default_rng(len(shape))
    return pack_tiles(rng.integers(-128, 128, shape).astype("int8"))


register(OpRecord(
    "nn.conv2d_tiles",
    inputs=("data", "weight"),
    attrs=ConvTilesAttrs,
    infer=_infer_conv,
    compute=_compute_conv,
    compute_with=_compute_conv_with,
    reference=_reference_conv,
    macs=_macs_conv,
    pattern=OUT_ELEMWISE_FUSABLE,
    schedule=_schedule,
    mixed_precision="never",
    cases=[
        Case((((1, 4, 5, 8), "uint8"), _weights(20, 1, 8)), {"channels": 20, "kernel_size": 1}),
        Case((((1, 5, 6, 7), "int8"), _weights(3, 3, 21)),
             {"channels": 3, "kernel_size": 3, "padding": 1, "strides": 2, "border": -3}),
    ],
    doc="A convolution of bytes with channels last; its weights are packed in tiles.",
))  # fmt: skip

register(OpRecord(
    "nn.dense_tiles",
    inputs=("data", "weight"),
    attrs=DenseTilesAttrs,
    infer=_infer_dense,
    compute=_compute_dense,
    compute_with=_compute_dense_with,
    reference=_reference_dense,
    macs=_macs_dense,
    pattern=OUT_ELEMWISE_FUSABLE,
    schedule=_schedule,
    mixed_precision="never",
    cases=[Case((((3, 70), "uint8"), _weights(17, 1, 70)), {"units": 17})],
    doc="A dense layer of bytes; its weights are packed in tiles.",
))  # fmt: skip
