"""A depthwise convolution of bytes by an instruction that adds products in pairs of 16 bits.

It is that of depthwise_dots.py where no sum of two rows leaves 16 bits. Vectors of channels whose
weights are too large for that are halved and taken twice: nn.conv2d_depthwise_pair_dots.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import expect_dim, tensor
from sterna.op.nn.depthwise_dots import (
    DepthwiseDotsAttrs,
    DepthwiseKernel,
    depthwise_attrs,
    depthwise_weights,
    infer_depthwise,
    pack_weights,
    reference_depthwise,
)
from sterna.relay.arrays import Array, from_numpy
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, register
from sterna.relay.op import call as call_of
from sterna.schedule.byte_pair_steps import fits_pairs
from sterna.schedule.default import schedule_as_written
from sterna.schedule.dot4 import INT32
from sterna.schedule.epilogue import Epilogue, Finish, extern_with
from sterna.schedule.kernel import Processor
from sterna.te import Tensor
from sterna.tir import dot2, fold2
from sterna.tir.ir_builder import BufferVar, IRBuilder


def depthwise_by_pairs(call: Call, processor: Processor) -> RelayExpr | None:
    """Unsigned bytes by weights with a sign, most of which fit."""
    plain = depthwise_weights(call, processor) if processor.prefers_dot2 else None
    data: Any = call.args[0].checked_type
    if plain is None or not data.dtype.is_uint or plain.dtype != np.int8:
        return None
    attrs: Any = call.attrs
    parts = halved(pack_weights(plain, attrs.strides[0], processor.lanes(INT32)))
    return call_of(
        "nn.conv2d_depthwise_pair_dots", call.args[0],
        *(Constant(from_numpy(part)) for part in parts), **depthwise_attrs(attrs, plain.shape[1]),
    )


def halved(packed: Array) -> tuple[Array, Array]:
    """Packed weights in at most two parts, and how many of these each vector of channels has."""
    *_, vectors, lanes, group = packed.shape
    pairs = packed.astype("int32").reshape(-1, vectors, lanes * group // 2, 2)
    fits: Array = np.all(fits_pairs(pairs), axis=(0, 2))
    values = packed.astype("int32")
    first = np.where(fits[:, None, None], values, values >> 1)
    parts = [first] if fits.all() else [first, values - first]
    return np.stack(parts).astype("int8"), np.where(fits, 1, 2).astype("int32")


def _infer(attrs: DepthwiseDotsAttrs, data: Type, weight: Type, parts: Type) -> TensorType:
    w, counts = tensor(weight, "weight", 6), tensor(parts, "parts", 1)
    made = infer_depthwise(attrs, data, TensorType(w.shape[1:], w.dtype))
    if not data.dtype.is_uint or w.dtype != "int8":  # type: ignore[attr-defined]
        raise ValueError("data is uint8 and weight int8")
    if counts.dtype != INT32:
        raise ValueError(f"parts is int32, not {counts.dtype}")
    expect_dim(counts.shape[0], w.shape[3], "parts' vectors of channels")
    return made


def _reference(attrs: DepthwiseDotsAttrs, data: Array, weight: Array, parts: Array) -> Array:
    """The parts that a vector has, together."""
    has = np.arange(len(weight))[:, None] < parts
    total = (weight.astype(np.int32) * has[:, None, None, :, None, None]).sum(axis=0)
    return reference_depthwise(attrs, data, total)


def _macs(
    attrs: DepthwiseDotsAttrs, out: TensorType, data: TensorType, weight: TensorType,
    parts: TensorType,
) -> int:
    batch, height, width, channels = out.concrete_shape
    return batch * height * width * channels * attrs.rows * weight.concrete_shape[2]


def _compute(
    attrs: DepthwiseDotsAttrs, out: TensorType, data: Tensor, weight: Tensor, parts: Tensor
) -> Tensor:
    return _compute_with(attrs, out, None, data, weight, parts)


def _compute_with(
    attrs: DepthwiseDotsAttrs, out: TensorType, epilogue: Epilogue | None, data: Tensor,
    weight: Tensor, parts: Tensor,
) -> Tensor:
    kernel = _PairsKernel(attrs, out, data, weight)

    def write(ib: IRBuilder, buffers: Sequence[BufferVar], finish: Finish | None) -> None:
        first, weights, kernel.parts, result = buffers
        kernel.finish = finish
        kernel.write(ib, first, weights, result)

    name = "T_conv2d_depthwise_pair_dots"
    return extern_with(epilogue, out, (data, weight, parts), write, name, kernel.describe())


class _PairsKernel(DepthwiseKernel):
    """The same loops over one part or two."""

    most_columns = 4
    parts: BufferVar
    number: Expr

    def _products(
        self, ib: IRBuilder, seen: BufferVar, weight: BufferVar, held: BufferVar, left: Expr,
        columns: int, block: Expr, vector: Expr,
    ) -> None:
        with ib.for_range(0, self.parts[block * self.vectors + vector], name="part") as self.number:
            super()._products(ib, seen, weight, held, left, columns, block, vector)

    def _factors(self, weight: BufferVar, at: tuple[Any, ...]) -> Expr:
        return super()._factors(weight, (self.number, *at))

    def _add(self, before: Expr, given: Expr, factors: Expr) -> Expr:
        return fold2(before, dot2(given, factors))


def _case(rows: int, columns: int, step: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(rows)
    plain = rng.integers(-128, 128, (16, rows, columns))
    plain[:8] //= 2
    return halved(pack_weights(plain.astype("int8"), step, 8))


register(OpRecord(
    "nn.conv2d_depthwise_pair_dots",
    inputs=("data", "weight", "parts"),
    attrs=DepthwiseDotsAttrs,
    infer=_infer,
    compute=_compute,
    compute_with=_compute_with,
    reference=_reference,
    macs=_macs,
    pattern=OUT_ELEMWISE_FUSABLE,
    schedule=schedule_as_written,
    mixed_precision="never",
    cases=[
        Case((((1, 5, 10, 16), "uint8"), *_case(3, 3, 1)), {"padding": 1, "border": 7}),
        Case((((2, 6, 5, 16), "uint8"), *_case(3, 3, 2)),
             {"padding": (0, 1, 1, 0), "strides": (2, 2), "border": 3}),
    ],
    doc="A depthwise convolution of bytes in pairs of 16 bits; a vector of channels has one part "
        "of the packed weights or two.",
))
