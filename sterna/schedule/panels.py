"""Packing on the fly: panels of an operand that only the run knows, copied as they are needed.

Constant weights are packed when a model is compiled. Of others some columns of tiles are copied
side by side, for all steps of the sum, before the rows pass by them: a panel stays in a cache.
"""

from sterna.schedule.kernel import Kernel
from sterna.schedule.loops import extents_of
from sterna.schedule.sum_of_products import Access
from sterna.schedule.transpose_tile import SIDES, transpose_intrinsic
from sterna.te import IterVar, Stage, Tensor

LINE_BYTES = 64
# Lines that processors fetch together.
LINES = 2
# Steps of the sum by which a panel's rows are fetched ahead: they lie far apart.
AHEAD = 8


def tiles_of_panel(panel: Access, across: bool, width: int, columns: int) -> int:
    """Columns of tiles, of so many, that one panel holds: rows of it come in whole lines."""
    most = max(1, LINES * LINE_BYTES // (width * panel.dtype.bytes))
    return 1 if across or columns % most else most


def pack_panel(
    kernel: Kernel, panel: Access, across: bool, reader: Tensor, stage: Stage, columns: IterVar,
    width: int,
) -> None:
    """Copy some columns of an operand into a panel, in a loop over columns of tiles.

    across: neighbours in memory are steps of the sum, so squares are transposed on the way.
    """
    schedule = kernel.schedule
    packed = schedule[schedule.cache_read(panel.tensor, "global", [reader])]
    packed.compute_at(stage, columns)
    if across:
        _transpose(packed, panel, width, kernel.processor.lanes(panel.dtype))
        return
    packed.transform_layout(lambda *at: [*at[:-2], at[-1] // width, at[-2], at[-1] % width])
    *_, tile, step, column = packed.op.axis
    packed.reorder(step, tile, column)
    packed.vectorize(column)
    packed.prefetch(panel.tensor, step, AHEAD)


def _transpose(packed: Stage, panel: Access, width: int, lanes: int) -> None:
    columns, steps = extents_of(packed.op.axis)[-2:]
    if columns % width:  # a panel is one column of tiles, the last one as narrow as it is
        packed.transform_layout(lambda *at: [*at[:-2], at[-1], at[-2]])
    else:
        packed.transform_layout(lambda *at: [*at[:-2], at[-2] // width, at[-1], at[-2] % width])
    *_, step, column = packed.op.axis
    if panel.dtype.bits != 32 or lanes not in SIDES or width % lanes or steps < lanes:
        packed.vectorize(column)
        return
    row, inner = packed.split(step, factor=lanes)
    # a line of each row at once: rows that lie whole pages apart share few places of the cache
    line, row = packed.split(row, factor=max(1, LINE_BYTES // panel.dtype.bytes // lanes))
    vectors, lane = packed.split(column, factor=lanes)
    packed.reorder(line, vectors, row, inner, lane)
    packed.tensorize(inner, transpose_intrinsic(str(panel.dtype), lanes))
