"""A depthwise convolution of bytes by an instruction that adds four products to each lane.

Four rows of the data lie side by side in a buffer, border included; a vector of it, with the four
bytes of each channel brought together, meets weights that are 0 where a row is not in the window.
So four rows give as many rows of results as fit into them: nn.conv2d_depthwise_dots.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Broadcast, Expr, Shuffle
from sterna.ir.types import TensorType, Type
from sterna.op.checks import expect_dim, tensor
from sterna.op.windows import Padding, full_padding, pad_array
from sterna.relay.arrays import Array, from_numpy, to_numpy
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.layout import layout_of, to_plain
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, register
from sterna.relay.op import call as call_of
from sterna.schedule.default import schedule_as_written
from sterna.schedule.dot4 import GROUP, INT32, are_bytes
from sterna.schedule.epilogue import Begin, Epilogue, Finish, apart, extern_with
from sterna.schedule.kernel import Processor
from sterna.te import Tensor
from sterna.te import all as all_of
from sterna.tir import dot4
from sterna.tir.ir_builder import BufferVar, IRBuilder

# With fewer lanes it costs more to bring rows together than their products, for one row of results.
LEAST_LANES = 8
# Registers that are narrowed to bytes together, and columns of results that share what they read.
VECTORS, COLUMNS = 4, 8
# What lies side by side takes about so much of the innermost cache.
SEEN_BYTES = 12 * 1024


@attributes
class DepthwiseDotsAttrs(Attrs):
    """Of nn.conv2d_depthwise_dots."""

    strides: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    border: int = 0
    """What lies outside of the data: of quantised data its zero point."""
    rows: int = 3
    """Rows of the window."""

    def normalize(self) -> None:
        """Padding before both axes, then after both."""
        self.padding = full_padding(self.padding, 2)


def depthwise_by_dots(call: Call, processor: Processor) -> RelayExpr | None:
    """Bytes whose channels lie last and fill whole vectors, with known weights."""
    plain = depthwise_weights(call, processor) if processor.has_dot4 else None
    if plain is None:
        return None
    attrs: Any = call.attrs
    packed = pack_weights(plain, attrs.strides[0], processor.lanes(INT32))
    return call_of(
        "nn.conv2d_depthwise_dots", call.args[0], Constant(from_numpy(packed)),
        **depthwise_attrs(attrs, plain.shape[1]),
    )


def depthwise_weights(call: Call, processor: Processor) -> Array | None:
    """The weights (channel, row, column) of a call that fits; None if it does not."""
    attrs: Any = call.attrs
    data, weight = call.args[0].checked_type, call.args[1]
    out = call.checked_type
    if not isinstance(weight, Constant) or attrs.data_layout != "NHWC" or attrs.groups == 1:
        return None
    assert isinstance(data, TensorType) and isinstance(out, TensorType)
    if not are_bytes(data, weight.checked_type) or out.dtype != INT32 or not data.is_static:
        return None
    if attrs.out_layout not in ("", "NHWC") or set(attrs.dilation) != {1}:
        return None
    plain = to_plain(to_numpy(weight.data), layout_of(attrs.kernel_layout), "OIHW")
    channels, inner, rows, _ = plain.shape
    lanes = processor.lanes(INT32)
    fits = 1 < rows <= GROUP and attrs.groups == channels == data.concrete_shape[3] and inner == 1
    shared = _together(rows, attrs.strides[0]) if processor.has_dot4 else 1
    return plain[:, 0] if fits and lanes * shared >= LEAST_LANES and channels % lanes == 0 else None


def depthwise_attrs(attrs: Any, rows: int) -> dict[str, Any]:
    """What a convolution of so many rows hands on."""
    padding = (*attrs.before, *attrs.after)
    return {"strides": attrs.strides, "padding": padding, "border": attrs.border, "rows": rows}


def pack_weights(plain: Array, step: int, lanes: int) -> Array:
    """(channel, row, column) as (row of results, column, vector of channels, lane, row of data)."""
    channels, rows, columns = plain.shape
    made = np.zeros((_together(rows, step), columns, channels // lanes, lanes, GROUP), plain.dtype)
    for place, part in enumerate(made):
        first = place * step
        vectors = plain.transpose(2, 0, 1).reshape(columns, -1, lanes, rows)
        part[..., first : first + rows] = vectors
    return made


def _together(rows: int, step: int) -> int:
    """Rows of results that read nothing but four rows of data."""
    return (GROUP - rows) // step + 1


def infer_depthwise(attrs: DepthwiseDotsAttrs, data: Type, weight: Type) -> TensorType:
    """The type of the result; the weights' are those of pack_weights."""
    x, w = tensor(data, "data", 4), tensor(weight, "weight", 5)
    if not are_bytes(x, w):
        raise ValueError(f"data and weight are integers of 8 bits, not {x.dtype} and {w.dtype}")
    together, columns, vectors, lanes, group = w.concrete_shape
    if not 1 <= attrs.rows <= GROUP or group != GROUP:
        raise ValueError(f"weight {w.shape} does not have {attrs.rows} of {GROUP} rows last")
    expect_dim(together, _together(attrs.rows, attrs.strides[0]), "weight's rows of results")
    batch, height, width, channels = x.concrete_shape
    expect_dim(channels, vectors * lanes, "the number of data's channels")
    top, left, bottom, right = full_padding(attrs.padding, 2)
    high = (height + top + bottom - attrs.rows) // attrs.strides[0] + 1
    wide = (width + left + right - columns) // attrs.strides[1] + 1
    return TensorType((batch, high, wide, channels), INT32)


def reference_depthwise(attrs: DepthwiseDotsAttrs, data: Array, weight: Array) -> Array:
    """One product for each place of the window."""
    _, columns, vectors, lanes, _ = weight.shape
    top, left, bottom, right = full_padding(attrs.padding, 2)
    moved = data.transpose(0, 3, 1, 2).astype(np.int32)
    x = pad_array(moved, (top, left), (bottom, right), attrs.border).transpose(0, 2, 3, 1)
    high = (x.shape[1] - attrs.rows) // attrs.strides[0] + 1
    wide = (x.shape[2] - columns) // attrs.strides[1] + 1
    total = np.zeros((len(data), high, wide, vectors * lanes), np.int32)
    for row, column in np.ndindex(attrs.rows, columns):
        rows = slice(row, row + (high - 1) * attrs.strides[0] + 1, attrs.strides[0])
        across = slice(column, column + (wide - 1) * attrs.strides[1] + 1, attrs.strides[1])
        total += x[:, rows, across] * weight[0, column, :, :, row].reshape(-1).astype(np.int32)
    return total


def _macs(
    attrs: DepthwiseDotsAttrs, out: TensorType, data: TensorType, weight: TensorType
) -> int:
    batch, height, width, channels = out.concrete_shape
    return batch * height * width * channels * attrs.rows * weight.concrete_shape[1]


def _compute(attrs: DepthwiseDotsAttrs, out: TensorType, data: Tensor, weight: Tensor) -> Tensor:
    return _compute_with(attrs, out, None, data, weight)


def _compute_with(
    attrs: DepthwiseDotsAttrs, out: TensorType, epilogue: Epilogue | None, data: Tensor,
    weight: Tensor,
) -> Tensor:
    """What follows is computed while some columns of results are in the innermost cache."""
    kernel = DepthwiseKernel(attrs, out, data, weight)

    def write(ib: IRBuilder, buffers: Sequence[BufferVar], finish: Finish | None) -> None:
        kernel.follow(finish)
        kernel.write(ib, *buffers)

    name = "T_conv2d_depthwise_dots"
    return extern_with(epilogue, out, (data, weight), write, name, kernel.describe())


class DepthwiseKernel:
    """The statements of a convolution."""

    most_columns = COLUMNS

    def __init__(
        self, attrs: DepthwiseDotsAttrs, out: TensorType, data: Tensor, weight: Tensor
    ) -> None:
        shapes = [[build.int_value(extent) or 1 for extent in t.shape] for t in (data, weight)]
        _, self.data_height, self.data_width, self.channels = shapes[0]
        self.together, self.window, vectors, self.lanes, _ = shapes[1][-5:]
        self.batch, self.height, self.width, _ = out.concrete_shape
        self.top, self.left, *_ = full_padding(attrs.padding, 2)
        self.steps, self.border = attrs.strides, attrs.border
        self.kind, self.weight_kind = data.dtype, weight.dtype
        self.vectors = max(n for n in range(1, VECTORS + 1) if vectors % n == 0)
        self.block = self.vectors * self.lanes
        self.blocks = vectors // self.vectors
        self.groups = -(-self.height // self.together)
        self.columns = min(self.most_columns, self.width)
        self.used = (self.together - 1) * self.steps[0] + attrs.rows
        parts = -(-self._read(self.width) * self.block * GROUP // SEEN_BYTES)
        tiles = -(-self.width // self.columns)
        self.part = -(-tiles // min(parts, tiles)) * self.columns
        self.begin: Begin | None = None
        self.finish: Finish | None = None

    def follow(self, finish: Finish | None) -> None:
        """Say what is made of the sums."""
        parts = None if finish is None else apart(finish, 4)
        self.begin, self.finish = (None, finish) if parts is None else parts

    def describe(self) -> str:
        """What it does, for the build report."""
        return (
            f"depthwise, four rows of bytes at once for {self.together} of results, "
            f"{self.columns} columns x {self.lanes} channels in registers, {self.block} channels "
            "at a time"
        )

    def write(self, ib: IRBuilder, data: BufferVar, weight: BufferVar, out: BufferVar) -> None:
        """Some rows of results and a block of channels after the other."""
        pieces = self.batch * self.groups * self.blocks
        with ib.for_range(0, pieces, name="piece", kind="parallel") as piece:
            block, above = piece % self.blocks, piece // self.blocks
            image, first = above // self.groups, above % self.groups * self.together
            for left in range(0, self.width, self.part):
                count = min(self.part, self.width - left)
                self._part(ib, data, weight, out, image, first, block, left, count)

    def _part(
        self, ib: IRBuilder, data: BufferVar, weight: BufferVar, out: BufferVar, image: Expr,
        first: Expr, block: Expr, left: int, count: int,
    ) -> None:
        """So many columns of results, of which what they read stays in the innermost cache."""
        step = self.steps[1]
        with ib.new_scope():
            shape = (self._read(count), self.vectors, GROUP, self.lanes)
            seen = ib.allocate(str(self.kind), shape, name="seen")
            self._gather(ib, data, seen, image, first * self.steps[0] - self.top, block,
                         left * step - self.left)
            whole, rest = divmod(count, self.columns)
            with ib.for_range(0, whole, name="across") as across:
                self._tile(ib, seen, weight, out, image, first, across * self.columns, left,
                           self.columns, block)
            if rest:
                self._tile(ib, seen, weight, out, image, first,
                           build.const(whole * self.columns), left, rest, block)

    def _read(self, count: int) -> int:
        """Columns of data that so many of results read."""
        return (count - 1) * self.steps[1] + self.window

    # ---- four rows side by side ----

    def _gather(
        self, ib: IRBuilder, data: BufferVar, seen: BufferVar, image: Expr, top: Expr, block: Expr,
        left: int,
    ) -> None:
        """The rows from one on, from a column on, each at its place; outside of them the border."""
        vector = f"{self.kind}x{self.lanes}"
        outside = Broadcast(build.const(self.border, self.kind), self.lanes)
        width = build.int_value(seen.buffer.shape[0]) or 1
        before = min(width, max(0, -left))
        inside = max(0, min(width, self.data_width - left) - before)

        def fill(first: int, count: int, rows: Sequence[Expr | None]) -> None:
            """Some columns of all rows; one that is not there is the border's."""
            if count <= 0:
                return
            with ib.for_range(0, count, name="column") as column:
                for n in range(self.vectors):
                    channel = (block * self.vectors + n) * self.lanes
                    parts = tuple(
                        outside if row is None else
                        data.buffer.vload((image, row, column + (left + first), channel), vector)
                        for row in rows
                    )
                    four = Shuffle(parts, tuple(range(GROUP * self.lanes)))
                    ib.emit(seen.buffer.vstore((column + first, n, 0, 0), four))

        used = [top + row for row in range(self.used)]
        nothing: list[Expr | None] = [None] * GROUP
        fill(0, before, nothing)
        fill(before + inside, width - before - inside, nothing)
        with ib.if_scope(all_of(top >= 0, top + (self.used - 1) < self.data_height)):
            fill(before, inside, [*used, *nothing[self.used :]])
        with ib.else_scope():
            fill(before, inside, nothing)
            for place, row in enumerate(used):
                with ib.if_scope(all_of(row >= 0, row < self.data_height)):
                    self._put_row(ib, data, seen, (image, row, left + before), block, place,
                                  before, inside)

    def _put_row(
        self, ib: IRBuilder, data: BufferVar, seen: BufferVar, start: tuple[Any, ...], block: Expr,
        place: int, first: int, count: int,
    ) -> None:
        """One row of the data to its place among the four."""
        image, row, left = start
        with ib.for_range(0, count, name="column") as column:
            for n in range(self.vectors):
                channel = (block * self.vectors + n) * self.lanes
                value = data.buffer.vload((image, row, column + left, channel),
                                          f"{self.kind}x{self.lanes}")
                ib.emit(seen.buffer.vstore((column + first, n, place, 0), value))

    # ---- products ----

    def _tile(
        self, ib: IRBuilder, seen: BufferVar, weight: BufferVar, out: BufferVar, image: Expr,
        first: Expr, left: Expr, begin: int, columns: int, block: Expr,
    ) -> None:
        """Some columns of a group of rows: all vectors of a block, and what follows them."""
        with ib.new_scope():
            shape = (self.together, columns, self.block)
            total = ib.allocate("int32", shape, name="total")
            with ib.for_range(0, self.vectors, name="vector") as vector:
                self._sum(ib, seen, weight, total, left, columns, block, vector)
            for row in range(self.together):
                exists = first + row < self.height
                with ib.if_scope(exists):
                    for column in range(columns):
                        at = (image, first + row, left + (begin + column))
                        self._store(ib, total, out, (row, column), at, block)

    def _sum(
        self, ib: IRBuilder, seen: BufferVar, weight: BufferVar, total: BufferVar, left: Expr,
        columns: int, block: Expr, vector: Expr,
    ) -> None:
        """One vector of channels in registers."""
        lanes = self.lanes
        kind = f"int32x{lanes}"
        held = ib.allocate("int32", (self.together, columns, lanes), name="held", scope="local")
        begun = ib.allocate("int32", (lanes,), name="begun", scope="local")
        with ib.for_range(0, lanes, name="lane", kind="vectorize") as lane:
            channel = block * self.block + vector * lanes + lane
            begun[lane] = 0 if self.begin is None else self.begin(channel)
        every = [(row, column) for row in range(self.together) for column in range(columns)]
        for place in every:
            ib.emit(held.buffer.vstore((*place, 0), begun.buffer.vload((0,), kind)))
        self._products(ib, seen, weight, held, left, columns, block, vector)
        for row, result in every:
            value = held.buffer.vload((row, result, 0), kind)
            ib.emit(total.buffer.vstore((row, result, vector * lanes), value))

    def _products(
        self, ib: IRBuilder, seen: BufferVar, weight: BufferVar, held: BufferVar, left: Expr,
        columns: int, block: Expr, vector: Expr,
    ) -> None:
        """What all columns of data add to the results that read them."""
        lanes, step = self.lanes, self.steps[1]
        four = ib.allocate(str(self.kind), (GROUP * lanes,), name="four", scope="local")
        none = Broadcast(build.const(0, self.kind), lanes)
        turned = tuple(row * lanes + lane if row < self.used else GROUP * lanes
                       for lane in range(lanes) for row in range(GROUP))
        for column in range((columns - 1) * step + self.window):
            rows = seen.buffer.vload((left * step + column, vector, 0, 0),
                                     f"{self.kind}x{GROUP * lanes}")
            ib.emit(four.buffer.vstore((0,), Shuffle((rows, none), turned)))
            for row, result in np.ndindex(self.together, columns):
                tap = column - result * step
                if not 0 <= tap < self.window:
                    continue
                factors = self._factors(weight, (row, tap, block * self.vectors + vector, 0, 0))
                given = four.buffer.vload((0,), f"{self.kind}x{GROUP * lanes}")
                before = held.buffer.vload((row, result, 0), f"int32x{lanes}")
                added = self._add(before, given, factors)
                ib.emit(held.buffer.vstore((row, result, 0), added))

    def _factors(self, weight: BufferVar, at: tuple[Any, ...]) -> Expr:
        """A vector of weights."""
        return weight.buffer.vload(at, f"{self.weight_kind}x{GROUP * self.lanes}")

    def _add(self, before: Expr, given: Expr, factors: Expr) -> Expr:
        """A vector of sums with the products of four rows."""
        return dot4(before, given, factors)

    def _store(
        self, ib: IRBuilder, total: BufferVar, out: BufferVar, place: tuple[int, int],
        at: tuple[Expr, ...], block: Expr,
    ) -> None:
        """A block of results, or what is made of them."""
        with ib.for_range(0, self.block, name="lane", kind="vectorize") as lane:
            index = (*at, block * self.block + lane)
            value = total[(*place, lane)]
            out[index] = value if self.finish is None else self.finish(index, value)


def _case(rows: int, columns: int, step: int, lanes: int) -> Array:
    rng = np.random.default_rng(rows)
    return pack_weights(rng.integers(-128, 128, (16, rows, columns)).astype("int8"), step, lanes)


register(OpRecord(
    "nn.conv2d_depthwise_dots",
    inputs=("data", "weight"),
    attrs=DepthwiseDotsAttrs,
    infer=infer_depthwise,
    compute=_compute,
    compute_with=_compute_with,
    reference=reference_depthwise,
    macs=_macs,
    pattern=OUT_ELEMWISE_FUSABLE,
    schedule=schedule_as_written,
    mixed_precision="never",
    cases=[
        Case((((1, 5, 10, 16), "uint8"), _case(3, 3, 1, 16)), {"padding": 1, "border": 7}),
        Case((((2, 6, 5, 16), "int8"), _case(3, 3, 2, 8)),
             {"padding": (0, 1, 1, 0), "strides": (2, 2), "border": -3}),
        Case((((1, 4, 4, 16), "uint8"), _case(2, 5, 1, 4)), {"padding": 2, "rows": 2}),
    ],
    doc="A depthwise convolution of bytes; its weights are packed, with a 0 for each of four rows "
        "that is not in the window.",
))
