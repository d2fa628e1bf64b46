"""AMX: matrices in tile registers, of bfloat16 or bytes."""

from collections.abc import Sequence

from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.schedule.amx_bands import COLUMNS, Bands, pack_tiles, parts_of, unpack_tiles
from sterna.schedule.amx_kernel import AmxKernel
from sterna.schedule.contraction import Contraction
from sterna.schedule.implementation import Candidate, PackedImplementation, Plan, expect_shape
from sterna.schedule.kernel import Processor
from sterna.te import Tensor
from sterna.tir.tiles import GROUP_BYTES, SUMS, feature_of


class Amx(PackedImplementation):
    """Channels last, one group; what follows finds the sums of some tiles in the inner cache."""

    name = "amx"
    wants = (
        "a contraction of bytes or bfloat16 with channels last, in one group and with at least "
        f"{GROUP_BYTES} bytes side by side"
    )

    def suits(self, made: Contraction) -> bool:
        sums = SUMS.get(f"{made.data} {made.weight}")
        if sums is None or made.out not in (sums, made.data if made.data.is_float else sums):
            return False
        return made.is_plain_image and made.data.bytes * Bands(made).segment >= GROUP_BYTES

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor
    ) -> Sequence[Candidate]:
        if not self.suits(made):
            return []
        if feature_of(f"{made.data} {made.weight}") not in processor.matrix_tiles:
            return []
        bands = Bands(made)
        plan = Plan.of(self.name, threads=processor.threads)
        plain = weights.reshape(made.outputs, bands.segments, bands.segment)
        return [Candidate(plan, bands.cycles() / processor.threads, lambda: (pack_tiles(plain),))]

    def expect_types(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        if plan.integer("threads") < 1:
            raise ValueError("threads should be at least 1")
        bands, group = Bands(made), GROUP_BYTES // made.data.bytes
        count, size = parts_of(bands.segment, made.data.bytes)
        blocks = -(-made.outputs // COLUMNS)
        expect_shape(operands, (blocks, bands.segments * count, size // group, COLUMNS, group))

    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        bands = Bands(made)
        plain = unpack_tiles(operands[0], made.outputs, bands.segments, bands.segment)
        return plain.reshape(made.outputs, *made.window, made.depth)

    def kernel(
        self, made: Contraction, plan: Plan, out: TensorType, packed: Sequence[Tensor]
    ) -> AmxKernel:
        return AmxKernel(made, plan.integer("threads"), out)


IMPLEMENTATION = Amx()
