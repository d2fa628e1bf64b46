"""The steps of recurrent networks: what the input adds to the gates is known, the states are not.

Units of a state are computed by blocks, all gates of a block in registers: "columns" holds the
weights of the recurrence by (direction, block, unit they are multiplied by, gate, unit of the
block), "projected" what the input adds by (time, batch, direction, block, gate, unit of the block).
The last block is filled up by units that nothing reads. Sequences and directions are independent of
each other and run in parallel; where they are fewer than threads, these share the units of a step.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike
from sterna.ir.types import Dim
from sterna.op.gates import Gate
from sterna.schedule.choose import choose, near
from sterna.tir.ir_builder import BufferVar, IRBuilder

T = TypeVar("T")

# Numbers of a block, of all its gates: enough sums at once for any vectors, few enough registers.
BLOCK = 64
# Multiply-adds for which other threads are woken.
PARALLEL_PRODUCTS = 1 << 17

STATES = ("initial_h", "initial_c")

# What threads share: all that belongs to a sequence and a direction, or the blocks of each step.
SEQUENCES, UNITS = "sequences", "units"
# What it costs to begin and end a region of threads, in cycles.
REGION_CYCLES = 6000.0


def shared_by_threads(
    threads: int, lines: int, time: int, step_cycles: float
) -> str:
    """What threads share of so many sequences and directions, each of so many steps."""

    def cycles(what: str) -> float:
        if what == SEQUENCES:
            return -(-lines // threads) * time * step_cycles
        return lines * time * (step_cycles / threads + REGION_CYCLES)

    return choose("what threads share of a recurrence", (SEQUENCES, UNITS), cycles)


def units_of_block(gates: int, size: int) -> int:
    """The units that are computed together, a power of two."""
    powers = [1 << place for place in range(max(1, size - 1).bit_length() + 1)]
    offered = [n for n in powers if n == 1 or (n < 2 * size and n * gates <= 2 * BLOCK)]
    fitting = [n for n in offered if n == 1 or n * gates <= BLOCK]
    return choose("units of a block", offered, near(fitting[-1]))


class Options(Protocol):
    """What the steps of all networks ask."""

    layout: int

    @property
    def directions(self) -> list[bool]:
        """Whether each direction runs backwards."""
        ...


Step = Callable[["Steps", Expr], None]


def by_layout(attrs: Options, pair: tuple[T, T]) -> tuple[T, T]:
    """(time, batch) or (direction, batch) as layout 1 turns them round, there and back."""
    first, second = pair
    return (second, first) if attrs.layout else (first, second)


def write_steps(
    step: Step, attrs: Options, ib: IRBuilder, operands: dict[str, BufferVar],
    outs: list[BufferVar], functions: list[list[Gate]], rows: int, share: str = SEQUENCES,
) -> None:
    """All sequences in all directions.

    rows: how many sequences run together at most. share: what threads share.
    """
    first, second, *_ = operands["projected"].shape
    time, batch = by_layout(attrs, (first, second))
    together = _together(batch, rows, "sequence_lens" in operands)
    tiles = batch // together
    count = len(attrs.directions)
    work = _product([time, batch, *operands["columns"].shape])
    is_small = work is not None and work < PARALLEL_PRODUCTS
    kind = "serial" if is_small or share == UNITS else "parallel"
    with ib.for_range(0, tiles * count, name="line", kind=kind) as line:
        for direction, backwards in enumerate(attrs.directions):
            first = (line - tiles * direction) * together
            steps = Steps(step, attrs, ib, operands, outs, direction, first, together,
                          functions[direction], share)
            if count == 1:
                steps.write(time, backwards)
                continue
            with ib.if_scope(build.equal(line // tiles, direction)):
                steps.write(time, backwards)


def _together(batch: Expr, rows: int, have_lengths: bool) -> int:
    """How many sequences run together: a divisor of their number."""
    number = build.int_value(batch)
    if number is None or have_lengths:
        return 1
    return max(n for n in range(1, max(1, rows) + 1) if number % n == 0)


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
        outs: list[BufferVar], direction: int, first: Expr, rows: int, functions: list[Gate],
        share: str,
    ) -> None:
        self.share = share
        self.attrs, self.ib, self.operands, self.outs = attrs, ib, operands, outs
        self.direction, self.first, self.rows, self.functions = direction, first, rows, functions
        self.columns = operands["columns"]
        self.kind = str(self.columns.dtype)
        _, self.blocks, self.size, self.gates, self.units = self.columns.shape
        self.make = step

    def write(self, time: Expr, backwards: bool) -> None:
        """All steps, and what comes out of them."""
        ib, outs = self.ib, self.outs
        shape = (self.rows, self.blocks * self.units)
        names = ("h", "c")[: len(outs) - 1]
        self.states = [ib.allocate(self.kind, shape, name=name) for name in names]
        self.next = ib.allocate(self.kind, shape, name="next")
        for name, state in zip(STATES, self.states, strict=False):
            with self._numbers(self.blocks * self.units) as (row, j):
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
        with (
            self.ib.for_range(0, self.rows, name="row") as row,
            self.ib.for_range(0, extent, name="j") as j,
        ):
            yield row, j

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

    @contextmanager
    def each_block(self) -> Iterator[Expr]:
        """A loop over the blocks of units."""
        kind = "parallel" if self.share == UNITS else "serial"
        with self.ib.for_range(0, self.blocks, name="block", kind=kind) as block:
            yield block

    @contextmanager
    def each_unit(self) -> Iterator[tuple[Expr, Expr]]:
        """Every unit of a block in every sequence: (row, unit)."""
        with (
            self.ib.for_range(0, self.rows, name="row", kind="unroll") as row,
            self.ib.for_range(0, self.units, name="unit", kind="vectorize") as unit,
        ):
            yield row, unit

    def input(self, now: Expr, block: Expr, row: Expr, gate: ExprLike, unit: Expr) -> Expr:
        """What the input adds to a gate."""
        place = by_layout(self.attrs, (now, self.first + row))
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
        made = ib.allocate(self.kind, shape, name="gates", scope="local")
        for place, gate in enumerate(gates):
            with self.each_unit() as (row, unit):
                made[row, place, unit] = start(row, gate, unit)
        with ib.for_range(0, self.size, name="k") as k:
            for place, gate in enumerate(gates):
                with self.each_unit() as (row, unit):
                    weight = self.columns[self.direction, block, k, gate, unit]
                    made[row, place, unit] = made[row, place, unit] + state[row, k] * weight
        return made
