"""Blocked GEMM: a dense layer whose data is larger than the second cache, in blocks that fit."""

from collections.abc import Sequence

from sterna.ir.types import TensorType
from sterna.schedule.blocked_gemm import offered_blocks
from sterna.schedule.contraction import Contraction
from sterna.schedule.cost import blocked_cycles
from sterna.schedule.expression import Expression
from sterna.schedule.implementation import Plan
from sterna.schedule.implementations.direct import Direct
from sterna.schedule.kernel import Processor


class BlockedGemm(Direct):
    """Many rows of floats times weights that are packed as for direct, in several columns."""

    name = "blocked_gemm"
    takes_open = False

    def cycles(self, made: Contraction, how: Expression, processor: Processor) -> float | None:
        if not made.is_matrix or not how.weights or how.in_groups or how.chunk:
            return None
        assert how.width is not None
        blocks = offered_blocks(made.rows, made.depth, made.outputs, how.width, made.out, processor)
        if blocks is None:
            return None
        return blocked_cycles(made, max(blocks.depths), how.width, processor)

    def expect(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        how = Expression.of(plan)
        if not made.is_matrix or how.in_groups or how.chunk or how.width is None:
            raise ValueError("rows of floats and weights in blocks of units are needed")
        Direct.expect(self, made, plan, operands)


IMPLEMENTATION = BlockedGemm()
