"""Ways to read an operand of a product that only the run knows: as it lies, or packed in panels.

Weights that are inputs or that a graph computes cannot be packed when a model is compiled.
"""

from dataclasses import dataclass

from sterna.ir import build
from sterna.schedule.choose import choose
from sterna.schedule.few_rows import STEPS
from sterna.schedule.kernel import Processor
from sterna.schedule.sum_of_products import Access, SumOfProducts
from sterna.te import PlaceholderOp

AS_IT_LIES, PANELS, DOTS, STREAMED = "as it lies", "panels", "dot products", "streamed"

# Cycles in which one element is packed: transposed, by squares of as many lanes as a vector has but
# no faster than the second number, or copied from rows that lie far apart.
TRANSPOSED, TRANSPOSED_AT_LEAST, COPIED = 6.0, 0.8, 2.0
# How much longer products take with vectors that are gathered, or that come from lines far apart.
GATHERED, FAR = 8.0, 2.5
# Cycles of a line that comes from behind the second cache alone: its neighbours lie pages away.
LINE_BYTES, PAGE_BYTES, LONE_LINE = 64, 4096, 46.0
# How much longer dot products take than a tile that broadcasts, and cycles to add up a lane of one.
DOT_LOADS, LANE_ADDED = 1.1, 0.6
# Rows whose sums are in registers while steps of the sum are added to them.
STREAMED_ROWS = 8


@dataclass(frozen=True, slots=True)
class FreeOperand:
    """An operand that is read as vectors, the same for all rows, and is not packed."""

    access: Access
    across: bool
    """Whether neighbours in memory are steps of the sum, not columns."""
    rows: int

    def cost(self, way: str, made: SumOfProducts, processor: Processor) -> float:
        """Cycles of one thread."""
        depth, columns = made.depths[0], made.sizes[-1]
        lanes = processor.lanes(made.dtype)
        rate = processor.throughput.multiply_adds * lanes
        cycles, matrices = made.products / rate, made.products / (self.rows * depth * columns)
        elements = matrices * depth * columns
        if way == PANELS:
            transposed = max(TRANSPOSED / lanes, TRANSPOSED_AT_LEAST)
            return cycles + (transposed if self.across else COPIED) * elements
        if way == DOTS:
            return DOT_LOADS * cycles + LANE_ADDED * lanes * matrices * self.rows * columns
        if way == STREAMED:
            loaded = elements * (STEPS + 2 * self.rows) / (STEPS * lanes)
            return max(cycles, loaded / processor.throughput.loads)
        item = made.dtype.bytes
        near = depth * columns * item <= processor.l1_bytes // 2
        cycles *= GATHERED if self.across else 1.0 if near else FAR
        size = elements * item
        if not self.across and columns * item >= PAGE_BYTES and size > processor.l2_bytes:
            cycles = max(cycles, LONE_LINE * size / LINE_BYTES)
        return cycles


def free_operand(made: SumOfProducts, row: int) -> FreeOperand | None:
    """The operand of a product that could be packed while it runs; None if there is none."""
    known = [size for axis, size in enumerate(made.extents[:-1]) if axis != row]
    whole = made.dtype.is_float and len(made.steps) == 1 and None not in known
    if not whole or made.steps[0] is None or made.block is not None or made.chunk_roles:
        return None
    if made.has_open_columns and row != made.columns:
        return None
    if made.products == 0:
        return None
    for access in made.accesses:
        own = access.dtype == made.dtype and isinstance(access.tensor.op, PlaceholderOp)
        others = access.axes - {made.columns}
        if own and made.columns in access.axes and row not in others:
            return _operand(access, made, row)
    return None


def _operand(access: Access, made: SumOfProducts, row: int) -> FreeOperand | None:
    """The operand if its last two indices are a column and the step of the sum."""
    item, depth, columns = access.dtype.bytes, made.depths[0], made.sizes[-1]
    last = [build.int_value(extent) for extent in access.tensor.shape[-2:]]
    pitch = access.pitches.get(made.columns)
    rows = 1 if row == made.columns else made.sizes[row]
    if made.has_open_columns:  # of one row, which is a line of dot products
        across = access.beside == 0 and last == [None, depth] and pitch == depth * item
        return FreeOperand(access, True, rows) if across else None
    if access.beside == 0 and last == [columns, depth] and pitch == depth * item:
        return FreeOperand(access, True, rows)
    if columns == 1 and last == [depth, 1]:  # a column is a row that lies upright
        return FreeOperand(access, True, rows)
    if access.beside is None and last == [depth, columns] and pitch == item:
        return FreeOperand(access, False, rows)
    return None


def way_of(free: FreeOperand, made: SumOfProducts, processor: Processor) -> str:
    """How a free operand is read."""
    ways = [AS_IT_LIES]
    other = next(access for access in made.accesses if access is not free.access)
    lanes = processor.lanes(made.dtype)
    if free.rows > 1 and made.sizes[-1] > 1:
        ways.append(PANELS)
    if free.across and other.beside == 0 and made.depths[0] >= 2 * lanes:
        ways.append(DOTS)
    if not free.across and free.rows <= STREAMED_ROWS and made.sizes[-1] >= lanes:
        ways.append(STREAMED)
    return choose("free operand", ways, lambda way: free.cost(way, made, processor))
