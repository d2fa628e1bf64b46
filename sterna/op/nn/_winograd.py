"""Winograd's way to convolve with windows of 3 x 3: fewer products, and sums before and after.

F(m) makes m x m results of a tile of (m + 2) x (m + 2) elements with as many products, where the
plain sum needs 9 m x m: Y = A'[(G g G') * (B' d B)]A, summed over channels in the middle.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from sterna.op.kernel import Processor
from sterna.op.nn._linear_steps import Matrix, linear_steps
from sterna.op.products import FLOAT32
from sterna.op.register_tile import register_tile, step_cycles
from sterna.relay.arrays import Array

WINDOW = 3
# Where polynomials are evaluated: these keep the errors of rounding small.
POINTS = (0, 1, -1, 2, Fraction(-1, 2), -2, Fraction(1, 2))
TILES = (2, 4, 5, 6)
# Bytes that come from behind the second cache in a cycle.
STREAMED = 8
# Bytes of products that are stored and read again in a cycle.
KEPT = 16
# Cycles until threads have begun and ended together.
REGION = 3000
# It pays only if it is this much cheaper: its memory moves in more pieces.
PAYS = 0.85

# Batch, height and width of a result.
Image = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Matrices:
    """Of F(m): what tiles, windows and products are multiplied with."""

    data: Matrix
    """B', (m + 2) x (m + 2)."""
    window: Matrix
    """G, (m + 2) x 3."""
    result: Matrix
    """A', m x (m + 2)."""


@cache
def matrices(m: int) -> Matrices:
    """Polynomials evaluated at points and at infinity, multiplied there and interpolated."""
    size = m + WINDOW - 1
    points = [Fraction(point) for point in POINTS[: size - 1]]
    data, window = [], []
    for i, point in enumerate(points):
        others = [other for j, other in enumerate(points) if j != i]
        scale = Fraction(1)
        for other in others:
            scale *= point - other
        data.append((*_product(others), Fraction(0)))
        window.append(tuple(point**k / scale for k in range(WINDOW)))
    data.append(tuple(_product(points)))
    window.append((Fraction(0),) * (WINDOW - 1) + (Fraction(1),))
    result = [
        (*(point**k for point in points), Fraction(int(k == m - 1))) for k in range(m)
    ]
    return Matrices(tuple(data), tuple(window), tuple(result))


def _product(roots: list[Fraction]) -> list[Fraction]:
    """The coefficients of (x - r)(x - s)..., the lowest first."""
    made = [Fraction(1)]
    for root in roots:
        made = [
            (made[k - 1] if k else Fraction(0)) - (root * made[k] if k < len(made) else 0)
            for k in range(len(made) + 1)
        ]
    return made


def as_array(matrix: Matrix) -> Array:
    """A matrix in float64."""
    return np.array([[float(x) for x in row] for row in matrix])


def transform_weights(weight: Array, m: int, block: int) -> Array:
    """Weights (O, I, 3, 3) as (position, block of O, I, O in the block)."""
    g = as_array(matrices(m).window)
    outer, inner = weight.shape[:2]
    made = np.einsum("xr,oirs,ys->xyoi", g, weight.astype(np.float64), g, optimize=True)
    packed = made.reshape(-1, outer // block, block, inner).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(packed).astype(weight.dtype)


@dataclass(frozen=True, slots=True)
class WinogradPlan:
    """How a convolution is computed by Winograd's way."""

    m: int
    tiles: int
    """Tiles of a block."""
    lanes: int
    split: str
    """What threads share: "blocks" of tiles, "channels" of the result, or "positions" of a tile."""


@dataclass(frozen=True, slots=True)
class _Work:
    """A convolution, and what it runs on."""

    image: Image
    inputs: int
    outputs: int
    block: int
    """Output channels that lie together."""
    lanes: int
    """Channels of a vector in the transforms."""
    processor: Processor

    @property
    def products_per_cycle(self) -> int:
        return self.processor.pace.multiply_adds * self.processor.lanes(FLOAT32)

    def share(self, pieces: int) -> float:
        """The part of some pieces of work that the busiest thread does."""
        return -(-pieces // self.processor.threads) / pieces

    def most_tiles(self, m: int) -> int:
        """Tiles whose transforms stay in the second cache, beside the weights if those do."""
        cache, position = self.processor.l2_bytes, 4 * (m + 2) ** 2
        seen = position * self.inputs
        if seen * self.outputs > cache // 2:
            return cache * 3 // 4 // seen
        return min(cache * 2 // 5 // seen, cache // 8 // (position * self.block))

    def with_weights(self, cycles: float, positions: int, share: float = 1.0) -> float:
        """Cycles of work and of the weights that a thread reads for it.

        Those that stay in the second cache come once and while work is done.
        """
        size = 4 * self.inputs * self.outputs * positions
        come = size * share / STREAMED
        return cycles + come if size > self.processor.l2_bytes // 2 else max(cycles, come)

    def regions(self, count: int) -> float:
        """Cycles in which threads begin and wait for each other."""
        return REGION * count if self.processor.threads > 1 else 0.0


def winograd_plan(
    image: Image, channels: tuple[int, int], block: int, processor: Processor,
    lanes: int, growth: float,
) -> WinogradPlan | None:  # fmt: skip
    """The cheapest way for (batch, height, width) and (inputs, outputs); None if that is direct."""
    inputs, outputs = channels
    while lanes > 1 and (inputs % lanes or block % lanes):
        lanes //= 2
    if lanes == 1 or lanes < min(4, processor.lanes(FLOAT32)):
        return None  # where there are no vectors memory is scarce too, and weights would grow
    work = _Work(image, inputs, outputs, block, lanes, processor)
    best, found = PAYS * _direct_cycles(work), None
    for m in TILES:
        if (m + 2) ** 2 > growth * WINDOW**2:
            continue
        for way in (_by_blocks, _by_channels, _by_positions):
            cycles, tiles = way(work, m)
            if cycles < best:
                best, found = cycles, WinogradPlan(m, tiles, lanes, way.__name__[4:])
    return found


def _direct_cycles(work: _Work) -> float:
    batch, height, width = work.image
    products = batch * height * width * work.inputs * work.outputs * WINDOW**2
    cycles = products / work.products_per_cycle / work.processor.threads
    large = 4 * work.inputs * work.outputs * WINDOW**2 > work.processor.l2_bytes // 2
    share = 1 / work.processor.threads if large else 1.0
    return work.with_weights(cycles, WINDOW**2, share) + work.regions(1)


def _by_blocks(work: _Work, m: int) -> tuple[float, int]:
    """Blocks of tiles whose weights and transforms stay in the cache; each is one thread's."""
    each, count = _even(work, m, work.most_tiles(m), work.processor.threads)
    if count == 1:
        return math.inf, each
    multiply, before, after = _costs(work, m, each)
    one = multiply * (m + 2) ** 2 * (work.outputs // work.block) + before + after
    cycles = one * work.share(count) * count
    return work.with_weights(cycles, (m + 2) ** 2) + work.regions(1), each


def _by_channels(work: _Work, m: int) -> tuple[float, int]:
    """All threads transform a block of tiles, and each multiplies it for its own channels."""
    each, count = _even(work, m, work.most_tiles(m), 1)
    multiply, before, after = _costs(work, m, each)
    blocks = work.outputs // work.block
    cycles = before * work.share(each)
    cycles += (multiply * (m + 2) ** 2 * blocks + after) * work.share(blocks)
    cycles = (cycles + work.regions(2)) * count
    return work.with_weights(cycles, (m + 2) ** 2, work.share(blocks)), each


def _by_positions(work: _Work, m: int) -> tuple[float, int]:
    """Each thread multiplies some positions of all tiles; their products are kept in between."""
    positions, blocks = (m + 2) ** 2, work.outputs // work.block
    room = work.processor.threads * work.processor.l2_bytes * 3 // 4
    each, count = _even(work, m, room // (4 * positions * (work.inputs + work.outputs)), 1)
    multiply, before, after = _costs(work, m, each)
    pieces = positions * blocks
    cycles = before * work.share(each * work.inputs // work.lanes)
    cycles += multiply * pieces * work.share(pieces) + after * work.share(each * blocks)
    kept = 4 * positions * each * work.outputs / KEPT / work.processor.threads
    cycles = (cycles + kept + work.regions(3)) * count
    return work.with_weights(cycles, positions, work.share(pieces)), each


def _even(work: _Work, m: int, most: int, multiple: int) -> tuple[int, int]:
    """The tiles of a block, and how many blocks all images have."""
    tiles = tile_count((1, *work.image[1:]), m)
    count = -(-tiles // max(1, most))
    if count * work.image[0] % multiple:
        count = min(tiles, count + multiple - count % multiple)
    each = -(-tiles // count)
    return each, -(-tiles // each) * work.image[0]


def _costs(work: _Work, m: int, tiles: int) -> tuple[float, float, float]:
    """Cycles of a position's products with one block of channels, and of the transforms."""
    size, of = m + 2, matrices(m)
    vectors = max(1, work.block // work.processor.lanes(FLOAT32))
    processor = work.processor
    together, pace = processor.steps_together(FLOAT32, work.inputs), processor.pace
    lanes, registers = processor.lanes(FLOAT32), processor.vector_registers
    rows = register_tile(
        tiles, work.outputs, lanes, registers, work.block, together=together, pace=pace
    ).rows
    whole, rest = divmod(tiles, rows)
    steps = whole * step_cycles(rows, vectors, together, pace)
    steps += step_cycles(rest, vectors, together, pace) if rest else 0
    before = linear_steps(of.data).cost * 2 * size + 4 * size**2
    after = linear_steps(of.result).cost * (size + m) + size**2 + 2 * size * m + m**2
    sums = tiles / work.lanes
    return steps * work.inputs, sums * work.inputs * before, sums * work.outputs * after


def tile_count(image: Image, m: int) -> int:
    """Tiles of all images."""
    batch, height, width = image
    return batch * -(-height // m) * -(-width // m)
