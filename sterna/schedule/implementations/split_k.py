"""Split-K: a pointwise convolution of one pixel whose sum threads share."""

from collections.abc import Sequence

from sterna.ir.types import TensorType
from sterna.schedule.contraction import Contraction
from sterna.schedule.cost import split_sum_cycles
from sterna.schedule.expression import Expression
from sterna.schedule.implementation import Plan
from sterna.schedule.implementations.direct import Direct
from sterna.schedule.kernel import Processor
from sterna.schedule.split_k import PARTS, fills_registers, has_one_pixel


class SplitK(Direct):
    """Few channels of many, of float32, which registers hold; weights lie as they do for direct."""

    name = "split_k"

    def cycles(self, made: Contraction, how: Expression, processor: Processor) -> float | None:
        if not has_one_pixel(made) or not fills_registers(made, processor):
            return None
        return split_sum_cycles(made, PARTS, processor)

    def expect(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        if not has_one_pixel(made):
            raise ValueError(f"one pixel of float32 with channels last is needed, not {made}")
        Direct.expect(self, made, plan, operands)


IMPLEMENTATION = SplitK()
