"""Winograd's way to convolve with windows of 3 x 3: fewer products, and sums before and after.

F(m) makes m x m results of a tile of (m + 2) x (m + 2) elements with as many products, where the
plain sum needs 9 m x m: Y = A'[(G g G') * (B' d B)]A, summed over channels in the middle.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from sterna.op.kernel import Processor
from sterna.op.products import FLOAT32
from sterna.op.register_tile import MULTIPLY_ADDS
from sterna.relay.arrays import Array

WINDOW = 3
# Where polynomials are evaluated: these keep the errors of rounding small.
POINTS = (0, 1, -1, 2, Fraction(-1, 2))
TILES = (2, 4)
# Bytes that come from behind the second cache in a cycle.
STREAMED = 8
# It pays only if it is this much cheaper: its memory moves in more pieces.
PAYS = 0.85

# Batch, height and width of a result.
Image = tuple[int, int, int]
Matrix = tuple[tuple[Fraction, ...], ...]


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
    """Tiles of a block: what they become stays in the second cache."""
    lanes: int
    split: str
    """What threads share: "blocks" of tiles or "channels" of the result."""


def winograd_plan(
    image: Image, channels: tuple[int, int], block: int, processor: Processor,
    lanes: int, growth: float,
) -> WinogradPlan | None:  # fmt: skip
    """The cheapest way for (batch, height, width) and (inputs, outputs); None if that is direct."""
    inputs, outputs = channels
    while lanes > 1 and (inputs % lanes or block % lanes):
        lanes //= 2
    if lanes < min(4, processor.lanes(FLOAT32)):
        return None
    best = PAYS * _direct_cycles(image, channels, processor)
    found: WinogradPlan | None = None
    for m in TILES:
        if (m + 2) ** 2 > growth * WINDOW**2:
            continue
        cycles = _cycles(m, image, channels, lanes, processor)
        if cycles < best:
            best, found = cycles, _blocks(m, image, inputs, outputs, block, lanes, processor)
    return found


def _direct_cycles(image: Image, channels: tuple[int, int], processor: Processor) -> float:
    batch, height, width = image
    products = batch * height * width * channels[0] * channels[1] * WINDOW**2
    streamed = _stream(channels[0] * channels[1] * WINDOW**2, processor)
    return products / (MULTIPLY_ADDS * processor.lanes(FLOAT32)) + streamed


def _cycles(
    m: int, image: Image, channels: tuple[int, int], lanes: int, processor: Processor
) -> float:
    size, (inputs, outputs) = m + 2, channels
    count = tile_count(image, m)
    products = count * size**2 * inputs * outputs / (MULTIPLY_ADDS * processor.lanes(FLOAT32))
    of = matrices(m)
    before = _terms(of.data) * size + 2 * size**2
    after = _terms(of.result) * (size + m) / 2 + size**2 + m**2
    sums = count * (inputs * before + outputs * after) / lanes
    return products + sums + _stream(size**2 * inputs * outputs, processor)


def _terms(matrix: Matrix) -> int:
    return sum(x != 0 for row in matrix for x in row)


def _stream(weights: int, processor: Processor) -> float:
    """Cycles in which weights come that do not stay in the second cache."""
    size = 4 * weights
    return size / STREAMED if size > processor.l2_bytes // 2 else 0.0


def tile_count(image: Image, m: int) -> int:
    """Tiles of all images."""
    batch, height, width = image
    return batch * -(-height // m) * -(-width // m)


def _blocks(
    m: int, image: Image, inputs: int, outputs: int, block: int, lanes: int,
    processor: Processor,
) -> WinogradPlan:  # fmt: skip
    """Blocks of tiles for weights that stay in the cache; all at once for those that pass by."""
    tiles = tile_count((1, *image[1:]), m)
    position = 4 * (m + 2) ** 2
    if position * inputs * outputs <= processor.l2_bytes // 2:
        most = min(processor.l2_bytes * 2 // 5 // (position * inputs),
                   processor.l2_bytes // 8 // (position * block))  # fmt: skip
    else:
        most = processor.l2_bytes * 3 // 4 // (position * inputs)
    count = -(-tiles // max(1, most))
    if count > 1 and count % processor.threads:
        count += processor.threads - count % processor.threads
    each = -(-tiles // count)
    whole = -(-tiles // each) * image[0]
    split = "blocks" if whole >= 2 and whole % processor.threads == 0 else "channels"
    return WinogradPlan(m, each, lanes, split)
