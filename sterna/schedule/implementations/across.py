"""Contractions of bytes across vectors: sixteen products added to a word at once (VMLADAVA)."""

from collections.abc import Sequence
from dataclasses import dataclass

from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.schedule.across_kernel import AcrossKernel, copies_pixels
from sterna.schedule.across_steps import CHANNELS
from sterna.schedule.choose import choose
from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import INT32
from sterna.schedule.implementation import Candidate, PackedImplementation, Plan, expect_shape
from sterna.schedule.kernel import Processor
from sterna.te import Tensor

# Bytes of a vector; sums that are kept at a time at most.
VECTOR, MOST_CHANNELS = 16, 32
# Instructions of a call with its loop's turn.
CALLED = 30


@dataclass(frozen=True, slots=True)
class Instructions:
    """What parts of such a kernel take, by MVE or in plain C."""

    begun: int
    """Four sums beside their products."""
    finished: int
    """Four sums that are rounded and stored."""
    step: float
    """One step's products of four sums."""
    width: int
    """Products of a sum in a step."""
    row: int
    """A row of a window that is copied."""
    byte: float
    """Each byte of it."""
    channels: int
    """Sums that are kept at a time at most: in plain C each is stored by code of its own."""


MVE = Instructions(
    begun=18, finished=19, step=10, width=VECTOR, row=30, byte=0.0, channels=MOST_CHANNELS)
# Rounding and storing is what loops in plain C take too, and is not counted there.
PLAIN = Instructions(
    begun=20, finished=12, step=37.5, width=4, row=30, byte=2.5, channels=CHANNELS)


class Across(PackedImplementation):
    """Channels last, one group of channels, bytes with a sign."""

    name = "across"
    wants = "a contraction of int8 with its channels last, in one group"

    def suits(self, made: Contraction) -> bool:
        kinds = {str(made.data), str(made.weight)} == {"int8"} and made.out == INT32
        return kinds and made.is_plain_image and not made.transposed

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor
    ) -> Sequence[Candidate]:
        if not (processor.has_dot_across or processor.is_scalar_controller):
            return []
        if not self.suits(made):
            return []
        cost = MVE if processor.has_dot_across else PLAIN
        most = min(cost.channels, made.outputs)
        offered = [*range(CHANNELS, most + 1, CHANNELS)] or [made.outputs]
        costs = {channels: _instructions(made, channels, cost) for channels in offered}
        channels = choose("channels", offered, costs.__getitem__)
        plan = Plan.of(self.name, channels=channels)
        return [Candidate(plan, costs[channels], lambda: (packed(made, weights),),
                          label=self.name)]

    def expect_types(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        channels = plan.integer("channels")
        fits = channels % CHANNELS == 0 and 0 < channels <= min(MOST_CHANNELS, made.outputs)
        if not fits and not (channels == made.outputs < CHANNELS):
            raise ValueError(
                f"a turn has a multiple of {CHANNELS} channels, of at most {MOST_CHANNELS} or "
                f"the {made.outputs} that there are, not {channels}"
            )
        expect_shape(operands, packed_shape(made))

    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        return operands[0].reshape(made.outputs, *made.window, made.depth)

    def kernel(
        self, made: Contraction, plan: Plan, out: TensorType, packed: Sequence[Tensor]
    ) -> AcrossKernel:
        return AcrossKernel(made, plan.integer("channels"), out.concrete_shape[:-1])


def packed_shape(made: Contraction) -> tuple[int, int]:
    """Output channels, and all that a sum is made of."""
    return made.outputs, made.products


def packed(made: Contraction, weights: Array) -> Array:
    """Weights (O, window, I) as rows."""
    return weights.reshape(packed_shape(made))


def _instructions(made: Contraction, channels: int, cost: Instructions) -> float:
    blocks = -(-channels // CHANNELS)
    share = min(CHANNELS, made.outputs) / CHANNELS  # of what four sums take
    each = cost.begun + share * cost.step * -(-made.products // cost.width) + cost.finished
    runs = made.window[0] if {*made.dilation} == {1} else made.taps
    copied = cost.row * runs + cost.byte * made.products if copies_pixels(made) else 0
    return made.pixels * (-(-made.outputs // channels) * (CALLED + blocks * each) + copied)


IMPLEMENTATION = Across()
