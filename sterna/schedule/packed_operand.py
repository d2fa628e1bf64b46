"""Packing of an operand that only the run knows, by the graph, for dot products of bytes.

    nn.batch_matmul(%x, %y, out_dtype="int32")
    ->  nn.batch_matmul(%x, packed %y, out_dtype="int32", implementation="direct(weights=OI8o4i)")

Instructions add four products of bytes in each lane of a vector. Constant weights are packed for
them when a model is compiled; here what makes %y stores it so.
"""

from collections.abc import Sequence

from sterna.schedule.choose import asking_costs, choose
from sterna.schedule.contraction import Contraction
from sterna.schedule.cost import operand_cycles
from sterna.schedule.dot4 import GROUP, INT32, dot_width
from sterna.schedule.expression import Expression
from sterna.schedule.implementation import Plan
from sterna.schedule.kernel import Processor
from sterna.schedule.sum_of_products import DIRECT

AS_IT_IS = Plan(DIRECT)


def operand_packing(made: Contraction, processor: Processor) -> Plan | None:
    """The plan of a product of bytes whose second operand is worth packing; None: it is not."""
    kinds = (made.data, made.weight)
    if not processor.has_dot4 or not made.weight.is_int or made.out != INT32:
        return None
    if not made.macs or any(not kind.is_integer or kind.bits != 8 for kind in kinds):
        return None
    ways = _ways(made, processor)
    taken = choose(
        "implementation", ways,
        lambda way: operand_cycles(made, processor, is_packed=way != AS_IT_IS),
    )
    return None if taken == AS_IT_IS else taken


def would_pack(made: Contraction, processor: Processor) -> bool:
    """Whether the cheapest way packs the operand; nothing is decided."""
    with asking_costs():
        return operand_packing(made, processor) is not None


def _ways(made: Contraction, processor: Processor) -> Sequence[Plan]:
    """How the second operand may lie: as it is, or in groups of four for a tile's columns."""
    width = dot_width(made.result[-1], made.outputs, made.inputs, processor)
    packed = [] if width is None else [Expression(f"OI{width}o{GROUP}i").plan(DIRECT)]
    return [AS_IT_IS, *packed]
