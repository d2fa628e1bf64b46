"""Depthwise convolutions of bytes by dot4: VNNI, DOTPROD."""

from collections.abc import Sequence

from sterna.ir import build
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.schedule.contraction import Contraction
from sterna.schedule.cost import DOTS
from sterna.schedule.depthwise_bytes_kernel import (
    DepthwiseKernel,
    pack_rows,
    packed_shape,
    rows_together,
    unpack_rows,
    zips_rows,
)
from sterna.schedule.dot4 import GROUP, INT32
from sterna.schedule.implementation import Candidate, PackedImplementation, Plan, expect_shape
from sterna.schedule.kernel import Processor
from sterna.te import Tensor

# With fewer lanes it costs more to bring rows together than their products, for one row of results,
# unless whole registers of the rows are zipped.
LEAST_LANES = 8


class DepthwiseDot4(PackedImplementation):
    """Channels last that fill whole vectors, windows of two to four rows."""

    name = "depthwise_dot4"
    wants = "a depthwise convolution of bytes"

    def suits(self, made: Contraction) -> bool:
        if not made.is_of_bytes or made.out != INT32 or made.rank != 2:
            return False
        steps = {*made.dilation} == {1} and 1 < made.window[0] <= GROUP
        return steps and made.is_depthwise and made.channels_last and made.macs > 0

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor
    ) -> Sequence[Candidate]:
        lanes = processor.lanes(INT32)
        if not processor.has_dot4 or not self.suits(made):
            return []
        if made.outputs % lanes:
            return []
        if lanes * rows_together(made) < LEAST_LANES and not zips_rows(made, lanes):
            return []
        each = (made.window[1] + GROUP / rows_together(made)) / DOTS
        cycles = made.pixels * made.outputs / lanes * each / processor.threads
        plain = weights[..., 0]
        return [Candidate(Plan(self.name), cycles, lambda: (pack_rows(made, plain, lanes),))]

    def expect_types(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        expect_shape(operands, packed_shape(made, lanes_of(made, operands[0])))

    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        return unpack_rows(made, operands[0])[..., None]

    def kernel(
        self, made: Contraction, plan: Plan, out: TensorType, packed: Sequence[Tensor]
    ) -> DepthwiseKernel:
        """What follows finds some columns of results in the innermost cache."""
        return DepthwiseKernel(made, build.int_value(packed[0].shape[-2]) or 1)


def lanes_of(made: Contraction, packed: TensorType) -> int:
    """The channels that packed weights have in a vector; ValueError unless they fill vectors."""
    lanes = (1, *packed.concrete_shape[:-1])[-1]
    if lanes < 1 or made.outputs % lanes:
        raise ValueError(f"vectors of {lanes} channels do not hold {made.outputs}")
    return lanes


IMPLEMENTATION = DepthwiseDot4()
