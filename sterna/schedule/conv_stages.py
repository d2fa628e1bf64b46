"""What the schedules of convolutions share: the convolution of a kernel, its sum and its border."""

import math
from dataclasses import dataclass

from sterna.ir import build
from sterna.schedule.border_steps import counted, sees_image
from sterna.schedule.choose import choose
from sterna.schedule.chunked_sum_stages import sums_of
from sterna.schedule.contraction import Contraction
from sterna.schedule.cost import SUMS_AT_ONCE
from sterna.schedule.default import schedule_elements
from sterna.schedule.gemm import ancestors
from sterna.schedule.kernel import Kernel
from sterna.schedule.loops import extents_of
from sterna.schedule.register_tile import RegisterTile, vectors_of
from sterna.schedule.sum_of_products import SumOfProducts, description_of
from sterna.te import ComputeOp, IterVar, PlaceholderOp, Stage, Tensor
from sterna.te import all as all_of

# So few input channels need no loop.
UNROLLED_CHANNELS = 4
LINE_BYTES = 64
# What becomes of products of the border: all are added, those left out that no pixel of a tile
# needs, or those of each pixel. How much longer the last takes, which are so many loops at most of
# so many steps at least.
ADDED, LEFT_OUT, BY_PIXELS = "added", "left out", "left out by pixels"
WRITTEN, MOST_LOOPS, LEAST_STEPS = 1.015, 12, 16
# Pixels of a band where nothing is read twice: larger bands only leave the inner cache.
BAND_PIXELS = 64


@dataclass(slots=True)
class Conv:
    """A convolution whose channels lie last."""

    kernel: Kernel
    op: ComputeOp
    sum: SumOfProducts
    made: Contraction
    height: int
    width: int
    """Of the result: the pixels of an image may be one row."""

    @property
    def data(self) -> Tensor:
        """What the sum reads: the image, or the stage that adds a border to it."""
        return self.sum.accesses[0].tensor

    @property
    def weight(self) -> Tensor:
        return self.sum.accesses[1].tensor

    @property
    def weights_are_known(self) -> bool:
        """Whether they were packed before the run, whose own might be infinite."""
        return self.weight.ndim > self.made.rank + 2

    @property
    def batch(self) -> int:
        return self.made.batch

    @property
    def channels(self) -> int:
        return self.made.outputs

    @property
    def has_border(self) -> bool:
        return isinstance(self.data.op, ComputeOp)

    @property
    def element(self) -> int:
        return self.op.output(0).dtype.bytes

    @property
    def reads_far_rows(self) -> bool:
        """Whether all of the image is read, one pixel after the other, from behind the caches."""
        size = [build.int_value(extent) for extent in self.data.shape]
        whole = size == [self.batch, self.height, self.width, self.made.depth]
        in_memory = isinstance(self.data.op, PlaceholderOp)
        return whole and in_memory and bytes_of(self.data) > self.kernel.processor.l2_bytes // 2

    def weight_bytes(self, channels: int) -> int:
        """The weights of so many output channels."""
        return channels * self.made.products * self.weight.dtype.bytes


def conv_of(kernel: Kernel) -> Conv | None:
    """The convolution of a kernel, if its channels lie last; None if its loops are others.

    Few channels of the data are read one by one, wherever they lie.
    """
    sums = sums_of(kernel)
    described = description_of(sums[0]) if len(sums) == len(kernel.outputs) == 1 else None
    made = None if described is None else described.contraction
    if described is None or made is None or made.rank != 2 or made.out_layout != "NHWC":
        return None
    few = 1 < made.depth <= UNROLLED_CHANNELS
    if not few and made.data_layout != "NHWC":
        return None
    if made.depth == 1 and (made.groups == 1 or described.chunk_roles):
        return None
    _, height, width, _ = described.sizes
    return Conv(kernel, sums[0], described, made, height, width)


def sum_in_registers(conv: Conv) -> Stage:
    """The sum as a stage of its own; what follows it is computed where the result is stored."""
    schedule, out = conv.kernel.schedule, conv.kernel.outputs[0]
    if schedule[out].op is conv.op:
        return schedule[schedule.cache_write(out, "local")]
    before = ancestors(conv.op)
    for other in schedule.stages:
        kept = other.op in before or other.op is conv.op or other.is_output
        if isinstance(other.op, ComputeOp) and not kept:
            other.compute_inline()
    made = schedule[conv.op.output(0)]
    made.set_scope("local")
    return made


def steps_of(tile: Stage) -> list[IterVar]:
    """The loops of the sum, channels innermost.

    Several steps in a row would make LLVM load ahead, for which no registers are left.
    """
    channel, *window = tile.op.reduce_axis
    if extents_of([channel])[0] <= UNROLLED_CHANNELS:
        tile.unroll(channel)
    return [*window, channel]


def side_by_side(made: SumOfProducts) -> int:
    """Channels that lie side by side and are summed over in a loop."""
    return made.beside(0) if made.depths[0] > UNROLLED_CHANNELS else 1


def leave_out_border(
    conv: Conv, tile: Stage, size: RegisterTile, across: tuple[Stage, IterVar], lines: int = 1,
    loops: tuple[IterVar, IterVar] | None = None,
) -> bool:
    """The steps of a tile's sum that see the border alone are left out, where these are many.

    The tile has its loops over so many rows and over columns already, or its axes are these.
    across: the stage and the loop of it that runs over the tiles of a row. Where few are in a row
    they are written out, and so are the columns of the window: each product of the border is left
    out then. Gives whether they are.
    """
    made, processor = conv.made, conv.kernel.processor
    sums = lines * size.rows * vectors_of(size.columns, processor.lanes(conv.sum.dtype))
    if sums < SUMS_AT_ONCE * processor.throughput.multiply_adds:
        return False  # they wait for each other: those of the next tile must be under way
    if (conv.height, conv.width) != made.result or not conv.weights_are_known:
        return False
    extents = (lines, size.rows)
    shares = [counted(made, axis, extent) for axis, extent in enumerate(extents)]
    costs = {LEFT_OUT: math.prod(shares), ADDED: 1.0}
    if _may_write_columns(conv, size):
        costs[BY_PIXELS] = WRITTEN * shares[0] * counted(made, 1, 1)
    if min(costs.values()) >= costs[ADDED]:
        return False
    way = choose("steps of the border", list(costs), costs.__getitem__)
    _, *window = tile.op.reduce_axis
    if way == BY_PIXELS:
        stage, row_of_tiles = across
        stage.unroll(row_of_tiles)
        tile.unroll(window[1])
    spared = [axis for axis, share in enumerate(shares) if share < 1.0 and way != ADDED]
    seen = []
    if way == BY_PIXELS:
        spared = [axis for axis in spared if axis == 0]
        seen.append(sees_image(made, 1, 1, tile.op.axis[2].var, window[1].var))
    for axis in spared:
        own = tile.op.axis[1 + axis]
        loop = tile.split(own, factor=extents[axis])[1] if loops is None else loops[axis]
        seen.append(sees_image(made, axis, extents[axis], own.var - loop.var, window[axis].var))
    if seen:
        tile.set_step_predicate(all_of(*seen))
    return way == BY_PIXELS


def _may_write_columns(conv: Conv, size: RegisterTile) -> bool:
    """Whether pixels see the border, and the columns of a window for each tile are few loops."""
    made, loops = conv.made, conv.made.window[1] * -(-conv.width // size.rows)
    return counted(made, 1, 1) < 1.0 and made.depth >= LEAST_STEPS and loops <= MOST_LOOPS


def write_out(tile: Stage, reduced: list[IterVar]) -> None:
    """The loops of the sum around the accumulators of some columns."""
    *others, column, vector = (leaf for leaf in tile.leaf_iter_vars if leaf not in reduced)
    tile.reorder(*others, *reduced, column, vector)
    tile.unroll(column)
    tile.vectorize(vector)


def even_part(size: int, most: int) -> int:
    """The largest divisor up to a bound; the bound itself if all divisors are much smaller."""
    found = max(n for n in range(1, min(size, most) + 1) if size % n == 0)
    return found if 2 * found > most else min(size, most)


def bytes_of(tensor: Tensor) -> int:
    extents = [build.int_value(extent) or 1 for extent in tensor.shape]
    return math.prod(extents) * tensor.dtype.bytes


def rows_within(conv: Conv, room: int) -> int:
    """Rows of the result that read and write so many bytes at most; one at least."""
    read = bytes_of(conv.data) / (conv.batch * conv.height)
    return max(1, room // int(read + conv.width * conv.channels * conv.element + 1))


def place_border(conv: Conv, stage: Stage, piece: IterVar | None) -> None:
    """The border is made in the piece of work that needs it; whole before where pieces share it."""
    for op in ancestors(conv.op):
        if not isinstance(op, ComputeOp) or op.reduce_axis:
            continue
        made = conv.kernel.schedule[op]
        if made.attach_type == "inline":
            continue
        if piece is not None and op is conv.data.op:
            made.compute_at(stage, piece)
            _vectorise_last(made, conv.kernel.processor.lanes(made.op.output(0).dtype))
        else:
            schedule_elements(made, conv.kernel.processor)


def _vectorise_last(stage: Stage, lanes: int) -> None:
    last = stage.op.axis[-1]
    size = extents_of([last])[0]
    if size > lanes:
        pieces, last = stage.split(last, factor=lanes)
        stage.pragma(pieces, "loop_partition_hint", True)
    if size > 1:
        stage.vectorize(last)
