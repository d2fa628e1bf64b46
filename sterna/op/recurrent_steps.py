"""The steps of recurrent networks: what the input adds to the gates is known, the states are not.

Units of a state are computed by blocks, all gates of a block in registers: "columns" holds the
weights of the recurrence by (direction, block, unit they are multiplied by, gate, unit of the
block), "projected" what the input adds by (time, batch, direction, block, gate, unit of the block).
The last block is filled up by units that nothing reads. Sequences of a line step together, by
register tiles of some of them: a block's weights come once for all of them. Lines and directions
are independent of each other and run in parallel; where sequences are fewer than threads, these
share the units of a step.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike
from sterna.ir.types import Dim
from sterna.isa.processor import Processor
from sterna.op.gates import Gate
from sterna.schedule.choose import choose, near
from sterna.support.dtype import DataType
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.stmt import STAYS_ROLLED

T = TypeVar("T")

# Numbers of a block, of all its gates: enough sums at once for any vectors, few enough registers.
BLOCK = 64
# Multiply-adds for which other threads are woken.
PARALLEL_PRODUCTS = 1 << 17

# Of loops whose bodies are long.
ROLLED = {STAYS_ROLLED: 1}

STATES = ("initial_h", "initial_c")

# What threads share: all that belongs to a sequence and a direction, or the blocks of each step.
SEQUENCES, UNITS = "sequences", "units"
# On a GPU: blocks share the units of each step.
BLOCKS = "blocks"
# Sequences of a register tile, at most.
MOST_ROWS = 8
# Cycles by which a vector of weights from the second cache delays the products.
L2_VECTOR_CYCLES = 0.5
# What it costs to begin and end a region of threads, in cycles.
REGION_CYCLES = 6000.0


def shared_by_threads(
    threads: int, lines: int, time: int, step_cycles: float
) -> str:
    """What threads share of so many sequences and directions, each of so many steps."""

    def cycles(what: str) -> float:
        if what == SEQUENCES:
            return -(-lines // threads) * time * step_cycles
        return time * (lines * step_cycles / threads + REGION_CYCLES)

    return choose("what threads share of a recurrence", (SEQUENCES, UNITS), cycles)


def units_of_block(gates: int, size: int) -> int:
    """The units that are computed together, a power of two."""
    offered = _powers(gates, size)
    fitting = [n for n in offered if n == 1 or n * gates <= BLOCK]
    return choose("units of a block", offered, near(fitting[-1]))


def _powers(gates: int, size: int) -> list[int]:
    """Units of which a block may have so many."""
    powers = [1 << place for place in range(max(1, size - 1).bit_length() + 1)]
    return [n for n in powers if n == 1 or (n < 2 * size and n * gates <= 2 * BLOCK)]


@dataclass(frozen=True, slots=True)
class RegisterTiles:
    """The register tiles of a step: some sequences by the gates of some units.

    Weights that are loaded serve all sequences of a tile, and the next tiles find them in the first
    cache where those of a block fit it.
    """

    gates: int
    size: int
    sequences: int
    together: int
    """Those that step together on a thread, of all."""
    processor: Processor
    dtype: DataType

    def choose(self) -> tuple[int, int]:
        """(sequences, units) of a tile."""
        rows = [n for n in range(1, MOST_ROWS + 1) if self.sequences % n == 0]
        offered = _powers(self.gates, self.size)
        together = choose(
            "sequences together", rows, lambda n: min(self.cycles(n, units) for units in offered)
        )
        return together, choose("units of a block", offered, lambda n: self.cycles(together, n))

    def cycles(self, rows: int, units: int) -> float:
        """What a step takes on a thread."""
        processor, speed = self.processor, self.processor.throughput
        weights = self.gates * -(-units // processor.lanes(self.dtype))
        sums = rows * weights
        spilled = max(0, sums + (weights if rows > 1 else 1) + 1 - processor.vector_registers)
        loaded = weights + rows
        product = spilled * speed.latency + max(
            sums / speed.multiply_adds, loaded / speed.loads, float(speed.latency),
            (sums + loaded + speed.loop_overhead) / speed.issue_width,
        )
        blocks, tiles = -(-self.size // units), -(-self.together // rows)
        block_bytes = self.size * weights * processor.vector_bits // 8
        streams = tiles if block_bytes > processor.l1_bytes else 1
        if blocks * block_bytes <= processor.l1_bytes:
            streams = 0
        return blocks * self.size * (tiles * product + streams * weights * L2_VECTOR_CYCLES)


class Options(Protocol):
    """What the steps of all networks ask."""

    layout: int

    @property
    def directions(self) -> list[bool]:
        """Whether each direction runs backwards."""
        ...


Step = Callable[["Steps", Expr], None]


class Tile(NamedTuple):
    """How many sequences step together at most, and how many of them a register tile holds."""

    together: int
    rows: int


ONE_SEQUENCE = Tile(1, 1)


def by_layout(attrs: Options, pair: tuple[T, T]) -> tuple[T, T]:
    """(time, batch) or (direction, batch) as layout 1 turns them round, there and back."""
    first, second = pair
    return (second, first) if attrs.layout else (first, second)


def write_steps(
    step: Step, attrs: Options, ib: IRBuilder, operands: dict[str, BufferVar],
    outs: list[BufferVar], functions: list[list[Gate]], tile: Tile, share: str = SEQUENCES,
) -> None:
    """All sequences in all directions; share: what threads share."""
    first, second, *_ = operands["projected"].shape
    time, batch = by_layout(attrs, (first, second))
    number = 1 if "sequence_lens" in operands else build.int_value(batch) or 1
    together = largest_divisor(number, tile.together)
    rows = largest_divisor(together, tile.rows)
    tiles = batch // together
    count = len(attrs.directions)
    work = _product([time, batch, *operands["columns"].shape])
    is_small = work is not None and work < PARALLEL_PRODUCTS
    kind = "serial" if is_small or share == UNITS else "parallel"
    with ib.for_range(0, tiles * count, name="line", kind=kind) as line:
        for direction, backwards in enumerate(attrs.directions):
            first = (line - tiles * direction) * together
            steps = Steps(step, attrs, ib, operands, outs, direction, first, Tile(together, rows),
                          functions[direction], share)
            if count == 1:
                steps.write(time, backwards)
                continue
            with ib.if_scope(build.equal(line // tiles, direction)):
                steps.write(time, backwards)


def largest_divisor(number: int, most: int) -> int:
    """The largest number up to the second one that divides the first."""
    return max(n for n in range(1, max(1, min(number, most)) + 1) if number % n == 0)


def _product(extents: Sequence[Dim]) -> int | None:
    made = 1
    for extent in extents:
        value = build.int_value(extent)
        if value is None:
            return None
        made *= value
    return made


class Steps:
    """The statements for some sequences in one direction."""

    def __init__(
        self, step: Step, attrs: Options, ib: IRBuilder, operands: dict[str, BufferVar],
        outs: list[BufferVar], direction: int, first: Expr, tile: Tile, functions: list[Gate],
        share: str,
    ) -> None:
        self.share = share
        self.together, self.rows = tile
        self.tile: Expr = build.const(0)
        self.attrs, self.ib, self.operands, self.outs = attrs, ib, operands, outs
        self.direction, self.first, self.functions = direction, first, functions
        self.columns = operands["columns"]
        self.kind = str(self.columns.dtype)
        _, self.blocks, self.size, self.gates, self.units = self.columns.shape
        self.make = step

    def write(self, time: Expr, backwards: bool) -> None:
        """All steps, and what comes out of them."""
        ib, outs = self.ib, self.outs
        shape = (self.together, self.blocks * self.units)
        names = ("h", "c")[: len(outs) - 1]
        self.states = [ib.allocate(self.kind, shape, name=name) for name in names]
        self.next = ib.allocate(self.kind, shape, name="next")
        padded = self.blocks * self.units
        for name, state in zip(STATES, self.states, strict=False):
            if name not in self.operands or self._whole_blocks(self.size) is None:
                with self._numbers(padded) as (row, j):
                    state[row, j] = build.const(0, self.kind)
            if name in self.operands:
                with self._numbers(self.size) as (row, j):
                    given = self.operands[name][(*self._pair(row), j)]
                    state[row, j] = build.cast(self.kind, given)
        length = ib.let("length", self._length(time))
        with ib.for_range(0, length, name="step") as step:
            now = ib.let("now", length - 1 - step if backwards else step)
            self.make(self, now)
            with self._numbers(self.size) as (row, j):
                self.states[0][row, j] = self.next[row, j]
                outs[0][self._place(now, row, j)] = build.cast(outs[0].dtype, self.next[row, j])
        with ib.for_range(length, time, name="step") as step, self._numbers(self.size) as (row, j):
            outs[0][self._place(step, row, j)] = build.const(0, outs[0].dtype)
        for result, state in zip(outs[1:], self.states, strict=True):
            with self._numbers(self.size) as (row, j):
                result[(*self._pair(row), j)] = build.cast(result.dtype, state[row, j])

    @contextmanager
    def _numbers(self, extent: Dim) -> Iterator[tuple[Expr, Expr]]:
        """Every number of a state in every sequence, by vectors where the blocks are whole."""
        blocks = self._whole_blocks(extent)
        with self.ib.for_range(0, self.together, name="row", annotations=ROLLED) as row:
            if blocks is None:
                with self.ib.for_range(0, extent, name="j") as j:
                    yield row, j
                return
            with (
                self.ib.for_range(0, blocks, name="block", annotations=ROLLED) as block,
                self.ib.for_range(0, self.units, name="unit", kind="vectorize") as unit,
            ):
                yield row, block * self.units + unit

    def _whole_blocks(self, extent: Dim) -> int | None:
        """How many blocks so many units fill; None where they leave one open."""
        numbers, units = build.int_value(extent), build.int_value(self.units)
        return None if not numbers or not units or numbers % units else numbers // units

    def _pair(self, row: Expr) -> tuple[Expr, Expr]:
        return by_layout(self.attrs, (build.const(self.direction), self.first + row))

    def _place(self, time: Expr, row: Expr, j: Expr) -> tuple[Any, ...]:
        """Where the state of a step belongs."""
        if self.attrs.layout:
            return (self.first + row, time, self.direction, j)
        return (time, self.direction, self.first + row, j)

    def _length(self, time: Expr) -> Expr:
        """How many steps these sequences have."""
        if "sequence_lens" not in self.operands:
            return time
        told = build.cast("int64", self.operands["sequence_lens"][self.first])
        zero, most = build.const(0, "int64"), build.cast("int64", time)
        return build.cast(time.dtype, build.maximum(build.minimum(told, most), zero))

    # ---- what the networks' steps are made of ----

    def scratch(self, name: str) -> BufferVar:
        """Room for a number of each unit, from one loop over blocks to the next."""
        return self.ib.allocate(self.kind, self.states[0].shape, name=name)

    @contextmanager
    def each_block(self) -> Iterator[Expr]:
        """A loop over the blocks of units, and for each over the register tiles of sequences."""
        kind = "parallel" if self.share == UNITS else "serial"
        tiles = self.together // self.rows
        with (
            self.ib.for_range(0, self.blocks, name="block", kind=kind) as block,
            self.ib.for_range(0, tiles, name="tile", annotations=ROLLED) as self.tile,
        ):
            yield block

    def sequence(self, row: Expr) -> Expr:
        """The sequence of the line that a row of the tile is."""
        return self.tile * self.rows + row

    def place(self, row: Expr, block: Expr, unit: Expr) -> tuple[Expr, Expr]:
        """Where a state holds a unit of a block."""
        return self.sequence(row), block * self.units + unit

    @contextmanager
    def each_unit(self) -> Iterator[tuple[Expr, Expr]]:
        """Every unit of a block in every sequence of a tile: (row, unit)."""
        with (
            self.ib.for_range(0, self.rows, name="row", kind="unroll") as row,
            self.ib.for_range(0, self.units, name="unit", kind="vectorize") as unit,
        ):
            yield row, unit

    def input(self, now: Expr, block: Expr, row: Expr, gate: ExprLike, unit: Expr) -> Expr:
        """What the input adds to a gate."""
        place = by_layout(self.attrs, (now, self.first + self.sequence(row)))
        return self.operands["projected"][(*place, self.direction, block, gate, unit)]

    def part(self, name: str, block: Expr, place: ExprLike, unit: Expr) -> Expr:
        """An element of an operand that has one for each unit; 0 without it."""
        if name not in self.operands:
            return build.const(0, self.kind)
        return self.operands[name][self.direction, block, place, unit]

    def gates_of(
        self, block: Expr, gates: range, start: Callable[[Expr, int, Expr], Expr], state: BufferVar
    ) -> BufferVar:
        """What gates of a block start with and what a state adds: (row, gate, unit), registers."""
        ib = self.ib
        shape = (self.rows, len(gates), self.units)
        sums = ib.allocate(self.kind, shape, name="gates", scope="local")
        for place, gate in enumerate(gates):
            with self.each_unit() as (row, unit):
                sums[row, place, unit] = start(row, gate, unit)
        with ib.for_range(0, self.size, name="k") as k:
            for place, gate in enumerate(gates):
                with self.each_unit() as (row, unit):
                    weight = self.columns[self.direction, block, k, gate, unit]
                    sums[row, place, unit] = (
                        sums[row, place, unit] + state[self.sequence(row), k] * weight
                    )
        return sums
