"""Winograd's way to convolve with small windows: fewer products, and sums before and after.

F(m, r) makes m x m results of a tile of n x n elements, n = m + r - 1, with as many products, where
the plain sum needs r r m m: Y = A'[(G g G') * (B' d B)]A, summed over channels in the middle.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from sterna.relay.arrays import Array
from sterna.schedule.kernel import Processor
from sterna.schedule.linear_steps import Matrix, linear_steps
from sterna.schedule.products import FLOAT32
from sterna.schedule.register_tile import register_tile, step_cycles

# Where polynomials are evaluated: these keep the errors of rounding small.
POINTS = (0, 1, -1, 2, Fraction(-1, 2), -2, Fraction(1, 2))
# Rows and columns of a tile: as many as there are points for, and those that are tried.
MOST_SIZE = len(POINTS) + 1
SIZES = (4, 6, 7, 8)
# Rows and columns of a window: of larger ones a tile has few results.
WINDOWS = range(2, 6)
# Bytes that come from behind the second cache in a cycle.
STREAMED = 8
# Bytes of products that are stored and read again in a cycle.
KEPT = 16
# Bytes that come from another core in a cycle, which has just written them.
ACROSS = 2
# Cycles until threads have begun and ended together.
REGION = 3000
# The part that the second cache loses of what just fills it, before it is read again.
LOST = 0.25
# It pays only if it is this much cheaper: weights grow.
PAYS = 0.9
# Elements of an image that are laid elsewhere in a cycle.
ARRANGED = 1.0

# Batch, height and width of a result.
Image = tuple[int, int, int]


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
    """Weights (O, I, r, r) as (position, block of O, I, O in the block)."""
    outer, inner, _, window = weight.shape
    g = as_array(matrices(m, window).window)
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
    why: str = ""
    """The cycles that the cost model expects, beside those of other ways."""


@dataclass(frozen=True, slots=True)
class Share:
    """The parts of all weights and of a block's transformed data that one thread reads."""

    weights: float = 1.0
    seen: float = 1.0


@dataclass(frozen=True, slots=True)
class Sum:
    """What a convolution makes, and of what."""

    image: Image
    inputs: int
    outputs: int
    window: int
    """Rows and columns that are read for one result."""
    plain: int
    """Products of the plain sum for one result."""
    arranged: int = 0
    """Elements that are laid elsewhere first."""

    def growth(self, m: int) -> float:
        """How many times larger the weights of F(m, r) are."""
        return (m + self.window - 1) ** 2 * self.inputs / self.plain


@dataclass(frozen=True, slots=True)
class _Work:
    """A convolution, and what it runs on."""

    sum: Sum
    block: int
    """Output channels that lie together."""
    lanes: int
    """Channels of a vector in the transforms."""
    processor: Processor

    @property
    def inputs(self) -> int:
        return self.sum.inputs

    @property
    def outputs(self) -> int:
        return self.sum.outputs

    def positions(self, m: int) -> int:
        """Elements of a tile, and its products for a channel."""
        return (m + self.sum.window - 1) ** 2

    @property
    def products_per_cycle(self) -> int:
        return self.processor.throughput.multiply_adds * self.processor.lanes(FLOAT32)

    def share(self, pieces: int) -> float:
        """The part of some pieces of work that the busiest thread does."""
        return -(-pieces // self.processor.threads) / pieces

    def most_tiles(self, m: int) -> int:
        """Tiles whose transforms stay in the second cache, beside the weights if those do."""
        cache, position = self.processor.l2_bytes, 4 * self.positions(m)
        seen = position * self.inputs
        if seen * self.outputs > cache // 2:
            return cache * 3 // 4 // seen
        return min(cache * 2 // 5 // seen, cache // 8 // (position * self.block))

    def weights(self, positions: int) -> int:
        """The bytes of all weights."""
        return 4 * self.inputs * self.outputs * positions

    def arriving(self, size: float) -> float:
        """Cycles in which nothing but weights come: few of them come while work is done."""
        return size / STREAMED * min(1.0, size / self.processor.l2_bytes)

    def coming_again(self, m: int, each: int, turns: int, blocks: int, share: Share) -> float:
        """Cycles for what the second cache lost before a thread was done with it.

        turns: how many blocks of tiles a thread works on. blocks: of output channels, for each of
        which it reads its share of the transforms. What stays there shares it with weights: all,
        if they are read in every turn, or those of this block and of the next.
        """
        positions, cache = self.positions(m), self.processor.l2_bytes
        weights = self.weights(positions) * share.weights
        seen = 4 * positions * each * self.inputs * share.seen
        made = 4 * positions * each * self.block
        beside = weights if turns > 1 else min(weights, 2 * weights / blocks)
        lost = min(1.0, LOST * ((seen + made + beside) / cache) ** 2)
        return lost * ((turns - 1) * weights + turns * blocks * seen) / STREAMED

    def from_others(self, size: float) -> float:
        """Cycles for what all threads wrote and one reads."""
        return size * (1 - 1 / self.processor.threads) / ACROSS

    def regions(self, count: int) -> float:
        """Cycles in which threads begin and wait for each other."""
        return REGION * count if self.processor.threads > 1 else 0.0


def winograd_plan(
    made: Sum, block: int, processor: Processor, lanes: int, growth: float
) -> WinogradPlan | None:
    """The cheapest way; None if that is the plain sum."""
    while lanes > 1 and (made.inputs % lanes or block % lanes):
        lanes //= 2
    if lanes == 1 or lanes < min(4, processor.lanes(FLOAT32)):
        return None  # where there are no vectors memory is scarce too, and weights would grow
    work = _Work(made, block, lanes, processor)
    plans: dict[int, tuple[float, int, str]] = {}
    for m in (size - made.window + 1 for size in SIZES):
        if m > 1 and made.growth(m) <= growth:
            ways = (_by_blocks, _by_channels, _by_positions)
            cycles, tiles, split = min((*way(work, m), way.__name__[4:]) for way in ways)
            arranging = made.arranged / ARRANGED / processor.threads
            plans[m] = (cycles + arranging, tiles, split)
    direct = _direct_cycles(work)
    m = min(plans, key=lambda m: plans[m][0], default=0)
    if m == 0 or plans[m][0] >= PAYS * direct:
        return None
    cycles, tiles, split = plans[m]
    others = {f"F({n}, {made.window})": plan[0] for n, plan in plans.items() if n != m}
    others["direct"] = direct
    listed = ", ".join(f"{way} {_thousands(cost)}" for way, cost in others.items())
    why = f"{_thousands(cycles)} cycles expected, {listed}"
    return WinogradPlan(m, tiles, lanes, split, why)


def _thousands(cycles: float) -> str:
    return f"{cycles / 1000:,.0f} k"


def _direct_cycles(work: _Work) -> float:
    weights = 4 * work.outputs * work.sum.plain
    products = math.prod(work.sum.image) * work.outputs * work.sum.plain
    cycles = products / work.products_per_cycle / work.processor.threads
    large = weights > work.processor.l2_bytes // 2  # threads share channels then, else rows
    share = 1 / work.processor.threads if large else 1.0
    return cycles + work.arriving(weights * share) + work.regions(1)


def _by_blocks(work: _Work, m: int) -> tuple[float, int]:
    """Blocks of tiles whose weights and transforms stay in the cache; each is one thread's."""
    each, count = _even(work, m, work.most_tiles(m), work.processor.threads)
    if count == 1:
        return math.inf, each
    multiply, before, after = _costs(work, m, each)
    blocks, turns = work.outputs // work.block, round(work.share(count) * count)
    cycles = (multiply * work.positions(m) * blocks + before + after) * turns
    cycles += work.arriving(work.weights(work.positions(m)))
    return cycles + work.coming_again(m, each, turns, blocks, Share()) + work.regions(1), each


def _by_channels(work: _Work, m: int) -> tuple[float, int]:
    """All threads transform a block of tiles, and each multiplies it for its own channels."""
    each, count = _even(work, m, work.most_tiles(m), 1)
    multiply, before, after = _costs(work, m, each)
    blocks = work.outputs // work.block
    share = Share(weights=work.share(blocks))
    cycles = before * work.share(each * work.inputs // work.lanes)
    cycles += (multiply * work.positions(m) * blocks + after) * share.weights
    seen = 4 * work.positions(m) * each * work.inputs
    cycles = (cycles + work.from_others(seen) + work.regions(2)) * count
    cycles += work.arriving(work.weights(work.positions(m)) * share.weights)
    own = round(blocks * share.weights)
    return cycles + work.coming_again(m, each, count, own, share), each


def _by_positions(work: _Work, m: int) -> tuple[float, int]:
    """Each thread multiplies some positions of all tiles; their products are kept in between."""
    positions, blocks = work.positions(m), work.outputs // work.block
    room = work.processor.threads * work.processor.l2_bytes * 3 // 4
    each, count = _even(work, m, room // (4 * positions * (work.inputs + work.outputs)), 1)
    multiply, before, after = _costs(work, m, each)
    pieces = positions * blocks
    share = Share(weights=work.share(pieces), seen=1 / work.processor.threads)
    cycles = before * work.share(each * work.inputs // work.lanes)
    cycles += multiply * pieces * share.weights + after * work.share(each * blocks)
    seen, made = (4 * positions * each * n * share.seen for n in (work.inputs, work.outputs))
    cycles += made / KEPT + work.from_others(seen + made)
    cycles = (cycles + work.regions(3)) * count
    cycles += work.arriving(work.weights(positions) * share.weights)
    return cycles + work.coming_again(m, each, count, 1, share), each


def _even(work: _Work, m: int, most: int, multiple: int) -> tuple[int, int]:
    """The tiles of a block, and how many blocks all images have."""
    images, height, width = work.sum.image
    tiles = -(-height // m) * -(-width // m)
    count = -(-tiles // max(1, most))
    if count * images % multiple:
        count = min(tiles, count + multiple - count % multiple)
    each = -(-tiles // count)
    return each, -(-tiles // each) * images


def _costs(work: _Work, m: int, tiles: int) -> tuple[float, float, float]:
    """Cycles of a position's products with one block of channels, and of the transforms."""
    size, of = m + work.sum.window - 1, matrices(m, work.sum.window)
    vectors = max(1, work.block // work.processor.lanes(FLOAT32))
    processor = work.processor
    together, throughput = processor.steps_together(FLOAT32, work.inputs), processor.throughput
    lanes, registers = processor.lanes(FLOAT32), processor.vector_registers
    rows = register_tile(
        tiles, work.outputs, lanes, registers, work.block, together=together,
        throughput=throughput
    ).rows
    whole, rest = divmod(tiles, rows)
    steps = whole * step_cycles(rows, vectors, together, throughput)
    steps += step_cycles(rest, vectors, together, throughput) if rest else 0
    before = linear_steps(of.data).cost * 2 * size + 4 * size**2
    after = linear_steps(of.result).cost * (size + m) + size**2 + 2 * size * m + m**2
    sums = tiles / work.lanes
    return steps * work.inputs, sums * work.inputs * before, sums * work.outputs * after
