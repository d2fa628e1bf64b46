"""Convolutions and dense layers in tiles: nn.conv2d_tiles, nn.dense_tiles."""

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from sterna.ir.types import TensorType, Type
from sterna.op.checks import at_least, expect_dim, tensor
from sterna.op.nn._conv_factors import factors_apart
from sterna.op.nn._dense_layout import plain_weight
from sterna.op.windows import Padding, full_padding, pad_array
from sterna.relay.arrays import Array, from_numpy, numpy_dtype, to_numpy
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.layout import layout_of, to_plain
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, register
from sterna.relay.op import call as call_of
from sterna.schedule.amx_kernel import (
    COLUMNS,
    Sums,
    TileKernel,
    pack_tiles,
    parts_of,
    unpack_tiles,
)
from sterna.schedule.default import schedule_as_written
from sterna.schedule.dot4 import INT32, LEAST_LANES, dot_lanes
from sterna.schedule.epilogue import Epilogue, Finish, extern_with
from sterna.schedule.kernel import Processor
from sterna.support.dtype import DataType
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.tiles import GROUP_BYTES, SUMS, feature_of

# The attribute out_dtype when the result is as it was summed.
AS_SUMS = cast(DataType, "")
# What it takes to make vectors of float32 of weights, and how many rows share them.
WIDENED, ROWS_OF_VECTORS = 2, 8
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
    out_dtype: DataType = AS_SUMS
    threads: int = 1
    """How many share the work."""

    def normalize(self) -> None:
        """Padding before both axes, then after both."""
        self.padding = full_padding(self.padding, 2)


@attributes
class DenseTilesAttrs(Attrs):
    """Of nn.dense_tiles."""

    units: int
    out_dtype: DataType = AS_SUMS
    threads: int = 1
    """How many share the work."""


# ---- who becomes one ----


def conv2d_by_tiles(call: Call, processor: Processor) -> RelayExpr | None:
    """Channels that lie last, with known weights, where tiles take fewer cycles."""
    attrs: Any = call.attrs
    if attrs.data_layout != "NHWC" or attrs.groups != 1:
        return None
    image, weight = factors_apart(call)
    data, out = image.checked_type, call.checked_type
    if not _suits(data, weight, out, processor):
        return None
    assert isinstance(out, TensorType) and isinstance(data, TensorType)
    assert isinstance(weight, Constant)
    if attrs.out_layout not in ("", "NHWC"):
        return None
    plain = to_plain(to_numpy(weight.data), layout_of(attrs.kernel_layout), "OHWI")
    made = ConvTilesAttrs(
        len(plain), plain.shape[1:3], attrs.strides, (*attrs.before, *attrs.after),
        attrs.dilation, attrs.border, out.dtype, processor.threads,
    )
    sums = _conv_sums(made, out.concrete_shape, data)
    if not _pays(sums, processor):
        return None
    packed = pack_tiles(plain.reshape(len(plain), sums.runs, sums.run))
    constant = Constant(from_numpy(packed, weight.data.dtype))
    return call_of("nn.conv2d_tiles", image, constant, **dict(made.items()))


def dense_by_tiles(call: Call, processor: Processor) -> RelayExpr | None:
    """Rows with known weights, where tiles take fewer cycles."""
    weight, data, out = call.args[1], call.args[0].checked_type, call.checked_type
    if not _suits(data, weight, out, processor):
        return None
    assert isinstance(data, TensorType) and isinstance(weight, Constant)
    assert isinstance(out, TensorType)
    plain = plain_weight(call.attrs, to_numpy(weight.data))
    made = DenseTilesAttrs(len(plain), out.dtype, processor.threads)
    if len(data.concrete_shape) < 2 or not _pays(_dense_sums(made, data), processor):
        return None
    packed = Constant(from_numpy(pack_tiles(plain[:, None]), weight.data.dtype))
    return call_of("nn.dense_tiles", call.args[0], packed, **dict(made.items()))


def _suits(data: Type, weight: RelayExpr, out: Type, processor: Processor) -> bool:
    if not isinstance(weight, Constant) or not isinstance(data, TensorType) or not data.is_static:
        return False
    assert isinstance(out, TensorType)
    kinds = f"{data.dtype} {weight.data.dtype}"
    if kinds not in SUMS or feature_of(kinds) not in processor.matrix_tiles:
        return False
    return bool(out.dtype in (SUMS[kinds], data.dtype if out.dtype.is_float else INT32))


def _pays(sums: Sums, processor: Processor) -> bool:
    """Whether tiles take fewer cycles than vectors of sums."""
    group = GROUP_BYTES // sums.item
    if sums.run < group or 0 in (sums.images, sums.height, sums.width, sums.channels):
        return False
    pixels = sums.images * sums.height * sums.width
    if sums.item > 1:
        vectors = -(-sums.channels // processor.lanes(INT32)) * sums.runs * sums.run
        widened = WIDENED * -(-pixels // ROWS_OF_VECTORS)
        return sums.cycles() < vectors * (pixels + widened) / processor.throughput.multiply_adds
    lanes = dot_lanes(sums.channels, processor)
    if lanes < LEAST_LANES or sums.depth % group:
        return True
    vectors = pixels * sums.channels // lanes
    return sums.cycles() < vectors * sums.runs * sums.run / group / DOTS


def _conv_sums(attrs: ConvTilesAttrs, out: Sequence[int], data: TensorType) -> Sums:
    images, height, width, _ = out
    _, data_height, data_width, depth = data.concrete_shape
    padding = full_padding(attrs.padding, 2)
    return Sums(
        images, height, width, attrs.channels, data_height, data_width, depth, attrs.kernel_size,
        attrs.strides, attrs.dilation, (padding[0], padding[1]), attrs.border, any(padding),
        data.dtype.bytes,
    )


def _dense_sums(attrs: DenseTilesAttrs, data: TensorType) -> Sums:
    *outer, depth = data.concrete_shape
    rows = math.prod(outer)
    return Sums(1, 1, rows, attrs.units, 1, rows, depth, item=data.dtype.bytes)


# ---- types and references ----


def _expect_packed(data: TensorType, weight: TensorType, sums: Sums) -> None:
    kinds, group = f"{data.dtype} {weight.dtype}", GROUP_BYTES // sums.item
    if kinds not in SUMS:
        raise ValueError(
            f"data and weight are bfloat16 or integers of 8 bits, not {data.dtype} and "
            f"{weight.dtype}"
        )
    if sums.run < group:
        raise ValueError(
            f"a sum is over at least {group} of {data.dtype} side by side, not {sums.run}"
        )
    count, size = parts_of(sums.run, sums.item)
    wanted = (-(-sums.channels // COLUMNS), sums.runs * count, size // group, COLUMNS, group)
    for have, want in zip(weight.concrete_shape, wanted, strict=True):
        expect_dim(have, want, f"weight of {wanted}: an extent of weight {weight.shape}")


def _result_dtype(out_dtype: str, data: TensorType, weight: TensorType) -> DataType:
    return DataType(out_dtype or SUMS[f"{data.dtype} {weight.dtype}"])


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
    )
    shape = (batch, high, wide, attrs.channels)
    _expect_packed(x, w, _conv_sums(attrs, shape, x))
    return TensorType(shape, _result_dtype(attrs.out_dtype, x, w))


def _infer_dense(attrs: DenseTilesAttrs, data: Type, weight: Type) -> TensorType:
    x, w = at_least(data, "data", 2), tensor(weight, "weight", 5)
    _expect_packed(x, w, _dense_sums(attrs, x))
    return TensorType((*x.shape[:-1], attrs.units), _result_dtype(attrs.out_dtype, x, w))


def _reference_conv(attrs: ConvTilesAttrs, data: Array, weight: Array) -> Array:
    """One product of matrices for each place of the window."""
    depth, (rows, columns) = data.shape[3], attrs.kernel_size
    joined = attrs.dilation[1] == 1
    runs, run = (rows, columns * depth) if joined else (rows * columns, depth)
    plain = unpack_tiles(weight, attrs.channels, runs, run)
    kernel = plain.reshape(attrs.channels, rows, columns, depth).astype(_sums_of(data))
    top, left, bottom, right = full_padding(attrs.padding, 2)
    moved = data.transpose(0, 3, 1, 2).astype(_sums_of(data))
    x = pad_array(moved, (top, left), (bottom, right), attrs.border).transpose(0, 2, 3, 1)
    high = (x.shape[1] - (rows - 1) * attrs.dilation[0] - 1) // attrs.strides[0] + 1
    wide = (x.shape[2] - (columns - 1) * attrs.dilation[1] - 1) // attrs.strides[1] + 1
    total = np.zeros((len(data), high, wide, attrs.channels), _sums_of(data))
    for row, column in np.ndindex(rows, columns):
        first = row * attrs.dilation[0], column * attrs.dilation[1]
        down = slice(first[0], first[0] + (high - 1) * attrs.strides[0] + 1, attrs.strides[0])
        right_on = slice(first[1], first[1] + (wide - 1) * attrs.strides[1] + 1, attrs.strides[1])
        total += x[:, down, right_on] @ kernel[:, row, column].T
    return total.astype(numpy_dtype(attrs.out_dtype or str(total.dtype)))


def _reference_dense(attrs: DenseTilesAttrs, data: Array, weight: Array) -> Array:
    plain = unpack_tiles(weight, attrs.units, 1, data.shape[-1])[:, 0]
    made: Array = data.astype(_sums_of(data)) @ plain.T.astype(_sums_of(data))
    return made.astype(numpy_dtype(attrs.out_dtype or str(made.dtype)))


def _sums_of(data: Array) -> np.dtype[Any]:
    return np.dtype("int32" if data.dtype.itemsize == 1 else "float32")


# ---- kernels ----


def _compute_conv(attrs: ConvTilesAttrs, out: TensorType, data: Tensor, weight: Tensor) -> Tensor:
    return _compute_conv_with(attrs, out, None, data, weight)


def _compute_conv_with(
    attrs: ConvTilesAttrs, out: TensorType, epilogue: Epilogue | None, data: Tensor, weight: Tensor
) -> Tensor:
    sums = _conv_sums(attrs, out.concrete_shape, TensorType(data.shape, data.dtype))
    return _by_tiles(sums, attrs.threads, "T_conv2d_tiles", out, epilogue, data, weight)


def _compute_dense(
    attrs: DenseTilesAttrs, out: TensorType, data: Tensor, weight: Tensor
) -> Tensor:
    return _compute_dense_with(attrs, out, None, data, weight)


def _compute_dense_with(
    attrs: DenseTilesAttrs, out: TensorType, epilogue: Epilogue | None, data: Tensor, weight: Tensor
) -> Tensor:
    sums = _dense_sums(attrs, TensorType(data.shape, data.dtype))
    return _by_tiles(sums, attrs.threads, "T_dense_tiles", out, epilogue, data, weight)


def _by_tiles(
    sums: Sums, threads: int, name: str, out: TensorType, epilogue: Epilogue | None, data: Tensor,
    weight: Tensor,
) -> Tensor:
    """What follows is computed while the sums of some tiles are in the innermost cache."""
    kernel = TileKernel(sums, data.dtype, weight.dtype, threads, out)

    def write(ib: IRBuilder, buffers: Sequence[BufferVar], finish: Finish | None) -> None:
        kernel.finish = finish
        kernel.write(ib, *buffers)

    return extern_with(epilogue, out, (data, weight), write, name, kernel.describe())


def _macs_conv(
    attrs: ConvTilesAttrs, out: TensorType, data: TensorType, weight: TensorType
) -> int:
    window = math.prod(attrs.kernel_size) * data.concrete_shape[3]
    return math.prod(out.concrete_shape) * window


def _macs_dense(
    attrs: DenseTilesAttrs, out: TensorType, data: TensorType, weight: TensorType
) -> int:
    return math.prod(out.concrete_shape) * data.concrete_shape[-1]


def _weights(*shape: int, dtype: str = "int8") -> Array:
    made = np.random.default_rng(len(shape)).integers(-128, 128, shape)
    return pack_tiles((made if dtype == "int8" else made / 64).astype(numpy_dtype(dtype)))


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
    schedule=schedule_as_written,
    mixed_precision="never",
    cases=[
        Case((((1, 4, 5, 8), "uint8"), _weights(20, 1, 8)), {"channels": 20, "kernel_size": 1}),
        Case((((1, 5, 6, 7), "int8"), _weights(3, 3, 21)),
             {"channels": 3, "kernel_size": 3, "padding": 1, "strides": 2, "border": -3}),
        Case((((1, 5, 6, 4), "bfloat16"), _weights(18, 3, 12, dtype="bfloat16")),
             {"channels": 18, "kernel_size": 3, "padding": 1, "out_dtype": "bfloat16"}, 1e-2),
    ],
    doc="A convolution with channels last; its weights are packed in tiles.",
))

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
    schedule=schedule_as_written,
    mixed_precision="never",
    cases=[
        Case((((3, 70), "uint8"), _weights(17, 1, 70)), {"units": 17}),
        Case((((2, 21, 40), "bfloat16"), _weights(35, 1, 40, dtype="bfloat16")), {"units": 35}),
    ],
    doc="A dense layer; its weights are packed in tiles.",
))
