"""Register tiles of contractions of bytes by dot2, pairs of products in 16 bits: vpmaddubsw.

Weights lie in the steps of byte_pair_steps.py, in which no sum leaves 16 bits, so that it is exact.
"""

from collections.abc import Callable, Sequence

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Broadcast, Expr
from sterna.schedule.dot4 import GROUP
from sterna.schedule.statement_kernel import StatementKernel
from sterna.te import Tensor
from sterna.tir import add_pairs, dot2
from sterna.tir.ir_builder import BufferVar

# The rows of register tiles by their vectors, the best first.
ROWS = {2: 4, 3: 4, 1: 8}
# Vectors that are narrowed to bytes together.
VECTORS = 4

Four = Callable[[int, Expr], Expr]
"""The four bytes of a row of a tile that lie so far from its first."""
Where = Callable[[int], Sequence[Expr]]
"""The place of a row's results, without the channel."""


class PairTiles(StatementKernel):
    """The statements of a contraction, made of tiles."""

    def __init__(self, weight: Tensor, outputs: int) -> None:
        """weight: in steps, for so many output channels."""
        _, self.vectors, self.lanes, _ = (build.int_value(extent) or 1 for extent in weight.shape)
        self.panel = self.vectors * self.lanes
        panels = outputs // self.panel
        self.panels = max(n for n in range(1, VECTORS // self.vectors + 1) if panels % n == 0)
        self.block = self.panels * self.panel

    def tile(self, four: Four, rows: int, block: Expr, where: Where) -> None:
        """Some rows of a block of channels, and what follows them."""
        with self.ib.new_scope():
            total = self.ib.allocate("int32", (rows, self.block), name="total")
            with self.ib.for_range(0, self.panels, name="panel") as panel:
                self._sum(four, total, rows, block * self.panels + panel, panel)
            for row in range(rows):
                self._store(total, row, block, where(row))

    def _store(self, total: BufferVar, row: int, block: Expr, at: Sequence[Expr]) -> None:
        """What a row has summed, less what that is too large by where data has a sign."""
        first, (_, _, *lifted) = block * self.block, self.beside

        def sum_of(lane: Expr) -> Expr:
            value: Expr = total[row, lane]
            return value - lifted[0][first + lane] if lifted else value

        self.store_channels(at, first, self.block, sum_of)

    def _sum(self, four: Four, total: BufferVar, rows: int, panel: Expr, own: Expr) -> None:
        """One panel in registers."""
        ib, lanes, (_, starts, *_) = self.ib, self.lanes, self.beside
        with ib.new_scope():
            held = ib.allocate("int32", (rows, self.vectors, lanes), name="held", scope="local")
            for row, n in np.ndindex(rows, self.vectors):
                held[row, n, 0] = Broadcast(build.const(0, "int32"), lanes)
            begin, alone, end = starts[panel, 0], starts[panel, 1], starts[panel + 1, 0]
            with ib.for_range(0, (alone - begin) // 2, name="step") as step:
                first = begin + step * 2
                self._step(four, held, rows, (first, first + 1))
            with ib.for_range(alone, end, name="group") as group:
                self._step(four, held, rows, (group,))
            for row, n in np.ndindex(rows, self.vectors):
                total[row, own * self.panel + n * lanes] = held.vload((row, n, 0), lanes)

    def _step(self, four: Four, held: BufferVar, rows: int, groups: Sequence[Expr]) -> None:
        """What is summed in 16 bits, added to all sums."""
        places, *_ = self.beside
        with self.ib.new_scope():
            away = [self.ib.let("place", places[group]) for group in groups]
            for row, n in np.ndindex(rows, self.vectors):
                pairs = [
                    dot2(four(row, place), self.weight.vload((group, n, 0, 0), GROUP * self.lanes))
                    for group, place in zip(groups, away, strict=True)
                ]
                words = pairs[0] if len(pairs) == 1 else pairs[0] + pairs[1]
                held[row, n, 0] = add_pairs(held.vload((row, n, 0), self.lanes), words)
