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
    rows_together,
    unpack_rows,
)
from sterna.schedule.dot4 import GROUP, INT32
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

# With fewer lanes it costs more to bring rows together than their products, for one row of results.
LEAST_LANES = 8


class DepthwiseDot4(PackedImplementation):
    """Channels last that fill whole vectors, windows of two to four rows."""

    name = "depthwise_dot4"

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor, limits: Limits
    ) -> Sequence[Candidate]:
        lanes = processor.lanes(INT32)
        if not processor.has_dot4 or not is_depthwise_of_bytes(made):
            return []
        if made.outputs % lanes or lanes * rows_together(made) < LEAST_LANES:
            return []
        each = (made.window[1] + GROUP / rows_together(made)) / DOTS
        cycles = made.pixels * made.outputs / lanes * each / processor.threads
        plain = weights[..., 0]
        return [Candidate(Plan(self.name), cycles, lambda: (pack_rows(made, plain, lanes),))]

    def expect(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        expect_depthwise_of_bytes(made)
        lanes = lanes_of(made, operands[0])
        vectors = made.outputs // lanes
        shape = (rows_together(made), made.window[1], vectors, lanes, GROUP)
        expect_shape(operands, shape)

    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        return unpack_rows(made, operands[0])[..., None]

    def compute(
        self, made: Contraction, plan: Plan, out: TensorType, epilogue: Epilogue | None,
        data: Tensor, packed: Sequence[Tensor],
    ) -> Tensor:
        """What follows is computed while some columns of results are in the innermost cache."""
        kernel = DepthwiseKernel(made, build.int_value(packed[0].shape[-2]) or 1)

        def write(ib: IRBuilder, buffers: Sequence[BufferVar], finish: Finish | None) -> None:
            kernel.follow(finish)
            kernel.write(ib, *buffers)

        name = "T_depthwise_dot4"
        return extern_with(epilogue, out, (data, *packed), write, name, kernel.describe())


def is_depthwise_of_bytes(made: Contraction) -> bool:
    """Whether four rows of bytes hold the rows of a depthwise window, channels last."""
    kinds = [(kind.is_integer, kind.bits) for kind in (made.data, made.weight)]
    if kinds != [(True, 8), (True, 8)] or made.out != INT32 or made.rank != 2:
        return False
    steps = {*made.dilation} == {1} and 1 < made.window[0] <= GROUP
    return steps and made.is_depthwise and made.channels_last and made.macs > 0


def expect_depthwise_of_bytes(made: Contraction) -> None:
    """Raise ValueError unless it is one."""
    if not is_depthwise_of_bytes(made):
        raise ValueError(f"a depthwise convolution of bytes is needed, not {made}")


def lanes_of(made: Contraction, packed: TensorType) -> int:
    """The channels that packed weights have in a vector; ValueError unless they fill vectors."""
    lanes = (1, *packed.concrete_shape[:-1])[-1]
    if lanes < 1 or made.outputs % lanes:
        raise ValueError(f"vectors of {lanes} channels do not hold {made.outputs}")
    return lanes


IMPLEMENTATION = DepthwiseDot4()
