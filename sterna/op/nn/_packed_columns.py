"""Columns of a result that are computed side by side, of weights that are packed by blocks of so
many: grouped products and products by weights of few bits."""

from sterna.isa.processor import Processor
from sterna.relay.expr import RelayExpr
from sterna.relay.op import call
from sterna.schedule.choose import choose, near
from sterna.support.dtype import DataType

VECTORS = (1, 2, 4, 8)


def columns_of(processor: Processor, dtype: DataType, registers: int, total: int | None) -> int:
    """Vectors of columns, each of so many registers: as many as fit, and no more than serve."""
    lanes = processor.lanes(dtype)
    offered = [n for n in VECTORS if n * registers < processor.vector_registers] or [1]
    fitting = [n for n in offered if total is None or n * lanes <= max(lanes, total)]
    return lanes * choose("vectors of a row", fitting, near(fitting[-1]))


def without_filling(made: RelayExpr, total: int, columns: int) -> RelayExpr:
    """A result of whole blocks without what fills up the last one."""
    if total % columns == 0:
        return made
    return call("strided_slice", made, begin=(0,), end=(total,), strides=(1,), axes=(1,))
