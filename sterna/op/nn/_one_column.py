"""Products with a single column, and sums of a single product.

    nn.matmul(%a, %b), %b of one column  ->  reshape(nn.dense(reshape(%b), %a))
    nn.matmul(%a, %b), %b of one row     ->  multiply(%a, %b)

A column has no vectors of its own: a matrix times a vector (GEMV) becomes a row times the matrix,
whose rows are read once, by dot products. An outer product has no sum.
"""

import math
from typing import TYPE_CHECKING

from sterna.ir.types import TensorType
from sterna.op.dynamic import tensor_type
from sterna.relay.expr import RelayExpr
from sterna.relay.op import call
from sterna.support.dtype import DataType
from sterna.target import Target

if TYPE_CHECKING:
    from sterna.op.nn.dense import BatchMatmulAttrs, DenseAttrs, MatmulAttrs

FLOATS = ("float32", "float64")


def one_unit(
    attrs: "DenseAttrs | MatmulAttrs", args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """A dense layer or product of one column as a row times the matrix."""
    a, b = (tensor_type(arg) for arg in args)
    if getattr(attrs, "transpose_a", False) or getattr(attrs, "implementation", ""):
        return None
    if not _is_column(attrs.out_dtype, a, b) or math.prod(b.concrete_shape) != a.concrete_shape[-1]:
        return None
    *outer, depth = a.concrete_shape
    rows = math.prod(outer)
    if rows <= 1 or depth == 0:
        return None
    row = call("reshape", args[1], newshape=(1, depth))
    matrix = call("reshape", args[0], newshape=(rows, depth)) if len(outer) > 1 else args[0]
    made = call("nn.dense", row, matrix, units=rows)
    return call("reshape", made, newshape=(*outer, 1))


def one_column_each(
    attrs: "BatchMatmulAttrs", args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """Products of one column each as rows times matrices."""
    a, b = (tensor_type(arg) for arg in args)
    if attrs.transpose_a or not _is_column(attrs.out_dtype, a, b):
        return None
    *batch, rows, depth = a.concrete_shape
    columns = b.concrete_shape[-2 if attrs.transpose_b else -1]
    if columns != 1 or rows <= 1 or depth == 0 or tuple(b.concrete_shape[:-2]) != tuple(batch):
        return None
    row = call("reshape", args[1], newshape=(*batch, 1, depth))
    made = call("nn.batch_matmul", row, args[0], transpose_b=True)
    return call("reshape", made, newshape=(*batch, rows, 1))


def outer_product(
    attrs: "DenseAttrs | MatmulAttrs | BatchMatmulAttrs", args: tuple[RelayExpr, ...],
    target: Target | None,
) -> RelayExpr | None:
    """A product whose sums have one term each: all pairs of a column and a row."""
    a, b = (tensor_type(arg) for arg in args)
    if getattr(attrs, "implementation", "") or not _is_column(attrs.out_dtype, a, b):
        return None
    *batch, rows, depth = a.concrete_shape
    if getattr(attrs, "transpose_a", False):
        rows, depth = depth, rows
    others, columns = b.concrete_shape[:-2], math.prod(b.concrete_shape[-2:])
    if depth != 1 or rows == 1 or columns <= 1:
        return None
    column = call("reshape", args[0], newshape=(*batch, rows, 1))
    row = call("reshape", args[1], newshape=(*others, 1, columns))
    made: RelayExpr = call("multiply", column, row)
    return made


def _is_column(out_dtype: DataType, *kinds: TensorType) -> bool:
    static = all(kind.is_static and kind.ndim >= 2 for kind in kinds)
    names = {str(kind.dtype) for kind in kinds}
    return static and len(names) == 1 and names <= {*FLOATS} and str(out_dtype) in ("", *names)
