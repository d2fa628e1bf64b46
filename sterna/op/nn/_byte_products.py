"""Batched products of dequantised bytes, as products of the bytes themselves.

    nn.batch_matmul(qnn.dequantize(%x), qnn.dequantize(%y))
        ->  the scales times (nn.batch_matmul(%x, %y, out_dtype="int32") less what zeros added)

Where dot products of bytes compute it: schedule/packed_operand.py says how %y lies for them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sterna.op.dynamic import tensor_type
from sterna.op.nn._matrix_shape import matrix_contraction
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.expr import Call, Constant, RelayExpr, const
from sterna.relay.layout import layout_of
from sterna.relay.op import call as call_of
from sterna.relay.op import is_call_of
from sterna.schedule.choose import deciding
from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import INT32, bytes_missing
from sterna.schedule.expression import Expression
from sterna.schedule.kernel import Processor
from sterna.schedule.packed_operand import operand_packing, would_pack
from sterna.target import Target, instructions_of, processor_of

if TYPE_CHECKING:
    from sterna.op.nn.dense import BatchMatmulAttrs

BYTES = ("int8", "uint8")
# Sums of so many products of bytes, less what zero points added, stay in 32 bits.
DEEPEST = 1 << 14
# Columns of the narrowest vectors of dot products.
WHOLE_COLUMNS = 16
# Sums of fewer products spend more on zero points than they save.
LEAST_DEPTH = 16


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

    def widen(self, axis: int, more: int) -> None:
        """More of them behind along an axis, which stand for zero."""
        kind = tensor_type(self.data)
        if more:
            width = [(0, more if place == axis % kind.ndim else 0) for place in range(kind.ndim)]
            zero = const(self.zero, str(kind.dtype))
            self.data = call_of("nn.pad", self.data, zero, pad_width=tuple(width))


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
    sums = _sums_of_bytes(a, b, attrs.transpose_b, target)
    if sums is None:
        return None
    factor = (a.scale * b.scale).astype("float32").reshape(())
    result: RelayExpr = call_of("qnn.dequantize", sums, const(factor), const(0))
    return result


def of_bytes(
    data: RelayExpr, weight: RelayExpr, zeros: tuple[int, int], turned: bool, target: Target
) -> RelayExpr | None:
    """A product of bytes less their zero points, by dot products where the run knows both.

    Bytes of other signs, sums that are not of groups of four and columns that fill no vectors are
    made what instructions take.
    """
    kinds = [tensor_type(each) for each in (data, weight)]
    if not all(kind.is_static and kind.ndim > 1 and 0 not in kind.shape for kind in kinds):
        return None
    if instructions_of(target).dot4 is None or any(kind.dtype not in BYTES for kind in kinds):
        return None
    one = np.ones((), "float32")
    a, b = _Operand(data, one, zeros[0]), _Operand(weight, one, zeros[1])
    depth, columns = kinds[1].concrete_shape[-2:][:: -1 if turned else 1]
    missing = bytes_missing(depth, processor_of(target))
    a.widen(-1, missing)
    b.widen(-1 if turned else -2, missing)
    b.widen(-2 if turned else -1, -columns % WHOLE_COLUMNS)
    sums = _sums_of_bytes(a, b, turned, target)
    if sums is None or columns % WHOLE_COLUMNS == 0:
        return sums
    return call_of("strided_slice", sums, begin=(0,), end=(columns,), axes=(-1,))


def _sums_of_bytes(
    a: _Operand, b: _Operand, transpose_b: bool, target: Target
) -> RelayExpr | None:
    """Sums of products less zero points; None if no dot products give them."""
    dots = instructions_of(target).dot4
    assert dots is not None
    own = str(tensor_type(a.data).dtype)
    a.as_type(own if own in dots.data_types else dots.data_types[0])
    b.data, turned = _untransposed(b.data, transpose_b)
    b.as_type("int8")
    made = _products(a.data, b.data, turned).of_one_matrix
    if not LEAST_DEPTH <= made.inputs <= DEEPEST or not would_pack(made, processor_of(target)):
        return None
    sums = call_of(
        "nn.batch_matmul", a.data, b.data, out_dtype=INT32, transpose_a=False, transpose_b=turned)
    if b.zero:
        of_rows = _sums(a.data, -1)
        sums = call_of("subtract", sums, call_of("multiply", of_rows, const(b.zero)))
    if a.zero:
        of_columns = call_of("multiply", _sums(b.data, -1 if turned else -2), const(a.zero))
        if turned:
            *outer, last, _ = tensor_type(b.data).concrete_shape
            of_columns = call_of("reshape", of_columns, newshape=(*outer, 1, last))
        if b.zero:
            of_columns = call_of("subtract", of_columns, const(made.inputs * a.zero * b.zero))
        sums = call_of("subtract", sums, of_columns)
    return sums


def implement(call: Call, processor: Processor, growth: float) -> RelayExpr | None:
    """A product of bytes with its second operand packed; None where it runs best as it lies."""
    attrs: BatchMatmulAttrs = call.attrs  # type: ignore[assignment]
    kinds = [tensor_type(arg) for arg in call.args]
    is_known = isinstance(call.args[1], Constant) or not all(kind.is_static for kind in kinds)
    if attrs.implementation or attrs.transpose_a or is_known or attrs.out_dtype != INT32:
        return None
    data, operand = call.args
    made = _products(data, operand, attrs.transpose_b)
    with deciding(str(made)):
        plan = operand_packing(made.of_one_matrix, processor)
    if plan is None:
        return None
    packed = _packed(operand, Expression.of(plan), attrs.transpose_b)
    return Call(call.op, (data, packed), attrs.replace(implementation=str(plan)))


def _products(a: RelayExpr, b: RelayExpr, turned: bool) -> Contraction:
    """What is multiplied, of known extents."""
    made = matrix_contraction(tensor_type(a), tensor_type(b), INT32, (False, turned))
    assert made is not None
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


def _packed(data: RelayExpr, how: Expression, transposed: bool) -> RelayExpr:
    """(..., n, k), or (..., k, n), in blocks: (..., n / 8, k / 4, 8, 4)."""
    *outer, first, last = tensor_type(data).concrete_shape
    layout = layout_of(how.weights)
    width, group = layout.factor_of("O"), layout.factor_of("I")
    batch = tuple(range(len(outer)))
    if transposed:
        shape, order = (first // width, width, last // group, group), (0, 2, 1, 3)
    else:
        shape, order = (first // group, group, last // width, width), (2, 0, 3, 1)
    cut = call_of("reshape", data, newshape=(*outer, *shape))
    made: RelayExpr = call_of("transpose", cut, axes=(*batch, *(len(outer) + n for n in order)))
    return made
