"""A convolution by Winograd's way, with weights transformed before: nn.conv2d_winograd.

Channels lie last. A block of tiles is transformed to (position, tile, channel); for each block of
output channels every position is a product of matrices, and the results' transform ends it.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Broadcast, Call, Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import tensor
from sterna.op.epilogue import Epilogue
from sterna.op.kernel import Kernel
from sterna.op.nn._winograd import Matrix, as_array, matrices, transform_weights
from sterna.op.register_tile import register_tile
from sterna.op.schedules import schedule_default
from sterna.op.windows import Padding, full_padding, padded
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.layout import layout_of
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, register
from sterna.te import Tensor, extern
from sterna.te import all as all_of
from sterna.tir import ir_builder
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.passes.lower_prefetch import LINE_BYTES
from sterna.tir.stmt import BufferLoad, Evaluate, Stmt


@attributes
class WinogradAttrs(Attrs):
    """Of nn.conv2d_winograd."""

    tile_size: int = 4
    """Rows and columns of results that a tile gives."""
    padding: Padding = (0, 0, 0, 0)
    block_tiles: int = 16
    """Tiles that are transformed together."""
    lanes: int = 4
    """Channels of a vector."""
    registers: int = 16
    """Vectors that the processor keeps."""
    split: str = "blocks"
    """What threads share: "blocks" of tiles, "channels" of the result, or "positions" of a tile."""

    def normalize(self) -> None:
        """Padding before both axes, then after both."""
        self.padding = full_padding(self.padding, 2)


def _infer(attrs: WinogradAttrs, data: Type, weight: Type) -> TensorType:
    x, w = tensor(data, "data", 4), tensor(weight, "weight", 4)
    size = (attrs.tile_size + 2) ** 2
    if w.shape[0] != size or w.shape[2] != x.shape[3]:
        raise ValueError(
            f"weight {w.shape} should have {size} positions and {x.shape[3]} input channels"
        )
    batch, height, width, _ = x.concrete_shape
    top, left, bottom, right = full_padding(attrs.padding, 2)
    _, blocks, _, block = w.concrete_shape
    shape = (batch, height + top + bottom - 2, width + left + right - 2, blocks * block)
    return TensorType(shape, x.dtype)


def _reference(attrs: WinogradAttrs, data: Array, weight: Array) -> Array:
    """The transforms in float64."""
    m, size = attrs.tile_size, attrs.tile_size + 2
    top, left, bottom, right = full_padding(attrs.padding, 2)
    batch, height, width = data.shape[0], data.shape[1] + top + bottom - 2, data.shape[2] + left
    width += right - 2
    down, across = -(-height // m), -(-width // m)
    x = np.zeros((batch, down * m + 2, across * m + 2, data.shape[3]))
    x[:, top : top + data.shape[1], left : left + data.shape[2]] = data
    of = matrices(m)
    b, a = as_array(of.data), as_array(of.result)
    made = np.zeros((batch, down * m, across * m, weight.shape[1] * weight.shape[3]))
    for i, j in np.ndindex(down, across):
        tile = x[:, i * m : i * m + size, j * m : j * m + size]
        at = np.einsum("xr,nrsc,ys->nxyc", b, tile, b).reshape(batch, size * size, -1)
        products = np.einsum("npc,pocl->npol", at, weight.astype(np.float64))
        square = products.reshape(batch, size, size, -1)
        made[:, i * m : i * m + m, j * m : j * m + m] = np.einsum(
            "xr,nrsc,ys->nxyc", a, square, a
        )
    return made[:, :height, :width].astype(data.dtype)


def _macs(attrs: WinogradAttrs, out: TensorType, data: TensorType, weight: TensorType) -> int:
    batch, height, width, channels = out.concrete_shape
    return batch * height * width * channels * data.concrete_shape[3] * 9


def _compute(attrs: WinogradAttrs, out: TensorType, data: Tensor, weight: Tensor) -> Tensor:
    return _compute_with(attrs, out, None, data, weight)


def _compute_with(
    attrs: WinogradAttrs, out: TensorType, epilogue: Epilogue | None, data: Tensor, weight: Tensor
) -> Tensor:
    """What follows is computed while a tile of results is in registers."""
    m = attrs.tile_size
    _, height, width, _ = out.concrete_shape
    top, left, bottom, right = full_padding(attrs.padding, 2)
    # zeros up to whole tiles: no tile is an edge case
    more = [-(-extent // m) * m - extent for extent in (height, width)]
    source = padded(
        data, layout_of("NHWC"), "HW", (top, left), (bottom + more[0], right + more[1])
    )
    kernel = _Kernel(attrs, out, weight)
    reads = () if epilogue is None else epilogue.reads

    def body(ins: list[Any], outs: list[Any]) -> Stmt:
        ib = ir_builder.create()
        if epilogue is not None:
            buffers = dict(zip(reads, ins[2:], strict=True))
            kernel.finish = lambda place, value: epilogue.element(place, value, buffers)
        kernel.write(ib, *[ib.buffer_ptr(buffer) for buffer in (*ins[:2], *outs)])
        return ib.get()

    dtype = out.dtype if epilogue is None else epilogue.out.dtype
    made: Tensor = extern(
        out.shape, [source, weight, *reads], body, name="T_conv2d_winograd", dtype=str(dtype),
        attrs={"schedule": kernel.describe()},
    )  # fmt: skip
    return made


# What is stored at a place instead of a value.
Finish = Callable[[Sequence[Expr], Expr], Expr]


class _Kernel:
    """The statements of a convolution."""

    def __init__(self, attrs: WinogradAttrs, out: TensorType, weight: Tensor) -> None:
        self.m, self.size, self.lanes = attrs.tile_size, attrs.tile_size + 2, attrs.lanes
        self.batch, self.height, self.width, self.outputs = out.concrete_shape
        shape = [build.int_value(extent) or 1 for extent in weight.shape]
        self.inputs, self.block = shape[2], shape[3]
        self.dtype = str(out.dtype)
        self.down, self.across = -(-self.height // self.m), -(-self.width // self.m)
        self.each = min(attrs.block_tiles, self.down * self.across)
        self.blocks = -(-self.down * self.across // self.each)
        self.split = attrs.split
        self.rows = register_tile(
            self.each, self.outputs, self.lanes, attrs.registers, self.block
        ).rows
        self.of = matrices(self.m)
        self.finish: Finish | None = None

    def describe(self) -> str:
        """What it does, for the build report."""
        return (
            f"Winograd F({self.m}, 3), {self.blocks} blocks of {self.each} tiles, threads share "
            f"{self.split}, "
            f"{self.rows} tiles x {self.block} channels in registers, weights "
            f"{self.size**2 / 9:.1f} times as large"
        )

    def write(self, ib: IRBuilder, data: BufferVar, weight: BufferVar, out: BufferVar) -> None:
        """All blocks of tiles, shared by threads or each by all of them."""
        tiles = self.down * self.across
        by_blocks = self.split == "blocks"
        one = self._by_positions if self.split == "positions" else self._by_channels
        kind = "parallel" if by_blocks else "serial"
        with ib.for_range(0, self.batch * self.blocks, name="block", kind=kind) as at:
            image, first = at // self.blocks, at % self.blocks * self.each
            count = build.minimum(self.each, tiles - first) if tiles % self.each else self.each
            shape = (self.size**2, self.each, self.inputs)
            seen = ib.allocate(self.dtype, shape, name="seen")
            one(ib, data, weight, out, seen, image, first, count)

    def _by_channels(
        self, ib: IRBuilder, data: BufferVar, weight: BufferVar, out: BufferVar, seen: BufferVar,
        image: Expr, first: Expr, count: Any,
    ) -> None:  # fmt: skip
        """Block by block of channels, which threads share unless they share blocks of tiles."""
        kind = "serial" if self.split == "blocks" else "parallel"
        vectors = self.inputs // self.lanes
        with (
            ib.for_range(0, count, name="tile", kind=kind) as tile,
            ib.for_range(0, vectors, name="vector") as vector,
        ):
            self._transform_data(ib, data, seen, image, first + tile, tile, vector)
        with ib.for_range(0, self.outputs // self.block, name="channels", kind=kind) as channels:
            shape = (self.size**2, self.each, self.block)
            made = ib.allocate(self.dtype, shape, name="made")
            with ib.for_range(0, self.size**2, name="position") as position:
                following = (build.minimum(position + 1, self.size**2 - 1), channels)
                self._multiply(ib, seen, weight, made, position, channels, following)
            with ib.for_range(0, count, name="tile") as tile:
                self._transform_result(ib, made, out, image, first + tile, tile, channels)

    def _by_positions(
        self, ib: IRBuilder, data: BufferVar, weight: BufferVar, out: BufferVar, seen: BufferVar,
        image: Expr, first: Expr, count: Any,
    ) -> None:  # fmt: skip
        """Every thread multiplies some positions of all tiles."""
        vectors, blocks = self.inputs // self.lanes, self.outputs // self.block
        made = ib.allocate(self.dtype, (self.size**2, self.each, self.outputs), name="made")
        with ib.for_range(0, count * vectors, name="part", kind="parallel") as part:
            tile = part // vectors
            self._transform_data(ib, data, seen, image, first + tile, tile, part % vectors)
        parts = self.size**2 * blocks
        with ib.for_range(0, parts, name="part", kind="parallel") as part:
            later = build.minimum(part + 1, parts - 1)
            following = (later // blocks, later % blocks)
            self._multiply(ib, seen, weight, made, part // blocks, part % blocks, following)
        with ib.for_range(0, count * blocks, name="part", kind="parallel") as part:
            tile = part // blocks
            self._transform_result(ib, made, out, image, first + tile, tile, part % blocks)

    def _transform_data(
        self, ib: IRBuilder, data: BufferVar, seen: BufferVar, image: Expr, tile: Expr,
        place: Expr, vector: Expr,
    ) -> None:  # fmt: skip
        top, left = tile // self.across * self.m, tile % self.across * self.m
        channel = vector * self.lanes

        def load(row: int, column: int) -> Expr:
            index = (image, top + row, left + column, channel)
            return data.buffer.vload(index, f"{self.dtype}x{self.lanes}")

        def store(row: int, column: int, value: Expr) -> None:
            index = (row * self.size + column, place, channel)
            ib.emit(seen.buffer.vstore(index, value))

        self._both_sides(ib, self.of.data, load, store)

    def _multiply(
        self, ib: IRBuilder, seen: BufferVar, weight: BufferVar, made: BufferVar, position: Expr,
        channels: Expr, following: tuple[Expr, Expr],
    ) -> None:  # fmt: skip
        """All tiles of a block at one position, and one block of channels.

        following: the position and the block of channels whose weights come closer meanwhile.
        """
        whole, rest = divmod(self.each, self.rows)
        lines = range(0, self.block, LINE_BYTES // weight.buffer.dtype.bytes)
        each = -(-len(lines) // max(1, whole))

        def ahead(turn: Expr) -> list[tuple[Expr, ...]]:
            """The lines of every channel that one of the whole tiles fetches."""
            numbers = [build.minimum(turn * each + n, len(lines) - 1) for n in range(each)]
            return [(*following, number * lines.step) for number in numbers]

        with ib.for_range(0, whole, name="rows") as at:
            first = at * self.rows
            self._tile(ib, seen, weight, made, position, channels, first, self.rows, ahead(at))
        if rest:
            first = build.const(whole * self.rows)
            fetched = [] if whole else ahead(build.const(0))
            self._tile(ib, seen, weight, made, position, channels, first, rest, fetched)

    def _tile(
        self, ib: IRBuilder, seen: BufferVar, weight: BufferVar, made: BufferVar, position: Expr,
        channels: Expr, first: Expr, rows: int, ahead: Sequence[tuple[Expr, ...]],
    ) -> None:  # fmt: skip
        """Some tiles and a block of channels in registers, over all input channels."""
        vector = f"{self.dtype}x{self.block}"
        with ib.new_scope():
            total = ib.allocate(self.dtype, (rows, self.block), name="total", scope="local")
            zero = Broadcast(build.const(0.0, self.dtype), self.block)
            with ib.for_range(0, rows, name="row", kind="unroll") as row:
                ib.emit(total.buffer.vstore((row, 0), zero))
            with ib.for_range(0, self.inputs, name="channel") as channel:
                for *block, line in ahead:
                    place = BufferLoad(weight.buffer, (*block, channel, line))
                    ib.emit(Evaluate(Call(build.const(0).dtype, "prefetch", (place,))))
                read = weight.buffer.vload((position, channels, channel, 0), vector)
                with ib.for_range(0, rows, name="row", kind="unroll") as row:
                    number = Broadcast(seen[position, first + row, channel], self.block)
                    before = total.buffer.vload((row, 0), vector)
                    ib.emit(total.buffer.vstore((row, 0), before + number * read))
            with ib.for_range(0, rows, name="row", kind="unroll") as row:
                value = total.buffer.vload((row, 0), vector)
                index = (position, first + row, self._kept(channels))
                ib.emit(made.buffer.vstore(index, value))

    def _kept(self, channels: Expr) -> Expr:
        """Where the products of a block of channels begin: with those of others, or alone."""
        return channels * self.block if self.split == "positions" else build.const(0)

    def _transform_result(
        self, ib: IRBuilder, made: BufferVar, out: BufferVar, image: Expr, tile: Expr, place: Expr,
        channels: Expr,
    ) -> None:  # fmt: skip
        top, left = tile // self.across * self.m, tile % self.across * self.m
        with ib.for_range(0, self.block // self.lanes, name="vector") as vector:
            channel = vector * self.lanes

            def load(row: int, column: int) -> Expr:
                index = (row * self.size + column, place, self._kept(channels) + channel)
                return made.buffer.vload(index, f"{self.dtype}x{self.lanes}")

            def store(row: int, column: int, value: Expr) -> None:
                index = (image, top + row, left + column, channels * self.block + channel)
                inside: list[Expr] = []
                if row >= self.height % self.m > 0:
                    inside.append(top + row < self.height)
                if column >= self.width % self.m > 0:
                    inside.append(left + column < self.width)
                if not inside:
                    self._store(ib, out, index, value)
                    return
                with ib.if_scope(all_of(*inside)):
                    self._store(ib, out, index, value)

            self._both_sides(ib, self.of.result, load, store)

    def _store(
        self, ib: IRBuilder, out: BufferVar, index: tuple[Expr, ...], value: Expr
    ) -> None:
        """A vector of results, or what is made of them."""
        if self.finish is None:
            ib.emit(out.buffer.vstore(index, value))
            return
        held = ib.allocate(self.dtype, (self.lanes,), name="held", scope="local")
        ib.emit(held.buffer.vstore((0,), value))
        with ib.for_range(0, self.lanes, name="lane", kind="vectorize") as lane:
            place = (*index[:-1], index[-1] + lane)
            out[place] = self.finish(place, held[lane])

    def _both_sides(
        self, ib: IRBuilder, matrix: Matrix, load: Callable[[int, int], Expr],
        store: Callable[[int, int, Expr], None],
    ) -> None:  # fmt: skip
        """matrix * square * its transpose, of vectors."""
        shape = (len(matrix), self.size, self.lanes)
        half = ib.allocate(self.dtype, shape, name="half", scope="local")
        for column in range(self.size):
            values = [load(row, column) for row in range(self.size)]
            for row, factors in enumerate(matrix):
                ib.emit(half.buffer.vstore((row, column, 0), self._combined(factors, values)))
        for row in range(len(matrix)):
            vector = f"{self.dtype}x{self.lanes}"
            values = [half.buffer.vload((row, column, 0), vector) for column in range(self.size)]
            for column, factors in enumerate(matrix):
                store(row, column, self._combined(factors, values))

    def _combined(self, factors: Sequence[Fraction], values: Sequence[Expr]) -> Expr:
        """The sum of values times factors, without those that are 0 and products with 1."""
        total: Expr | None = None
        for factor, value in zip(factors, values, strict=True):
            if factor == 0:
                continue
            if total is not None and factor == -1:
                total = total - value
                continue
            number = Broadcast(build.const(float(factor), self.dtype), self.lanes)
            term = value if factor == 1 else value * number
            total = term if total is None else total + term
        assert total is not None
        return total


def _schedule(kernel: Kernel) -> None:
    schedule_default(kernel)
    kernel.choices["schedule"] = kernel.anchor[0].op.attrs["schedule"]


_WEIGHTS = transform_weights(
    np.random.default_rng(0).standard_normal((8, 4, 3, 3)).astype("float32"), 4, 8
)

register(OpRecord(
    "nn.conv2d_winograd",
    inputs=("data", "weight"),
    attrs=WinogradAttrs,
    infer=_infer,
    compute=_compute,
    compute_with=_compute_with,
    reference=_reference,
    macs=_macs,
    pattern=OUT_ELEMWISE_FUSABLE,
    schedule=_schedule,
    cases=[
        Case(((1, 8, 7, 4), _WEIGHTS), {"padding": 1, "block_tiles": 3}),
        Case(((2, 9, 5, 4), _WEIGHTS), {"padding": (0, 1, 2, 1), "split": "channels"}),
        Case(((2, 9, 7, 4), _WEIGHTS), {"padding": 1, "block_tiles": 4, "split": "positions"}),
    ],
    doc="A convolution with windows of 3 x 3 by Winograd's way; its weights are transformed.",
))  # fmt: skip
