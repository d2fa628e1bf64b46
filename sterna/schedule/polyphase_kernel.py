"""The statements of a depthwise convolution with channels first, plane by plane (polyphase).

The plane of a channel (its row, its volume) is copied with its border, split into phases: of
strides (2, 2) the even and the odd rows and columns apart. Rows of a phase lie behind each other,
so that what each tap of the window reads for all results is one run of numbers, and vectors run on
across the ends of rows. What they make between two rows of results is left out when rows are
stored.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product

from sterna.ir import build
from sterna.ir.expr import Broadcast, Expr
from sterna.schedule.contraction import Contraction, Extents
from sterna.schedule.im2col_kernel import vector_of_line
from sterna.schedule.statement_kernel import StatementKernel
from sterna.tir.ir_builder import BufferVar

# Taps whose weights stay in registers beside a tile; more are loaded row by row of the window.
HELD = 25


@dataclass(frozen=True, slots=True)
class Planes:
    """How the phases of a plane lie."""

    extents: Extents
    """Of one phase, along each axis."""
    phases: tuple[Extents, ...]
    """The first place that each sees, along each axis."""

    @classmethod
    def of(cls, made: Contraction) -> "Planes":
        """Those of a convolution."""
        axes = zip(made.result, made.window, made.dilation, made.strides, strict=True)
        extents = tuple(
            results + (taps - 1) * gap // step for results, taps, gap, step in axes
        )
        seen = dict.fromkeys(_place_of(made, tap)[0] for tap in taps_of(made.window))
        return cls(extents, tuple(seen))

    @property
    def numbers(self) -> int:
        """Of one phase."""
        return math.prod(self.extents)

    def at(self, place: Sequence[Expr | int]) -> Expr | int:
        """Where a place of a phase lies."""
        found: Expr | int = 0
        for extent, index in zip(self.extents, place, strict=True):
            found = found * extent + index
        return found

    def line(self, made: Contraction) -> int:
        """From the first result of a plane to the last."""
        last = self.at([results - 1 for results in made.result])
        assert isinstance(last, int)
        return last + 1


def taps_of(window: Extents) -> Iterator[Extents]:
    """The places of a window."""
    return product(*map(range, window))


def _place_of(made: Contraction, tap: Extents) -> tuple[Extents, Extents]:
    """The phase that a tap reads, and how far the first place lies in it that it reads."""
    away = [place * gap for place, gap in zip(tap, made.dilation, strict=True)]
    pairs = [divmod(far, step) for far, step in zip(away, made.strides, strict=True)]
    return tuple(phase for _, phase in pairs), tuple(steps for steps, _ in pairs)


def inside(made: Contraction, planes: Planes, phase: Extents, axis: int) -> tuple[int, int]:
    """The first place of a phase along an axis that is in the image, and the one behind the last.
    """
    step, ahead = made.strides[axis], made.before[axis] - phase[axis]
    first = max(0, -(-ahead // step))
    return first, max(first, min(planes.extents[axis], -(-(made.image[axis] + ahead) // step)))


def period_of(made: Contraction) -> int:
    """Rows of the window after which taps read the same phases again."""
    return made.strides[0] // math.gcd(made.strides[0], made.dilation[0])


def written_out(made: Contraction) -> int:
    """Taps whose products are written one by one."""
    rows = math.prod(made.window[1:])
    return made.taps if made.taps <= HELD else rows * min(period_of(made), made.window[0])


class PolyphaseKernel(StatementKernel):
    """Channel after channel: its phases, then its results along one line."""

    def __init__(self, made: Contraction, columns: int, lanes: int) -> None:
        """columns: results of a register tile."""
        self.made, self.columns, self.lanes = made, columns, lanes
        self.planes = Planes.of(made)
        self.line = self.planes.line(made)
        self.dtype = str(made.data)

    def describe(self) -> str:
        return f"polyphase planes of a channel, {self.columns} pixels in registers"

    def write(self) -> None:
        ib, made = self.ib, self.made
        count = made.batch * made.outputs
        with ib.for_range(0, count, name="plane", kind="parallel") as plane, ib.new_scope():
            image = ib.let("image", plane // made.outputs)
            channel = ib.let("channel", plane % made.outputs)
            more = -self.line % self.lanes
            length = -(-(self.planes.numbers + more) // self.lanes) * self.lanes
            seen = ib.allocate(self.dtype, (len(self.planes.phases), length), name="phases")
            sums = ib.allocate(self.dtype, (self.line + more,), name="line")
            for number, phase in enumerate(self.planes.phases):
                self._fill(seen, number, length)
                self._copy(seen, plane, number, phase)
            whole, rest = divmod(self.line, self.columns)
            with ib.for_range(0, whole, name="tile") as tile:
                self._tile(seen, sums, channel, tile * self.columns, self.columns)
            if rest:
                rest = -(-rest // self.lanes) * self.lanes
                self._tile(seen, sums, channel, build.const(whole * self.columns), rest)
            self._store(sums, image, channel)

    @contextmanager
    def _rows(self, ranges: Sequence[tuple[int, int]]) -> Iterator[list[Expr]]:
        """Loops over all axes but the last."""
        with ExitStack() as loops:
            yield [loops.enter_context(self.ib.for_range(*each, name="row")) for each in ranges]

    # ---- phases ----

    def _fill(self, seen: BufferVar, number: int, length: int) -> None:
        nothing = Broadcast(build.const(0.0, self.dtype), self.lanes)
        with self.ib.for_range(0, length // self.lanes, name="zeros") as zeros:
            seen[number, zeros * self.lanes] = nothing

    def _copy(self, seen: BufferVar, plane: Expr, number: int, phase: Extents) -> None:
        """What of a plane lies in a phase."""
        made = self.made
        *ranges, (left, right) = (
            inside(made, self.planes, phase, axis) for axis in range(made.rank)
        )
        if left == right:
            return
        size = vector_of_line(right - left, self.lanes)
        first = [start - before for start, before in zip(phase, made.before, strict=True)]
        with self._rows(ranges) as rows:
            place = plane
            for axis, row in enumerate(rows):
                place = place * made.image[axis] + (row * made.strides[axis] + first[axis])
            place = place * made.image[-1] + first[-1]
            for begin in _begins(left, right, size):
                with self.ib.for_range(0, size, name="lane", kind="vectorize") as lane:
                    value = self.data[place + (begin + lane) * made.strides[-1]]
                    seen[number, self.planes.at([*rows, begin + lane])] = value

    # ---- results ----

    def _tile(
        self, seen: BufferVar, sums: BufferVar, channel: Expr, first: Expr, width: int
    ) -> None:
        """Some results of the line in registers, over all taps."""
        ib, (high, *others) = self.ib, self.made.window
        period, row = period_of(self.made), math.prod(others)
        with ib.new_scope():
            total = ib.allocate(self.dtype, (width,), name="total", scope="local")
            total[0] = Broadcast(build.const(0.0, self.dtype), width)

            def add(periods: Expr | int, rows: int) -> None:
                """So many rows of the window behind others, by whose number no phase changes."""
                for number, tap in enumerate(taps_of((rows, *others))):
                    weight = self.weight[channel, periods * (period * row) + number]
                    read = seen.vload(self._read_by(first, periods, tap), width)
                    total[0] = total.vload((0,), width) + Broadcast(weight, width) * read

            if high * row <= HELD:
                add(0, high)
            else:
                with ib.for_range(0, high // period, name="rows") as rows:
                    add(rows, period)
                add(high // period, high % period)
            sums[first] = total.vload((0,), width)

    def _read_by(self, first: Expr, periods: Expr | int, tap: Extents) -> tuple[int, Expr]:
        """The phase and the place in it that a tap reads for results from one on."""
        made = self.made
        phase, (rows, *others) = _place_of(made, tap)
        further = period_of(made) * made.dilation[0] // made.strides[0]
        away = self.planes.at([periods * further + rows, *others])
        return self.planes.phases.index(phase), first + away

    def _store(self, sums: BufferVar, image: Expr, channel: Expr) -> None:
        """Rows of results, with what follows."""
        *outer, wide = self.made.result
        size = vector_of_line(wide, self.lanes)
        with self._rows([(0, extent) for extent in outer]) as rows:
            for begin in _begins(0, wide, size):
                with self.ib.for_range(0, size, name="lane", kind="vectorize") as lane:
                    index = (image, channel, *rows, begin + lane)
                    value = sums[self.planes.at([*rows, begin + lane])]
                    self.out[index] = self.finished(index, value)


def _begins(first: int, end: int, size: int) -> Sequence[int]:
    """Where vectors begin that fill a row; the last may lie over the one before."""
    return [*range(first, end - size, size), end - size]
