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
# What a sum costs in each step for which the last columns, in parts of vectors, leave no register.
SPILLED = 2.0
# Columns of a row that is computed alone: sums side by side, since each waits for its own.
WIDEST_ROW = 64
# Vectors side by side of a tile of several rows: 72 and 80 channels are one tile with AVX-512.
WIDEST = 5
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


@dataclass(frozen=True, slots=True)
class TileSpace:
    """The tiles that may compute rows x columns of a sum, with their cycles per step of it.

    A step loads a row of the tile's vectors and broadcasts a number per row; the accumulators,
    those vectors and one broadcast are in registers. Rows beyond the last whole tile are a tile of
    their own; columns beyond it are one too, or are computed one by one.
    """

    rows: int
    columns: int
    lanes: int
    registers: int
    block: int | None = None
    """Columns lie in blocks of so many; a tile is as wide as one."""
    most_rows: int = MOST_ROWS
    """A tile has no more than these; more than a few add code and no speed."""
    widths: tuple[int, ...] = ()
    """A tile has one of these, if any are given."""
    together: int = 1
    """Steps whose numbers of a row are loaded at once."""
    throughput: Throughput = COMMON
    ragged: bool = False
    """Whether columns beyond the last whole tile are a tile of their own."""

    def choose(self) -> RegisterTile:
        """The tile of the fewest cycles, or the one that is asked for."""
        return _choose(self.cycles())

    def cheapest(self) -> RegisterTile:
        """The tile of the fewest cycles, for costs: nothing is decided."""
        found = self.cycles()
        return min(found, key=found.__getitem__)

    def cycles(self) -> dict[RegisterTile, float]:
        """Tiles with their cycles, the largest first: their own loads and stores are spread."""
        return _cycles(self)

    def step_cycles(self, rows: int, vectors: int) -> float:
        """Of one step of the sum over so many rows of a tile."""
        return step_cycles(rows, vectors, self.together, self.throughput)

    def row_cycles(self, count: int, vectors: int) -> float:
        """Of one step over all rows, by tiles of so many and one of the rest."""
        whole, rest = divmod(max(self.rows, 1), count)
        last = self.step_cycles(rest, vectors) if rest else 0
        return whole * self.step_cycles(count, vectors) + last

    def beyond_cycles(self, count: int, columns: int) -> float:
        """Of one step over all rows of so many columns beyond the last whole tile."""
        if not self.ragged or not columns:
            return 4 * columns * max(self.rows, 1)
        vectors = vectors_of(columns, self.lanes)
        spilled = max(0, min(count, self.rows) * vectors + vectors + 1 - self.registers)
        spills = SPILLED * spilled * (max(self.rows, 1) // count)
        return self.row_cycles(count, vectors) + spills


def tile_of_rows(
    processor: Processor, rows: int, columns: int, dtype: DataType, depth: int,
    block: int | None = None, most_rows: int = MOST_ROWS, throughput: Throughput | None = None,
    ragged: bool = False, whole: int | None = None,
) -> RegisterTile:
    """The tile of a sum over numbers that lie side by side in every row, so many of them.

    whole: a number of columns that tiles should divide, if any tile of a vector or more does.
    """
    space = _tiles_of_rows(
        processor, rows, columns, dtype, depth, block, most_rows, throughput, ragged
    )
    return _choose(_dividing(space, whole) if whole else space.cycles())


def _dividing(space: TileSpace, columns: int) -> dict[RegisterTile, float]:
    found = space.cycles()
    fitting = {
        tile: cycles for tile, cycles in found.items()
        if columns % tile.columns == 0 and tile.columns >= space.lanes
    }
    return fitting or found


def _tiles_of_rows(
    processor: Processor, rows: int, columns: int, dtype: DataType, depth: int,
    block: int | None = None, most_rows: int = MOST_ROWS, throughput: Throughput | None = None,
    ragged: bool = False,
) -> TileSpace:
    together = processor.steps_together(dtype, depth)
    widths = processor.tile_widths(dtype, columns) if block is None and rows > 1 else ()
    return TileSpace(
        rows, columns, processor.lanes(dtype), processor.registers_for(together), block, most_rows,
        widths, together, throughput or processor.throughput, ragged,
    )


def tile_of_group(
    processor: Processor, rows: int, columns: int, groups: int, dtype: DataType, depth: int,
    block: int | None = None,
) -> RegisterTile:
    """The same for so many columns of each of some groups, which read numbers of their own.

    A tile lies in one group, or a vector of it holds several whole groups.
    """
    return _choose(tiles_of_group(processor, rows, columns, groups, dtype, depth, block))


def tiles_of_group(
    processor: Processor, rows: int, columns: int, groups: int, dtype: DataType, depth: int,
    block: int | None = None,
) -> dict[RegisterTile, float]:
    """These tiles, with their cycles for each group and each step of the sum."""
    if groups == 1:
        return _tiles_of_rows(processor, rows, columns, dtype, depth, block).cycles()
    lanes = processor.lanes(dtype)
    found = _tiles_across(processor, rows, columns, groups, lanes, depth, block)
    if not found or block is None:
        inside = block is None or columns % block == 0
        together = processor.steps_together(dtype, depth, least=1) if inside else 1
        widths = group_widths(columns, lanes) if block is None else ()
        found |= TileSpace(
            rows, columns, lanes, processor.registers_for(together), block, widths=widths,
            together=together, throughput=processor.throughput,
        ).cycles()
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
    space = TileSpace(
        rows, lanes, lanes, processor.registers_for(depth), lanes, together=depth,
        throughput=processor.throughput,
    )
    return {tile: SHUFFLED / several * cycles for tile, cycles in space.cycles().items()}


def group_widths(columns: int, lanes: int) -> tuple[int, ...]:
    """The divisors of a group's columns that fill some vectors at most, the widest first."""
    widest = min(columns, WIDEST_GROUP * lanes)
    return tuple(n for n in range(widest, 0, -1) if columns % n == 0)


def vectors_of(width: int, lanes: int) -> int:
    """The registers of so many columns: whole ones, and parts that are powers of two."""
    return width // lanes + (width % lanes).bit_count()


def _choose(cycles: dict[RegisterTile, float]) -> RegisterTile:
    return choose("tile", tuple(cycles), cycles.__getitem__)


@cache
def _cycles(space: TileSpace) -> dict[RegisterTile, float]:
    rows, columns, lanes = max(space.rows, 1), space.columns, space.lanes
    found: dict[RegisterTile, float] = {}
    sizes: dict[RegisterTile, int] = {}
    for width in space.widths or ([space.block] if space.block else _widths(space)):
        vectors = vectors_of(width, lanes)
        fitting = rows_that_fit(vectors, space.registers, space.together)
        for count in range(1, min(rows, space.most_rows, fitting) + 1):
            tile = RegisterTile(count, width, space.together)
            found[tile] = space.row_cycles(count, vectors) * (columns // width)
            found[tile] += space.beyond_cycles(count, columns % width)
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


def _widths(space: TileSpace) -> list[int]:
    """Some vectors that leave room for accumulators, and parts of one behind them."""
    lanes, columns = space.lanes, space.columns
    vectors = WIDEST if space.rows > 1 else max(4, WIDEST_ROW // lanes)
    most = max(n for n in range(1, vectors + 1) if n == 1 or 2 * n < space.registers)
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
