"""im2col: a convolution with channels first as a product of matrices whose columns are pixels.

Nothing is laid out anew: it pays where no neighbour has its channels last.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from sterna.ir.types import TensorType
from sterna.relay.arrays import Array, from_numpy
from sterna.relay.expr import Constant, RelayExpr
from sterna.relay.op import call as call_of
from sterna.schedule.choose import asking_costs, choose, near
from sterna.schedule.contraction import Contraction
from sterna.schedule.conv_stages import LINE_BYTES
from sterna.schedule.cost import KERNEL, STREAMED, arriving, border_cycles, regions
from sterna.schedule.im2col_kernel import (
    CUT_ROWS,
    IN_PLACE,
    ROWS,
    TILES,
    Im2colKernel,
    as_lines,
    vector_of_line,
    without_border,
)
from sterna.schedule.implementation import (
    Arranged,
    Candidate,
    PackedImplementation,
    Plan,
    expect_shape,
)
from sterna.schedule.kernel import Processor
from sterna.schedule.products import FLOAT32
from sterna.schedule.register_tile import MOST_ROWS, rows_that_fit, step_cycles
from sterna.te import Tensor

# Vectors side by side of the widest tile.
WIDEST = 4
# Cycles in which a vector of neighbours is copied into a panel, and a number from among others.
COPIED, PICKED = 2.0, 1.5
# How much less the latter takes of some channels, which the first cache has.
NEAR = 0.5
# Cycles in which a vector of every second one is copied, and one is cut from a row into its tile.
COPIED_APART, CUT = 3.0, 6.0
# Cycles in which a vector that lies far from the next one comes again, for each further block of
# channels.
FAR = 4.0
# Cycles in which a line of an image comes from behind the second cache that is read by few lines of
# each channel; and the steps of the sum that panels of some channels have.
LINE_COMES, CHUNK_STEPS = 22.0, 128
# Lines of a panel in the first cache.
LEAST_LINES = 4
# Cycles in which a weight that only the run knows is packed, and how much longer one takes, each
# time it is read, that lies apart from those of the other channels.
REPACKED, LYING = 3.0, 0.75
# Sums of fewer products than these hardly use what is loaded.
LEAST_PRODUCTS = 4


@dataclass(frozen=True, slots=True)
class Tile:
    """Output channels and pixels that are in registers together."""

    rows: int
    columns: int

    def __str__(self) -> str:
        """8 x 12"""
        return f"{self.rows} x {self.columns}"


class Im2col(PackedImplementation):
    """Channels first, float32, any window, strides, dilation and groups."""

    name = "im2col"
    wants = "a convolution of float32 images with channels first"

    def suits(self, made: Contraction) -> bool:
        return _is_channels_first(made)

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor
    ) -> Sequence[Candidate]:
        if not offers_im2col(made, processor):
            return []
        plan = self.plan(made, processor)
        seen = taken_image(made, plan)
        packed = partial(_packed, seen, plan.integer("rows"), weights)
        arranged = None if seen is made else Arranged(seen, partial(with_border, made))
        cycles = im2col_cycles(made, processor)
        return [Candidate(plan, cycles, packed, arranged, label=self.name)]

    def plan(self, made: Contraction, processor: Processor) -> Plan:
        """The tile, the panels and the shares that suit there."""
        lines = as_lines(without_border(made))
        outputs = made.outputs // made.groups
        found = tiles(processor, outputs, math.prod(lines.result))
        tile = choose("tile", list(found), found.__getitem__)
        ways = ways_of_copying(lines, tile, processor)
        copied = choose("copied", list(ways), ways.__getitem__)
        panels = panel_cycles(made, tile, copied, ways[copied], processor)
        channels = choose("channels", list(panels), panels.__getitem__)
        panel = panel_of(lines, tile, processor, copied == ROWS, channels)
        pieces = made.batch * made.groups * -(-_extent(lines) // panel)
        blocks = -(-outputs // tile.rows)
        shares = choose(
            "channels in parts", range(1, blocks + 1),
            near(min(blocks, -(-processor.threads // pieces))),
        )
        return Plan.of(
            self.name, rows=tile.rows, columns=tile.columns, panel=panel, channels=channels,
            shares=shares,
            lanes=processor.lanes(FLOAT32), by_lanes=int(processor.by_element_fma),
            copied=copied,
        )

    def expect_types(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        for name in ("rows", "columns", "panel", "channels", "shares", "lanes"):
            if plan.integer(name) < 1:
                raise ValueError(f"{name} should be at least 1")
        if plan.text("copied") not in (TILES, ROWS, CUT_ROWS, IN_PLACE):
            raise ValueError(f"copied should be {TILES}, {ROWS}, {CUT_ROWS} or {IN_PLACE}")
        if plan.text("copied") == IN_PLACE and not reads_in_place(
            as_lines(made), plan.integer("columns"), plan.integer("lanes")
        ):
            raise ValueError("pixels are read in place only where each is a window of its own")
        if made.is_padded and not (plan.integer("channels") < made.depth and _may_add_border(made)):
            raise ValueError("the border is made only by chunks of channels with several lines")
        if plan.integer("columns") % plan.integer("lanes"):
            raise ValueError("lanes should divide columns")
        rows = plan.integer("rows")
        blocks = -(-made.outputs // made.groups // rows)
        if plan.integer("shares") > blocks:
            raise ValueError(f"there are {blocks} blocks of channels for shares")
        if operands[0].ndim != 2:  # those that only the run knows may be as they lie
            expect_shape(operands, (made.groups, blocks, made.products, rows))
        else:
            expect_shape(operands, (made.outputs, made.products))

    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        rows = operands[0]
        if rows.ndim != 2:
            by_group = rows.transpose(0, 1, 3, 2).reshape(made.groups, -1, made.products)
            rows = by_group[:, : made.outputs // made.groups]
        return np.moveaxis(rows.reshape(made.outputs, made.depth, *made.window), 1, -1)

    def kernel(
        self, made: Contraction, plan: Plan, out: TensorType, packed: Sequence[Tensor]
    ) -> Im2colKernel:
        return Im2colKernel(made, plan)


def _is_channels_first(made: Contraction) -> bool:
    floats = {*made.dtypes} == {FLOAT32} and made.border == 0 and not made.transposed
    first = made.data_layout == made.out_layout == "NCHW"
    return floats and first and made.rank == 2 and made.macs > 0


def offers_im2col(made: Contraction, processor: Processor) -> bool:
    """Whether it is offered for a contraction: panels take memory, and pay by vectors of pixels."""
    can = processor.has_spare_memory and processor.lanes(FLOAT32) > 1
    return can and made.products >= LEAST_PRODUCTS and _is_channels_first(made)


def taken_image(made: Contraction, plan: Plan) -> Contraction:
    """The same over images as a plan takes them: without a border, or with one that it makes."""
    return made if plan.integer("channels") < made.depth else without_border(made)


def with_border(made: Contraction, data: RelayExpr) -> RelayExpr:
    """The data with its border."""
    zero = Constant(from_numpy(np.zeros((), "float32")))
    width = ((0, 0), (0, 0), *zip(made.before, made.after, strict=True))
    return call_of("nn.pad", data, zero, pad_width=width)


def _packed(made: Contraction, rows: int, weights: Array) -> tuple[Array, ...]:
    """Weights (O, window, I) as (group, block of O, product of the sum, O in the block)."""
    plain = np.moveaxis(weights, -1, 1).reshape(made.groups, -1, made.products)
    more = -plain.shape[1] % rows
    whole = np.pad(plain, [(0, 0), (0, more), (0, 0)])
    packed = whole.reshape(made.groups, -1, rows, made.products).transpose(0, 1, 3, 2)
    return (np.ascontiguousarray(packed),)


def packed_in_graph(made: Contraction, plan: Plan, weight: RelayExpr) -> RelayExpr:
    """The same of weights (O, I, H, W) that only the run knows."""
    rows, outputs = plan.integer("rows"), made.outputs // made.groups
    if _lie_well(made, plan):
        return call_of("reshape", weight, newshape=(made.outputs, made.products))
    flat = call_of("reshape", weight, newshape=(made.groups, outputs, made.products))
    if outputs % rows:
        zero = Constant(from_numpy(np.zeros((), "float32")))
        flat = call_of("nn.pad", flat, zero, pad_width=((0, 0), (0, -outputs % rows), (0, 0)))
    by_group = call_of("reshape", flat, newshape=(made.groups, -1, rows, made.products))
    return call_of("transpose", by_group, axes=(0, 1, 3, 2))


def _lie_well(made: Contraction, plan: Plan) -> bool:
    """Whether weights that only the run knows are read as they lie: by tiles of few pixels.

    Not where products take their numbers from the lanes of a vector: those lie side by side.
    """
    if plan.integer("by_lanes"):
        return False
    passes = made.batch * -(-math.prod(made.result) // plan.integer("columns"))
    ways = {"packed": REPACKED, "as they lie": LYING * passes}
    return choose("free weights", list(ways), ways.__getitem__) == "as they lie"


@cache
def tiles(processor: Processor, outputs: int, pixels: int) -> dict[Tile, float]:
    """Register tiles, with their cycles for each step of the sum."""
    lanes = processor.lanes(FLOAT32)
    together = lanes if processor.by_element_fma else 1
    found: dict[Tile, float] = {}
    for vectors in range(WIDEST, 0, -1):
        for rows in range(min(outputs, _most_rows(processor, vectors)), 0, -1):
            across, beyond = divmod(-(-pixels // lanes), vectors)
            down, below = divmod(outputs, rows)
            found[Tile(rows, vectors * lanes)] = sum(
                count * times * step_cycles(high, wide, together, processor.throughput)
                for high, count in ((rows, down), (below, 1))
                for wide, times in ((vectors, across), (beyond, 1))
                if high and wide
            )
    return found


def _most_rows(processor: Processor, vectors: int) -> int:
    """Rows of accumulators that fit beside a row of the panel and the numbers of a step."""
    if not processor.by_element_fma:
        return min(MOST_ROWS, rows_that_fit(vectors, processor.tile_registers))
    lanes = processor.lanes(FLOAT32)
    free = processor.vector_registers - vectors
    return max(n for n in range(1, MOST_ROWS + 1) if n * vectors + -(-n // lanes) < free or n == 1)


def _extent(lines: Contraction) -> int:
    return lines.result[1] if lines.result[0] == 1 else lines.result[0]


def ways_of_copying(lines: Contraction, tile: Tile, processor: Processor) -> dict[str, float]:
    """How pixels may come into panels, with the cycles that one takes for each step of the sum.

    Lines that do not share their width with tiles fall into short pieces, unless they are copied
    whole into one row for each step. A panel of such rows stays in the first cache, with some lines
    at least; else tiles are cut out of each row, and lie far from each other.
    """
    (high, width), lanes = lines.result, processor.lanes(FLOAT32)
    side = lanes if high == 1 else math.gcd(width, tile.columns)
    ways = {TILES: COPIED / min(lanes, side) if lines.strides[1] == 1 else PICKED}
    if reads_in_place(lines, tile.columns, lanes):
        blocks = -(-lines.outputs // lines.groups // tile.rows)
        ways[IN_PLACE] = FAR * (blocks - 1) / lanes
    size = vector_of_line(width, lanes)
    if high == 1 or side >= size or lines.strides[1] > 2:
        return ways
    each = COPIED if lines.strides[1] == 1 else COPIED_APART
    whole = each * -(-width // size) / width
    line = lines.products * width * lines.data.bytes
    if line * min(high, LEAST_LINES) <= processor.l1_bytes // 2:
        ways[ROWS] = whole
    ways[CUT_ROWS] = whole + CUT / lanes
    return ways


def reads_in_place(lines: Contraction, columns: int, lanes: int) -> bool:
    """Whether the pixels of a line, of one window each, lie as vectors of them are read."""
    beside, pixels = {*lines.strides, *lines.window, lines.result[0]} == {1}, lines.result[1]
    return beside and pixels == lines.image[1] and (pixels >= columns or pixels % lanes == 0)


def panel_of(
    lines: Contraction, tile: Tile, processor: Processor, by_rows: bool, channels: int
) -> int:
    """Lines of a panel, or pixels of it where there is but one line.

    It stays in half of the second cache (the first one, if it consists of rows), and of those
    that do it leaves the fewest lanes empty.
    """
    extent, threads = _extent(lines), processor.threads
    unit, waiting = tile.columns if lines.result[0] == 1 else lines.result[1], 0
    if channels < lines.depth:  # their sums wait beside them
        waiting = lines.outputs // lines.groups
    count = -(-extent // tile.columns) if lines.result[0] == 1 else extent
    room = (processor.l1_bytes if by_rows else processor.l2_bytes) // 2
    most = max(1, room // ((channels * lines.taps + waiting) * unit * lines.data.bytes))
    share = -(-count * lines.batch * lines.groups // threads)
    most = min(most, count, max(1, share))

    def cycles(units: int) -> float:
        """Tiles of all panels, of which the last may be smaller; few panels read weights less."""
        whole, rest = divmod(count, units)
        columns = whole * -(-units * unit // tile.columns) + -(-rest * unit // tile.columns)
        return columns + 0.5 * (whole + (rest > 0))

    units = choose("panel", range(1, most + 1), cycles)
    return units * unit if lines.result[0] == 1 else units


def panel_cycles(
    made: Contraction, tile: Tile, copied: str, each: float, processor: Processor
) -> dict[int, float]:
    """What panels take beside products, by how many channels they have at once.

    each: cycles in which a pixel comes into a panel for each step of the sum.

    An image that leaves the second cache comes by few lines of all channels, after its border was
    added, or by many lines of some. Chunks of these add their border, and load and store sums.
    """
    whole = without_border(made)
    lines, depth = as_lines(whole), made.depth
    numbers = made.batch * made.inputs * math.prod(whole.image)
    size, is_far = numbers * FLOAT32.bytes, numbers // made.batch > _numbers_near(processor)
    border = COPIED * numbers / processor.lanes(FLOAT32) if made.is_padded else 0.0
    copies: float = made.batch * made.groups * lines.products * math.prod(lines.result)
    # large weights come again for every panel
    weights = made.batch * made.weight_bytes / STREAMED
    weights *= made.weight_bytes > processor.l2_bytes // 2
    panels = 2 * lines.products * math.prod(lines.result) * FLOAT32.bytes / processor.l2_bytes
    found = {depth: copies * each + border + (KERNEL if made.is_padded else 0.0)}
    found[depth] += weights * max(1.0, panels)
    if is_far:
        found[depth] += border_cycles(made, processor) * processor.threads
        found[depth] += _far_lines(lines, tile, copied, processor) * LINE_COMES
    some = -(-CHUNK_STEPS // lines.taps)
    chunks = -(-depth // some)
    if chunks > 1 and copied != IN_PLACE and (not made.is_padded or _may_add_border(made)):
        sums = made.batch * made.outputs * math.prod(made.result) * FLOAT32.bytes
        come = (size if is_far else 0) + 2 * (chunks - 1) * sums
        some = -(-depth // chunks)
        copies *= each * (NEAR if lines.strides[1] > 1 else 1.0)
        found[some] = copies + border + KERNEL + come / STREAMED
        found[some] += weights * _panels(lines, tile, copied, some, processor)
    return found


def _may_add_border(made: Contraction) -> bool:
    """Whether panels of some channels may make the border: they have whole lines of the image."""
    whole = without_border(made)
    return as_lines(whole) is whole and made.result[0] > 1


def _numbers_near(processor: Processor) -> int:
    """Numbers of an image that the second cache still has as its convolution begins."""
    return processor.l2_bytes // 2 // FLOAT32.bytes


def _panels(
    lines: Contraction, tile: Tile, copied: str, channels: int, processor: Processor
) -> int:
    """The panels of an image; nothing is decided."""
    with asking_costs():
        return -(-_extent(lines) // panel_of(lines, tile, processor, copied == ROWS, channels))


def _far_lines(lines: Contraction, tile: Tile, copied: str, processor: Processor) -> float:
    """Cache lines of images that panels of all channels read, where they have few lines of each."""
    panels = _panels(lines, tile, copied, lines.depth, processor)
    if panels == 1 or lines.result[0] == 1:
        return 0.0
    panel = lines.result[0] / panels
    reach = (lines.window[0] - 1) * lines.dilation[0] + 1
    seen = max(1.0, ((panel - 1) * lines.strides[0] + reach) / (panel * lines.strides[0]))
    image = lines.batch * lines.inputs * math.prod(lines.image) * FLOAT32.bytes
    return seen * image / LINE_BYTES


def im2col_cycles(made: Contraction, processor: Processor) -> float:
    """What it takes: products in tiles, copies into panels, and of an image with its border."""
    lines = as_lines(without_border(made))
    pixels, outputs = lines.result[0] * lines.result[1], lines.outputs // lines.groups
    found = tiles(processor, outputs, pixels)
    tile = min(found, key=found.__getitem__)
    products = found[tile] * lines.products
    ways = ways_of_copying(lines, tile, processor)
    copied = min(ways, key=ways.__getitem__)
    cycles = lines.batch * lines.groups * products
    cycles += min(panel_cycles(made, tile, copied, ways[copied], processor).values())
    cycles /= processor.threads
    return cycles + arriving(lines.weight_bytes, processor) + regions(1, processor)


IMPLEMENTATION = Im2col()
