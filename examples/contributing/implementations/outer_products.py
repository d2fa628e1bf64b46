"""Outer products: a row of the result is the sum of rows of the weights, each times a number.

Weights are packed with their output channels side by side, so that any number of rows runs in
whole vectors without a tile. Sums stay in the innermost cache, not in registers: it costs twice the
loads of a register tile, and nothing for rows that fill no tile.
"""

from collections.abc import Sequence

import numpy as np

from sterna.ir.expr import Expr
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.schedule.contraction import Contraction
from sterna.schedule.epilogue import Epilogue, Finish, extern_with
from sterna.schedule.implementation import (
    Candidate,
    Limits,
    PackedImplementation,
    Plan,
    expect_shape,
)
from sterna.schedule.kernel import Processor
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder


class OuterProducts(PackedImplementation):
    """Pointwise contractions of float32."""

    name = "outer_products"

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor, limits: Limits
    ) -> Sequence[Candidate]:
        if not _suits(made):
            return []
        vectors = -(-made.outputs // processor.lanes(made.out))
        steps = made.pixels * made.products * vectors
        cycles = 2 * steps / processor.throughput.loads / processor.threads
        return [Candidate(Plan(self.name), cycles, lambda: (_packed(made, weights),))]

    def expect(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        if not _suits(made):
            raise ValueError(f"a pointwise contraction of float32 is needed, not {made}")
        expect_shape(operands, (made.inputs, made.outputs))

    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        return operands[0].T.reshape(made.outputs, *made.window, made.inputs)

    def compute(
        self, made: Contraction, plan: Plan, out: TensorType, epilogue: Epilogue | None,
        data: Tensor, packed: Sequence[Tensor],
    ) -> Tensor:
        outer = out.concrete_shape[:-1]

        def write(ib: IRBuilder, buffers: Sequence[BufferVar], finish: Finish | None) -> None:
            given, weights, result = buffers
            with ib.for_range(0, made.pixels, name="row", kind="parallel") as row:
                at = _indices(row, outer)
                sums = ib.allocate("float32", (made.outputs,), name="sums")
                with ib.for_range(0, made.outputs, name="o", kind="vectorize") as o:
                    sums[o] = 0.0
                with ib.for_range(0, made.inputs, name="c") as c:
                    value = ib.let("value", given[(*at, c)])
                    with ib.for_range(0, made.outputs, name="o", kind="vectorize") as o:
                        sums[o] = sums[o] + value * weights[c, o]
                with ib.for_range(0, made.outputs, name="o", kind="vectorize") as o:
                    total = sums[o]
                    result[(*at, o)] = total if finish is None else finish((*at, o), total)

        return extern_with(epilogue, out, (data, *packed), write, "T_outer", "outer products")


def _suits(made: Contraction) -> bool:
    floats = {str(kind) for kind in made.dtypes} == {"float32"}
    return floats and made.is_pointwise and made.groups == 1 and made.channels_last


def _packed(made: Contraction, weights: Array) -> Array:
    return np.ascontiguousarray(weights.reshape(made.outputs, made.inputs).T)


def _indices(row: Expr, extents: Sequence[int]) -> list[Expr]:
    """The indices of a row before its channels."""
    found: list[Expr] = []
    for extent in reversed(extents):
        found.insert(0, row % extent)
        row = row // extent
    return found


IMPLEMENTATION = OuterProducts()
