"""Depthwise convolutions of bytes by halves of words (SMLAD), one channel's plane after the other.

The plane of a channel is copied with its border, two neighbours of a row in a word, so that no
image has a border in memory. All of it is read before the first result is written.
"""

from collections.abc import Callable, Sequence

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.contraction import Contraction
from sterna.schedule.epilogue import split_bias
from sterna.schedule.halves_steps import plane_dots, words_of_row
from sterna.schedule.statement_kernel import StatementKernel
from sterna.tir import address_of, call_extern
from sterna.tir.halves import join_halves
from sterna.tir.ir_builder import BufferVar

# Words of a row that are copied in a turn.
TURN = 4


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
        ib.scope_attr(None, "pragma_import_c", self.step.definition)
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
            with ib.for_range(0, inside, name="row") as row:
                self._copy_row(plane, image, row, channel)
            with ib.for_range(0, made.result[0], name="row") as row:
                self._row(plane, image, row, channel)

    # ---- planes ----

    def _fill(self, plane: BufferVar, first: int, last: int) -> None:
        """Rows of border."""
        border = build.const(self.made.border)
        with self.ib.for_range(first * self.words, last * self.words, name="word") as word:
            plane[word] = join_halves(border, border)

    def _copy_row(self, plane: BufferVar, image: Expr, row: Expr, channel: Expr) -> None:
        made, ib = self.made, self.ib
        begin = ib.let("begin", ((image * made.image[0] + row) * made.image[1]) * made.inputs
                       + channel)
        start = ib.let("start", (row + made.before[0]) * self.words)

        def pixel(column: int) -> Expr:
            if not 0 <= column < made.image[1]:
                return build.const(made.border)
            return self.data[begin + column * made.inputs].astype("int32")

        def copy(word: int) -> None:
            column = 2 * word - made.before[1]
            plane[start + word] = join_halves(pixel(column), pixel(column + 1))

        first = -(-made.before[1] // 2)  # whose two pixels are inside
        last = min(self.words, max(first, (made.before[1] + made.image[1]) // 2))
        turns, rest = divmod(last - first, TURN)
        for word in range(first):
            copy(word)
        with ib.for_range(0, turns, name="turn") as turn:
            for part in range(TURN):
                column = 2 * (first + part) - made.before[1]
                at = begin + (turn * (2 * TURN) + column) * made.inputs
                two = (self.data[at].astype("int32"), self.data[at + made.inputs].astype("int32"))
                plane[start + turn * TURN + (first + part)] = join_halves(*two)
        for word in range(last - rest, self.words):
            copy(word)

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
