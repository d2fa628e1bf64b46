"""A step of recurrent networks by Tensor Cores, of weights in bfloat16 (mma, from sm_80 on).

The gates of a block's units are the rows of products, and its sequences their columns. A lane's 16
bytes of a row of weights are two steps of a sum, in an order that the states have too. A state
is float32, and counts as the sum of two numbers of 16 bits: what is rounded and the rest, so that
2^-17 of it is lost at most. Warps share the rows and the sums, and shared memory joins what they
have.
"""

from itertools import product

from sterna.ir import build
from sterna.ir.expr import Call, Expr
from sterna.op.recurrent_blocks import BlockSteps
from sterna.op.recurrent_shares import TILE_ROWS, WARP
from sterna.tir.ir_builder import BufferVar
from sterna.tir.register_products import fetch_once
from sterna.tir.threads import ROLLED
from sterna.tir.warpgroups import mma, pack_pair

CHUNK, QUAD, STEP, COLUMNS = 8, 4, 32, 8
"""Narrow and wide numbers in 16 bytes, those that four lanes load at once, columns of a product."""


class ProductSteps(BlockSteps):
    """The kernels of all steps, in some directions."""

    def _part_sums(self, gates: range, state: BufferVar) -> None:
        ib, share, count = self.ib, self.share, len(gates)
        lane, warp = ib.let("lane", self.thread % WARP), ib.let("warp", self.thread // WARP)
        tile, part = ib.let("tile", warp // share.parts), ib.let("part", warp % share.parts)
        tiles = share.sequences // COLUMNS
        sums = ib.allocate("float32", (tiles * 4,), name="sums", scope="local")
        for place in range(tiles * 4):
            sums[place] = build.const(0, "float32")
        rows = [ib.let("row", tile * TILE_ROWS + lane // 4 + 8 * half) for half in range(2)]
        units = [
            ib.let("own", build.minimum(self.first_unit + row // count, self.size - 1))
            for row in rows
        ]
        turns = -(-self.filled // (STEP * share.parts))
        is_whole = self.filled % (STEP * share.parts) == 0
        with ib.for_range(0, turns, name="turn", annotations={ROLLED: 1}) as turn:
            chunk: Expr = ib.let(
                "chunk", (turn * share.parts + part) * (STEP // CHUNK) + lane % 4)
            inside: Expr | None = None
            if not is_whole:
                inside = ib.let("inside", chunk < self.filled // CHUNK)
                chunk = ib.let("near", build.select(inside, chunk, build.const(0)))
            at = chunk * CHUNK  # of which it can be seen that vectors begin there
            brought = ib.allocate("uint32", (8,), name="brought", scope="local")
            for half in range(2):
                gate = rows[half] % count + gates.start
                first = self.columns[self.direction, units[half], gate, 0, at]
                ib.emit(fetch_once(brought[4 * half], first))
            weights = ib.allocate("uint32", (8,), name="weights", scope="local")
            for word in range(8):
                found: Expr = brought[word % 2 * 4 + word // 4 * 2 + word % 4 // 2]
                if inside is not None:
                    found = build.select(inside, found, build.const(0, "uint32"))
                weights[word] = found
            numbers = ib.allocate("float32", (tiles * CHUNK,), name="numbers", scope="local")
            for column, begin in product(range(tiles), range(0, CHUNK, QUAD)):
                sequence = self.first_row + column * COLUMNS + lane // 4
                numbers[column * CHUNK + begin] = state.vload(
                    (self._turn(state), self.own_direction, sequence, at + begin), QUAD)
            for column in range(tiles):
                self._multiply(sums, column, weights, numbers, inside)
        self.parted = ib.allocate(
            "float32", (share.units * share.sequences * count * (share.parts + 1),),
            name="parted", scope="shared")
        with ib.for_range(0, tiles * 4, name="sum") as number:
            row = tile * TILE_ROWS + lane // 4 + number % 4 // 2 * 8
            beside = number // 4 * COLUMNS + lane % 4 * 2 + number % 2
            at = (row % count * share.sequences + beside) * share.units + row // count
            self.parted[at * (share.parts + 1) + part] = sums[number]

    def _multiply(
        self, sums: BufferVar, column: int, weights: BufferVar, numbers: BufferVar,
        inside: Expr | None,
    ) -> None:
        """Both parts of the states of eight sequences."""
        ib = self.ib
        with ib.new_scope():
            parts = [
                ib.allocate("uint32", (4,), name=name, scope="local") for name in ("high", "low")
            ]
            for word in range(4):
                pair: list[Expr] = [numbers[column * CHUNK + 2 * word + side] for side in range(2)]
                if inside is not None:
                    pair = [
                        build.select(inside, each, build.const(0, "float32")) for each in pair
                    ]
                parts[0][word] = pack_pair("bfloat16", *pair)
                high = parts[0][word]
                rounded = [high << 16, high & build.const(0xFFFF0000, "uint32")]
                rest = []
                for each, bits in zip(pair, rounded, strict=True):
                    near = Call(each.dtype, "reinterpret", (bits,))
                    # Of an infinite number there is no rest.
                    is_all = each.equal(near)
                    rest.append(build.select(is_all, build.const(0, "float32"), each - near))
                parts[1][word] = pack_pair("bfloat16", *rest)
            for step in range(2):
                for part in parts:
                    ib.emit(mma("bfloat16", sums[column * 4], weights[4 * step], part[2 * step]))
