"""Outer products: a row of the result is the sum of rows of the weights, each times a number.

Weights are packed with their output channels side by side, so that any number of rows runs in
whole vectors without a tile. Sums stay in the innermost cache, not in registers: it costs twice the
loads of a register tile, and nothing for rows that fill no tile.
"""

from collections.abc import Sequence

import numpy as np

from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.schedule.contraction import Contraction
from sterna.schedule.implementation import Candidate, PackedImplementation, Plan, expect_shape
from sterna.schedule.kernel import Processor
from sterna.schedule.statement_kernel import StatementKernel, places_of
from sterna.te import Tensor


class OuterProducts(PackedImplementation):
    """Pointwise contractions of float32."""

    name = "outer_products"
    wants = "a pointwise contraction of float32"

    def suits(self, made: Contraction) -> bool:
        floats = {str(kind) for kind in made.dtypes} == {"float32"}
        return floats and made.is_pointwise and made.groups == 1 and made.channels_last

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor
    ) -> Sequence[Candidate]:
        if not self.suits(made):
            return []
        vectors = -(-made.outputs // processor.lanes(made.out))
        steps = made.pixels * made.products * vectors
        cycles = 2 * steps / processor.throughput.loads / processor.threads
        return [Candidate(Plan(self.name), cycles, lambda: (_packed(made, weights),))]

    def expect_types(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        expect_shape(operands, (made.inputs, made.outputs))

    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        return operands[0].T.reshape(made.outputs, *made.window, made.inputs)

    def kernel(
        self, made: Contraction, plan: Plan, out: TensorType, packed: Sequence[Tensor]
    ) -> StatementKernel:
        return _Kernel(made, out.concrete_shape[:-1])


def _packed(made: Contraction, weights: Array) -> Array:
    return np.ascontiguousarray(weights.reshape(made.outputs, made.inputs).T)


class _Kernel(StatementKernel):
    """A row after the other; what follows is computed as it is stored."""

    def __init__(self, made: Contraction, outer: Sequence[int]) -> None:
        """outer: the extents of the result before its channels."""
        self.made, self.outer = made, outer

    def describe(self) -> str:
        return "outer products"

    def write(self) -> None:
        ib, outputs = self.ib, self.made.outputs
        with ib.for_range(0, self.made.pixels, name="row", kind="parallel") as row:
            at = places_of(row, self.outer)
            sums = ib.allocate("float32", (outputs,), name="sums")
            with ib.for_range(0, outputs, name="o", kind="vectorize") as o:
                sums[o] = 0.0
            with ib.for_range(0, self.made.inputs, name="c") as c:
                value = ib.let("value", self.data[(*at, c)])
                with ib.for_range(0, outputs, name="o", kind="vectorize") as o:
                    sums[o] = sums[o] + value * self.weight[c, o]
            self.store_channels(at, 0, outputs, sums.__getitem__)


IMPLEMENTATION = OuterProducts()
