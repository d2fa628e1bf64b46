"""Batched products of bytes by dot products, with an operand that only the run knows.

    nn.batch_matmul(qnn.dequantize(%x), qnn.dequantize(%y))
        ->  the scales times (nn.packed_batch_matmul(%x, packed %y) less what zero points added)

Instructions add four products of bytes in each lane of a vector. Constant weights are packed for
them when a model is compiled; here the graph does it: what makes %y stores it so.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sterna.ir.types import TensorType, Type
from sterna.op.checks import at_least, broadcast_shapes, expect_dim
from sterna.op.dynamic import tensor_type
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.expr import Call, Constant, RelayExpr, const
from sterna.relay.op import (
    OUT_ELEMWISE_FUSABLE,
    Case,
    ContractionRules,
    OpRecord,
    is_call_of,
    register,
)
from sterna.relay.op import call as call_of
from sterna.schedule.chunked_sum import Places, sum_products
from sterna.schedule.dot4 import GROUP, INT32, dot_width
from sterna.schedule.gemm import schedule_contraction
from sterna.support.dtype import DataType
from sterna.target import Target, instructions_of, processor_of
from sterna.te import Tensor
from sterna.te.operation import read_broadcast

if TYPE_CHECKING:
    from sterna.op.nn.dense import BatchMatmulAttrs

BYTES = ("int8", "uint8")
# Sums of so many products of bytes, less what zero points added, stay in 32 bits.
DEEPEST = 1 << 14
# Smaller products spend more on packing than they save.
LEAST_ROWS, LEAST_DEPTH = 8, 16


def _infer(attrs: None, data: Type, packed: Type) -> TensorType:
    a, b = at_least(data, "data", 2), at_least(packed, "packed", 4)
    *batch, blocks, groups, width, four = b.shape
    expect_dim(four, GROUP, "the last dimension of packed")
    expect_dim(groups * GROUP, a.shape[-1], "the summed dimension of packed")
    for kind, name, allowed in ((a, "data", BYTES), (b, "packed", ("int8",))):
        if kind.dtype not in allowed:
            raise ValueError(f"{name} is {' or '.join(allowed)}, not {kind.dtype}")
    outer = broadcast_shapes(a.shape[:-2], tuple(batch))
    return TensorType((*outer, a.shape[-2], blocks * width), INT32)


def _compute(attrs: None, out: TensorType, a: Tensor, b: Tensor) -> Tensor:
    width = b.shape[-2]

    def product(i: Places, places: Places, kind: DataType) -> tuple[Any, Any]:
        (k,) = places
        *batch, row, column = i
        repeated = out.shape[:-2]
        first = read_broadcast(a, (*batch, row, k), (*repeated, *a.shape[-2:]))
        at = (*batch, column // width, k // GROUP, column % width, k % GROUP)
        second = read_broadcast(b, at, (*repeated, *b.shape[-4:]))
        return first.astype(kind) * second.astype(kind), None

    made: Tensor = sum_products(out.shape, {"k": a.shape[-1]}, 0, product, INT32, "T_packed")
    return made


def _reference(attrs: None, a: Array, b: Array) -> Array:
    *batch, blocks, groups, width, _ = b.shape
    plain = b.swapaxes(-3, -2).reshape(*batch, blocks * width, groups * GROUP)
    made: Array = np.matmul(a.astype(np.int32), plain.astype(np.int32).swapaxes(-1, -2))
    return made


register(OpRecord(
    "nn.packed_batch_matmul",
    inputs=("data", "packed"),
    infer=_infer,
    compute=_compute,
    reference=_reference,
    macs=lambda attrs, out, a, b: math.prod(out.concrete_shape) * a.concrete_shape[-1],
    pattern=OUT_ELEMWISE_FUSABLE,
    schedules={"cpu": schedule_contraction},
    mixed_precision="never",
    contraction=ContractionRules(),
    cases=[
        Case((((2, 9, 20), "int8"), ((2, 3, 5, 8, 4), "int8"))),
        Case((((5, 8), "uint8"), ((1, 2, 4, 4), "int8"))),
        Case((((2, 1, 3, 16), "int8"), ((3, 2, 4, 12, 4), "int8"))),
    ],
    doc="data (..., m, k) times packed (..., n / w, k / 4, w, 4): bytes, summed in 32 bits.",
))


@dataclass(slots=True)
class _Operand:
    """An operand of a product: bytes that stand for scale * (byte - zero)."""

    data: RelayExpr
    scale: Array
    zero: int

    def as_type(self, dtype: str) -> None:
        """The same numbers as bytes of this sign: all of them and their zero point move by 128."""
        own = tensor_type(self.data).dtype
        if own == dtype:
            return
        step = -128 if dtype == "int8" else 128
        moved = call_of("add", call_of("cast", self.data, dtype="int16"), const(step, "int16"))
        self.data, self.zero = call_of("cast", moved, dtype=dtype), self.zero + step


def _operand(expr: RelayExpr) -> _Operand | None:
    """What was dequantised by one scale and one zero point that are known."""
    if not is_call_of(expr, "qnn.dequantize") or not tensor_type(expr).is_static:
        return None
    assert isinstance(expr, Call)
    data, *parameters = expr.args
    if tensor_type(data).dtype not in BYTES or tensor_type(expr).dtype != "float32":
        return None
    known = [to_numpy(each.data) for each in parameters if isinstance(each, Constant)]
    if [each.size for each in known] != [1, 1]:
        return None
    return _Operand(data, known[0], int(known[1].reshape(-1)[0]))


def of_dequantised(
    attrs: "BatchMatmulAttrs", args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """A product of dequantised bytes as one of bytes, on processors with dot products of them."""
    if target is None or not target.kind.picks_instructions or attrs.transpose_a:
        return None
    dots = instructions_of(target).dot4
    a, b = map(_operand, args)
    if dots is None or a is None or b is None or attrs.out_dtype:
        return None
    own = str(tensor_type(a.data).dtype)
    a.as_type(own if own in dots.data_types else dots.data_types[0])
    b.data, turned = _untransposed(b.data, attrs.transpose_b)
    b.as_type("int8")
    *_, rows, depth = tensor_type(a.data).concrete_shape
    columns = tensor_type(b.data).concrete_shape[-2 if turned else -1]
    width = dot_width(rows, columns, depth, processor_of(target))
    if width is None or rows < LEAST_ROWS or not LEAST_DEPTH <= depth <= DEEPEST:
        return None
    sums = call_of("nn.packed_batch_matmul", a.data, _packed(b.data, width, turned))
    if b.zero:
        of_rows = _sums(a.data, -1)
        sums = call_of("subtract", sums, call_of("multiply", of_rows, const(b.zero)))
    if a.zero:
        of_columns = call_of("multiply", _sums(b.data, -1 if turned else -2), const(a.zero))
        if turned:
            *outer, last, _ = tensor_type(b.data).concrete_shape
            of_columns = call_of("reshape", of_columns, newshape=(*outer, 1, last))
        if b.zero:
            of_columns = call_of("subtract", of_columns, const(depth * a.zero * b.zero))
        sums = call_of("subtract", sums, of_columns)
    factor = (a.scale * b.scale).astype("float32").reshape(())
    made: RelayExpr = call_of("qnn.dequantize", sums, const(factor), const(0))
    return made


def _untransposed(data: RelayExpr, turned: bool) -> tuple[RelayExpr, bool]:
    """Matrices as they lie, and whether their columns are rows there."""
    last = tensor_type(data).ndim - 1
    if not is_call_of(data, "transpose"):
        return data, turned
    assert isinstance(data, Call)
    order = [axis % (last + 1) for axis in data.attrs.axes or range(last, -1, -1)]  # type: ignore[union-attr]
    swapped = order == [*range(last - 1), last, last - 1]
    return (data.args[0], not turned) if swapped else (data, turned)


def _sums(data: RelayExpr, axis: int) -> RelayExpr:
    made: RelayExpr = call_of("sum", call_of("cast", data, dtype=INT32), axis=axis, keepdims=True)
    return made


def _packed(data: RelayExpr, width: int, transposed: bool) -> RelayExpr:
    """(..., n, k), or (..., k, n), as (..., n / width, k / 4, width, 4)."""
    *outer, first, last = tensor_type(data).concrete_shape
    batch = tuple(range(len(outer)))
    if transposed:
        shape, order = (first // width, width, last // GROUP, GROUP), (0, 2, 1, 3)
    else:
        shape, order = (first // GROUP, GROUP, last // width, width), (2, 0, 3, 1)
    cut = call_of("reshape", data, newshape=(*outer, *shape))
    made: RelayExpr = call_of("transpose", cut, axes=(*batch, *(len(outer) + n for n in order)))
    return made
