"""Packing of rows: the data of a product, copied in the order in which register tiles read it.

    a[row, step]  ->  packed[row // rows, step // together, row % rows, step % together]

A tile reads a few rows at once, which lie far apart: as many streams, pages and places of a set of
the first cache. Copied once, before the first column of tiles, all of them are one stream for every
column, and data that is larger than the second cache comes as fast as it is used.
"""

from dataclasses import replace

from sterna.schedule.choose import choose
from sterna.schedule.cost import MOST_PACKED, packed_rows_cycles, rows_apart_cycles
from sterna.schedule.kernel import Kernel
from sterna.schedule.register_tile import RegisterTile
from sterna.schedule.sum_of_products import Access, SumOfProducts
from sterna.te import PlaceholderOp, Tensor

AS_THEY_LIE, PACKED = "as they lie", "packed"


def packs_rows(kernel: Kernel, made: SumOfProducts, row: int) -> bool:
    """Whether the data of a sum is packed; asked only where tiles may read it so."""
    data = _rows_apart(kernel, made, row)
    if data is None:
        return False
    width = made.block or kernel.processor.lanes(made.dtype)
    elements, columns = made.elements_of(data), -(-made.sizes[-1] // width)
    costs = {
        AS_THEY_LIE: rows_apart_cycles(elements, columns, made.pitch(row), kernel.processor),
        PACKED: packed_rows_cycles(elements, kernel.processor),
    }
    taken = choose("rows", list(costs), costs.__getitem__)
    if taken == PACKED:
        kernel.choices["rows"] = taken
    return taken == PACKED


def with_packed_rows(
    kernel: Kernel, reader: Tensor, made: SumOfProducts, tile: RegisterTile
) -> SumOfProducts:
    """The same sum, which reads packed rows; they are a stage of the schedule."""
    data = made.by_rows
    assert data is not None
    packed = _packed(kernel, reader, data, tile)
    accesses = tuple(
        replace(access, tensor=packed) if access is data else access for access in made.accesses
    )
    return replace(made, accesses=accesses)


def _rows_apart(kernel: Kernel, made: SumOfProducts, row: int) -> Access | None:
    """What a tile reads by rows, several steps of each at once; None if it may not be copied."""
    data, steps = made.by_rows, made.beside(made.innermost)
    if data is None or kernel.processor.steps_together(made.dtype, steps) == 1:
        return None
    if made.chunk_roles or len(made.steps) != 1 or made.steps[0] is None or row == made.columns:
        return None
    if data.order is None or data.order[-2:] != (row, len(made.extents)):
        return None
    is_given = isinstance(data.tensor.op, PlaceholderOp)
    return data if is_given and made.elements_of(data) <= MOST_PACKED else None


def _packed(kernel: Kernel, reader: Tensor, data: Access, tile: RegisterTile) -> Tensor:
    schedule, rows, together = kernel.schedule, tile.rows, tile.together
    packed: Tensor = schedule.cache_read(data.tensor, "global", [reader])
    stage = schedule[packed]
    stage.transform_layout(lambda *at: [
        *at[:-2], at[-2] // rows, at[-1] // together, at[-2] % rows, at[-1] % together,
    ])
    *outer, _, inside, lane = stage.op.axis
    stage.parallel(stage.fuse(*outer))
    stage.unroll(inside)
    stage.vectorize(lane)
    return packed
