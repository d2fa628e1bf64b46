"""Spectra of frames of a signal: stft as torch has it, signal.stft of pairs."""

from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.axis_rows import AxisRows
from sterna.op.bluestein import tables_of, transform_of
from sterna.op.checks import map_dims, not_empty, of_kind, same_dtype, tensor
from sterna.op.indexing import dims_of
from sterna.op.statements import statements
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExpr
from sterna.relay.op import OPAQUE, Case, OpRecord, call, register
from sterna.schedule.default import schedule_default
from sterna.schedule.products import wide, widened
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder


@attributes
class STFTAttrs(Attrs):
    """Of stft."""

    n_fft: int
    hop_length: int
    win_length: int
    normalized: bool = False
    onesided: bool = True

    def normalize(self) -> None:
        if not 1 <= self.win_length <= self.n_fft:
            raise ValueError(f"win_length is 1 to n_fft = {self.n_fft}, not {self.win_length}")
        if self.hop_length < 1:
            raise ValueError(f"hop_length is at least 1, not {self.hop_length}")


@attributes
class SignalSTFTAttrs(Attrs):
    """Of signal.stft."""

    frame_step: int
    onesided: bool = True

    def normalize(self) -> None:
        if self.frame_step < 1:
            raise ValueError(f"frame_step is at least 1, not {self.frame_step}")


def _frames(size: Dim, length: Dim, step: int) -> Dim:
    if isinstance(size, int) and isinstance(length, int) and size < length:
        raise ValueError(f"a frame of {length} does not fit into a signal of {size}")
    return map_dims(lambda n, frame: (n - frame) // step + 1, size, length)


def _spectra(
    out: TensorType, data: Tensor, window: Tensor, length: Dim, step: int, *, bins_first: bool,
    scale: float = 1.0,
) -> Tensor:
    """Transforms of frames; the window stands in their middle, zeros around it."""
    shape, dtype = dims_of(data), wide(data.dtype)
    pairs = shape[2] if len(shape) == 3 else 0
    batch, frames, bins, _ = out.shape
    if bins_first:
        frames, bins = bins, frames
    rows = AxisRows([batch, frames, length], 2)
    (width,) = dims_of(window)
    margin = (length - width) // 2

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        with rows.each(ib) as at:
            row, frame, _ = at(0)

            def part(k: Expr, which: int) -> Expr:
                place = frame * step + k
                index = (row, place, which) if pairs else (row, place)
                value = build.cast(dtype, ins[0][index if len(shape) > 1 else (place,)])
                inside = build.logical_and(k >= margin, k < margin + width)
                factor = build.cast(dtype, ins[1][k - margin])
                return build.if_then_else(inside, value * factor, build.const(0, dtype))

            def load(k: Expr) -> tuple[Expr, Expr]:
                return part(k, 0), part(k, 1) if pairs == 2 else build.const(0, dtype)

            def store(k: Expr, *values: Expr) -> None:
                place = (row, k, frame) if bins_first else (row, frame, k)
                for which, value in enumerate(values):
                    scaled = value if scale == 1 else value * build.const(scale, dtype)
                    outs[0][(*place, which)] = build.cast(out.dtype, scaled)

            transform_of(ib, length, dtype, ins[2:], inverse=False).run(load, store, bins)

    inputs = [data, window, *tables_of(length, dtype, "T_stft")]
    return statements(out, inputs, fill, "T_stft")[0]


def _reference_spectra(values: Array, window: Array, length: int, step: int) -> Array:
    """(batch, frames, length) of complex numbers."""
    before = (length - len(window)) // 2
    full = np.zeros(length)
    full[before : before + len(window)] = window.astype(np.float64)
    starts = range(0, values.shape[1] - length + 1, step)
    cut = np.stack([values[:, start : start + length] for start in starts], 1)
    return np.fft.fft(cut * full, axis=-1)


def _parts(spectra: Array, dtype: npt.DTypeLike) -> Array:
    made: Array = np.stack([spectra.real, spectra.imag], -1).astype(dtype)
    return made


# ---- as torch has it ----


def _infer(attrs: STFTAttrs, data: Type, window: Type) -> TensorType:
    kind = of_kind(tensor(data, "data"), "data", "float")
    if kind.ndim not in (1, 2):
        raise ValueError(f"data is a signal or a batch of signals, not {kind!r}")
    weights = tensor(window, "window", 1)
    same_dtype([kind, weights], ["data", "window"])
    if isinstance(weights.shape[0], int) and weights.shape[0] != attrs.win_length:
        raise ValueError(f"window has win_length = {attrs.win_length} elements, "
                         f"not {weights.shape[0]}")
    frames = _frames(kind.shape[-1], attrs.n_fft, attrs.hop_length)
    bins = attrs.n_fft // 2 + 1 if attrs.onesided else attrs.n_fft
    batch = kind.shape[0] if kind.ndim == 2 else 1
    return TensorType((batch, bins, frames, 2), kind.dtype)


def _compute(attrs: STFTAttrs, out: TensorType, data: Tensor, window: Tensor) -> Tensor:
    scale = attrs.n_fft**-0.5 if attrs.normalized else 1.0
    return _spectra(
        out, data, window, attrs.n_fft, attrs.hop_length, bins_first=True, scale=scale
    )


def _reference(attrs: STFTAttrs, data: Array, window: Array) -> Array:
    values = np.atleast_2d(widened(data, str(data.dtype)).astype(np.float64))
    spectra = _reference_spectra(values, window, attrs.n_fft, attrs.hop_length)
    if attrs.onesided:
        spectra = spectra[..., : attrs.n_fft // 2 + 1]
    if attrs.normalized:
        spectra = spectra / np.sqrt(attrs.n_fft)
    return _parts(spectra.swapaxes(1, 2), data.dtype)


def _stft(
    data: RelayExpr, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: RelayExpr | None = None, normalized: bool = False, onesided: bool = True,
) -> Any:
    """Spectra of frames of n_fft numbers, one every hop_length: (batch, bins, frames, 2).

    Frames are multiplied by a window, ones if there is none; one shorter than the frame stands in
    its middle. onesided: only the first half of each spectrum, the other being its mirror image.
    """
    width = n_fft if win_length is None else win_length
    step = n_fft // 4 if hop_length is None else hop_length
    if window is None:
        kind = tensor(data.checked_type, "data")
        window = call("ones", shape=(width,), dtype=kind.dtype)
    assert isinstance(window, RelayExpr)
    return make("stft", data, window, n_fft=n_fft, hop_length=step, win_length=width,
                normalized=normalized, onesided=onesided)


register(OpRecord(
    "stft",
    inputs=("data", "window"),
    attrs=STFTAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    builder=_stft,
    schedules={"cpu": schedule_default},
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case(((2, 20), (8,)), {"n_fft": 8, "hop_length": 3, "win_length": 8}),
        Case(((17,), (3,)), {"n_fft": 6, "hop_length": 4, "win_length": 3, "normalized": True,
                             "onesided": False}),
    ],
    doc=_stft.__doc__ or "",
))


# ---- pairs ----


def _infer_pairs(attrs: SignalSTFTAttrs, data: Type, window: Type) -> TensorType:
    kind = of_kind(tensor(data, "data", 3), "data", "float")
    weights = tensor(window, "window", 1)
    same_dtype([kind, weights], ["data", "window"])
    batch, size, parts = kind.shape
    if parts not in (1, 2):
        raise ValueError(f"the last extent of data is 1 (real) or 2 (complex), not {parts}")
    if attrs.onesided and parts == 2:
        raise ValueError("onesided spectra are those of real signals, not of complex ones")
    not_empty(weights, "window", [0], "the elements of a frame are")
    length = weights.shape[0]
    bins = map_dims(lambda n: n // 2 + 1, length) if attrs.onesided else length
    return TensorType((batch, _frames(size, length, attrs.frame_step), bins, 2), kind.dtype)


def _compute_pairs(
    attrs: SignalSTFTAttrs, out: TensorType, data: Tensor, window: Tensor
) -> Tensor:
    (length,) = dims_of(window)
    return _spectra(out, data, window, length, attrs.frame_step, bins_first=False)


def _reference_pairs(attrs: SignalSTFTAttrs, data: Array, window: Array) -> Array:
    given = widened(data, str(data.dtype)).astype(np.float64)
    values = given[..., 0] + (1j * given[..., 1] if data.shape[-1] == 2 else 0)
    spectra = _reference_spectra(values, window, len(window), attrs.frame_step)
    if attrs.onesided:
        spectra = spectra[..., : len(window) // 2 + 1]
    return _parts(spectra, data.dtype)


register(OpRecord(
    "signal.stft",
    inputs=("data", "window"),
    attrs=SignalSTFTAttrs,
    infer=_infer_pairs,
    compute=_compute_pairs,
    reference=_reference_pairs,
    schedules={"cpu": schedule_default},
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case(((2, 21, 1), (8,)), {"frame_step": 5}),
        Case((((1, 12, 2), "float64"), ((7,), "float64")), {"frame_step": 2, "onesided": False}),
    ],
    doc="Spectra of frames as long as a window that they are multiplied by, one every frame_step: "
        "(batch, frames, bins, 2) from signals of real or complex numbers (batch, size, 1 or 2).\n"
        "onesided: only the first half of each spectrum, the other being its mirror image.",
))
