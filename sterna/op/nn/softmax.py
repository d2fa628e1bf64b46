"""softmax, log_softmax, fast_softmax, hardmax, along any axis.

The largest element is subtracted before exp, so that nothing overflows.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.ir.build import bind, cast, equal, logical_or
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import axis_of, of_kind, tensor
from sterna.op.largest import largest
from sterna.op.rows import Rows
from sterna.op.tensor.unary import EXP_INSTRUCTIONS, INVERSE_INSTRUCTIONS
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import RelayExpr
from sterna.relay.layout_rules import along_axis
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, call, register
from sterna.schedule.exponential import with_quick_exp
from sterna.schedule.kernel import Kernel
from sterna.schedule.products import narrowed, wide, widened
from sterna.schedule.rows_in_cache import schedule_rows
from sterna.te import Tensor, compute, exp, isnan, log, max_value, select
from sterna.te import max as te_max
from sterna.te import min as te_min
from sterna.te import sum as te_sum


@attributes
class SoftmaxAttrs(Attrs):
    """Of the functions along one axis."""

    axis: int = -1


@attributes
class StepwiseSoftmaxAttrs(SoftmaxAttrs):
    """Of softmax: stepwise rounds every step to the type of the data, as ONNX's own body does."""

    stepwise: bool = False


def _infer(attrs: SoftmaxAttrs, data: Type) -> TensorType:
    kind = of_kind(tensor(data, "data"), "data", "float")
    axis_of(attrs.axis, kind.ndim)
    return kind


def _infer_hardmax(attrs: SoftmaxAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    axis_of(attrs.axis, kind.ndim)
    return kind


def _is_stepwise(attrs: SoftmaxAttrs) -> bool:
    return isinstance(attrs, StepwiseSoftmaxAttrs) and attrs.stepwise


def _rounding(attrs: SoftmaxAttrs, dtype: Any) -> Callable[[Any], Any]:
    """What becomes of each step's number: that of the data's type if steps are rounded."""
    if not _is_stepwise(attrs) or wide(dtype) == dtype:
        return lambda number: number
    return lambda number: number.astype(dtype).astype(wide(dtype))


def _shifted(rows: Rows, name: str) -> Any:
    """Elements, less the largest of their row, in the type that is computed in."""
    dtype = wide(rows.data.dtype)
    largest = rows.reduced(te_max, lambda i: rows.data(*i), f"{name}_maxelem")
    return lambda i: rows.data(*i).astype(dtype) - largest(*rows.row(i)).astype(dtype)


def _schedule(kernel: Kernel) -> None:
    """Rows while they are in the cache, with powers of numbers that are not above 0."""
    for stage in kernel.schedule.stages:
        if stage.op.name.endswith(_POWERS):
            kernel.schedule.rewrite_stage(stage, with_quick_exp)
    schedule_rows(kernel)


_POWERS = ("softmax_exp", "softmax_expsum")


def _compute_softmax(name: str, reciprocal: bool) -> Any:
    def build(attrs: SoftmaxAttrs, out: TensorType, data: Tensor) -> Tensor:
        rows = Rows(data, [axis_of(attrs.axis, data.ndim)])
        shifted, rounded = _shifted(rows, name), _rounding(attrs, data.dtype)
        power = compute(
            out.shape, lambda *i: rounded(exp(rounded(shifted(i)))), name=f"{name}_exp"
        )
        total = rows.reduced(te_sum, lambda i: power(*i), f"{name}_expsum")
        inverse = compute(total.shape, lambda *i: 1.0 / rounded(total(*i)), name=f"{name}_factor")
        is_rounded = wide(data.dtype) != data.dtype and not _is_stepwise(attrs)

        def share(*i: Expr) -> Any:
            """A part of the whole, without a division for each: what is missing comes after."""
            whole, factor = rounded(total(*rows.row(i))), inverse(*rows.row(i))
            if reciprocal or is_rounded:
                return power(*i) * factor
            return bind(power(*i), lambda part: bind(
                part * factor, lambda near: near + (part - near * whole) * factor))

        result = compute(out.shape, share, name=f"{name}_norm")
        return narrowed(result, out.dtype, f"{name}_cast")

    return build


def _compute_log(attrs: SoftmaxAttrs, out: TensorType, data: Tensor) -> Tensor:
    name = "T_log_softmax"
    rows = Rows(data, [axis_of(attrs.axis, data.ndim)])
    shifted = _shifted(rows, name)
    total = rows.reduced(te_sum, lambda i: exp(shifted(i)), f"{name}_expsum")
    logs = compute(total.shape, lambda *i: log(total(*i)), name=f"{name}_log")
    result = compute(out.shape, lambda *i: shifted(i) - logs(*rows.row(i)), name=f"{name}_norm")
    return narrowed(result, out.dtype, f"{name}_cast")


def _compute_hardmax(attrs: SoftmaxAttrs, out: TensorType, data: Tensor) -> Tensor:
    """The largest of each row, then its first place: two reductions of numbers are vectors."""
    rows, name = Rows(data, [axis_of(attrs.axis, data.ndim)]), "T_hardmax"
    top = rows.reduced(largest, lambda i: data(*i), f"{name}_maxelem")

    def place_of(i: Any) -> Any:
        is_top = equal(data(*i), top(*rows.row(i)))
        if data.dtype.is_float:  # one that is no number is the largest, and equals nothing
            is_top = logical_or(is_top, isnan(data(*i)))
        return select(is_top, cast("int32", i[rows.axes[0]]), max_value("int32"))

    first = rows.reduced(te_min, place_of, f"{name}_place")
    made: Tensor = compute(
        out.shape,
        lambda *i: equal(cast("int32", i[rows.axes[0]]), first(*rows.row(i))).astype(out.dtype),
        name=name,
    )
    return made


def _reference_log(attrs: SoftmaxAttrs, data: Array) -> Array:
    x = widened(data, str(data.dtype))
    with np.errstate(invalid="ignore"):
        shifted = x - np.max(x, axis=attrs.axis, keepdims=True, initial=-np.inf)
    total = np.sum(np.exp(shifted), axis=attrs.axis, keepdims=True)
    with np.errstate(divide="ignore"):
        made: Array = shifted - np.log(total)
    return made.astype(data.dtype)


def _reference(attrs: SoftmaxAttrs, data: Array) -> Array:
    x, rounded = widened(data, str(data.dtype)), _rounding_of_arrays(attrs, data)
    with np.errstate(invalid="ignore"):
        shifted = x - np.max(x, axis=attrs.axis, keepdims=True, initial=-np.inf)
    power = rounded(np.exp(rounded(shifted)))
    total = rounded(np.sum(power, axis=attrs.axis, keepdims=True))
    made: Array = power / total
    return made.astype(data.dtype)


def _rounding_of_arrays(attrs: SoftmaxAttrs, data: Array) -> Callable[[Array], Array]:
    if not _is_stepwise(attrs):
        return lambda array: array
    return lambda array: widened(array.astype(data.dtype), str(data.dtype))


def _reference_hardmax(attrs: SoftmaxAttrs, data: Array) -> Array:
    made = np.zeros_like(data)
    if data.size:
        place = np.argmax(widened(data, str(data.dtype)), axis=attrs.axis, keepdims=True)
        np.put_along_axis(made, place, np.ones(1, data.dtype), axis=attrs.axis)
    return made


def _fast(attrs: SoftmaxAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr:
    return call("nn.fast_softmax", *args, axis=attrs.axis)


_LARGE = np.array([[1e4, -1e4, 9999.0], [-np.inf, 0.0, -np.inf]], "float32")

_CASES = [
    Case(((2, 5),)),
    Case(((2, 3, 4),), {"axis": 1}),
    Case(((3, 2),), {"axis": -2}),
    Case((_LARGE,)),
    Case((((2, 7), "float16"),), tolerance=2e-3),
    Case((((7,), "float64"),), {"axis": 0}),
]

# An element is compared with the largest, which is subtracted, and its power is added.
ROW_INSTRUCTIONS = EXP_INSTRUCTIONS + 3

register(OpRecord(
    "nn.softmax",
    inputs=("data",),
    attrs=StepwiseSoftmaxAttrs,
    infer=_infer,
    compute=_compute_softmax("T_softmax", reciprocal=False),
    reference=_reference,
    fast=_fast,
    pattern=OUT_ELEMWISE_FUSABLE,
    layout=along_axis,
    schedules={"cpu": _schedule},
    instructions=ROW_INSTRUCTIONS + INVERSE_INSTRUCTIONS,
    mixed_precision="never",
    cases=[*_CASES, Case(((2, 0),)), Case(((2, 331),)),
           Case((((2, 3), "bfloat16"),), tolerance=1e-2),
           Case((((5, 9), "float16"),), {"stepwise": True}, tolerance=1e-3)],
    doc="exp of every element, over the sum of these along an axis.",
))

register(OpRecord(
    "nn.fast_softmax",
    inputs=("data",),
    attrs=SoftmaxAttrs,
    infer=_infer,
    compute=_compute_softmax("T_fast_softmax", reciprocal=True),
    reference=_reference,
    pattern=OUT_ELEMWISE_FUSABLE,
    schedules={"cpu": _schedule},
    instructions=ROW_INSTRUCTIONS + 1,
    mixed_precision="never",
    cases=_CASES[:4],
    doc="softmax with one division for a whole row: less exact in the last place, and faster.",
))

register(OpRecord(
    "nn.log_softmax",
    inputs=("data",),
    attrs=SoftmaxAttrs,
    infer=_infer,
    compute=_compute_log,
    reference=_reference_log,
    pattern=OUT_ELEMWISE_FUSABLE,
    layout=along_axis,
    schedules={"cpu": _schedule},
    instructions=ROW_INSTRUCTIONS + 1,
    mixed_precision="never",
    cases=_CASES,
    doc="The logarithm of softmax along an axis.",
))

_TIES = np.array([[1, 3, 3, -2], [np.nan, 5, np.nan, 9], [-np.inf] * 4], "float32")

register(OpRecord(
    "nn.hardmax",
    inputs=("data",),
    attrs=SoftmaxAttrs,
    infer=_infer_hardmax,
    compute=_compute_hardmax,
    reference=_reference_hardmax,
    pattern=OUT_ELEMWISE_FUSABLE,
    schedules={"cpu": schedule_rows},
    cases=[
        Case(((2, 3, 4),), {"axis": 1}),
        Case((_TIES,)),
        Case((_TIES.T.copy(),), {"axis": 0}),
        Case((((3, 5), "int8"),)),
        Case((((3, 5), "float16"),)),
    ],
    doc="1 at the first of the largest elements along an axis, 0 elsewhere.",
))
