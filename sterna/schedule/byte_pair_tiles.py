"""Register tiles of contractions of bytes by dot2, pairs of products in 16 bits: vpmaddubsw.

Weights lie in the steps of byte_pair_steps.py, in which no sum leaves 16 bits, so that it is exact.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Broadcast, Expr
from sterna.ir.expr import Call as ScalarCall
from sterna.ir.types import TensorType
from sterna.schedule.choose import choose, near
from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import GROUP
from sterna.schedule.epilogue import Epilogue, Finish, extern_with
from sterna.support.dtype import DataType
from sterna.te import Tensor
from sterna.tir import add_pairs, dot2
from sterna.tir.ir_builder import BufferVar, IRBuilder

# The rows of register tiles by their vectors, the best first.
ROWS = {2: 4, 3: 4, 1: 8}
# Vectors that are narrowed to bytes together.
VECTORS = 4
# What of the data is read again for all panels, and how many pieces find a thread.
SEEN_BYTES, PIECES = 48 * 1024, 16
# What data with a sign counts more.
SIGN = 128

Four = Callable[[Any, Expr], Expr]
"""The four bytes of a row of a tile that lie so far from its first."""
Where = Callable[[int], Sequence[Expr]]
"""The place of a row's results, without the channel."""


class PairTiles(ABC):
    """The statements of a contraction, made of tiles."""

    weight: BufferVar
    places: BufferVar
    starts: BufferVar
    out: BufferVar
    lifted: BufferVar | None = None
    """What a channel's sum is too large by, where data has a sign."""

    def __init__(self, made: Contraction, weight: Tensor, columns: int) -> None:
        """weight: in steps; columns: how many of them there are side by side."""
        self.kind = made.data
        _, self.vectors, self.lanes, _ = (build.int_value(extent) or 1 for extent in weight.shape)
        panel = self.vectors * self.lanes
        panels = made.outputs // panel
        self.panels = max(n for n in range(1, VECTORS // self.vectors + 1) if panels % n == 0)
        self.block = self.panels * panel
        self.rows = min(ROWS[self.vectors], columns)
        self.finish: Finish | None = None

    def tensor(
        self, epilogue: Epilogue | None, out: TensorType, operands: Sequence[Tensor], name: str
    ) -> Tensor:
        """What the statements make; what follows is computed while a tile is in the cache."""

        def write(ib: IRBuilder, buffers: Sequence[BufferVar], finish: Finish | None) -> None:
            data, self.weight, self.places, self.starts, *lifted, self.out = buffers
            self.lifted = lifted[0] if lifted else None
            self.finish = finish
            self.write(ib, data)

        return extern_with(epilogue, out, operands, write, name, self.describe())

    @abstractmethod
    def describe(self) -> str:
        """What it does, for the build report."""

    @abstractmethod
    def write(self, ib: IRBuilder, data: BufferVar) -> None:
        """All pieces of the work."""

    def shares_of(self, blocks: int, bands: int) -> int:
        """Into how many parts blocks of channels are cut, so that all threads find work."""
        fitting = [n for n in range(1, blocks + 1) if blocks % n == 0]
        wanted = min(blocks, -(-PIECES // bands))
        return choose("groups of channels", fitting, near(min(n for n in fitting if n >= wanted)))

    def unsigned(self, value: Expr, count: int) -> Expr:
        """So many bytes of the data, those with a sign SIGN more."""
        kind = DataType(f"uint8x{count}")
        if self.kind.is_uint:
            return value
        sign = Broadcast(build.const(SIGN, "uint8"), count)
        return ScalarCall(kind, "bitwise_xor", (ScalarCall(kind, "reinterpret", (value,)), sign))

    def tile(self, ib: IRBuilder, four: Four, columns: int, block: Expr, where: Where) -> None:
        """Some columns of a block of channels, and what follows them."""
        with ib.new_scope():
            total = ib.allocate("int32", (columns, self.block), name="total")
            with ib.for_range(0, self.panels, name="panel") as panel:
                self._sum(ib, four, total, columns, block * self.panels + panel, panel)
            for column in range(columns):
                with ib.for_range(0, self.block, name="lane", kind="vectorize") as lane:
                    index = (*where(column), block * self.block + lane)
                    value: Expr = total[column, lane]
                    if self.lifted is not None:
                        value = value - self.lifted[index[-1]]
                    self.out[index] = value if self.finish is None else self.finish(index, value)

    def _sum(
        self, ib: IRBuilder, four: Four, total: BufferVar, columns: int, panel: Expr, own: Expr
    ) -> None:
        """One panel in registers."""
        lanes = self.lanes
        kind = f"int32x{lanes}"
        every = [(column, n) for column in range(columns) for n in range(self.vectors)]
        with ib.new_scope():
            held = ib.allocate("int32", (columns, self.vectors, lanes), name="held", scope="local")
            for place in every:
                ib.emit(held.buffer.vstore((*place, 0), Broadcast(build.const(0, "int32"), lanes)))
            begin, alone, end = (
                self.starts[panel, 0], self.starts[panel, 1], self.starts[panel + 1, 0]
            )
            with ib.for_range(0, (alone - begin) // 2, name="step") as step:
                first = begin + step * 2
                self._step(ib, four, held, columns, (first, first + 1))
            with ib.for_range(alone, end, name="group") as group:
                self._step(ib, four, held, columns, (group,))
            for column, n in every:
                value = held.buffer.vload((column, n, 0), kind)
                at = own * (self.vectors * lanes) + n * lanes
                ib.emit(total.buffer.vstore((column, at), value))

    def _step(
        self, ib: IRBuilder, four: Four, held: BufferVar, columns: int, groups: Sequence[Expr]
    ) -> None:
        """What is summed in 16 bits, added to all sums."""
        kind, weights = f"int32x{self.lanes}", f"int8x{GROUP * self.lanes}"
        with ib.new_scope():
            away = [ib.let("place", self.places[group]) for group in groups]
            for column, n in np.ndindex(columns, self.vectors):
                pairs = [
                    dot2(four(column, place),
                         self.weight.buffer.vload((group, n, 0, 0), weights))
                    for group, place in zip(groups, away, strict=True)
                ]
                words = pairs[0] if len(pairs) == 1 else pairs[0] + pairs[1]
                before = held.buffer.vload((column, n, 0), kind)
                ib.emit(held.buffer.vstore((column, n, 0), add_pairs(before, words)))


def vectors_over(count: int, widest: int) -> list[tuple[int, int]]:
    """Where vectors begin that cover so many bytes, and how long they are."""
    found, first = [], 0
    while first < count:
        width = min(widest, 1 << (count - first).bit_length() - 1)
        found.append((first, width))
        first += width
    return found
