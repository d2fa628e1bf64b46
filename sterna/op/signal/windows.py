"""Windows for frames of signals, and the weights that turn spectra into mel bands."""

import math
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType
from sterna.op.statements import statements
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import INJECTIVE, OPAQUE, Case, OpRecord, register
from sterna.schedule.products import wide
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder


@attributes
class WindowAttrs(Attrs):
    """Of the windows."""

    size: int
    periodic: bool = True
    dtype: DataType = DataType("float32")

    def normalize(self) -> None:
        if self.size < 0:
            raise ValueError(f"size is not negative, as {self.size} is")

    @property
    def period(self) -> int:
        """After how many numbers the window's cosines begin again."""
        return self.size if self.periodic else max(self.size - 1, 1)


def _infer(attrs: WindowAttrs) -> TensorType:
    return TensorType((attrs.size,), attrs.dtype)


def _compute(name: str, factors: tuple[float, ...]) -> Any:
    def build_it(attrs: WindowAttrs, out: TensorType) -> Tensor:
        kind = wide(out.dtype) if out.dtype.is_float else DataType("float32")
        part = 2 * math.pi / max(attrs.period, 1)

        def element(k: Expr) -> Expr:
            angle = build.cast(kind, k) * build.const(part, kind)
            total = build.const(factors[0], kind)
            for order, factor in enumerate(factors[1:], 1):
                total = total + t.cos(angle * float(order)) * build.const(factor, kind)
            return build.cast(out.dtype, total)

        made: Tensor = compute(out.shape, element, name=f"T_{name}_window")
        return made

    return build_it


def _reference(factors: tuple[float, ...]) -> Any:
    def reference(attrs: WindowAttrs) -> Array:
        angle = 2 * np.pi * np.arange(attrs.size) / max(attrs.period, 1)
        total = sum(factor * np.cos(order * angle) for order, factor in enumerate(factors))
        return np.asarray(total).astype(numpy_dtype(attrs.dtype))

    return reference


for _name, _factors, _words in (
    ("hann", (0.5, -0.5), "half a cosine above zero"),
    ("hamming", (25 / 46, -21 / 46), "a cosine around 25/46"),
    ("blackman", (0.42, -0.5, 0.08), "two cosines"),
):
    register(OpRecord(
        f"signal.{_name}_window",
        inputs=(),
        attrs=WindowAttrs,
        infer=_infer,
        compute=_compute(_name, _factors),
        reference=_reference(_factors),
        pattern=INJECTIVE,
        mixed_precision="never",
        cases=[
            Case((), {"size": 10}),
            Case((), {"size": 7, "periodic": False, "dtype": "float64"}),
            Case((), {"size": 1, "periodic": False, "dtype": "float16"}, tolerance=1e-3),
        ],
        doc=f"The {_name} window, {_words}: of so many numbers that the next one would be the "
            "first again, or, if not periodic, that the last one is the first.",
    ))


# ---- mel bands ----


@attributes
class MelAttrs(Attrs):
    """Of signal.mel_weight_matrix."""

    num_mel_bins: int
    dft_length: int
    sample_rate: int
    lower_edge_hertz: float
    upper_edge_hertz: float
    dtype: DataType = DataType("float32")

    def normalize(self) -> None:
        if self.num_mel_bins < 1 or self.dft_length < 1 or self.sample_rate < 1:
            raise ValueError("num_mel_bins, dft_length and sample_rate are at least 1")
        edges = (self.lower_edge_hertz, self.upper_edge_hertz)
        if not 0 <= edges[0] < edges[1]:
            raise ValueError(f"the edges are 0 <= lower < upper, not {edges[0]} and {edges[1]}")
        if max(_corners(self)) > self.dft_length // 2 + 1:
            raise ValueError(
                f"upper_edge_hertz {edges[1]} lies above half of sample_rate {self.sample_rate}"
            )


def _corners(attrs: MelAttrs) -> list[int]:
    """The bins of the spectrum where bands begin, have their peaks and end."""
    low, high = (
        2595 * math.log10(1 + edge / 700)
        for edge in (attrs.lower_edge_hertz, attrs.upper_edge_hertz)
    )
    count = attrs.num_mel_bins + 2
    mels = [low + i * (high - low) / count for i in range(count)]
    hertz = [700 * (10 ** (mel / 2595) - 1) for mel in mels]
    return [int((attrs.dft_length + 1) * one // attrs.sample_rate) for one in hertz]


def _infer_mel(attrs: MelAttrs) -> TensorType:
    return TensorType((attrs.dft_length // 2 + 1, attrs.num_mel_bins), attrs.dtype)


def _compute_mel(attrs: MelAttrs, out: TensorType) -> Tensor:
    corners = _corners(attrs)
    kind = wide(out.dtype) if out.dtype.is_float else DataType("float32")

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        rows, columns = out.concrete_shape
        matrix = outs[0]
        with ib.for_range(0, rows, name="j") as j, ib.for_range(0, columns, name="i") as i:
            matrix[j, i] = build.const(0, out.dtype)

        def number(whole: Expr, over: int) -> Expr:
            value = build.cast(kind, whole) / build.const(float(over), kind)
            return build.cast(out.dtype, value)

        for band in range(columns):
            begin, peak, end = corners[band : band + 3]
            with ib.for_range(begin, min(peak + 1, rows), name="j") as j:
                rising = number(j - begin, peak - begin) if peak > begin else None
                matrix[j, band] = build.const(1, out.dtype) if rising is None else rising
            with ib.for_range(peak, min(end, rows), name="j") as j:
                matrix[j, band] = number(end - j, max(end - peak, 1))

    return statements(out, [], fill, "T_mel_weight_matrix")[0]


def _reference_mel(attrs: MelAttrs) -> Array:
    corners = _corners(attrs)
    bins = np.arange(attrs.dft_length // 2 + 1)
    made = np.zeros((len(bins), attrs.num_mel_bins))
    for band in range(attrs.num_mel_bins):
        begin, peak, end = corners[band : band + 3]
        rising = (bins >= begin) & (bins <= peak)
        made[rising, band] = 1 if peak == begin else (bins[rising] - begin) / (peak - begin)
        falling = (bins >= peak) & (bins < end)
        made[falling, band] = (end - bins[falling]) / max(end - peak, 1)
    return made.astype(numpy_dtype(attrs.dtype))


register(OpRecord(
    "signal.mel_weight_matrix",
    inputs=(),
    attrs=MelAttrs,
    infer=_infer_mel,
    compute=_compute_mel,
    reference=_reference_mel,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case((), {"num_mel_bins": 8, "dft_length": 16, "sample_rate": 8192,
                  "lower_edge_hertz": 0.0, "upper_edge_hertz": 4096.0}),
        Case((), {"num_mel_bins": 3, "dft_length": 65, "sample_rate": 1000,
                  "lower_edge_hertz": 50.0, "upper_edge_hertz": 400.0, "dtype": "float64"}),
    ],
    doc="Weights by which a spectrum, multiplied by them from the right, becomes bands that are "
        "equally wide on the mel scale: triangles from one band's peak to the next but one.",
))
