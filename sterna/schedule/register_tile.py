"""How large a tile of a sum of products is kept in registers."""

from dataclasses import dataclass
from functools import cache

from sterna.isa.core import COMMON, Throughput
from sterna.schedule.choose import choose
from sterna.schedule.kernel import Processor
from sterna.support.dtype import DataType

# What a vector costs beyond its load, as it comes from the second cache.
FAR_VECTOR = 0.3
MOST_ROWS = 16
# Columns of a row that is computed alone: sums side by side, since each waits for its own.
WIDEST_ROW = 64
# Vectors of a tile whose width divides that of a group.
WIDEST_GROUP = 6
# Groups that share a vector, and how much longer a product takes there: fewer run as fast apart.
LEAST_GROUPS, SHUFFLED = 4, 2


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """Rows and columns of a tile; a row of it is one vector, held in one or more registers."""

    rows: int
    columns: int
    together: int = 1
    """Steps of the sum whose numbers of a row come in one register, each in a lane of its own."""

    def __str__(self) -> str:
        """4 x 16"""
        return f"{self.rows} x {self.columns}"


def tile_of_rows(
    processor: Processor,
    rows: int,
    columns: int,
    dtype: DataType,
    depth: int,
    block: int | None = None,
    most_rows: int = MOST_ROWS,
    throughput: Throughput | None = None,
) -> RegisterTile:
    """The tile of a sum over numbers that lie side by side in every row, so many of them."""
    found = _tiles_of_rows(
        processor, rows, columns, dtype, depth, block, most_rows, throughput
    )
    return choose("tile", tuple(found), found.__getitem__)


def _tiles_of_rows(
    processor: Processor, rows: int, columns: int, dtype: DataType, depth: int,
    block: int | None = None, most_rows: int = MOST_ROWS, throughput: Throughput | None = None,
) -> dict[RegisterTile, float]:
    lanes, together = processor.lanes(dtype), processor.steps_together(dtype, depth)
    registers = processor.registers_for(together)
    widths = processor.tile_widths(dtype, columns) if block is None and rows > 1 else ()
    return _tiles(
        rows, columns, lanes, registers, block, most_rows, widths, together,
        throughput or processor.throughput,
    )


def tile_of_group(
    processor: Processor, rows: int, columns: int, groups: int, dtype: DataType, depth: int,
    block: int | None = None,
) -> RegisterTile:
    """The same for so many columns of each of some groups, which read numbers of their own.

    A tile lies in one group, or a vector of it holds several whole groups.
    """
    found = tiles_of_group(processor, rows, columns, groups, dtype, depth, block)
    return choose("tile", tuple(found), found.__getitem__)


def tiles_of_group(
    processor: Processor, rows: int, columns: int, groups: int, dtype: DataType, depth: int,
    block: int | None = None,
) -> dict[RegisterTile, float]:
    """These tiles, with their cycles for each group and each step of the sum."""
    if groups == 1:
        return _tiles_of_rows(processor, rows, columns, dtype, depth, block)
    lanes = processor.lanes(dtype)
    found = _tiles_across(processor, rows, columns, groups, lanes, depth, block)
    if not found or block is None:
        inside = block is None or columns % block == 0
        together = processor.steps_together(dtype, depth, least=1) if inside else 1
        widths = group_widths(columns, lanes) if block is None else ()
        found |= _tiles(
            rows, columns, lanes, processor.registers_for(together), block, MOST_ROWS, widths,
            together, processor.throughput,
        )
    return found


def _tiles_across(
    processor: Processor, rows: int, columns: int, groups: int, lanes: int, depth: int,
    block: int | None,
) -> dict[RegisterTile, float]:
    """Tiles of vectors that hold several whole groups, with their cycles for each group.

    One register holds a row's numbers of these groups; beside each product a shuffle of it gives
    every lane the number of its group.
    """
    several = lanes // columns
    whole = several >= LEAST_GROUPS and lanes % columns == groups % several == 0
    if not whole or not 1 < depth <= columns or block not in (None, lanes):
        return {}
    registers, throughput = processor.registers_for(depth), processor.throughput
    found = _tiles(rows, lanes, lanes, registers, lanes, MOST_ROWS, (), depth, throughput)
    return {tile: SHUFFLED / several * cycles for tile, cycles in found.items()}


def group_widths(columns: int, lanes: int) -> tuple[int, ...]:
    """The divisors of a group's columns that fill some vectors at most, the widest first."""
    widest = min(columns, WIDEST_GROUP * lanes)
    return tuple(n for n in range(widest, 0, -1) if columns % n == 0)


def vectors_of(width: int, lanes: int) -> int:
    """The registers of so many columns: whole ones, and parts that are powers of two."""
    return width // lanes + (width % lanes).bit_count()


def register_tile(
    rows: int,
    columns: int,
    lanes: int,
    registers: int,
    block: int | None = None,
    most_rows: int = MOST_ROWS,
    widths: tuple[int, ...] = (),
    together: int = 1,
    throughput: Throughput = COMMON,
) -> RegisterTile:
    """The tile that computes rows x columns in the fewest cycles per step of the sum.

    block: columns lie in blocks of so many; a tile is as wide as one. most_rows: a tile has no
    more than these; more than a few add code and no speed. widths: a tile has one of these.
    together: steps whose numbers of a row are loaded at once.

    A step loads a row of the tile's vectors and broadcasts a number per row; the accumulators,
    those vectors and one broadcast are in registers. Rows beyond the last whole tile are a tile of
    their own, and columns beyond it are computed one by one.
    """
    found = _tiles(rows, columns, lanes, registers, block, most_rows, widths, together, throughput)
    return choose("tile", tuple(found), found.__getitem__)


def expected_rows(
    rows: int, columns: int, lanes: int, registers: int, block: int, together: int,
    throughput: Throughput, most_rows: int = MOST_ROWS,
) -> int:
    """The rows of the cheapest tile, for costs: nothing is decided."""
    found = _tiles(rows, columns, lanes, registers, block, most_rows, (), together, throughput)
    return min(found, key=found.__getitem__).rows


@cache
def _tiles(
    rows: int, columns: int, lanes: int, registers: int, block: int | None, most_rows: int,
    widths: tuple[int, ...], together: int, throughput: Throughput,
) -> dict[RegisterTile, float]:
    """Tiles with their cycles, the largest first: their own loads and stores are spread over it."""
    rows = max(rows, 1)
    found: dict[RegisterTile, float] = {}
    sizes: dict[RegisterTile, int] = {}
    most = 4 if rows > 1 else max(4, WIDEST_ROW // lanes)
    for width in widths or (_widths(columns, lanes, registers, most) if block is None else [block]):
        vectors = vectors_of(width, lanes)
        single = 4 * (columns % width) * rows
        fitting = rows_that_fit(vectors, registers, together)
        for count in range(1, min(rows, most_rows, fitting) + 1):
            whole, rest = divmod(rows, count)
            last = step_cycles(rest, vectors, together, throughput) if rest else 0
            cycles = whole * step_cycles(count, vectors, together, throughput) + last
            tile = RegisterTile(count, width, together)
            found[tile] = cycles * (columns // width) + single
            sizes[tile] = -count * vectors
    return {tile: found[tile] for tile in sorted(found, key=sizes.__getitem__)}


def step_cycles(
    rows: int, vectors: int, together: int = 1, throughput: Throughput = COMMON
) -> float:
    """Of one step of the sum over a tile."""
    products, loads = rows * vectors, rows / together + vectors
    issued = (products + loads + throughput.loop_overhead / together) / throughput.issue_width
    multiplied, loaded = products / throughput.multiply_adds, loads / throughput.loads
    far = vectors if together == 1 else loads  # single numbers share their lines with others
    sent = throughput.l2_vector_cycles * vectors
    return max(multiplied, loaded, throughput.latency, issued, sent) + FAR_VECTOR * far


def _widths(columns: int, lanes: int, registers: int, vectors: int) -> list[int]:
    """Up to so many vectors that leave room for accumulators, and parts of one behind them."""
    most = max(n for n in range(1, vectors + 1) if n == 1 or 2 * n < registers)
    step = max(1, lanes // 2)
    found = [width for width in range(step, most * lanes + 1, step) if width <= columns]
    parts = [lanes >> n for n in range(2, lanes.bit_length())]
    return [*found, *(width for width in parts if width <= columns)] or [1]


def rows_that_fit(vectors: int, registers: int, together: int = 1) -> int:
    """How many rows of accumulators fit, with a register for each row's numbers if they share one.

    Beside these, two vectors of the other operand come and go, and one register stays free.
    """
    if together > 1:
        return max(1, (registers - 3) // (vectors + 1))
    return max(1, (registers - vectors - 1) // vectors)
