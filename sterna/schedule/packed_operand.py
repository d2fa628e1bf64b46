"""Packing of an operand that only the run knows, by the graph, for dot products of bytes.

    nn.batch_matmul(%x, %y, out_dtype="int32")
    ->  nn.batch_matmul(%x, packed %y, out_dtype="int32", implementation="direct(weights=OI8o4i)")

Instructions add four products of bytes in each lane of a vector. Constant weights are packed for
them when a model is compiled; here what makes %y stores it so.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sterna.ir.types import TensorType
from sterna.schedule.choose import asking_costs, choose
from sterna.schedule.dot4 import GROUP, INT32, are_bytes, dot_width
from sterna.schedule.expression import Expression
from sterna.schedule.implementation import Plan
from sterna.schedule.kernel import Processor
from sterna.schedule.sum_of_products import DIRECT

# Cycles in which a vector of bytes is packed, of as many as sums have lanes.
PACKED = 2.0
AS_IT_IS = Plan(DIRECT)


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """Matrices (rows, depth) times as many (depth, columns) that only the run knows."""

    rows: int
    columns: int
    depth: int

    def ways(self, processor: Processor) -> Sequence[Plan]:
        """How its second operand may lie: as it is, or in groups of four for a tile's columns."""
        width = dot_width(self.rows, self.columns, self.depth, processor)
        packed = [] if width is None else [Expression(f"OI{width}o{GROUP}i").plan(DIRECT)]
        return [AS_IT_IS, *packed]

    def cycles(self, way: Plan, processor: Processor) -> float:
        """Of one matrix."""
        lanes, elements = processor.lanes(INT32), self.columns * self.depth
        products = self.rows * elements / (processor.throughput.multiply_adds * lanes)
        return products if way == AS_IT_IS else products / GROUP + PACKED * elements / lanes


def operand_packing(
    made: MatrixProduct, data: TensorType, operand: TensorType, processor: Processor
) -> Plan | None:
    """The plan of a product of bytes whose second operand is worth packing; None: it is not."""
    if not processor.has_dot4 or not are_bytes(data, operand) or not operand.dtype.is_int:
        return None
    taken = choose(
        "implementation", made.ways(processor), lambda way: made.cycles(way, processor)
    )
    return None if taken == AS_IT_IS else taken


def would_pack(
    made: MatrixProduct, data: TensorType, operand: TensorType, processor: Processor
) -> bool:
    """Whether the cheapest way packs the operand; nothing is decided."""
    with asking_costs():
        return operand_packing(made, data, operand, processor) is not None
