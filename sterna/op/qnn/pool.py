"""Averages of quantised images: qnn.avg_pool2d."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir.types import TensorType, Type
from sterna.op.checks import of_kind, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.nn.pool import AvgPool2DAttrs
from sterna.op.quantization import expect_scale, expect_zero_point, is_single
from sterna.relay.arrays import Array
from sterna.relay.attributes import attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExpr, RelayExprLike, const
from sterna.relay.op import OPAQUE, Case, OpRecord, call, find, register

PARAMETERS = ("input_scale", "input_zero_point", "output_scale", "output_zero_point")


@attributes
class QnnAvgPool2DAttrs(AvgPool2DAttrs):
    """Of qnn.avg_pool2d."""

    layout: str = "NHWC"
    count_include_pad: bool = True


def _infer(attrs: QnnAvgPool2DAttrs, data: Type, *parameters: Type) -> TensorType:
    kind = of_kind(tensor(data, "data"), "data", "int", "uint")
    if kind.dtype.bits > 16:
        raise ValueError(f"data has integers of up to 16 bits, not {kind.dtype}")
    for name, given in zip(PARAMETERS, parameters, strict=True):
        if not is_single(tensor(given, name).shape):
            raise ValueError(f"{name} is one number for all of data, not {given!r}")
        (expect_scale if name.endswith("scale") else expect_zero_point)(given, name, kind)
    made = find("nn.avg_pool2d").infer(attrs, data)
    assert isinstance(made, TensorType)
    return made


def _scalar(expr: RelayExpr, dtype: str) -> RelayExpr:
    made = call("cast", expr, dtype=dtype)
    return call("reshape", made, newshape=()) if tensor_type(expr).shape else made


def _simplify(attrs: QnnAvgPool2DAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr:
    """Averages of distances from the zero point, under the ratio of both scales."""
    data, *given = args
    scale, zero, out_scale, out_zero = (_scalar(part, "float32") for part in given)
    shifted = call("subtract", call("cast", data, dtype="float32"), zero)
    means = call("nn.avg_pool2d", shifted, **dict(attrs.items()))
    scaled = call("multiply", means, call("divide", scale, out_scale))
    whole = call("cast", out_zero, dtype="int32")
    return call("qnn.quantize", scaled, const(1.0), whole, out_dtype=tensor_type(data).dtype)


def _reference(attrs: QnnAvgPool2DAttrs, data: Array, *given: Array) -> Array:
    scale, zero, out_scale, out_zero = (part.astype("float32").reshape(()) for part in given)
    pool, quantize = find("nn.avg_pool2d"), find("qnn.quantize")
    assert pool.reference is not None and quantize.reference is not None
    quantizing: Any = quantize.attrs
    means = pool.reference(attrs, data.astype("float32") - zero)
    made: Array = quantize.reference(
        quantizing(out_dtype=str(data.dtype)), means * (scale / out_scale),
        np.array(1, "float32"), out_zero.astype("int32"),
    )
    return made


def _avg_pool2d(
    data: RelayExprLike, input_scale: RelayExprLike, input_zero_point: RelayExprLike,
    output_scale: RelayExprLike, output_zero_point: RelayExprLike, pool_size: Sequence[int],
    strides: Sequence[int], padding: Sequence[int] | int, dilation: Sequence[int],
    ceil_mode: bool = False, count_include_pad: bool = True, layout: str = "NHWC",
    out_layout: str = "",
) -> Any:
    """Averages of windows of quantised images, quantised under another scale and zero point.

    The average itself is rounded, once, with halves away from the zero point; what pads images
    stands for 0.
    """
    return make(
        "qnn.avg_pool2d", data, input_scale, input_zero_point, output_scale, output_zero_point,
        pool_size=pool_size, strides=strides, padding=padding, dilation=dilation,
        ceil_mode=ceil_mode, count_include_pad=count_include_pad, layout=layout,
        out_layout=out_layout,
    )


def _numbers(scale: float, zero: int, out_scale: float, out_zero: int) -> tuple[Any, ...]:
    return (np.array(scale, "float32"), np.array(zero, "int32"),
            np.array([out_scale], "float32"), np.array(out_zero, "int32"))


register(OpRecord(
    "qnn.avg_pool2d",
    inputs=("data", *PARAMETERS),
    attrs=QnnAvgPool2DAttrs,
    infer=_infer,
    simplify=_simplify,
    reference=_reference,
    builder=_avg_pool2d,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case((((1, 5, 6, 3), "uint8"), *_numbers(0.5, 128, 0.5, 128)),
             {"pool_size": (2, 3), "strides": (1, 2), "padding": 0, "dilation": (1, 1)}),
        Case((((1, 2, 5, 5), "int8"), *_numbers(0.3, -7, 0.2, 4)),
             {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1), "dilation": (1, 1),
              "layout": "NCHW", "count_include_pad": False, "ceil_mode": True}),
    ],
    doc=_avg_pool2d.__doc__ or "",
))
