"""Winograd F(m, r) for small windows: fewer products, and sums before and after; what it costs.

F(m, r) makes m x m results of a tile of n x n elements, n = m + r - 1, with as many products, where
the plain sum needs r r m m: Y = A'[(G g G') * (B' d B)]A, summed over channels in the middle.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache

import numpy as np

from sterna.relay.arrays import Array
from sterna.schedule.contraction import Contraction
from sterna.schedule.cost import STREAMED, regions
from sterna.schedule.kernel import Processor
from sterna.schedule.linear_steps import Matrix, linear_steps
from sterna.schedule.products import FLOAT32
from sterna.schedule.register_tile import TileSpace

# Where polynomials are evaluated: these keep the errors of rounding small.
POINTS = (0, 1, -1, 2, Fraction(-1, 2), -2, Fraction(1, 2))
# Rows and columns of a tile: as many as there are points for, and those that are tried.
MOST_SIZE = len(POINTS) + 1
SIZES = (4, 6, 7, 8)
# Rows and columns of a window: of larger ones a tile has few results.
WINDOWS = range(2, 6)
# Bytes of products that are stored and read again in a cycle.
KEPT = 16
# Bytes that come from another core in a cycle, which has just written them.
ACROSS = 2
# The part that the second cache loses of what just fills it, before it is read again.
LOST = 0.25
# On cores that stream ahead: how much of the second cache can be filled before it loses some of
# that, and how fast it does then. Its lines lie where the pages of memory happen to.
KEEPS, LOSES = 0.5, 4 / 3
# How much of its room a block of tiles fills: all, where nobody measured that less is better, and
# what tuners may try beside it.
ROOMS = (1.0, 0.5, 2.0)


@dataclass(frozen=True, slots=True)
class Matrices:
    """Of F(m, r): what tiles of n x n, windows and products are multiplied with."""

    data: Matrix
    """B', n x n."""
    window: Matrix
    """G, n x r."""
    result: Matrix
    """A', m x n."""


@cache
def matrices(m: int, window: int) -> Matrices:
    """Polynomials evaluated at points and at infinity, multiplied there and interpolated."""
    points = [Fraction(point) for point in POINTS[: m + window - 2]]
    data, windows = [], []
    for i, point in enumerate(points):
        others = [other for j, other in enumerate(points) if j != i]
        scale = Fraction(1)
        for other in others:
            scale *= point - other
        data.append((*_product(others), Fraction(0)))
        windows.append(tuple(point**k / scale for k in range(window)))
    data.append(tuple(_product(points)))
    windows.append((Fraction(0),) * (window - 1) + (Fraction(1),))
    result = [
        (*(point**k for point in points), Fraction(int(k == m - 1))) for k in range(m)
    ]
    return Matrices(tuple(data), tuple(windows), tuple(result))


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
    """Weights (O, r, r, I) as (position, block of O, I, O in the block)."""
    outer, _, window, inner = weight.shape
    g = as_array(matrices(m, window).window)
    rows = np.matmul(g, weight.astype(np.float64).reshape(outer, window, window * inner))
    square = np.matmul(g, rows.reshape(outer * len(g), window, inner))
    made = square.astype(weight.dtype).reshape(outer // block, block, len(g) ** 2, inner)
    return np.ascontiguousarray(made.transpose(2, 0, 3, 1))


def restore_weights(packed: Array, m: int, window: int) -> Array:
    """Weights (O, r, r, I) of which transform_weights made these."""
    size, inner = m + window - 1, packed.shape[2]
    inverse = np.linalg.pinv(as_array(matrices(m, window).window))
    square = packed.astype(np.float64).transpose(0, 1, 3, 2).reshape(size, size, -1, inner)
    made: Array = np.einsum("rx,xyoi,sy->orsi", inverse, square, inverse, optimize=True)
    return made.astype(packed.dtype)


def tiles_of(made: Contraction, m: int) -> tuple[int, int]:
    """How many tiles of m x m results lie below each other, and beside each other.

    Dilated windows see every few rows and columns: these are images of their own, interleaved.
    """
    down, across = (
        -(-size // (m * step)) for size, step in zip(made.result, made.dilation, strict=True)
    )
    return down, across


def all_tiles(made: Contraction, m: int) -> int:
    """The tiles of an image, or of all images that are interleaved in it."""
    return math.prod(tiles_of(made, m)) * math.prod(made.dilation)


@dataclass(frozen=True, slots=True)
class WinogradPlan:
    """How a convolution is computed by F(m, r)."""

    m: int
    tiles: int
    """Tiles of a block."""
    lanes: int
    split: str
    """What threads share: "blocks" of tiles, "channels" of the result, or "positions" of a tile."""
    cycles: float


@lru_cache(maxsize=1024)
def winograd_plans(
    made: Contraction, block: int, processor: Processor
) -> tuple[WinogradPlan, ...]:
    """All ways with what they cost; none where there are no vectors.

    Memory is scarce there too, and weights would grow. Networks repeat layers, and several passes
    ask about each.
    """
    lanes = processor.lanes(FLOAT32)
    while lanes > 1 and (made.depth % lanes or block % lanes):
        lanes //= 2
    if lanes == 1 or lanes < min(4, processor.lanes(FLOAT32)):
        return ()
    found: list[WinogradPlan] = []
    for m in (size - made.window[0] + 1 for size in SIZES):
        for split, way in (_WAYS.items() if m > 1 else ()):
            offered: dict[int, float] = {}
            for room in ROOMS:
                cycles, tiles = way(_Work(made, m, block, lanes, processor, room))
                measured = processor.throughput.streams_ahead
                least = 0.0 if measured else max(offered.values(), default=0.0)
                offered.setdefault(tiles, max(cycles, least))
            found += [WinogradPlan(m, tiles, lanes, split, cycles)
                      for tiles, cycles in offered.items() if math.isfinite(cycles)]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Share:
    """The parts of all weights and of a block's transformed data that one thread reads."""

    weights: float = 1.0
    seen: float = 1.0


@cache
def _transform_costs(m: int, r: int) -> tuple[int, int]:
    """What F(m, r) takes for a row of a tile's data, and of its result."""
    of = matrices(m, r)
    return linear_steps(of.data).cost, linear_steps(of.result).cost


@dataclass(frozen=True, slots=True)
class _Work:
    """A convolution by F(m, r), and what it runs on."""

    made: Contraction
    m: int
    block: int
    """Output channels that lie together."""
    lanes: int
    """Channels of a vector in the transforms."""
    processor: Processor
    room: float = 1.0
    """How much of the cache that blocks of tiles may fill they do."""

    @property
    def size(self) -> int:
        """Rows and columns of a tile."""
        return self.m + self.made.window[0] - 1

    @property
    def positions(self) -> int:
        """Elements of a tile, and its products for a channel."""
        return self.size**2

    @property
    def blocks(self) -> int:
        """Of output channels."""
        return self.made.outputs // self.block

    @property
    def weights(self) -> int:
        """The bytes of all weights."""
        return self.seen(self.made.outputs) // self.made.groups

    def seen(self, tiles: int) -> int:
        """The bytes of the transforms of so many tiles."""
        return 4 * self.positions * tiles * self.made.inputs

    def share(self, pieces: int) -> float:
        """The part of some pieces of work that the busiest thread does."""
        return -(-pieces // self.processor.threads) / pieces

    def share_of_transforms(self, tiles: int) -> float:
        """The same of the transforms of some tiles, vector by vector."""
        return self.share(tiles * self.made.inputs // self.lanes)

    @property
    def most_tiles(self) -> int:
        """Tiles whose transforms stay in the second cache, beside the weights if those do."""
        cache, seen = self.processor.l2_bytes, self.seen(1)
        if self.weights > cache // 2:
            return cache * 3 // 4 // seen
        return min(cache * 2 // 5 // seen, cache // 8 // (4 * self.positions * self.block))

    def even(self, most: int, multiple: int = 1) -> tuple[int, int]:
        """The tiles of a block, at most some, and how many blocks all images have."""
        images, tiles = self.made.batch, all_tiles(self.made, self.m)
        count = -(-tiles // max(1, int(self.room * most)))
        if count * images % multiple:
            count = min(tiles, count + multiple - count % multiple)
        each = -(-tiles // count)
        return each, -(-tiles // each) * images

    def costs(self, tiles: int) -> tuple[float, float, float]:
        """Cycles of a position's products with one block of channels, and of the transforms."""
        made, processor, size = self.made, self.processor, self.size
        space = TileSpace(
            tiles, made.outputs, processor.lanes(FLOAT32), processor.vector_registers, self.block,
            together=processor.steps_together(FLOAT32, made.depth),
            throughput=processor.throughput,
        )
        vectors = max(1, self.block // space.lanes)
        rows = space.cheapest().rows
        whole, rest = divmod(tiles, rows)
        steps = whole * space.step_cycles(rows, vectors)
        steps += space.step_cycles(rest, vectors) if rest else 0
        of_data, of_result = _transform_costs(self.m, made.window[0])
        before = of_data * 2 * size + 4 * size**2
        after = of_result * (size + self.m)
        after += size**2 + 2 * size * self.m + self.m**2
        sums = tiles / self.lanes
        return steps * made.depth, sums * made.inputs * before, sums * made.outputs * after

    def coming_again(
        self, each: int, turns: int, blocks: int, share: _Share, kept: float = 0.0
    ) -> float:
        """Cycles for what the second cache lost before a thread was done with it.

        turns: how many blocks of tiles a thread works on. blocks: of output channels, for each of
        which it reads its share of the transforms. What stays there shares it with weights: all,
        if they are read in every step, or those of this block and of the next. Cores that stream
        ahead have the weights come while they multiply. kept: products that are read at the end.
        """
        weights, seen = self.weights * share.weights, self.seen(each) * share.seen
        again = blocks * seen / self.made.groups  # a block of channels reads those of its group
        made = 4 * self.positions * each * self.block
        throughput = self.processor.throughput
        if throughput.streams_ahead:
            held = seen + (kept or made + 2 * self.weights / self.blocks)
            part = LOSES * (held / self.processor.l2_bytes - KEEPS)
            lost = min(1.0, max(0.0, part)) * turns * (again + kept) / STREAMED
            if throughput.streamed_again:
                far = min(1.0, weights / self.processor.l2_bytes)
                lost += far * (turns - 1) * weights / throughput.streamed_again
            return lost
        beside = weights if turns > 1 else min(weights, 2 * weights / blocks)
        lost = min(1.0, LOST * ((seen + made + beside) / self.processor.l2_bytes) ** 2)
        later = (turns - 1) * weights / throughput.streamed
        return lost * (later + turns * again / STREAMED)

    def arriving(self, part: float = 1.0) -> float:
        """Cycles in which nothing but a part of the weights come, which are read in order."""
        size = self.weights * part
        return size / self.processor.throughput.streamed * min(1.0, size / self.processor.l2_bytes)

    def from_others(self, size: float) -> float:
        """Cycles for what all threads wrote and one reads."""
        return size * (1 - 1 / self.processor.threads) / ACROSS


def _by_blocks(work: _Work) -> tuple[float, int]:
    """Blocks of tiles whose weights and transforms stay in the cache; each is one thread's."""
    each, count = work.even(work.most_tiles, work.processor.threads)
    if count == 1:
        return math.inf, each
    multiply, before, after = work.costs(each)
    turns = round(work.share(count) * count)
    cycles = (multiply * work.positions * work.blocks + before + after) * turns
    cycles += work.arriving()
    cycles += work.coming_again(each, turns, work.blocks, _Share())
    return cycles + regions(1, work.processor), each


def _by_channels(work: _Work) -> tuple[float, int]:
    """All threads transform a block of tiles, and each multiplies it for its own channels."""
    each, count = work.even(work.most_tiles)
    multiply, before, after = work.costs(each)
    share = _Share(weights=work.share(work.blocks))
    cycles = before * work.share_of_transforms(each)
    cycles += (multiply * work.positions * work.blocks + after) * share.weights
    cycles += work.from_others(work.seen(each)) + regions(2, work.processor)
    cycles = cycles * count + work.arriving(share.weights)
    own = round(work.blocks * share.weights)
    return cycles + work.coming_again(each, count, own, share), each


def _by_positions(work: _Work) -> tuple[float, int]:
    """Each thread multiplies some positions of all tiles; their products are kept in between."""
    made, threads = work.made, work.processor.threads
    room = threads * work.processor.l2_bytes * 3 // 4
    each, count = work.even(room // (4 * work.positions * (made.inputs + made.outputs)))
    multiply, before, after = work.costs(each)
    pieces = work.positions * work.blocks
    share = _Share(weights=work.share(pieces), seen=1 / threads)
    cycles = before * work.share_of_transforms(each)
    cycles += multiply * pieces * share.weights + after * work.share(each * work.blocks)
    seen, kept = (4 * work.positions * each * n * share.seen for n in (made.inputs, made.outputs))
    cycles += kept / KEPT + work.from_others(seen + kept) + regions(3, work.processor)
    cycles = cycles * count + work.arriving(share.weights)
    return cycles + work.coming_again(each, count, 1, share, kept), each


_WAYS = {"blocks": _by_blocks, "channels": _by_channels, "positions": _by_positions}
SPLITS = tuple(_WAYS)
