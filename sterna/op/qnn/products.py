"""Quantised GEMM: qnn.dense, qnn.batch_matmul; what convolutions share with them.

They are sums of (x - its zero point) * (w - its zero point), exact in 32 bits that wrap. Weights
are shifted, which constants do once; the data stays narrow, and what its zero point added is
subtracted from the sums: sum((x - z) * w) is sum(x * w) - z * sum(w).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.ir.types import Type
from sterna.op.checks import of_kind, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.nn._byte_products import of_bytes
from sterna.op.qnn.repeated_channel import repeated_channel
from sterna.op.quantization import expect_parameter, expect_zero_point, is_single, is_zero
from sterna.relay.arrays import Array, numpy_dtype, to_numpy
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Constant, RelayExpr, const
from sterna.relay.op import OPAQUE, Case, OpRecord, call, find, register
from sterna.relay.quantized import int_range
from sterna.schedule.dot4 import bytes_missing
from sterna.support.dtype import DataType
from sterna.target import Target, instructions_of, processor_of

INT32 = DataType("int32")
INPUTS = ("data", "weight", "input_zero_point", "kernel_zero_point", "input_scale", "kernel_scale")


@attributes
class QnnDenseAttrs(Attrs):
    """Of qnn.dense."""

    units: int | None = None
    out_dtype: DataType = INT32


@attributes
class QnnBatchMatmulAttrs(Attrs):
    """Of qnn.batch_matmul."""

    out_dtype: DataType = INT32
    transpose_a: bool = False
    transpose_b: bool = True


# correct(attrs, data, weight, zero point of the data): the product, as the data is.
Correct = Callable[[Any, RelayExpr, RelayExpr, RelayExpr], RelayExpr]
# spread(attrs, weight, sums of the data, a number of each column): the sums that elements of the
# product see times their columns' numbers.
Spread = Callable[[Any, RelayExpr, RelayExpr, RelayExpr], RelayExpr]


@dataclass(frozen=True, slots=True)
class Product:
    """A product of quantised tensors by the one of plain ones."""

    plain: str
    """The operator without zero points; it has the same attributes."""
    rows: Callable[[Any, int], int | None]
    """The axis of the data, of so many dimensions, along which zero points may lie."""
    columns: Callable[[Any, int], int | None]
    """The axis of the weights that zero points may lie along."""
    correct: Correct | None = None
    """The product of data that is not shifted; None to shift it."""
    summed: Callable[[Any, int], tuple[int, int] | None] | None = None
    """The axes of the data, of so many dimensions, and of the weights that are summed over."""
    spread: Spread | None = None
    """How sums of the data come to the product; None where none do."""
    names: tuple[str, ...] = INPUTS

    def call(self, attrs: Any, data: RelayExpr, weight: RelayExpr, **changes: Any) -> RelayExpr:
        """The product of operands whose zero points are 0."""
        return call(self.plain, data, weight, **{**dict(attrs.items()), **changes})

    def infer(self, attrs: Any, data: Type, weight: Type, *parameters: Type) -> Type:
        """The type of the sums."""
        kinds = [tensor(data, self.names[0]), tensor(weight, self.names[1])]
        for kind, name in zip(kinds, self.names[:2], strict=True):
            of_kind(kind, name, "int", "uint")
            if kind.dtype.bits > 16:
                raise ValueError(f"{name} has integers of up to 16 bits, not {kind.dtype}")
        if attrs.out_dtype not in ("int32", "int64"):
            raise ValueError(f"out_dtype is int32 or int64, not {attrs.out_dtype}")
        record = find(self.plain)
        assert record.attrs is not None
        made = record.infer(record.attrs(**dict(attrs.items())), *kinds)
        axes = self.rows(attrs, kinds[0].ndim), self.columns(attrs, kinds[1].ndim)
        for kind, axis, zero, name in zip(kinds, axes, parameters[:2], self.names[2:4],
                                          strict=True):
            if axis is None and not is_single(tensor(zero, name).shape):
                raise ValueError(f"{name} is a single number here, not {zero!r}")
            expect_zero_point(zero, name, kind, axis or 0)
        for kind, axis, scale, name in zip(kinds, axes, parameters[2:], self.names[4:],
                                           strict=True):
            known = tensor(scale, name) if axis is None else expect_parameter(scale, name, kind,
                                                                              axis)
            of_kind(known, name, "float")
        return made

    def simplify(self, attrs: Any, args: tuple[RelayExpr, ...]) -> RelayExpr:
        """The product by operators that know no zero points."""
        data, weight, data_zero, weight_zero = args[:4]
        weight = shifted(weight, weight_zero, self.columns(attrs, tensor_type(weight).ndim))
        if self.correct is None or is_zero(data_zero):
            data = shifted(data, data_zero, self.rows(attrs, tensor_type(data).ndim))
            return self.call(attrs, data, weight)
        return self.correct(attrs, data, weight, data_zero)

    def legalize(
        self, attrs: Any, args: tuple[RelayExpr, ...], target: Target | None
    ) -> RelayExpr | None:
        """Weights of 8 bits without zero point, and what is summed over in groups of four.

        So processors multiply and add bytes; further elements meet weights of 0. What becomes C is
        left as it is: most of what runs that adds one product at a time.
        """
        data, weight, data_zero, weight_zero, *scales = args
        if target is None or not target.kind.picks_instructions:
            return None
        if not isinstance(weight, Constant):
            return self._of_free_operands(attrs, args, target)
        shift = _known(weight_zero)
        if shift is None:
            return None
        kind = tensor_type(data)
        own = to_numpy(weight.data).astype(np.int64)
        own = own - _along(shift, own.ndim, self.columns(attrs, own.ndim))
        axes = None if self.summed is None else self.summed(attrs, kind.ndim)
        if kind.dtype.bits != 8 or own.size == 0:
            return None
        steps = _steps_into_int8(own, self.columns(attrs, own.ndim))
        if axes is None or self.spread is None:
            steps = steps if steps is not None and not steps.any() else None
        if steps is None:
            return self._of_free_operands(attrs, args, target)
        own, given, given_zero, described = own - steps, data, data_zero, attrs
        repeated = (repeated_channel(attrs, data, own, target)
                    if self.plain == "nn.conv2d" else None)
        if repeated is not None:
            data, attrs = repeated
            kind = tensor_type(data)
        missing = 0
        if axes is not None and repeated is None:
            missing = bytes_missing(own.shape[axes[1]], processor_of(target))
        turns = self.correct is not None and kind.dtype != (_preferred(target) or kind.dtype)
        changes = missing or turns or repeated is not None
        if not changes and weight.data.dtype == "int8" and is_zero(weight_zero):
            return None
        if turns:
            data, data_zero = _with_other_sign(data, data_zero)
            kind = tensor_type(data)
        if missing and axes is not None:
            own = np.pad(own, [(0, missing if axis == axes[1] else 0) for axis in range(own.ndim)])
            width = [(0, missing if axis == axes[0] else 0) for axis in range(kind.ndim)]
            data = call("nn.pad", data, const(0, kind.dtype), pad_width=tuple(width))
        made = call(self.plain.replace("nn.", "qnn."), data, const(own.astype(np.int8)), data_zero,
                    const(0), *scales, **dict(attrs.items()))
        if axes is None or not steps.any():
            return made
        dtype, length = attrs.out_dtype, tensor_type(given).shape[axes[0]]
        if not isinstance(length, int):
            return None
        sums = call("sum", call("cast", given, dtype=dtype), axis=axes[0], keepdims=True)
        zeros = call("multiply", as_column(given_zero, 1, dtype), const(length, str(dtype)))
        missed = const(steps.reshape(-1).astype(numpy_dtype(dtype)))
        assert self.spread is not None, "there are steps"
        seen = self.spread(described, weight, call("subtract", sums, zeros), missed)
        return call("add", made, seen)

    def _of_free_operands(
        self, attrs: Any, args: tuple[RelayExpr, ...], target: Target
    ) -> RelayExpr | None:
        """A product of matrices that only the run knows, whose zero points are known."""
        zeros = [_known(zero) for zero in args[2:4]]
        single = [int(zero.item()) for zero in zeros if zero is not None and zero.size == 1]
        if self.plain != "nn.batch_matmul" or attrs.transpose_a or attrs.out_dtype != INT32:
            return None
        if len(single) < len(zeros):
            return None
        return of_bytes(args[0], args[1], (single[0], single[1]), attrs.transpose_b, target)

    def reference(
        self, attrs: Any, data: Array, weight: Array, data_zero: Array, weight_zero: Array,
        *scales: Array,
    ) -> Array:
        """The product of shifted operands in 64 bits."""
        record = find(self.plain)
        assert record.attrs is not None
        assert record.reference is not None
        x = data.astype(np.int64) - _along(data_zero, data.ndim, self.rows(attrs, data.ndim))
        w = weight.astype(np.int64) - _along(
            weight_zero, weight.ndim, self.columns(attrs, weight.ndim)
        )
        wide = record.attrs(**{**dict(attrs.items()), "out_dtype": "int64"})
        made: Array = record.reference(wide, x, w)
        return made.astype(numpy_dtype(attrs.out_dtype))

    def register(self, attrs: type[Attrs], cases: list[Case], doc: str, **more: Any) -> None:
        """Makes it an operator."""
        register(OpRecord(
            self.plain.replace("nn.", "qnn."),
            inputs=self.names,
            attrs=attrs,
            infer=self.infer,
            reference=self.reference,
            simplify=self.simplify,
            legalize=self.legalize,
            pattern=OPAQUE,
            mixed_precision="never",
            cases=cases,
            doc=doc,
            **more,
        ))


def _steps_into_int8(own: Array, columns: int | None) -> Array | None:
    """What takes weights into int8: each column, along an axis, by its own number.

    Unsigned weights whose zero point is not 128 need some. None if nothing does.
    """
    low, high = int_range(DataType("int8"))
    axis = tuple(place for place in range(own.ndim) if place != columns)
    least, most = own.min(axis, keepdims=True), own.max(axis, keepdims=True)
    steps: Array = np.maximum(most - high, 0) + np.minimum(least - low, 0)
    fits = (most - steps <= high) & (least - steps >= low)
    return steps if fits.all() else None


def _preferred(target: Target) -> str | None:
    """The type of bytes that a target multiplies with int8 in one instruction, if it is one."""
    row = instructions_of(target).dot4
    return row.data_types[0] if row is not None and len(row.data_types) == 1 else None


def _with_other_sign(data: RelayExpr, zero: RelayExpr) -> tuple[RelayExpr, RelayExpr]:
    """The same numbers as bytes of the other sign: all of them and their zero point move by 128."""
    dtype = tensor_type(data).dtype
    step = 128 if dtype.is_int else -128
    moved = call("add", call("cast", data, dtype="int16"), const(step, "int16"))
    other = call("cast", moved, dtype="uint8" if dtype.is_int else "int8")
    known = _known(zero)
    if known is not None:
        return other, const((known.astype(np.int64) + step).astype(np.int32))
    return other, call("add", call("cast", zero, dtype=INT32), const(step))


def _known(parameter: RelayExpr) -> Array | None:
    return to_numpy(parameter.data) if isinstance(parameter, Constant) else None


def _along(zero: Array, ndim: int, axis: int | None) -> Array:
    whole = zero.astype(np.int64)
    if zero.size == 1:
        return whole.reshape(())
    return whole.reshape([-1 if place == axis else 1 for place in range(ndim)])


def as_column(parameter: RelayExpr, after: int, dtype: DataType) -> RelayExpr:
    """A parameter that broadcasts along an axis with so many axes behind it."""
    typed = call("cast", parameter, dtype=dtype)
    if is_single(tensor_type(parameter).shape):
        return call("reshape", typed, newshape=())
    return call("expand_dims", typed, axis=1, num_newaxis=after) if after else typed


def shifted(operand: RelayExpr, zero_point: RelayExpr, axis: int | None) -> RelayExpr:
    """An operand less its zero point; itself if that is 0."""
    if is_zero(zero_point):
        return operand
    kind = tensor_type(operand)
    wide = DataType("int16") if kind.dtype.bits <= 8 else INT32
    zero = as_column(zero_point, kind.ndim - 1 - (axis or 0), wide)
    return call("subtract", call("cast", operand, dtype=wide), zero)


def _correct_dense(
    attrs: QnnDenseAttrs, data: RelayExpr, weight: RelayExpr, zero_point: RelayExpr
) -> RelayExpr:
    sums = call("sum", call("cast", weight, dtype=attrs.out_dtype), axis=1)
    offset = call("multiply", as_column(zero_point, 1, attrs.out_dtype), sums)
    return call("subtract", DENSE.call(attrs, data, weight), offset)


def case_parameters(data_zero: npt.ArrayLike, weight_zero: npt.ArrayLike) -> tuple[Array, ...]:
    one = np.array(0.5, "float32")
    return np.array(data_zero, "int32"), np.array(weight_zero, "int32"), one, one


_X = np.array([[0, 255, 7, 3], [200, 1, 128, 90], [4, 4, 250, 0]], "uint8")

DENSE = Product(
    "nn.dense", lambda attrs, ndim: ndim - 2 if ndim > 1 else None, lambda attrs, ndim: 0,
    _correct_dense, summed=lambda attrs, ndim: (ndim - 1, 1),
    spread=lambda attrs, weight, sums, each: call("multiply", sums, each),
)
DENSE.register(QnnDenseAttrs, [
    Case((_X, ((2, 4), "int8"), *case_parameters(128, 0)), {"units": 2}),
    Case((_X, ((2, 4), "int8"), *case_parameters([1, 128, 255], [-3, 4]))),
    Case((((2, 3, 4), "int8"), ((2, 4), "uint8"), *case_parameters(-128, 7))),
    Case((((4,), "int8"), ((2, 4), "int8"), *case_parameters(0, 0))),
], "nn.dense of quantised data and weights; the scale of its sums is input_scale * kernel_scale.")

Product(
    "nn.batch_matmul",
    lambda attrs, ndim: ndim - (1 if attrs.transpose_a else 2),
    lambda attrs, ndim: ndim - (2 if attrs.transpose_b else 1),
    names=("x", "y", "x_zero_point", "y_zero_point", "x_scale", "y_scale"),
).register(QnnBatchMatmulAttrs, [
    Case((((2, 3, 4), "uint8"), ((2, 5, 4), "int8"), *case_parameters(130, -2))),
    Case((((2, 4, 3), "int8"), ((4, 5), "int8"), *case_parameters([1, 2, -3], [5, 6, 7, 8, 9])),
         {"transpose_a": True, "transpose_b": False}),
    Case((((1, 3, 4), "int8"), ((2, 5, 4), "int8"), *case_parameters(0, 0))),
], "nn.batch_matmul of quantised operands; the scale of its sums is x_scale * y_scale.")
