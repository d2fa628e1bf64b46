"""A convolution of bytes by an instruction that adds products in pairs of 16 bits.

Its weights lie in the steps of _pair_steps.py, in which no sum leaves 16 bits, so that it is exact:
nn.conv2d_pair_dots. Rows of data whose border or sign is not what the instruction wants are copied.
"""

import math
from itertools import pairwise
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Broadcast, Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import tensor
from sterna.op.nn._byte_pair_kernel import (
    LEAST_LANES,
    SEEN_BYTES,
    SIGN,
    PairTiles,
    channels_of,
    cheapest_steps,
    lifted,
    runs_of,
    sample_steps,
    steps_as_constants,
)
from sterna.op.windows import Padding, full_padding, pad_array
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.layout import layout_of, to_plain
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, register
from sterna.relay.op import call as call_of
from sterna.schedule.default import schedule_as_written
from sterna.schedule.dot4 import GROUP, INT32, are_bytes, dot_lanes
from sterna.schedule.epilogue import Epilogue
from sterna.schedule.kernel import Processor
from sterna.te import Tensor
from sterna.te import all as all_of
from sterna.tir.ir_builder import BufferVar, IRBuilder


@attributes
class PairDotsAttrs(Attrs):
    """Of nn.conv2d_pair_dots."""

    strides: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    kernel_size: tuple[int, int] = (1, 1)
    border: int = 0
    """What lies outside of the data: of quantised data its zero point."""

    def normalize(self) -> None:
        """Padding before both axes, then after both."""
        self.padding = full_padding(self.padding, 2)

    @property
    def window(self) -> tuple[int, int]:
        """Rows and columns of data that a result reads."""
        high, wide = (
            (k - 1) * step + 1 for k, step in zip(self.kernel_size, self.dilation, strict=True)
        )
        return high, wide


def conv2d_by_pairs(call: Call, processor: Processor) -> RelayExpr | None:
    """Bytes whose channels lie last in whole groups, with known weights."""
    attrs: Any = call.attrs
    data, weight = call.args[0].checked_type, call.args[1]
    out = call.checked_type
    if not processor.prefers_dot2 or not isinstance(weight, Constant) or attrs.groups != 1:
        return None
    assert isinstance(data, TensorType) and isinstance(out, TensorType)
    kind = weight.checked_type
    if not are_bytes(data, kind) or out.dtype != INT32 or not data.is_static:
        return None
    assert isinstance(kind, TensorType)
    if {attrs.data_layout, attrs.out_layout or "NHWC"} != {"NHWC"} or not kind.dtype.is_int:
        return None
    plain = to_plain(to_numpy(weight.data), layout_of(attrs.kernel_layout), "OHWI")
    channels, rows, columns, inputs = plain.shape
    lanes = dot_lanes(channels, processor)
    if lanes < LEAST_LANES or inputs % GROUP:
        return None
    packed = plain.reshape(channels, -1, GROUP)
    steps = cheapest_steps(packed, lanes)
    if steps is None:
        return None
    padding = full_padding(attrs.padding, 2)
    width = data.concrete_shape[2] + padding[1] + padding[3]
    down, across = attrs.dilation
    places = [((row * down) * width + column * across) * inputs + first
              for row in range(rows) for column in range(columns)
              for first in range(0, inputs, GROUP)]
    made: RelayExpr = call_of(
        "nn.conv2d_pair_dots", call.args[0], *steps_as_constants(steps, np.array(places), lanes),
        strides=attrs.strides, padding=padding, dilation=attrs.dilation,
        kernel_size=(rows, columns), border=attrs.border,
    )
    return made if data.dtype.is_uint else call_of("subtract", made, lifted(plain))


def _infer(
    attrs: PairDotsAttrs, data: Type, weight: Type, places: Type, starts: Type
) -> TensorType:
    x = tensor(data, "data", 4)
    channels = channels_of(x, weight, places, starts)
    batch, height, width, _ = x.concrete_shape
    top, left, bottom, right = full_padding(attrs.padding, 2)
    high = (height + top + bottom - attrs.window[0]) // attrs.strides[0] + 1
    wide = (width + left + right - attrs.window[1]) // attrs.strides[1] + 1
    return TensorType((batch, high, wide, channels), INT32)


def _reference(
    attrs: PairDotsAttrs, data: Array, weight: Array, places: Array, starts: Array
) -> Array:
    """A product of matrices for each group of each panel."""
    _, vectors, lanes, _ = weight.shape
    top, left, bottom, right = full_padding(attrs.padding, 2)
    moved = data.transpose(0, 3, 1, 2).astype(np.int32)
    x = pad_array(moved, (top, left), (bottom, right), attrs.border).transpose(0, 2, 3, 1)
    if data.dtype == np.int8:
        x = x + SIGN
    batch, height, width, channels = x.shape
    high = (height - attrs.window[0]) // attrs.strides[0] + 1
    wide = (width - attrs.window[1]) // attrs.strides[1] + 1
    rows, columns = np.arange(high) * attrs.strides[0], np.arange(wide) * attrs.strides[1]
    pixels = (rows[:, None] * width + columns) * channels
    flat = x.reshape(batch, -1)
    panel = vectors * lanes
    total = np.zeros((batch, high, wide, (len(starts) - 1) * panel), np.int32)
    begins = starts[:, 0]
    for number, (first, last) in enumerate(pairwise(begins)):
        own = total[..., number * panel : (number + 1) * panel]
        for group in range(first, last):
            seen = flat[:, pixels[..., None] + places[group] + np.arange(GROUP)]
            own += seen @ weight[group].reshape(panel, GROUP).T.astype(np.int32)
    return total


def _macs(
    attrs: PairDotsAttrs, out: TensorType, data: TensorType, weight: TensorType,
    places: TensorType, starts: TensorType,
) -> int:
    results = math.prod(out.concrete_shape)
    return results * math.prod(attrs.kernel_size) * data.concrete_shape[3]


def _compute(attrs: PairDotsAttrs, out: TensorType, *operands: Tensor) -> Tensor:
    return _compute_with(attrs, out, None, *operands)


def _compute_with(
    attrs: PairDotsAttrs, out: TensorType, epilogue: Epilogue | None, *operands: Tensor
) -> Tensor:
    kernel = _Kernel(attrs, out, *operands)
    return kernel.tensor(epilogue, out, operands, "T_conv2d_pair_dots")


class _Kernel(PairTiles):
    """The statements of a convolution."""

    def __init__(
        self, attrs: PairDotsAttrs, out: TensorType, data: Tensor, weight: Tensor, places: Tensor,
        starts: Tensor,
    ) -> None:
        every = (build.int_value(extent) or 1 for extent in data.shape)
        _, self.data_height, self.data_width, self.inputs = every
        self.batch, self.height, self.width, channels = out.concrete_shape
        super().__init__(data, weight, channels, self.width)
        top, left, bottom, right = full_padding(attrs.padding, 2)
        self.top, self.left, self.steps, self.border = top, left, attrs.strides, attrs.border
        self.window = attrs.window
        self.row = (self.data_width + left + right) * self.inputs
        self.copies = attrs.window != (1, 1) or any((top, left, bottom, right))
        self.copies = self.copies or not data.dtype.is_uint
        self._divide(channels // self.block)

    def _divide(self, blocks: int) -> None:
        """The work in pieces: some lines of results, and some blocks of channels."""
        lines = max(1, (SEEN_BYTES // self.row - self.window[0]) // self.steps[0] + 1)
        count = -(-self.height // min(lines, self.height))
        self.lines = -(-self.height // count)
        self.bands = -(-self.height // self.lines)
        self.shares = self.shares_of(blocks, self.batch * self.bands)
        self.blocks = blocks // self.shares

    def describe(self) -> str:
        return (
            f"pairs of bytes, {self.rows} columns x {self.vectors * self.lanes} channels in "
            f"registers, {self.lines} rows x {self.blocks * self.block} channels at a time"
        )

    def write(self, ib: IRBuilder, data: BufferVar) -> None:
        """Some lines and some channels after the other."""
        pieces = self.batch * self.bands * self.shares
        with ib.for_range(0, pieces, name="piece", kind="parallel") as piece:
            share, above = piece % self.shares, piece // self.shares
            image, first = above // self.bands, above % self.bands * self.lines
            with ib.new_scope():
                seen = self._seen(ib, data, image, first)
                count = build.minimum(self.lines, self.height - first)
                with ib.for_range(0, self.blocks, name="block") as number:
                    block = share * self.blocks + number
                    with ib.for_range(0, count, name="line") as line:
                        self._line(ib, seen, image, first, line, block)

    # ---- rows of data ----

    def _seen(self, ib: IRBuilder, data: BufferVar, image: Expr, first: Expr) -> Any:
        """four(line, column, place): where bytes are read that lie so far from a pixel."""
        down, across = self.steps
        four = f"uint8x{GROUP}"
        if not self.copies:
            return lambda line, column, place: data.buffer.vload(
                (image, (first + line) * down, column * across, place), four
            )
        rows = (self.lines - 1) * down + self.window[0]
        seen = ib.allocate("uint8", (rows * self.row,), name="seen")
        self._copy(ib, data, seen, image, first * down - self.top, rows)
        return lambda line, column, place: seen.buffer.vload(
            (line * (down * self.row) + column * (across * self.inputs) + place,), four
        )

    def _copy(
        self, ib: IRBuilder, data: BufferVar, seen: BufferVar, image: Expr, top: Expr, rows: int
    ) -> None:
        """The rows from one on, between the border's columns, without a sign."""
        before = self.left * self.inputs
        inside = self.data_width * self.inputs
        with ib.for_range(0, rows, name="row") as row:
            start = row * self.row
            exists = all_of(top + row >= 0, top + row < self.data_height)
            with ib.if_scope(exists):
                self._fill(ib, seen, start, before)
                self._fill(ib, seen, start + (before + inside), self.row - before - inside)
                with ib.for_range(0, self.data_width, name="column") as column:
                    for channel, count in runs_of(self.inputs, self.lanes * GROUP):
                        given = data.buffer.vload((image, top + row, column, channel),
                                                  f"{self.kind}x{count}")
                        at = start + before + column * self.inputs + channel
                        ib.emit(seen.buffer.vstore((at,), self.unsigned(given, count)))
            with ib.else_scope():
                self._fill(ib, seen, start, self.row)

    def _fill(self, ib: IRBuilder, seen: BufferVar, start: Expr, count: int) -> None:
        """So many bytes of the border."""
        border = self.border if self.kind.is_uint else self.border + SIGN
        width = self.lanes * GROUP
        whole, rest = divmod(count, width)
        byte = build.const(border, "uint8")
        with ib.for_range(0, whole, name="vector") as vector:
            ib.emit(seen.buffer.vstore((start + vector * width,), Broadcast(byte, width)))
        for first, length in runs_of(rest, width):
            at = start + (whole * width + first)
            ib.emit(seen.buffer.vstore((at,), Broadcast(byte, length)))

    # ---- products ----

    def _line(
        self, ib: IRBuilder, four: Any, image: Expr, first: Expr, line: Expr, block: Expr
    ) -> None:
        """One line of results of a block of channels."""
        whole, rest = divmod(self.width, self.rows)

        def some(left: Expr, columns: int) -> None:
            self.tile(ib, lambda column, place: four(line, left + column, place), columns, block,
                      lambda column: (image, first + line, left + column))

        with ib.for_range(0, whole, name="across") as across:
            some(across * self.rows, self.rows)
        if rest:
            some(build.const(whole * self.rows), rest)


register(OpRecord(
    "nn.conv2d_pair_dots",
    inputs=("data", "weight", "places", "starts"),
    attrs=PairDotsAttrs,
    infer=_infer,
    compute=_compute,
    compute_with=_compute_with,
    reference=_reference,
    macs=_macs,
    pattern=OUT_ELEMWISE_FUSABLE,
    schedule=schedule_as_written,
    mixed_precision="never",
    cases=[
        Case((((1, 3, 9, 8), "uint8"), *sample_steps((32, 2, 4), np.array([0, 4]), 2)), {}),
        Case((((2, 4, 5, 4), "int8"), *sample_steps((24, 4, 4), np.array([0, 4, 28, 32]), 3)),
             {"padding": (1, 1, 0, 1), "strides": (2, 1), "border": -3, "kernel_size": (2, 2)}),
    ],
    doc="A convolution of bytes; its weights lie in steps whose products fit 16 bits. Data with a "
        "sign counts 128 more.",
))
