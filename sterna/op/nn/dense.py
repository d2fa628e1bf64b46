"""Products of matrices: dense, matmul, batch_matmul."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from sterna.arith import Analyzer
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, Type, as_dim
from sterna.op.checks import at_least, broadcast_shapes, expect_dim, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.integer_rules import multiplied
from sterna.op.nn._attention_pattern import as_attention
from sterna.op.nn._byte_products import implement as implement_bytes
from sterna.op.nn._byte_products import of_dequantised
from sterna.op.nn._few_columns import with_whole_columns
from sterna.op.nn._matrix_shape import matrix, matrix_contraction
from sterna.op.nn._moved_columns import as_data_lies
from sterna.op.nn._narrow_floats import in_float32
from sterna.op.nn._one_column import one_column_each, one_unit, outer_product
from sterna.op.nn._padded_bytes import with_whole_dots
from sterna.op.nn._padded_channels import with_whole_units
from sterna.op.nn._rows_of_weights import as_they_lie, by_rows
from sterna.op.nn._transposed_operand import as_it_lies, weight_as_it_lies
from sterna.op.windows import simple_index
from sterna.relay.arrays import Array, numpy_dtype, shared_numpy
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.layout import Layout, expect_axes, layout_of, to_plain
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, ContractionRules, OpRecord, register
from sterna.relay.op import call as call_of
from sterna.relay.passes.combine_parallel import ParallelRule
from sterna.relay.passes.fold_scale_axis import ScaleRule
from sterna.schedule.blocked_gemm import schedule_product
from sterna.schedule.chunked_sum import Places, sum_products
from sterna.schedule.contraction import Contraction
from sterna.schedule.epilogue import Epilogue
from sterna.schedule.gemm import schedule_contraction
from sterna.schedule.implementation import (
    best_candidate,
    compute_packed,
    expect_packed,
    packed_operands,
    unpacked,
)
from sterna.schedule.kernel import Processor
from sterna.schedule.packed import expression_of
from sterna.schedule.products import AS_DATA, narrowed, result_dtype, widened
from sterna.schedule.sum_of_products import DIRECT
from sterna.support.dtype import DataType
from sterna.te import Tensor
from sterna.te.operation import read_broadcast


@attributes
class DenseAttrs(Attrs):
    """Of nn.dense."""

    units: int | None = None
    out_dtype: DataType = AS_DATA
    implementation: str = ""
    """The plan that weights are packed for; units tells how many there are."""


@attributes
class MatmulAttrs(Attrs):
    """Of nn.matmul."""

    units: int | None = None
    out_dtype: DataType = AS_DATA
    transpose_a: bool = False
    transpose_b: bool = False


@attributes
class BatchMatmulAttrs(Attrs):
    """Of nn.batch_matmul."""

    out_dtype: DataType = AS_DATA
    transpose_a: bool = False
    transpose_b: bool = True
    implementation: str = ""
    """The plan that tensor_b is packed for."""


def _transposed(attrs: Any) -> tuple[bool, bool]:
    if isinstance(attrs, DenseAttrs):
        return False, True
    return attrs.transpose_a, attrs.transpose_b


def dense_contraction(attrs: Any, data: Any, weight: Any) -> Contraction | None:
    """The contraction of rows, pixels of one line; None if more than their number is not known."""
    if not attrs.implementation:
        return matrix_contraction(data, weight, attrs.out_dtype, (False, True))
    # of packed weights the attributes tell the units, and the layout the rest
    plain = TensorType((attrs.units, as_dim(data.shape[-1])), DataType(str(weight.dtype)))
    return matrix_contraction(data, plain, attrs.out_dtype, (False, True))


def _contraction(attrs: Any, data: Any, *weights: Any) -> Contraction | None:
    """That of any product of matrices."""
    if isinstance(attrs, DenseAttrs):
        return dense_contraction(attrs, data, weights[0])
    packed = _packed_layout(attrs) if isinstance(attrs, BatchMatmulAttrs) else None
    return matrix_contraction(data, weights[0], attrs.out_dtype, _transposed(attrs), packed)


def _ranges(indices: Sequence[Expr], out: TensorType) -> Analyzer:
    ranges = Analyzer()
    for index, extent in zip(indices, out.shape, strict=True):
        ranges.bind(index, 0, extent)  # type: ignore[arg-type]
    return ranges


def _infer_dense(attrs: DenseAttrs, data: Type, *weights: Type) -> TensorType:
    if not attrs.implementation:
        return _infer_weight(attrs, ("data", "weight"), data, *weights)
    x, w = at_least(data, "data", 2), tensor(weights[0], "weight")
    if attrs.units is None:
        raise ValueError("with an implementation, units is needed too")
    expect_packed(attrs, dense_contraction(attrs, x, w), weights)
    return TensorType((*x.shape[:-1], attrs.units), DataType(attrs.out_dtype or x.dtype))


def _infer_weight(attrs: Any, names: tuple[str, str], data: Type, weight: Type) -> TensorType:
    turned, weight_turned = _transposed(attrs)
    a = at_least(data, names[0], 2 if turned else 1)
    b = tensor(weight, names[1], 2)
    rows, depth = matrix(a.shape, turned)
    deep, columns = matrix(b.shape, weight_turned)
    expect_dim(deep, depth, f"the inner dimension of {names[1]}")
    if attrs.units is not None:
        expect_dim(columns, attrs.units, f"{names[1]}'s number of units")
    outer = a.shape[:-1] if not turned else (*a.shape[:-2], rows)
    return TensorType((*outer, columns), result_dtype(attrs.out_dtype, a, b, names[1]))


def _infer_batch(attrs: BatchMatmulAttrs, tensor_a: Type, tensor_b: Type) -> TensorType:
    a = at_least(tensor_a, "tensor_a", 2)
    packed = _packed_layout(attrs)
    b = at_least(tensor_b, "tensor_b", len(packed) if packed else 2)
    rows, depth = matrix(a.shape, attrs.transpose_a)
    deep, columns = matrix(b.shape, attrs.transpose_b)
    outer = b.shape[:-2]
    if packed:
        extents = packed.dims(b.shape[-len(packed) :])
        deep, columns, outer = extents["I"], extents["O"], b.shape[: -len(packed)]
    expect_dim(deep, depth, "the inner dimension of tensor_b")
    batch = broadcast_shapes(a.shape[:-2], outer)
    dtype = result_dtype(attrs.out_dtype, a, b, "tensor_b")
    return TensorType((*batch, rows, columns), dtype)


def _packed_layout(attrs: BatchMatmulAttrs) -> Layout | None:
    """How the matrices of tensor_b lie; None if they are not packed."""
    how = expression_of(attrs)
    if how is None or how.chunk or how.flat or how.schedule != DIRECT:
        raise ValueError(f"nn.batch_matmul has no implementation '{attrs.implementation}'")
    return expect_axes(layout_of(how.weights), "OI", "weights") if how.weights else None


def _complete(attrs: Any, data: Type | None, weight: Type | None) -> list[Type | None]:
    if weight is None and attrs.units is not None and isinstance(data, TensorType) and data.ndim:
        turned, weight_turned = _transposed(attrs)
        depth = matrix(data.shape, turned)[1]
        shape = (attrs.units, depth) if weight_turned else (depth, attrs.units)
        weight = TensorType(shape, data.dtype)
    return [data, weight]


def _compute(name: str) -> Any:
    def build(attrs: Any, out: TensorType, a: Tensor, b: Tensor) -> Tensor:
        turned, weight_turned = _transposed(attrs)
        how = expression_of(attrs)
        assert how is not None, "it has no statements of its own"

        def product(i: Places, places: Places, kind: DataType) -> tuple[Any, Any]:
            (k,) = places
            batch, rows = (i[:-2], i[-2:-1]) if a.ndim > 1 else ((), ())
            left = (*batch, k, *rows) if turned else (*batch, *rows, k)
            right = (*batch, i[-1], k) if weight_turned else (*batch, k, i[-1])
            last = 2
            if how.weights:
                packed = layout_of(how.weights)
                places_in = simple_index(packed, {"O": i[-1], "I": k}, _ranges(i, out))
                right, last = (*batch, *places_in), len(packed)
            repeated = out.shape[: len(batch)]
            first = read_broadcast(a, left, (*repeated, *a.shape[-2:])).astype(kind)
            second = read_broadcast(b, right, (*repeated, *b.shape[-last:])).astype(kind)
            return first * second, None

        depth: dict[str, Dim] = {"k": a.shape[-2 if turned else -1]}
        total = sum_products(
            out.shape, depth, how.chunk, product, out.dtype, f"T_{name}",
            contraction=_contraction(attrs, a, b), implementation=how.schedule,
        )
        return narrowed(total, out.dtype, f"T_{name}_cast")

    return build


def _implement(call: Call, processor: Processor, growth: float) -> RelayExpr | None:
    """A dense layer with known weights, packed; None where it runs best as it stands."""
    attrs: Any = call.attrs
    data, weight = call.args[:2]
    if attrs.implementation or not isinstance(weight, Constant):
        return None
    if tensor_type(data).ndim < 2:
        row = call_of("expand_dims", data, axis=0)
        return call_of("squeeze", Call(call.op, (row, weight), attrs), axis=(0,))
    made = dense_contraction(attrs, tensor_type(data), tensor_type(weight))
    if made is None:
        return None
    plain = shared_numpy(weight.data).reshape(made.outputs, 1, 1, made.inputs)
    found = best_candidate(made, plain, processor, growth)
    if found.pack is None:
        return None
    return Call(call.op, packed_operands(found, data, weight), attrs.replace(
        implementation=str(found.plan), units=made.outputs, out_dtype=made.out,
    ))


def _compute_implemented(
    attrs: DenseAttrs, out: TensorType, epilogue: Epilogue | None, data: Tensor, *weights: Tensor
) -> Tensor | None:
    made = dense_contraction(attrs, data, weights[0]) if attrs.implementation else None
    return compute_packed(attrs, made, out, epilogue, data, weights)


def _compute_dense(attrs: DenseAttrs, out: TensorType, data: Tensor, *weights: Tensor) -> Tensor:
    packed = _compute_implemented(attrs, out, None, data, *weights)
    made: Tensor = _compute("dense")(attrs, out, data, *weights) if packed is None else packed
    return made


def _reference_dense(attrs: DenseAttrs, data: Array, *weights: Array) -> Array:
    if not attrs.implementation:
        return _reference(attrs, data, *weights)
    plain = unpacked(attrs, dense_contraction(attrs, data, weights[0]), weights)
    return _reference(attrs.replace(implementation=""), data, plain.reshape(len(plain), -1))


def _reference(attrs: Any, a: Array, b: Array) -> Array:
    dtype = attrs.out_dtype or str(a.dtype)
    turned, weight_turned = _transposed(attrs)
    left, right = widened(a, dtype), widened(b, dtype)
    left = left.swapaxes(-1, -2) if turned else left
    right = right.swapaxes(-1, -2) if weight_turned else right
    product: Array = np.matmul(left, right)
    return product.astype(numpy_dtype(dtype))


def _reference_batch(attrs: BatchMatmulAttrs, a: Array, b: Array) -> Array:
    packed = _packed_layout(attrs)
    if packed is None:
        return _reference(attrs, a, b)
    outer, inner = b.shape[: -len(packed)], b.shape[-len(packed) :]
    plain = np.stack([to_plain(each, packed, "OI") for each in b.reshape(-1, *inner)])
    return _reference(
        attrs.replace(implementation="", transpose_b=True), a,
        plain.reshape(*outer, *plain.shape[-2:]),
    )


def _macs(attrs: Any, out: TensorType, a: TensorType, *b: TensorType) -> int:
    depth = matrix(a.concrete_shape, _transposed(attrs)[0])[1]
    assert isinstance(depth, int)
    return math.prod(out.concrete_shape) * depth


def _of_units(attrs: Any, shape: tuple[int, ...], factors: Array) -> Array:
    return factors[:, None] if _transposed(attrs)[1] else factors[None, :]


def _of_depth(attrs: Any, shape: tuple[int, ...], factors: Array) -> Array:
    return factors[None, :] if _transposed(attrs)[1] else factors[:, None]


_SCALE = ScaleRule(
    result=lambda attrs: -1,
    for_result=_of_units,
    data=lambda attrs: -2 if _transposed(attrs)[0] else -1,
    for_data=_of_depth,
)

_PARALLEL = ParallelRule(
    result=lambda attrs: -1,
    weight=lambda attrs: -2 if _transposed(attrs)[1] else -1,
    joined=lambda attrs, units: attrs.replace(units=units) if "units" in attrs.FIELDS else attrs,
)

register(OpRecord(
    "nn.dense",
    inputs=("data", "weight"),
    attrs=DenseAttrs,
    infer=_infer_dense,
    complete=_complete,
    compute=_compute_dense,
    contraction=ContractionRules(
        describe=_contraction,
        implement=_implement,
        compute_with=_compute_implemented,
        scale=_SCALE,
        parallel=_PARALLEL,
        rows_are_one=True,
        gives_first_columns=lambda attrs: bool(attrs.implementation),  # its weights are packed
        rounds_data=True,
        widen=partial(in_float32, "nn.dense"),
    ),
    reference=_reference_dense,
    macs=_macs,
    integer=multiplied,
    pattern=OUT_ELEMWISE_FUSABLE,
    schedules={"cpu": schedule_product},
    rewrites=[as_data_lies],
    mixed_precision="always",
    legalize=lambda *call: (
        outer_product(*call) or one_unit(*call) or weight_as_it_lies(*call)
        or as_they_lie("nn.dense", *call) or with_whole_units(*call)
        or with_whole_dots("nn.dense", *call)
    ),
    cases=[
        Case(((2, 7), (5, 7)), {"units": 5}),
        Case(((3, 7), (2, 7, 4)), {"units": 8, "implementation": "direct(weights=OI4o)"}),
        Case(((2, 1, 3, 4), (6, 4))),
        Case((((3, 33), "int8"), ((4, 33), "int8")), {"out_dtype": "int32"}),
        Case((((3, 9), "uint8"), ((4, 9), "int8")), {"out_dtype": "int32"}),
        Case((((2, 40), "float16"), ((3, 40), "float16")), tolerance=2e-3),
        Case(((2, 0), (3, 0))),
    ],
    doc="data times the transpose of weight: (..., k) and (units, k) give (..., units).",
))

register(OpRecord(
    "nn.matmul",
    inputs=("tensor_a", "tensor_b"),
    attrs=MatmulAttrs,
    infer=lambda attrs, *kinds: _infer_weight(attrs, ("tensor_a", "tensor_b"), *kinds),
    complete=_complete,
    compute=_compute("matmul"),
    reference=_reference,
    macs=_macs,
    integer=multiplied,
    pattern=OUT_ELEMWISE_FUSABLE,
    schedules={"cpu": schedule_contraction},
    mixed_precision="always",
    contraction=ContractionRules(
        describe=_contraction, scale=_SCALE, parallel=_PARALLEL, rounds_data=True,
        widen=partial(in_float32, "nn.matmul")),
    cases=[
        Case(((4, 3), (3, 5))),
        Case(((3, 4), (5, 3)), {"transpose_a": True, "transpose_b": True, "units": 5}),
        Case(((2, 3, 4), (3, 5)), {"transpose_a": True}),
        Case(((7,), (7, 2))),
        Case((((2, 3), "int64"), ((3, 2), "int64"))),
    ],
    legalize=lambda *call: (
        outer_product(*call) or one_unit(*call) or with_whole_columns("nn.matmul", *call)
        or as_they_lie("nn.matmul", *call) or by_rows(*call)
    ),
    doc="tensor_a times the matrix tensor_b; either may come transposed.",
))

register(OpRecord(
    "nn.batch_matmul",
    inputs=("tensor_a", "tensor_b"),
    attrs=BatchMatmulAttrs,
    infer=_infer_batch,
    compute=_compute("batch_matmul"),
    reference=_reference_batch,
    macs=_macs,
    pattern=OUT_ELEMWISE_FUSABLE,
    schedules={"cpu": schedule_contraction},
    mixed_precision="always",
    contraction=ContractionRules(
        describe=_contraction, implement=implement_bytes, parallel=_PARALLEL, rounds_data=True,
        widen=partial(in_float32, "nn.batch_matmul")),
    legalize=lambda *call: (
        outer_product(*call) or one_column_each(*call) or of_dequantised(*call)
        or as_attention(*call) or as_it_lies(*call) or as_they_lie("nn.batch_matmul", *call)
        or with_whole_columns("nn.batch_matmul", *call)
    ),
    cases=[
        Case(((2, 3, 4), (2, 5, 4))),
        Case(((2, 4, 3), (1, 4, 5)), {"transpose_a": True, "transpose_b": False}),
        Case(((2, 1, 3, 4), (3, 5, 4))),
        Case((((2, 3, 8), "int8"), ((2, 2, 8), "int8")), {"out_dtype": "int32"}),
        Case((((2, 9, 20), "int8"), ((2, 3, 5, 8, 4), "int8")),
             {"out_dtype": "int32", "implementation": "direct(weights=OI8o4i)"}),
        Case((((2, 1, 3, 16), "uint8"), ((3, 2, 4, 12, 4), "int8")),
             {"out_dtype": "int32", "implementation": "direct(weights=OI12o4i)"}),
        Case((((1, 2, 5), "bfloat16"), ((1, 3, 5), "bfloat16")), tolerance=1e-2),
    ],
    doc="Matrices times matrices, one product per place of the dimensions before the last two.",
))
