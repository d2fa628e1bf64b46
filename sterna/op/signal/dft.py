"""Fourier transforms: dft of real and imaginary parts, signal.dft of pairs."""


import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, TupleType, Type
from sterna.op.axis_rows import AxisRows
from sterna.op.bluestein import tables_of, transform_of
from sterna.op.checks import (
    at_least,
    axis_of,
    expect_dim,
    map_dims,
    not_empty,
    of_kind,
    same_dtype,
    tensor,
)
from sterna.op.indexing import dims_of
from sterna.op.signal._fourier_matrix import by_matrix
from sterna.op.statements import statements
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.schedule.default import schedule_default
from sterna.schedule.products import wide, widened
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder


@attributes
class DFTAttrs(Attrs):
    """Of dft."""

    inverse: bool = False


@attributes
class SignalDFTAttrs(Attrs):
    """Of signal.dft."""

    axis: int = -2
    length: int | None = None
    inverse: bool = False
    onesided: bool = False

    def normalize(self) -> None:
        if self.length is not None and self.length < 1:
            raise ValueError(f"length is at least 1, not {self.length}")


# ---- real and imaginary parts ----


def _infer(attrs: DFTAttrs, re_data: Type, im_data: Type) -> TupleType:
    real = of_kind(at_least(re_data, "re_data", 1), "re_data", "float")
    imaginary = tensor(im_data, "im_data", real.ndim)
    same_dtype([real, imaginary], ["re_data", "im_data"])
    for have, want in zip(imaginary.shape, real.shape, strict=True):
        expect_dim(have, want, "an extent of im_data, as re_data has it,")
    return TupleType((real, real))


def _compute(attrs: DFTAttrs, out: TupleType, re_data: Tensor, im_data: Tensor) -> list[Tensor]:
    rows = AxisRows(dims_of(re_data), re_data.ndim - 1)
    dtype = wide(re_data.dtype)

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        with rows.each(ib) as at:

            def store(k: Expr, *parts: Expr) -> None:
                for result, part in zip(outs, parts, strict=True):
                    result[at(k)] = build.cast(result.dtype, part)

            transform = transform_of(ib, rows.length, dtype, ins[2:], attrs.inverse)
            transform.run(lambda k: (ins[0][at(k)], ins[1][at(k)]), store, rows.length)

    tables = tables_of(rows.length, dtype, "T_dft")
    return statements(out, [re_data, im_data, *tables], fill, "T_dft")


def _transformed(values: Array, inverse: bool, axis: int) -> Array:
    if not values.shape[axis]:
        return values
    return np.fft.ifft(values, axis=axis) if inverse else np.fft.fft(values, axis=axis)


def _reference(attrs: DFTAttrs, re_data: Array, im_data: Array) -> list[Array]:
    values = re_data.astype(np.float64) + 1j * im_data.astype(np.float64)
    made = _transformed(values, attrs.inverse, -1)
    return [made.real.astype(re_data.dtype), made.imag.astype(re_data.dtype)]


register(OpRecord(
    "dft",
    inputs=("re_data", "im_data"),
    attrs=DFTAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    num_outputs=2,
    schedules={"cpu": schedule_default},
    pattern=OPAQUE,
    mixed_precision="never",
    legalize=lambda attrs, *given: by_matrix(attrs.inverse, *given),
    cases=[
        Case(((2, 3, 8), (2, 3, 8))),
        Case(((2, 30), (2, 30)), {"inverse": True}),
        Case((((11,), "float64"), ((11,), "float64"))),
        Case(((1, 1), (1, 1))),
        Case((((22,), "float16"), ((22,), "float16")), tolerance=5e-3),
        Case(((3, 37), (3, 37))),
        Case((((2, 82), "float64"), ((2, 82), "float64")), {"inverse": True}),
    ],
    doc="The discrete Fourier transform along the last axis, of real and imaginary parts.",
))


# ---- pairs ----


def _sizes(attrs: SignalDFTAttrs, given: Dim) -> tuple[Dim, Dim]:
    """The length of the transform, and how many numbers come out of it."""
    half = attrs.onesided and attrs.inverse
    length: Dim = attrs.length or (map_dims(lambda n: (n - 1) * 2, given) if half else given)
    if attrs.onesided and not attrs.inverse:
        return length, map_dims(lambda n: n // 2 + 1, length)
    return length, length


def _infer_pairs(attrs: SignalDFTAttrs, data: Type) -> TensorType:
    kind = of_kind(at_least(data, "data", 2), "data", "float")
    axis = axis_of(attrs.axis, kind.ndim)
    if axis == kind.ndim - 1:
        raise ValueError("axis is not the last one, which holds real and imaginary parts")
    last = kind.shape[-1]
    if last not in (1, 2):
        raise ValueError(f"the last extent of data is 1 (real) or 2 (complex), not {last}")
    if attrs.onesided and last != (2 if attrs.inverse else 1):
        raise ValueError("a onesided transform goes from real numbers, and back to them")
    if attrs.length is None:
        not_empty(kind, "data", [axis], "the elements of a signal are")
    shape = list(kind.shape)
    shape[axis] = _sizes(attrs, shape[axis])[1]
    shape[-1] = 1 if attrs.onesided and attrs.inverse else 2
    return TensorType(tuple(shape), kind.dtype)


def _compute_pairs(attrs: SignalDFTAttrs, out: TensorType, data: Tensor) -> Tensor:
    shape = dims_of(data)
    axis = axis_of(attrs.axis, len(shape))
    held = shape[axis]
    length, count = _sizes(attrs, held)
    rows = AxisRows([*shape[:axis], length, *shape[axis + 1 : -1]], axis)
    dtype = wide(data.dtype)
    mirrored = attrs.onesided and attrs.inverse

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        with rows.each(ib) as at:

            def part(place: Expr, which: int) -> Expr:
                """What is held there; zeros behind the end."""
                zero = build.const(0, data.dtype)
                if which >= shape[-1]:
                    return zero
                return build.if_then_else(place < held, ins[0][(*at(place), which)], zero)

            def load(k: Expr) -> tuple[Expr, Expr]:
                if not mirrored:
                    return part(k, 0), part(k, 1)
                other = k > length // 2  # the missing half: the conjugates of the first one
                place = ib.let("place", build.select(other, length - k, k))
                imaginary = ib.let("imaginary", part(place, 1))
                return part(place, 0), build.select(other, -imaginary, imaginary)

            def store(k: Expr, *values: Expr) -> None:
                for which, value in enumerate(values[: 1 if mirrored else 2]):
                    outs[0][(*at(k), which)] = build.cast(out.dtype, value)

            transform_of(ib, length, dtype, ins[1:], attrs.inverse).run(load, store, count)

    return statements(out, [data, *tables_of(length, dtype, "T_dft")], fill, "T_dft")[0]


def _reference_pairs(attrs: SignalDFTAttrs, data: Array) -> Array:
    axis = attrs.axis % data.ndim
    wide_data = widened(data, str(data.dtype)).astype(np.float64)
    values = wide_data[..., 0] + (1j * wide_data[..., 1] if data.shape[-1] == 2 else 0)
    length, count = _sizes(attrs, data.shape[axis])
    assert isinstance(length, int) and isinstance(count, int)
    if attrs.onesided and attrs.inverse:
        real = np.fft.irfft(values, length, axis) if length else values.real
        return real[..., None].astype(data.dtype)
    if length:
        values = np.take(values, np.arange(min(length, values.shape[axis])), axis)
        missing = length - values.shape[axis]
        widths = [(0, missing if i == axis else 0) for i in range(values.ndim)]
        values = _transformed(np.pad(values, widths), attrs.inverse, axis)
    made = np.take(values, np.arange(count), axis)
    return np.stack([made.real, made.imag], -1).astype(data.dtype)


register(OpRecord(
    "signal.dft",
    inputs=("data",),
    attrs=SignalDFTAttrs,
    infer=_infer_pairs,
    compute=_compute_pairs,
    reference=_reference_pairs,
    schedules={"cpu": schedule_default},
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case(((2, 6, 1),), {"onesided": True}),
        Case(((2, 5, 3, 2),), {"axis": 1}),
        Case(((3, 12, 2),), {"length": 16, "inverse": True}),
        Case(((2, 9, 1),), {"length": 5, "onesided": True}),
        Case(((2, 5, 2),), {"inverse": True, "onesided": True}),
        Case(((2, 5, 2),), {"inverse": True, "onesided": True, "length": 7}),
        Case((((26, 2), "float64"),), {"axis": 0}),
        Case(((2, 3, 41, 1),), {"axis": 2, "onesided": True}),
        Case(((2, 20, 2),), {"length": 37, "inverse": True, "onesided": True}),
    ],
    doc="The discrete Fourier transform along an axis of real numbers or of complex ones, whose "
        "parts stand in the last dimension.\nlength: as if so many were given, cut or with zeros "
        "behind. onesided: only the first half, the other being its mirror image; the inverse goes "
        "from such a half to real numbers.",
))
