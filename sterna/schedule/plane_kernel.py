"""Depthwise convolutions of bytes by halves of words (SMLAD), one channel's plane after the other.

The plane of a channel is copied with its border, two neighbours of a row in a word, so that no
image has a border in memory. All of it is read before the first result is written.
"""

from collections.abc import Callable, Sequence

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.contraction import Contraction
from sterna.schedule.epilogue import split_bias
from sterna.schedule.halves_steps import PAIR_PLANE, plane_dots, words_of_row
from sterna.schedule.statement_kernel import StatementKernel
from sterna.tir import address_of, call_extern
from sterna.tir.halves import join_halves
from sterna.tir.ir_builder import BufferVar


def odd_columns(made: Contraction) -> int:
    """The columns of a window, filled up to an odd number of at least three."""
    return max(3, made.window[1] + 1 - made.window[1] % 2)


def plane_words(made: Contraction, outputs: int) -> tuple[int, int]:
    """The rows of a plane, and the words of each, where tiles have so many results."""
    rows = (made.result[0] - 1) * made.strides[0] + made.window[0]
    tiles = -(-made.result[1] // outputs)
    before = (tiles - 1) * outputs * made.strides[1] // 2
    return rows, before + words_of_row(odd_columns(made), made.strides[1], outputs)


class PlaneKernel(StatementKernel):
    """Channel after channel: its plane, then its results, some neighbours of a row at a time."""

    def __init__(self, made: Contraction, outputs: int) -> None:
        """outputs: results of a tile."""
        self.made, self.outputs = made, outputs
        self.rows, self.words = plane_words(made, outputs)

    def describe(self) -> str:
        return f"planes of halves of words, {self.outputs} pixels in registers"

    def write(self) -> None:
        ib, made = self.ib, self.made
        columns = odd_columns(made)
        self.step = plane_dots((made.window[0], columns), made.strides[1], self.outputs)
        for text in (PAIR_PLANE.definition, self.step.definition):
            ib.scope_attr(None, "pragma_import_c", text)
        if {*made.strides} == {1} and made.result == made.image:
            self.read_first()
        plane = ib.allocate("int32", (self.rows * self.words,), name="plane")
        inside = min(made.image[0], self.rows - made.before[0])
        below = made.before[0] + inside
        self._fill(plane, 0, made.before[0])
        self._fill(plane, below, self.rows)
        with (
            ib.for_range(0, made.batch, name="image") as image,
            ib.for_range(0, made.outputs, name="channel") as channel,
        ):
            self._copy(plane, image, inside, channel)
            with ib.for_range(0, made.result[0], name="row") as row:
                self._row(plane, image, row, channel)

    # ---- planes ----

    def _fill(self, plane: BufferVar, first: int, last: int) -> None:
        """Rows of border."""
        border = build.const(self.made.border)
        with self.ib.for_range(first * self.words, last * self.words, name="word") as word:
            plane[word] = join_halves(border, border)

    def _copy(self, plane: BufferVar, image: Expr, rows: int, channel: Expr) -> None:
        made, before = self.made, self.made.before[1]
        first = image * (made.image[0] * made.image[1] * made.inputs) + channel
        inside = min(made.image[1], 2 * self.words - before)
        extents = (rows, made.image[1] * made.inputs, made.inputs, self.words, before, inside,
                   made.border)
        self.ib.emit(call_extern(
            "int32", PAIR_PLANE.name, address_of(plane[made.before[0] * self.words]),
            address_of(self.data[first]), *map(build.const, extents),
        ))

    # ---- results ----

    def _row(self, plane: BufferVar, image: Expr, row: Expr, channel: Expr) -> None:
        made, each = self.made, self.outputs
        whole, rest = divmod(made.result[1], each)
        down = row * (made.strides[0] * self.words)
        across = each * made.strides[1] // 2
        with self.ib.for_range(0, whole, name="tile") as tile:
            self._tile(plane, down + tile * across, (image, row, tile * each), channel, each)
        if rest:
            first = build.const(whole * each)
            self._tile(plane, down + whole * across, (image, row, first), channel, rest)

    def _tile(
        self, plane: BufferVar, at: Expr, place: tuple[Expr, Expr, Expr], channel: Expr, count: int
    ) -> None:
        """So many results of a row from one on."""
        ib = self.ib
        begin, finish = self._epilogue()
        with ib.new_scope():
            sums = ib.allocate("int32", (self.outputs,), name="sums")
            ib.emit(call_extern(
                "int32", self.step.name, address_of(sums[0]),
                address_of(self.weight[channel, 0, 0, 0]), address_of(plane[at]),
                build.const(4 * self.words), begin(channel),
            ))
            image, row, first = place
            for pixel in range(count):
                index = (image, row, first + pixel, channel)
                self.out[index] = finish(index, sums[pixel])

    def _epilogue(
        self,
    ) -> tuple[Callable[[Expr], Expr], Callable[[Sequence[Expr], Expr], Expr]]:
        apart = None if self.finish is None else split_bias(self.finish, 4)
        return (lambda channel: build.const(0), self.finished) if apart is None else apart
