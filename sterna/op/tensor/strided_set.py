"""A part of a tensor replaced."""

from typing import Any

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import expect_dim, same_dtype, tensor
from sterna.op.dynamic import DimsLike, known_dims
from sterna.op.indexing import dims_of
from sterna.op.tensor.slice import StridedSliceAttrs, first_of, infer_slice, slices_of
from sterna.relay.arrays import Array
from sterna.relay.builders import make
from sterna.relay.expr import RelayExprLike
from sterna.relay.op import INJECTIVE, Case, OpRecord, register
from sterna.te import Tensor, compute
from sterna.tir import op as t


def _strided_set(
    data: RelayExprLike, v: RelayExprLike, begin: DimsLike, end: DimsLike,
    strides: DimsLike | None = None,
) -> Any:
    """data with the part from begin to end, every so many elements, replaced by v."""
    given = {"begin": begin, "end": end, "strides": strides if strides is not None else 1}
    numbers = {name: known_dims(value) for name, value in given.items()}
    for name, value in numbers.items():
        if value is None:
            raise ValueError(f"strided_set: {name} is not known before the run; give numbers")
    return make("strided_set", data, v, **numbers)


def _infer_set(attrs: StridedSliceAttrs, data: Type, v: Type) -> TensorType:
    kind, part = tensor(data, "data"), tensor(v, "v")
    same_dtype([kind, part], ["data", "v"])
    wanted = infer_slice(attrs, kind)
    tensor(part, "v", kind.ndim)
    for axis, (have, want) in enumerate(zip(part.shape, wanted.shape, strict=True)):
        expect_dim(have, want, f"dimension {axis} of v")
    return kind


def _compute_set(attrs: StridedSliceAttrs, out: TensorType, data: Tensor, v: Tensor) -> Tensor:
    parts = slices_of(attrs, data.ndim)
    dims = dims_of(data)

    def element(*i: Expr) -> Expr:
        inside, own = [], list(i)
        for axis, part in parts.items():
            step = part.step or 1
            distance = (i[axis] - first_of(dims[axis], part)) * (1 if step > 0 else -1)
            own[axis] = distance // abs(step)
            inside += [distance >= 0, own[axis] < v.shape[axis]]
            inside += [distance % abs(step) == 0] if abs(step) > 1 else []
        return build.if_then_else(t.all(*inside), v(*own), data(*i))

    made: Tensor = compute(out.shape, element, name="T_strided_set")
    return made


def _set_reference(attrs: StridedSliceAttrs, data: Array, v: Array) -> Array:
    result = data.copy()
    parts = slices_of(attrs, data.ndim)
    result[tuple(parts.get(axis, slice(None)) for axis in range(data.ndim))] = v
    return result


register(OpRecord(
    "strided_set",
    inputs=("data", "v"),
    attrs=StridedSliceAttrs,
    infer=_infer_set,
    compute=_compute_set,
    reference=_set_reference,
    builder=_strided_set,
    pattern=INJECTIVE,
    cases=[
        Case(((4, 7), (2, 3)), {"begin": (1, 0), "end": (3, 7), "strides": (1, 3)}),
        Case(((4, 7), (4, 3)), {"begin": (0, -1), "end": (9, 1), "strides": (1, -2)}),
        Case((((5,), "int8"), ((0,), "int8")), {"begin": (3,), "end": (1,)}),
    ],
    doc=_strided_set.__doc__ or "",
))
