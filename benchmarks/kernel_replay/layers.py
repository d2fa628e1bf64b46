"""Small networks of one layer each, one for every class of kernels that schedules tell apart."""

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from sterna import relay
from sterna.ir.module import IRModule
from sterna.relay.expr import RelayExpr

Layer = Callable[[], IRModule]
LAYERS: dict[str, Layer] = {}
"""What makes a layer's graph, by its name."""

_BFLOAT16 = "bfloat16"


def _add(name: str, make: Callable[..., RelayExpr], *args: Any, **kwargs: Any) -> None:
    assert name not in LAYERS, name
    LAYERS[name] = lambda: IRModule.from_expr(make(*args, **kwargs))


def _weights(*shape: int, dtype: str = "float32", most: int = 127) -> RelayExpr:
    """Constants that are the same in every process; most: of integers with a sign."""
    rng = np.random.default_rng(zlib.crc32(repr((shape, dtype)).encode()))
    if dtype in ("int8", "uint8", "int32"):
        low, high = (0, 255) if dtype == "uint8" else (-most, most)
        return relay.const(rng.integers(low, high, shape).astype(dtype))
    numbers = rng.standard_normal(shape).astype("float32")
    return relay.const(numbers.astype(ml_dtypes.bfloat16 if dtype == _BFLOAT16 else dtype))


def _input(*shape: int, dtype: str = "float32", name: str = "x") -> RelayExpr:
    return relay.var(name, shape=shape, dtype=dtype)


# ---- convolutions ----


def _conv(
    channels: int, filters: int, window: Sequence[int] | int, image: int = 14, rank: int = 2,
    groups: int = 1, dtype: str = "float32", nhwc: bool = False, batch: int = 1,
    after: Callable[[RelayExpr], RelayExpr] | None = None, **attrs: Any,
) -> RelayExpr:
    """A convolution with a bias and what comes after it: a ReLU if nothing is named."""
    extents = (window,) * rank if isinstance(window, int) else tuple(window)
    attrs.setdefault("padding", tuple(extent // 2 for extent in extents))
    spatial = "DHW"[3 - rank :]
    if nhwc:
        x = _input(batch, *(image,) * rank, channels, dtype=dtype)
        layouts = {"data_layout": f"N{spatial}C", "kernel_layout": f"{spatial}IO"}
        w = _weights(*extents, channels // groups, filters, dtype=dtype)
    else:
        x = _input(batch, channels, *(image,) * rank, dtype=dtype)
        layouts = {"data_layout": f"NC{spatial}", "kernel_layout": f"OI{spatial}"}
        w = _weights(filters, channels // groups, *extents, dtype=dtype)
    build = {1: relay.nn.conv1d, 2: relay.nn.conv2d, 3: relay.nn.conv3d}[rank]
    made = build(x, w, groups=groups, channels=filters, kernel_size=extents, **layouts, **attrs)
    made = relay.nn.bias_add(made, _weights(filters, dtype=dtype), axis=-1 if nhwc else 1)
    return (after or relay.nn.relu)(made)


for _name, _args in {
    "1x1": (64, 96, 1), "1x1_few_in": (3, 64, 1), "1x1_odd": (37, 51, 1),
    "1x1_few_out": (96, 8, 1), "3x3": (32, 64, 3), "3x3_wide": (128, 128, 3),
    "3x3_odd": (23, 29, 3), "3x3_few_in": (3, 32, 3), "5x5": (24, 40, 5), "7x7": (16, 32, 7),
    "1x7": (32, 32, (1, 7)), "3x1": (32, 32, (3, 1)),
}.items():
    _add(f"conv2d_{_name}", _conv, *_args)
_add("conv2d_1x1_stride2", _conv, 64, 128, 1, strides=(2, 2))
_add("conv2d_1x1_small_image", _conv, 160, 192, 1, 7)
_add("conv2d_1x1_one_pixel", _conv, 128, 32, 1, 1)
_add("conv2d_1x1_batch4", _conv, 64, 64, 1, 7, batch=4)
_add("conv2d_3x3_stride2", _conv, 64, 96, 3, strides=(2, 2))
_add("conv2d_3x3_dilated", _conv, 32, 32, 3, dilation=(2, 2), padding=(2, 2))
_add("conv2d_3x3_unpadded", _conv, 32, 32, 3, 15, padding=(0, 0))
_add("conv2d_3x3_large_image", _conv, 16, 24, 3, 56)
_add("conv2d_7x7_stem", _conv, 3, 64, 7, 56, strides=(2, 2))
_add("conv2d_3x3_nhwc", _conv, 32, 64, 3, nhwc=True)
_add("conv2d_1x1_nhwc", _conv, 64, 64, 1, nhwc=True)
_add("conv2d_grouped", _conv, 64, 64, 3, groups=4)
_add("conv2d_grouped_narrow", _conv, 32, 32, 3, groups=8)
_add("depthwise_3x3", _conv, 96, 96, 3, groups=96)
_add("depthwise_3x3_stride2", _conv, 96, 96, 3, groups=96, strides=(2, 2))
_add("depthwise_5x5", _conv, 40, 40, 5, groups=40)
_add("depthwise_3x3_odd", _conv, 27, 27, 3, groups=27)
_add("depthwise_multiplier", _conv, 32, 64, 3, groups=32)
for _dtype in ("float16", _BFLOAT16):
    _add(f"conv2d_1x1_{_dtype}", _conv, 64, 96, 1, dtype=_dtype)
    _add(f"conv2d_3x3_{_dtype}", _conv, 64, 64, 3, dtype=_dtype)
    _add(f"depthwise_3x3_{_dtype}", _conv, 64, 64, 3, groups=64, dtype=_dtype)
_add("conv1d_3", _conv, 32, 64, 3, 50, rank=1)
_add("conv1d_1", _conv, 64, 64, 1, 50, rank=1)
_add("depthwise1d_5", _conv, 64, 64, 5, 50, rank=1, groups=64)
_add("conv3d_3x3x3", _conv, 8, 16, 3, 8, rank=3)


def _transposed(channels: int, filters: int, window: int, rank: int = 2, **attrs: Any) -> RelayExpr:
    image = 14 if rank < 3 else 6
    x = _input(1, channels, *(image,) * rank)
    w = _weights(channels, filters, *(window,) * rank)
    builders = {
        1: relay.nn.conv1d_transpose, 2: relay.nn.conv2d_transpose, 3: relay.nn.conv3d_transpose,
    }
    made: RelayExpr = builders[rank](
        x, w, channels=filters, kernel_size=(window,) * rank, strides=(2,) * rank, **attrs
    )
    made = relay.nn.relu(relay.nn.bias_add(made, _weights(filters)))
    return made


_add("conv2d_transpose_2x2", _transposed, 32, 16, 2)
_add("conv2d_transpose_4x4", _transposed, 32, 16, 4, padding=(1, 1))
_add("conv2d_transpose_3x3", _transposed, 16, 16, 3, padding=(1, 1), output_padding=(1, 1))
_add("conv1d_transpose_4", _transposed, 16, 16, 4, rank=1)
_add("conv3d_transpose_2", _transposed, 8, 8, 2, rank=3)


# ---- what stands around convolutions ----


def _residual(nhwc: bool) -> RelayExpr:
    shape = (1, 14, 14, 64) if nhwc else (1, 64, 14, 14)
    other = _input(*shape, name="other")
    return _conv(64, 64, 3, nhwc=nhwc, after=lambda x: relay.nn.relu(relay.add(x, other)))


def _clipped(x: RelayExpr) -> RelayExpr:
    made: RelayExpr = relay.clip(x, 0.0, 6.0)
    return made


def _squeeze_and_excite() -> RelayExpr:
    def after(x: RelayExpr) -> RelayExpr:
        mean = relay.nn.global_avg_pool2d(x)
        small = relay.nn.conv2d(mean, _weights(8, 48, 1, 1), channels=8, kernel_size=(1, 1))
        small = relay.nn.relu(relay.nn.bias_add(small, _weights(8)))
        gate = relay.nn.conv2d(small, _weights(48, 8, 1, 1), channels=48, kernel_size=(1, 1))
        gate = relay.sigmoid(relay.nn.bias_add(gate, _weights(48)))
        gated = relay.multiply(x, gate)
        return _projected(gated)

    return _conv(48, 48, 3, groups=48, after=after)


def _separable() -> RelayExpr:
    def after(x: RelayExpr) -> RelayExpr:
        made: RelayExpr = relay.nn.bias_add(_projected(_clipped(x)), _weights(24))
        return made

    return _conv(48, 48, 3, groups=48, after=after)


def _projected(x: RelayExpr) -> RelayExpr:
    """What the wide tensor inside of a block is made narrow by."""
    made: RelayExpr = relay.nn.conv2d(
        x, _weights(24, 48, 1, 1), channels=24, kernel_size=(1, 1)
    )
    return made


_add("residual_nchw", _residual, False)
_add("residual_nhwc", _residual, True)
_add("conv2d_1x1_relu6", _conv, 32, 64, 1, after=_clipped)
_add("conv2d_1x1_silu", _conv, 32, 64, 1, after=lambda x: relay.multiply(x, relay.sigmoid(x)))
_add("conv2d_3x3_alone", _conv, 32, 32, 3, after=lambda x: x)
_add("squeeze_and_excite", _squeeze_and_excite)
_add("separable", _separable)


def _pool(build: Callable[..., RelayExpr], *window: int, **attrs: Any) -> RelayExpr:
    return build(_input(1, 32, 28, 28), *([window] if window else []), **attrs)


_add("max_pool_3x3", _pool, relay.nn.max_pool2d, 3, 3, strides=(2, 2), padding=(1, 1))
_add("max_pool_2x2", _pool, relay.nn.max_pool2d, 2, 2, strides=(2, 2))
_add("avg_pool_2x2", _pool, relay.nn.avg_pool2d, 2, 2, strides=(2, 2))
_add("global_avg_pool", _pool, relay.nn.global_avg_pool2d)


# ---- products of matrices ----


def _dense(
    rows: int, inputs: int, units: int, dtype: str = "float32",
    after: Callable[[RelayExpr], RelayExpr] | None = None,
) -> RelayExpr:
    made = relay.nn.dense(_input(rows, inputs, dtype=dtype), _weights(units, inputs, dtype=dtype))
    made = relay.nn.bias_add(made, _weights(units, dtype=dtype))
    return after(made) if after is not None else made


def _products(batch: int, rows: int, inner: int, columns: int, transposed: bool) -> RelayExpr:
    other = (columns, inner) if transposed else (inner, columns)
    a, b = _input(batch, rows, inner, name="a"), _input(batch, *other, name="b")
    made: RelayExpr = relay.nn.batch_matmul(a, b, transpose_b=transposed)
    return made


def _attention(length: int, heads: int, width: int) -> RelayExpr:
    q, k, v = (_input(1, length, heads, width, name=name) for name in "qkv")
    made: RelayExpr = relay.nn.attention(q, k, v, scale=width**-0.5)
    return made


_add("dense_1_row", _dense, 1, 256, 1000)
_add("dense_1_row_odd", _dense, 1, 77, 35)
_add("dense_4_rows", _dense, 4, 256, 192)
_add("dense_128_rows", _dense, 128, 192, 256)
_add("dense_128_rows_gelu", _dense, 128, 128, 128, after=lambda x: relay.nn.gelu(x))
_add("dense_deep", _dense, 8, 4096, 16)
_add("dense_1_row_float16", _dense, 1, 256, 256, dtype="float16")
_add("dense_64_rows_float16", _dense, 64, 128, 128, dtype="float16")
_add("dense_64_rows_bfloat16", _dense, 64, 128, 128, dtype=_BFLOAT16)
_add("dense_1_row_bfloat16", _dense, 1, 256, 256, dtype=_BFLOAT16)
_add("batch_matmul", _products, 4, 64, 32, 64, False)
_add("batch_matmul_transposed", _products, 4, 64, 32, 64, True)
_add("batch_matmul_1_row", _products, 4, 1, 32, 64, True)
_add("attention", _attention, 64, 4, 32)
_add("attention_short", _attention, 16, 2, 64)


# ---- bytes ----


def _number(value: float, dtype: str) -> RelayExpr:
    return relay.const(np.asarray(value, dtype))


def _opened(x: RelayExpr, dtype: str, zero: int) -> RelayExpr:
    made: RelayExpr = relay.qnn.dequantize(x, _number(0.05, "float32"), _number(zero, dtype))
    return made


def _closed(x: RelayExpr, dtype: str, zero: int) -> RelayExpr:
    made: RelayExpr = relay.qnn.quantize(
        x, _number(0.1, "float32"), _number(zero, dtype), out_dtype=dtype, rounding="TO_EVEN"
    )
    return made


def _quantized_conv(
    channels: int, filters: int, window: int, groups: int = 1, dtype: str = "uint8",
    most: int = 127, **attrs: Any,
) -> RelayExpr:
    zero = 128 if dtype == "uint8" else 3
    x = _opened(_input(1, channels, 14, 14, dtype=dtype), dtype, zero)
    scales = relay.const(np.linspace(0.01, 0.02, filters, dtype="float32"))
    shape = (filters, channels // groups, window, window)
    numbers = _weights(*shape, dtype="int8", most=most)
    w = relay.qnn.dequantize(numbers, scales, relay.const(0), axis=0)
    made = relay.nn.conv2d(
        x, w, groups=groups, channels=filters, kernel_size=(window, window),
        padding=(window // 2,) * 2, **attrs,
    )
    bias_scales = relay.const(np.linspace(0.01, 0.02, filters, dtype="float32") * np.float32(0.05))
    bias = relay.qnn.dequantize(_weights(filters, dtype="int32"), bias_scales, relay.const(0), 0)
    return _closed(relay.nn.relu(relay.nn.bias_add(made, bias)), dtype, zero)


def _quantized_dense(
    rows: int, inputs: int, units: int, dtype: str, most: int = 127
) -> RelayExpr:
    zero = 128 if dtype == "uint8" else 0
    x = _opened(_input(rows, inputs, dtype=dtype), dtype, zero)
    w = relay.qnn.dequantize(
        _weights(units, inputs, dtype="int8", most=most), _number(0.02, "float32"), relay.const(0)
    )
    return _closed(relay.nn.dense(x, w), dtype, zero)


for _dtype in ("int8", "uint8"):
    _add(f"conv2d_1x1_{_dtype}", _quantized_conv, 64, 96, 1, dtype=_dtype)
    _add(f"conv2d_3x3_{_dtype}", _quantized_conv, 32, 64, 3, dtype=_dtype)
    _add(f"depthwise_3x3_{_dtype}", _quantized_conv, 64, 64, 3, 64, dtype=_dtype)
    _add(f"dense_1_row_{_dtype}", _quantized_dense, 1, 256, 256, _dtype)
    _add(f"dense_64_rows_{_dtype}", _quantized_dense, 64, 128, 128, _dtype)
    # Sums of two products of such weights fit 16 bits.
    _add(f"conv2d_1x1_small_{_dtype}", _quantized_conv, 64, 96, 1, dtype=_dtype, most=32)
    _add(f"conv2d_3x3_small_{_dtype}", _quantized_conv, 32, 64, 3, dtype=_dtype, most=32)
    _add(f"depthwise_3x3_small_{_dtype}", _quantized_conv, 64, 64, 3, 64, dtype=_dtype, most=32)
    _add(f"dense_30_rows_small_{_dtype}", _quantized_dense, 30, 128, 128, _dtype, most=32)
    _add(f"dense_600_rows_small_{_dtype}", _quantized_dense, 600, 128, 128, _dtype, most=32)
_add("conv2d_3x3_stem_uint8", _quantized_conv, 3, 32, 3, strides=(2, 2))
_add("conv2d_1x1_stride2_small_uint8", _quantized_conv, 64, 96, 1, strides=(2, 2), most=32)
_add("conv2d_1x1_odd_int8", _quantized_conv, 37, 51, 1, dtype="int8")
_add("conv2d_grouped_int8", _quantized_conv, 32, 32, 3, 4, dtype="int8")


# ---- the rest ----


def _recurrent(build: Callable[..., Any], gates: int, steps: int, width: int) -> RelayExpr:
    x = _input(steps, 1, width)
    w, r = _weights(1, gates * width, width), _weights(1, gates * width, width)
    made: RelayExpr = build(x, w, r, _weights(1, 2 * gates * width))[0]
    return made


_add("lstm", _recurrent, relay.nn.lstm, 4, 12, 64)
_add("gru", _recurrent, relay.nn.gru, 3, 12, 64)
_add("softmax", lambda: relay.nn.softmax(_input(64, 200)))
_add("softmax_outer", lambda: relay.nn.softmax(_input(1, 21, 16, 16), axis=1))
_add("layer_norm", lambda: relay.nn.layer_norm(_input(64, 256), _weights(256), _weights(256)))
_add("group_norm", lambda: relay.nn.group_norm(
    _input(1, 32, 14, 14), _weights(32), _weights(32), num_groups=4))
_add("sum_rows", lambda: relay.sum(_input(64, 256), axis=1))
_add("sum_columns", lambda: relay.sum(_input(64, 256), axis=0))
_add("transpose", lambda: relay.transpose(_input(1, 32, 14, 14), (0, 2, 3, 1)))
_add("elementwise", lambda: relay.tanh(relay.exp(_input(1, 32, 14, 14))))
_add("resize", lambda: relay.nn.upsampling(_input(1, 16, 14, 14), 2, 2))
