"""AMX: matrices in tile registers, of bfloat16 or bytes."""

from collections.abc import Sequence

from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.schedule.amx_bands import COLUMNS, Bands, pack_tiles, parts_of, unpack_tiles
from sterna.schedule.amx_kernel import TileKernel
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
from sterna.tir.tiles import GROUP_BYTES, SUMS, feature_of


class Amx(PackedImplementation):
    """Channels last, one group."""

    name = "amx"

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor, limits: Limits
    ) -> Sequence[Candidate]:
        kinds, bands = f"{made.data} {made.weight}", Bands(made)
        if not _suits(made, bands) or feature_of(kinds) not in processor.matrix_tiles:
            return []
        plan = Plan.of(self.name, threads=processor.threads)
        runs = weights.reshape(made.outputs, bands.runs, bands.run)
        cycles = bands.cycles() / processor.threads
        return [Candidate(plan, cycles, lambda: (pack_tiles(runs),))]

    def expect(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        bands, group = Bands(made), GROUP_BYTES // made.data.bytes
        if not _suits(made, bands):
            raise ValueError(
                f"AMX multiplies bytes or bfloat16, at least {GROUP_BYTES} bytes of them side by "
                f"side, with channels last and in one group, not {made}"
            )
        if plan.integer("threads") < 1:
            raise ValueError("threads should be at least 1")
        count, size = parts_of(bands.run, made.data.bytes)
        blocks = -(-made.outputs // COLUMNS)
        expect_shape(operands, (blocks, bands.runs * count, size // group, COLUMNS, group))

    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        bands = Bands(made)
        plain = unpack_tiles(operands[0], made.outputs, bands.runs, bands.run)
        return plain.reshape(made.outputs, *made.window, made.depth)

    def compute(
        self, made: Contraction, plan: Plan, out: TensorType, epilogue: Epilogue | None,
        data: Tensor, packed: Sequence[Tensor],
    ) -> Tensor:
        """What follows is computed while the sums of some tiles are in the innermost cache."""
        kernel = TileKernel(made, plan.integer("threads"), out)

        def write(ib: IRBuilder, buffers: Sequence[BufferVar], finish: Finish | None) -> None:
            kernel.finish = finish
            kernel.write(ib, *buffers)

        return extern_with(epilogue, out, (data, *packed), write, "T_amx", kernel.describe())


def _suits(made: Contraction, bands: Bands) -> bool:
    sums = SUMS.get(f"{made.data} {made.weight}")
    if sums is None or made.out not in (sums, made.data if made.data.is_float else sums):
        return False
    plain = made.rank == 2 and made.groups == 1 and made.channels_last
    long = made.data.bytes * bands.run >= GROUP_BYTES
    return plain and long and made.macs > 0


IMPLEMENTATION = Amx()
