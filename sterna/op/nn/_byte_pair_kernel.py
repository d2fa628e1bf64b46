"""Register tiles of sums of products of bytes in pairs, in the steps of _pair_steps.py."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Broadcast, Expr
from sterna.ir.expr import Call as ScalarCall
from sterna.ir.types import TensorType, Type
from sterna.op.checks import expect_dim, tensor
from sterna.relay.arrays import Array, from_numpy, to_numpy
from sterna.relay.expr import Constant
from sterna.schedule.byte_pair_steps import Steps, steps_of
from sterna.schedule.dot4 import GROUP, INT32, are_bytes
from sterna.schedule.epilogue import Epilogue, Finish, extern_with
from sterna.support.dtype import DataType
from sterna.te import Tensor
from sterna.tir import dot2, fold2
from sterna.tir.ir_builder import BufferVar, IRBuilder

# The rows of register tiles by their vectors, the best first, and what the narrowest costs more.
ROWS, NARROW = {2: 4, 3: 4, 1: 8}, 1.05
# Vectors that are narrowed to bytes together.
VECTORS = 4
# What products of words cost for each group, as they were measured: with more steps than that
# nothing is won. And what is so little that other tiles win nothing.
BY_WORDS, FEW = 5, 2.6
# What of the data is read again for all panels, and how many pieces find a thread.
SEEN_BYTES, PIECES = 48 * 1024, 16
SIGN = 128
LEAST_LANES = 8

Four = Callable[[Any, Expr], Expr]
"""The four bytes of a row of a tile that lie so far from its first."""
Where = Callable[[int], Sequence[Expr]]
"""The place of a row's results, without the channel."""


def cheapest_steps(weights: Array, lanes: int) -> Steps | None:
    """Weights (output channel, group, 4) in steps of register tiles of the best width.

    More groups fit together for fewer channels, and more bytes are loaded. None if products of
    words cost less.
    """
    vectors = len(weights) // lanes
    width = next(n for n in ROWS if vectors % n == 0)
    best = steps_of(weights, lanes * width)
    if width > 1 and best.cost(lanes) > FEW * weights.shape[1] * vectors:
        narrow = steps_of(weights, lanes)
        best = narrow if narrow.cost(lanes) * NARROW < best.cost(lanes) else best
    return best if best.cost(lanes) < BY_WORDS * weights.shape[1] * vectors else None


def steps_as_constants(steps: Steps, places: Array, lanes: int) -> tuple[Constant, ...]:
    """The operands that say what is multiplied by what; places: where the groups of data lie."""
    weight = steps.weight.reshape(len(steps.weight), -1, lanes, GROUP)
    at = places[steps.places].astype("int32")
    return tuple(Constant(from_numpy(part)) for part in (weight, at, steps.starts))


def sample_steps(shape: tuple[int, int, int], places: Array, vectors: int) -> list[Array]:
    """Operands for a test: weights (output channel, group, 4) of which some fit together."""
    weights = np.random.default_rng(len(places)).integers(-128, 128, shape).astype("int8")
    weights[: LEAST_LANES * vectors] //= 8
    steps = steps_of(weights, LEAST_LANES * vectors)
    return [to_numpy(part.data) for part in steps_as_constants(steps, places, LEAST_LANES)]


def channels_of(data: TensorType, weight: Type, places: Type, starts: Type) -> int:
    """How many channels the steps make, once all operands are what they should be."""
    w = tensor(weight, "weight", 4)
    where, panels = tensor(places, "places", 1), tensor(starts, "starts", 2)
    if not are_bytes(data) or w.dtype != "int8":
        raise ValueError(f"data are bytes and weight is int8, not {data.dtype} and {w.dtype}")
    if where.dtype != INT32 or panels.dtype != INT32:
        raise ValueError(f"places and starts are int32, not {where.dtype} and {panels.dtype}")
    groups, vectors, lanes, group = w.concrete_shape
    expect_dim(group, GROUP, "weight's numbers of a group")
    expect_dim(where.shape[0], groups, "places' groups")
    expect_dim(panels.shape[1], 2, "starts' columns")
    return (panels.concrete_shape[0] - 1) * vectors * lanes


def lifted(plain: Array) -> Constant:
    """What a channel's sum is too large by where data with a sign counts SIGN more."""
    return Constant(from_numpy(SIGN * plain.reshape(len(plain), -1).sum(axis=1, dtype="int32")))


class PairTiles(ABC):
    """The statements of an operator, made of tiles."""

    weight: BufferVar
    places: BufferVar
    starts: BufferVar
    out: BufferVar

    def __init__(self, data: Tensor, weight: Tensor, channels: int, columns: int) -> None:
        """columns: how many of them there are side by side."""
        self.kind = data.dtype
        _, self.vectors, self.lanes, _ = (build.int_value(extent) or 1 for extent in weight.shape)
        panel = self.vectors * self.lanes
        panels = channels // panel
        self.panels = max(n for n in range(1, VECTORS // self.vectors + 1) if panels % n == 0)
        self.block = self.panels * panel
        self.rows = min(ROWS[self.vectors], columns)
        self.finish: Finish | None = None

    def tensor(
        self, epilogue: Epilogue | None, out: TensorType, operands: Sequence[Tensor], name: str
    ) -> Tensor:
        """What the statements make; what follows is computed while a tile is in the cache."""

        def write(ib: IRBuilder, buffers: Sequence[BufferVar], finish: Finish | None) -> None:
            data, self.weight, self.places, self.starts, self.out = buffers
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
        wanted = min(blocks, -(-PIECES // bands))
        return next(n for n in range(wanted, blocks + 1) if blocks % n == 0)

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
                    value = total[column, lane]
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
                ib.emit(held.buffer.vstore((column, n, 0), fold2(before, words)))


def runs_of(count: int, widest: int) -> list[tuple[int, int]]:
    """Where vectors begin that cover so many bytes, and how long they are."""
    found, first = [], 0
    while first < count:
        width = min(widest, 1 << (count - first).bit_length() - 1)
        found.append((first, width))
        first += width
    return found
