"""Sums of products on a GPU: tiles in shared memory, and in registers of each thread.

A block computes a tile of two axes of the result: rows, which only the data depends on, and
columns, which only the weights do. Both operands come into shared memory part by part along the
sum, fetched by all threads together; each thread keeps a small tile of results in registers. What
follows the sum is computed when that is stored.
"""

import math
from dataclasses import dataclass

from sterna.schedule.choose import choose
from sterna.schedule.gpu.limits import Limits
from sterna.schedule.kernel import Kernel
from sterna.schedule.loops import extents_of
from sterna.schedule.sum_of_products import CHANNEL, SumOfProducts, description_of
from sterna.te import ComputeOp, IterVar, Stage, Tensor, thread_axis

# Fewer rows or columns than this: there is nothing to share.
LEAST = 4
# Results that a thread keeps in registers along each axis.
REGISTERS = (4, 2, 1)
# Threads along each axis.
THREADS = (16, 8, 4, 2, 1)
# Steps of the sum that are fetched at once.
DEPTHS = (16, 8, 4, 2, 1)
# Blocks that keep a device busy.
BLOCKS = 64


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block and a thread compute, and how far along the sum they fetch."""

    row_threads: int
    column_threads: int
    rows: int
    columns: int
    """Of one thread."""
    depth: int

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return self.row_threads * self.rows

    @property
    def block_columns(self) -> int:
        """Columns of a block."""
        return self.column_threads * self.columns

    def __str__(self) -> str:
        return f"{self.block_rows} x {self.block_columns} x {self.depth}, {self.rows} x " \
            f"{self.columns} a thread"


@dataclass(frozen=True, slots=True)
class _Product:
    """A sum of products whose rows and columns are one axis each."""

    made: SumOfProducts
    row: int
    column: int
    channel: int
    """The axis of the sum that is cut."""

    @property
    def size(self) -> tuple[int, int]:
        sizes = self.made.sizes
        return sizes[self.row], sizes[self.column]

    @property
    def row_is_last(self) -> bool:
        """Whether neighbouring rows, rather than columns, lie side by side in the result."""
        return self.row > self.column

    def threads(self, tile: Tile) -> tuple[int, int]:
        """Those of a block in y and x."""
        slow, fast = tile.row_threads, tile.column_threads
        return (fast, slow) if self.row_is_last else (slow, fast)

    def shared_bytes(self, tile: Tile) -> int:
        """What both operands of a tile take in shared memory."""
        return self._data(tile) + self._weights(tile)

    def _taps(self) -> int:
        depths = self.made.depths
        return math.prod(d for place, d in enumerate(depths) if place != self.channel)

    def _weights(self, tile: Tile) -> int:
        width = self.made.accesses[1].dtype.bytes
        return tile.block_columns * tile.depth * self._taps() * width

    def _data(self, tile: Tile) -> int:
        contraction, width = self.made.contraction, self.made.accesses[0].dtype.bytes
        if contraction is None or contraction.taps == 1:
            stride = 1 if contraction is None else max(contraction.strides)
            return tile.block_rows * stride * tile.depth * self._taps() * width
        window, dilation = contraction.window, contraction.dilation
        spans = [(w - 1) * d + 1 for w, d in zip(window, dilation, strict=True)]
        along = tile.block_rows * max(contraction.strides) + max(spans)
        return along * math.prod(spans) // min(spans) * tile.depth * width


def schedule_contraction(kernel: Kernel, limits: Limits) -> bool:
    """Schedule a kernel that follows a sum of products; False if it has none that fits."""
    found = _product_of(kernel)
    if found is None:
        return False
    total, product = found
    tile = _tile_of(product, limits)
    if tile is None:
        return False
    kernel.choices["tile"] = str(tile)
    _place(kernel, total, product, tile)
    return True


def _product_of(kernel: Kernel) -> tuple[ComputeOp, _Product] | None:
    """The only sum of a kernel, if it is one of products with rows and columns."""
    stages = [s for s in kernel.schedule.stages if s.attach_type == "root"]
    sums = [s.op for s in stages if isinstance(s.op, ComputeOp) and s.op.reduce_axis]
    others = [s for s in stages if isinstance(s.op, ComputeOp) and not s.op.reduce_axis]
    if len(sums) != 1 or len(kernel.outputs) != 1 or any(s.is_output is False for s in others):
        return None
    total = sums[0]
    assert isinstance(total, ComputeOp)
    made, out = description_of(total), kernel.outputs[0]
    if made is None or made.chunk_roles or len(made.accesses) != 2:
        return None
    if extents_of(kernel.schedule[out].op.axis) != made.sizes or CHANNEL not in made.roles:
        return None
    data, weights = made.accesses
    sizes = made.sizes
    rows = [p for p in range(len(sizes)) if p in data.axes and p not in weights.axes]
    columns = [p for p in range(len(sizes)) if p in weights.axes and p not in data.axes]
    if not rows or not columns:
        return None
    row, column = max(rows, key=lambda p: sizes[p]), max(columns, key=lambda p: sizes[p])
    channels = [p for p, role in enumerate(made.roles) if role == CHANNEL]
    channel = max(channels, key=lambda p: made.depths[p])
    if min(sizes[row], sizes[column]) < LEAST or math.prod(made.depths) < LEAST:
        return None
    if any(extent is None for extent in (*made.extents, *made.steps)):
        return None
    return total, _Product(made, row, column, channel)


def _tile_of(product: _Product, limits: Limits) -> Tile | None:
    """The tile that reads the least for each product, among those that a block has room for."""
    rows, columns = product.size
    depth = product.made.depths[product.channel]
    blocks = math.prod(product.made.sizes) // (rows * columns)
    fitting = [
        tile
        for row_threads in THREADS for column_threads in THREADS
        for own_rows in REGISTERS for own_columns in REGISTERS for steps in DEPTHS
        if (tile := Tile(row_threads, column_threads, own_rows, own_columns, steps))
        and row_threads * column_threads <= limits.threads
        and row_threads * column_threads >= min(16, limits.threads)
        and steps <= depth
        and product.shared_bytes(tile) <= limits.shared_bytes
    ]

    def cost(tile: Tile) -> float:
        across, down = -(-rows // tile.block_rows), -(-columns // tile.block_columns)
        work = across * tile.block_rows * down * tile.block_columns / (rows * columns)
        fetched = 1 / tile.block_rows + 1 / tile.block_columns
        held = 1 / tile.rows + 1 / tile.columns
        threads = tile.row_threads * tile.column_threads
        idle = math.sqrt(max(1.0, BLOCKS / (across * down * blocks)))
        idle *= math.pow(256 / threads, 0.25)
        waits = 1 + 1 / tile.depth
        return work * (0.1 + 4 * fetched + held) * idle * waits

    return choose("tile of a block", fitting, cost) if fitting else None


def _place(kernel: Kernel, total: ComputeOp, product: _Product, tile: Tile) -> None:
    schedule, out = kernel.schedule, kernel.outputs[0]
    if schedule[out].op is total:
        sums = schedule.cache_write(out, "local")
    else:
        sums = total.output(0)
        schedule[sums].set_scope("local")
    result = schedule[out]
    thread = _bind_result(result, product, tile)
    own = schedule[sums]
    own.compute_at(result, thread)
    op = own.op
    assert isinstance(op, ComputeOp)
    order = [p for p in range(len(op.reduce_axis)) if p != product.channel]
    outer, inner = own.split(op.reduce_axis[product.channel], factor=tile.depth)
    taps = [op.reduce_axis[p] for p in order]
    row, column = op.axis[product.row], op.axis[product.column]
    rest = [axis for axis in op.axis if axis is not row and axis is not column]
    own.reorder(*rest, outer, *taps, inner, row, column)
    for axis, count in ((row, tile.rows), (column, tile.columns)):
        if count > 1:
            own.unroll(axis)
    for tensor in _operands(op):
        held = schedule.cache_read(tensor, "shared", [sums])
        _fetch(schedule[held], own, outer, product.threads(tile))


def _operands(op: ComputeOp) -> list[Tensor]:
    """What a sum reads, each once."""
    found: dict[object, Tensor] = {}
    for tensor in op.input_tensors:
        found.setdefault(tensor.op, tensor)
    return list(found.values())


def _bind_result(result: Stage, product: _Product, tile: Tile) -> IterVar:
    """Blocks, threads and registers of the result; gives the innermost loop over threads."""
    axes = list(result.op.axis)
    row, column = axes[product.row], axes[product.column]
    rest = [axis for axis in axes if axis is not row and axis is not column]
    row_block, rows = result.split(row, factor=tile.block_rows)
    row_thread, row_own = result.split(rows, factor=tile.rows)
    column_block, columns = result.split(column, factor=tile.block_columns)
    column_thread, column_own = result.split(columns, factor=tile.columns)
    slow, fast = row_thread, column_thread
    if product.row_is_last:
        slow, fast = column_thread, row_thread
    result.reorder(*rest, row_block, column_block, slow, fast, row_own, column_own)
    if rest:
        result.bind(result.fuse(*rest), thread_axis("blockIdx.z"))
    result.bind(row_block, thread_axis("blockIdx.y"))
    result.bind(column_block, thread_axis("blockIdx.x"))
    result.bind(slow, thread_axis("threadIdx.y"))
    result.bind(fast, thread_axis("threadIdx.x"))
    return fast


def _fetch(held: Stage, reader: Stage, place: IterVar, threads: tuple[int, int]) -> None:
    """All threads of a block bring an operand's part into shared memory."""
    held.compute_at(reader, place)
    rest, fast = held.split(held.fuse(*held.op.axis), factor=threads[1])
    _, slow = held.split(rest, factor=threads[0])
    held.bind(slow, thread_axis("threadIdx.y"))
    held.bind(fast, thread_axis("threadIdx.x"))
