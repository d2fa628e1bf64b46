"""Tensors by the places and values of some elements: sparse_to_dense, invert_permutation."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import expect_dim, of_kind, same_dtype, tensor
from sterna.op.dynamic import DimsLike, known_dims, length_of, to_static, unknown_shape
from sterna.op.indexing import as_index, dims_of
from sterna.op.statements import filled, loops
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExpr, RelayExprLike, as_expr, const
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.te import Tensor
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder


@attributes
class SparseToDenseAttrs(Attrs):
    """Of sparse_to_dense."""

    output_shape: tuple[Dim, ...]


def _check(rank: int, sparse_indices: Type, sparse_values: Type, default_value: Type) -> TensorType:
    places = of_kind(tensor(sparse_indices, "sparse_indices"), "sparse_indices", "int", "uint")
    values, default = tensor(sparse_values, "sparse_values"), tensor(default_value, "default", 0)
    same_dtype([values, default], ["sparse_values", "default_value"])
    if places.ndim > 2 or values.ndim > 1:
        raise ValueError(
            "sparse_indices has at most 2 dimensions and sparse_values at most 1, not "
            f"{places.ndim} and {values.ndim}"
        )
    if places.ndim < 2 and rank != 1:
        raise ValueError(f"sparse_indices are rows of {rank} numbers, one for each dimension")
    if places.ndim == 2:
        expect_dim(places.shape[1], rank, "the second dimension of sparse_indices")
    if values.ndim == 1:
        count = places.shape[0] if places.ndim else 1
        expect_dim(values.shape[0], count, "the number of sparse_values")
    return values


def _infer(attrs: SparseToDenseAttrs, *kinds: Type) -> TensorType:
    return TensorType(attrs.output_shape, _check(len(attrs.output_shape), *kinds).dtype)


def _compute(
    attrs: SparseToDenseAttrs | None, out: TensorType, sparse_indices: Tensor,
    sparse_values: Tensor, default_value: Tensor, *_: Tensor,
) -> Tensor:
    count = sparse_indices.shape[0] if sparse_indices.ndim else build.const(1)

    def fill(builder: IRBuilder, result: BufferVar, inputs: list[BufferVar]) -> None:
        places, values, default = inputs
        with loops(builder, result.shape) as i:
            result[i] = default[[]]
        with builder.for_range(0, count, name="row") as row:
            own = [[], [row], [row]][sparse_indices.ndim]
            index = [
                builder.let(f"place{axis}", as_index(
                    places[[*own, axis] if sparse_indices.ndim == 2 else own]))
                for axis in range(out.ndim)
            ]
            inside = []
            for place, dim in zip(index, result.shape, strict=True):
                inside += [place >= 0, place < dim]
            with builder.if_scope(t.all(*inside)):
                result[index] = values[[row] if sparse_values.ndim else []]

    return filled(out, [sparse_indices, sparse_values, default_value], fill, "T_sparse_to_dense")


def _dense(shape: Sequence[int], places: Array, values: Array, default: Array) -> Array:
    result = np.full(tuple(shape), default)
    rows = places.astype(np.int64).reshape(-1, len(shape))
    each = np.broadcast_to(values, rows.shape[:1])
    for row, value in zip(rows, each, strict=True):
        if all(0 <= place < dim for place, dim in zip(row, shape, strict=True)):
            result[tuple(row)] = value
    return result


def _sparse_to_dense(
    sparse_indices: RelayExprLike, output_shape: DimsLike, sparse_values: RelayExprLike,
    default_value: RelayExprLike = 0,
) -> Any:
    """A tensor of default_value with sparse_values at some places, one row of indices for each.

    One number of sparse_indices is a place in a vector. Places outside are left out.
    """
    values = as_expr(sparse_values)
    if not isinstance(default_value, RelayExpr):
        kind = values._type
        dtype = kind.dtype if isinstance(kind, TensorType) else None
        default_value = const(default_value, dtype)
    dims = known_dims(output_shape)
    operands = (sparse_indices, values, default_value)
    if dims is None:
        return make("dyn.sparse_to_dense", *operands, output_shape)
    return make("sparse_to_dense", *operands, output_shape=dims)


_DEFAULT = np.array(-1.5, "float32")

register(OpRecord(
    "sparse_to_dense",
    inputs=("sparse_indices", "sparse_values", "default_value"),
    attrs=SparseToDenseAttrs,
    infer=_infer,
    compute=_compute,
    reference=lambda attrs, *arrays: _dense(attrs.output_shape, *arrays),
    builder=_sparse_to_dense,
    pattern=OPAQUE,
    cases=[
        Case((np.array([[0, 1], [2, 2], [9, 0]], "int32"), (3,), _DEFAULT),
             {"output_shape": (3, 4)}),
        Case((np.array([0, 3]), (), _DEFAULT), {"output_shape": (5,)}),
        Case((np.array(1), ((1,), "int8"), np.array(0, "int8")), {"output_shape": (2,)}),
    ],
    doc=_sparse_to_dense.__doc__ or "",
))


def _infer_dyn(attrs: None, *kinds: Type) -> TensorType:
    rank = length_of(kinds[3], "output_shape")
    return TensorType(unknown_shape(rank), _check(rank, *kinds[:3]).dtype)


register(OpRecord(
    "dyn.sparse_to_dense",
    inputs=("sparse_indices", "sparse_values", "default_value", "output_shape"),
    infer=_infer_dyn,
    compute=_compute,
    reference=lambda attrs, places, values, default, shape: _dense(
        shape.tolist(), places, values, default),
    to_static=to_static("sparse_to_dense", "output_shape"),
    pattern=OPAQUE,
    cases=[Case((np.array([[0, 1], [2, 2]]), (2,), _DEFAULT, np.array([3, 4])))],
    doc="sparse_to_dense of a shape that is computed.",
))


# ---- permutations ----


def _infer_permutation(attrs: None, data: Type) -> TensorType:
    return of_kind(tensor(data, "data", 1), "data", "int", "uint")


def _compute_permutation(attrs: None, out: TensorType, data: Tensor) -> Tensor:
    (dim,) = dims_of(data)

    def fill(builder: IRBuilder, result: BufferVar, inputs: list[BufferVar]) -> None:
        with builder.for_range(0, dim, name="row") as row:
            result[row] = build.const(0, out.dtype)
        with builder.for_range(0, dim, name="row") as row:
            place = builder.let("place", as_index(inputs[0][row]))
            with builder.if_scope(t.all(place >= 0, place < dim)):
                result[place] = build.cast(out.dtype, row)

    return filled(out, [data], fill, "T_invert_permutation")


def _inverted(attrs: None, data: Array) -> Array:
    result = np.zeros_like(data)
    result[data.astype(np.int64)] = np.arange(data.size, dtype=data.dtype)
    return result


register(OpRecord(
    "invert_permutation",
    inputs=("data",),
    infer=_infer_permutation,
    compute=_compute_permutation,
    reference=_inverted,
    pattern=OPAQUE,
    cases=[Case((np.array([3, 4, 0, 2, 1], "int32"),)), Case((np.array([0]),))],
    doc="For a vector of the numbers from 0 on in any order, the place of each of them.",
))
