"""Transposes: tiles of shared memory, read and written by vectors.

Axes that follow each other in memory before and after count as one. Of those that are left, one is
the fastest of what is read and another of what is written; a block has a tile of both. Its threads
bring vectors along the first into shared memory and take vectors along the second out of it. The
vectors of a row change places there by the row's number (a swizzle), so that lanes of a warp read
different banks.
"""

import math
from collections.abc import Sequence
from itertools import product

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import INT32, Expr, Var
from sterna.ir.node import Node, post_order
from sterna.schedule.choose import choose
from sterna.schedule.gpu.access import VECTOR_BYTES
from sterna.schedule.gpu.limits import Limits
from sterna.schedule.gpu.shifted_tiles import ShiftedWriter, is_shiftable, shifted_bytes
from sterna.schedule.gpu.transpose_writer import Moved, Tile, TileWriter, lanes_of, sides_of
from sterna.schedule.kernel import ScheduleTarget
from sterna.te import ComputeOp, PlaceholderOp, Tensor
from sterna.te.tensor import ProducerLoad, replace_loads

SIDES = (32, 64, 128)
MOST_ELEMENTS = 4096
"""Of a tile: larger ones leave fewer blocks that move others meanwhile."""
SHORTEST = 8
"""Axes of fewer elements fill no tile."""
# Blocks that keep a device busy, and what a piece of a row costs beside its bytes.
BUSY, PIECE_BYTES = 264, 32
# What tiles of short vectors take where their rows are longer than a warp.
WIDE_TIME = 1.15
# What is left of that where rows are moved by whole vectors all the same, and the tiles' sides.
SHIFTED_TIME, SHIFTED_SIDES = 0.9, (64, 128)
# What they take more where another tile has all that follows each other in the result.
WHOLE_TIME = 1.25
MOST_LOADS = 64


def transposed_tiles(outputs: Sequence[Tensor], target: ScheduleTarget | None) -> Tensor | None:
    """The statements of a transpose for a GPU; None if a kernel is none, or has no tiles."""
    moved = _moved_by(outputs[0]) if len(outputs) == 1 else None
    if moved is None:
        return None
    kinds = [*(tensor.dtype for tensor in moved.moved), outputs[0].dtype]
    groups = moved.groups
    read = next(group for group in groups if moved.order[-1] in group)
    if read is groups[-1] or any(kind.bits < 8 for kind in kinds):
        return None
    sizes = moved.size(read), moved.size(groups[-1])
    if min(sizes) < SHORTEST:
        return None
    tile = _tile_of(moved, sizes, [kind.bytes for kind in kinds], Limits.of(target))
    if tile is None:
        return None
    writer = ShiftedWriter if tile.is_shifted else TileWriter
    return writer(moved, outputs[0], tile, Limits.of(target)).tensor()


def _tile_of(
    moved: Moved, sizes: tuple[int, int], widths: Sequence[int], limits: Limits
) -> Tile | None:
    """The tile with the longest pieces of rows that leaves no processor idle.

    Where vectors are short, lanes behind the end of a row cost little, and rows of shared memory
    are a warp's: measured on an H200, for extents that are odd or twice an odd number.
    """
    rest = math.prod(moved.extents) // math.prod(sizes)
    held = sum(widths[:-1])
    vectors = [lanes_of(size, width) * width for size, width in zip(
        sizes, (max(widths[:-1]), widths[-1]), strict=True)]
    is_short = min(vectors) < VECTOR_BYTES

    def cost(tile: Tile) -> float:
        counts = [-(-size // side) for size, side in zip(sizes, sides_of(tile), strict=True)]
        blocks = rest * math.prod(counts)
        idle = math.prod(n * side / size for n, side, size in zip(
            counts, sides_of(tile), sizes, strict=True))
        # Where a tile has all that follows each other in the result, so do its rows.
        is_whole = tile.along_write >= sizes[1]
        written = tile.along_write * (tile.along_read if is_whole else 1)
        pieces = sum(
            1 + PIECE_BYTES / (side * width)
            for side, width in zip(
                (tile.along_read, written), (max(widths[:-1]), widths[-1]), strict=True)
        )
        if tile.is_shifted:
            wide = WIDE_TIME if tile.along_read > SHIFTED_SIDES[0] else 1.0
            wide *= WHOLE_TIME if sizes[1] <= max(SIDES) else 1.0
            return SHIFTED_TIME * wide * idle**0.5 * pieces * max(1.0, BUSY / blocks)
        if is_short:
            idle = idle**0.25 * (WIDE_TIME if tile.along_read > SIDES[0] else 1.0)
        return idle * pieces * max(1.0, BUSY / blocks)

    tiles = [
        Tile(*sides) for sides in product(SIDES, SIDES)
        if math.prod(sides) <= MOST_ELEMENTS and math.prod(sides) * held <= limits.shared_bytes
    ]
    if is_short and is_shiftable(widths, math.prod(moved.extents)):
        tiles += [
            tile for side in SHIFTED_SIDES
            if shifted_bytes(
                tile := Tile(side, SHIFTED_SIDES[0], is_shifted=True), widths[0], widths[-1])
            <= limits.shared_bytes
        ]
    return choose("tile of a transpose", tiles, cost) if tiles else None


def _moved_by(out: Tensor) -> Moved | None:
    """What a tensor of independent elements moves: arrays that are all read in one other order."""
    op = out.op
    extents = [build.int_value(extent) for extent in out.shape]
    if not isinstance(op, ComputeOp) or op.reduce_axis or op.num_outputs > 1 or not all(extents):
        return None
    axes = {n: Var(f"axis{n}", INT32) for n, extent in enumerate(extents) if extent != 1}
    value = _inlined(out, tuple(axes.get(n, build.const(0)) for n in range(len(extents))))
    if value is None:
        return None
    names = tuple(axes.values())
    orders: dict[Tensor, set[tuple[int, ...] | None]] = {}

    def note(node: Node) -> None:
        if isinstance(node, ProducerLoad):
            orders.setdefault(node.tensor, set()).add(_order(node, names))

    post_order(value, note)
    whole = {tensor: found for tensor, found in orders.items() if None not in found}
    same = tuple(range(len(names)))
    others = {order for found in whole.values() for order in found if order != same}
    if len(others) != 1:
        return None
    (order,) = others
    assert order is not None
    moved = tuple(tensor for tensor, found in whole.items() if found == {order})
    sizes = tuple(extent for extent in extents if extent is not None and extent != 1)
    return Moved(names, sizes, order, value, moved, tuple(orders)) if moved else None


def _order(load: ProducerLoad, axes: tuple[Var, ...]) -> tuple[int, ...] | None:
    """The axes in the order in which a load has them; None if it is not all of them."""
    used = [i for i, n in zip(load.indices, load.tensor.shape, strict=True)
            if not build.is_const(n, 1)]
    places = {id(axis): n for n, axis in enumerate(axes)}
    found = tuple(places.get(id(index), -1) for index in used)
    return found if sorted(found) == list(range(len(axes))) else None


def _inlined(out: Tensor, at: tuple[Expr, ...]) -> Expr | None:
    """An element by what is read from memory; None if more than expressions lie between."""
    count, fits = 0, True

    def loaded(tensor: Tensor, indices: tuple[Expr, ...]) -> Expr | None:
        nonlocal count, fits
        op = tensor.op
        count += 1
        if isinstance(op, PlaceholderOp):
            return None
        one = isinstance(op, ComputeOp) and not op.reduce_axis and op.num_outputs == 1
        if not one or count > MOST_LOADS:
            fits = False
            return None
        assert isinstance(op, ComputeOp)
        places = {axis.var: index for axis, index in zip(op.axis, indices, strict=True)}
        return replace_loads(substitute(op.body[0], places), loaded)

    value = loaded(out, at)
    return value if fits else None


