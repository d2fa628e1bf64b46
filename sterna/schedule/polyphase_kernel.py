"""The statements of a depthwise convolution with channels first, plane by plane (polyphase).

The plane of a channel is copied with its border, split into phases: of strides (2, 2) the even and
the odd rows and columns apart. Rows of a phase lie behind each other, so that what each tap of the
window reads for all results is one run of numbers, and vectors run on across the ends of rows. What
they make between two rows of results is left out when rows are stored.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from sterna.ir import build
from sterna.ir.expr import Broadcast, Expr
from sterna.schedule.contraction import Contraction
from sterna.schedule.im2col_kernel import vector_of_line
from sterna.schedule.statement_kernel import StatementKernel
from sterna.tir.ir_builder import BufferVar

# Taps whose weights stay in registers beside a tile; more are loaded row by row of the window.
HELD = 25


@dataclass(frozen=True, slots=True)
class Phase:
    """The rows and columns of a plane that some taps read."""

    number: int
    down: int
    across: int


@dataclass(frozen=True, slots=True)
class Planes:
    """How the phases of a plane lie."""

    rows: int
    pitch: int
    """Numbers from one row of a phase to the next."""
    phases: tuple[Phase, ...]

    @classmethod
    def of(cls, made: Contraction) -> "Planes":
        """Those of a convolution."""
        (down, across), (reach_down, reach_across) = made.strides, _reaches(made)
        rows = made.result[0] + reach_down // down
        pitch = made.result[1] + reach_across // across
        seen = dict.fromkeys(
            (below * made.dilation[0] % down, beside * made.dilation[1] % across)
            for below, beside in product(*map(range, made.window))
        )
        return cls(rows, pitch, tuple(Phase(n, *place) for n, place in enumerate(seen)))

    @property
    def numbers(self) -> int:
        """Of one phase."""
        return self.rows * self.pitch

    def line(self, made: Contraction) -> int:
        """From the first result of a plane to the last."""
        return (made.result[0] - 1) * self.pitch + made.result[1]


def _reaches(made: Contraction) -> list[int]:
    return [(taps - 1) * gap for taps, gap in zip(made.window, made.dilation, strict=True)]


def inside(made: Contraction, axis: int, phase: int, extent: int) -> tuple[int, int]:
    """The first row or column of a phase that lies in the image, and the one behind the last."""
    step, before = made.strides[axis], made.before[axis]
    first = max(0, -(-(before - phase) // step))
    return first, max(first, min(extent, -(-(made.image[axis] + before - phase) // step)))


class PolyphaseKernel(StatementKernel):
    """Channel after channel: its phases, then its results along one line."""

    def __init__(self, made: Contraction, columns: int, lanes: int) -> None:
        """columns: results of a register tile."""
        self.made, self.columns, self.lanes = made, columns, lanes
        self.planes = Planes.of(made)
        self.line = self.planes.line(made)
        self.dtype = str(made.data)
        self.size = vector_of_line(made.result[1], lanes)

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
            for phase in self.planes.phases:
                self._copy(seen, length, plane, phase)
            whole, rest = divmod(self.line, self.columns)
            with ib.for_range(0, whole, name="tile") as tile:
                self._tile(seen, sums, channel, tile * self.columns, self.columns)
            if rest:
                rest = -(-rest // self.lanes) * self.lanes
                self._tile(seen, sums, channel, build.const(whole * self.columns), rest)
            with ib.for_range(0, made.result[0], name="row") as row:
                self._store(sums, image, channel, row)

    def _copy(self, seen: BufferVar, length: int, plane: Expr, phase: Phase) -> None:
        """A phase of a plane, with zeros around and behind it."""
        ib, made, planes = self.ib, self.made, self.planes
        (high, wide), (down, across) = made.image, made.strides
        top, bottom = inside(made, 0, phase.down, planes.rows)
        left, right = inside(made, 1, phase.across, planes.pitch)
        nothing = Broadcast(build.const(0.0, self.dtype), self.lanes)
        with ib.for_range(0, length // self.lanes, name="zeros") as zeros:
            seen[phase.number, zeros * self.lanes] = nothing
        if left == right:
            return
        first_row, first_column = phase.down - made.before[0], phase.across - made.before[1]
        size = vector_of_line(right - left, self.lanes)
        with ib.for_range(top, bottom, name="row") as row:
            place = (plane * high + row * down + first_row) * wide + first_column
            for begin in _begins(left, right, size):
                with ib.for_range(0, size, name="lane", kind="vectorize") as lane:
                    value = self.data[place + (begin + lane) * across]
                    seen[phase.number, row * planes.pitch + begin + lane] = value

    def _tile(
        self, seen: BufferVar, sums: BufferVar, channel: Expr, first: Expr, width: int
    ) -> None:
        """Some results of the line in registers, over all taps."""
        ib, (high, wide), down = self.ib, self.made.window, self.made.strides[0]
        period = down // math.gcd(down, self.made.dilation[0])
        with ib.new_scope():
            total = ib.allocate(self.dtype, (width,), name="total", scope="local")
            total[0] = Broadcast(build.const(0.0, self.dtype), width)

            def add(begin: Expr | int, rows: int) -> None:
                """So many rows of the window from one on, a number of whole periods."""
                for below, beside in product(range(rows), range(wide)):
                    number = self.weight[channel, (begin * period + below) * wide + beside]
                    read = seen.vload(self._read_by(first, begin, below, beside), width)
                    total[0] = total.vload((0,), width) + Broadcast(number, width) * read

            if high * wide <= HELD:
                add(0, high)
            else:
                with ib.for_range(0, high // period, name="rows") as rows:
                    add(rows, period)
                add(high // period, high % period)
            sums[first] = total.vload((0,), width)

    def _read_by(
        self, first: Expr, periods: Expr | int, below: int, beside: int
    ) -> tuple[int, Expr]:
        """The phase and the place in it that a tap reads for results from one on.

        periods: rows of the window before it, by which phases do not change.
        """
        (down, across), dilation = self.made.strides, self.made.dilation
        rows, row = divmod(below * dilation[0], down)
        columns, column = divmod(beside * dilation[1], across)
        (number,) = (
            each.number for each in self.planes.phases if (each.down, each.across) == (row, column)
        )
        further = dilation[0] // math.gcd(down, dilation[0])
        away = (periods * further + rows) * self.planes.pitch + columns
        return number, first + away

    def _store(self, sums: BufferVar, image: Expr, channel: Expr, row: Expr) -> None:
        """A row of results, with what follows."""
        for begin in _begins(0, self.made.result[1], self.size):
            with self.ib.for_range(0, self.size, name="lane", kind="vectorize") as lane:
                index = (image, channel, row, begin + lane)
                value = sums[row * self.planes.pitch + begin + lane]
                self.out[index] = self.finished(index, value)


def _begins(first: int, end: int, size: int) -> Sequence[int]:
    """Where vectors begin that fill a row; the last may lie over the one before."""
    return [*range(first, end - size, size), end - size]
