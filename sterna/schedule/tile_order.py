"""Which of the loops over the tiles of a product runs outside: that over columns, or over rows.

Columns outside leave what is read for one of them in the first cache while all rows pass by, and
store a strip of every row of the result at a time. A result that leaves the second cache is stored
faster row by row, as far as the other operand comes fast enough for each row of tiles again.
"""

import math

from sterna.schedule.choose import choose
from sterna.schedule.free_operand import LINE_BYTES, FreeOperand
from sterna.schedule.kernel import Processor
from sterna.schedule.register_tile import RegisterTile
from sterna.schedule.sum_of_products import SumOfProducts

COLUMNS, ROWS = "columns", "rows"

# Cycles of a line of a result that is stored strip by strip, and of a line that comes again from
# the second cache.
STRIP_STORED, COMES_AGAIN = 24.0, 0.75
# Matrices for each thread that end together near enough.
MANY = 4


def rows_outside(
    made: SumOfProducts, row: int, tile: RegisterTile, panel: FreeOperand | None,
    processor: Processor,
) -> bool:
    """Whether tiles are computed row by row, each over all columns."""
    if not _may_run_by_rows(made, row, tile, panel, processor):
        return False
    item, columns, rows = made.dtype.bytes, made.sizes[-1], made.sizes[row]
    operand, result = made.depths[0] * columns * item, math.prod(made.sizes) * item
    if operand > processor.l2_bytes // 2 or result <= processor.l2_bytes:
        return False
    matrices = result // (rows * columns * item)
    again = -(-rows // tile.rows) if operand > processor.l1_bytes // 2 else 0
    ways = {
        COLUMNS: STRIP_STORED * result / LINE_BYTES,
        ROWS: COMES_AGAIN * matrices * again * operand / LINE_BYTES,
    }
    return choose("tiles outside", list(ways), ways.__getitem__) == ROWS


def _may_run_by_rows(
    made: SumOfProducts, row: int, tile: RegisterTile, panel: FreeOperand | None,
    processor: Processor,
) -> bool:
    """Whether it is a product of known extents whose matrices, or whose rows, threads share."""
    plain = made.dtype.is_float and len(made.steps) == 1 and not made.chunk_roles
    if not plain or None in (*made.extents, *made.steps) or row == made.columns:
        return False
    others = [size for axis, size in enumerate(made.sizes) if axis not in (row, made.columns)]
    if row != made.columns - 1 or made.products == 0:
        return False
    if panel is not None and panel.across and made.sizes[-1] % tile.columns:
        return False  # squares are transposed where whole tiles lie
    matrices, threads = math.prod(others), processor.threads
    if panel is not None and not processor.has_spare_memory:
        return False
    if not others:
        return panel is None
    return matrices % threads == 0 or matrices >= MANY * threads
