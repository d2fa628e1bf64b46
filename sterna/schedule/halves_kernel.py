"""Contractions of bytes by halves of words (SMLAD), on pixels that were widened into a panel.

A panel holds some pixels, each with all that a sum reads (im2col), four numbers side by side: the
first and the third as halves of a word, the second and the fourth as halves of the next. What lies
outside of the image is filled in here, so that images have no border in memory.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import GROUP
from sterna.schedule.epilogue import split_bias
from sterna.schedule.halves_steps import (
    CALL,
    STORED,
    Step,
    is_written_out,
    panel_dots,
    panel_loads,
    row_dots,
    widen_rows,
)
from sterna.schedule.overlap import lead_of_pixels
from sterna.schedule.statement_kernel import StatementKernel, places_of
from sterna.te import all as all_of
from sterna.tir import address_of, call_extern, reinterpret
from sterna.tir.halves import join_halves, widen_even, widen_odd
from sterna.tir.ir_builder import BufferVar

# What a panel of one pixel may take: widening it saves a tenth of the instructions of a step.
PANEL_BYTES = 512
# Blocks of channels that must read a panel to pay for it.
READ_OFTEN = 3
# Groups of four that are widened in a turn of a loop; from so many on, compilers leave a loop.
TURN, UNROLLED = 4, 8


@dataclass(frozen=True, slots=True)
class Corner:
    """Where a window begins: its row and column, which may lie outside, and its first byte."""

    top: Expr
    left: Expr
    first: Expr


def reads_bytes(made: Contraction, pixels: int, channels: int) -> bool:
    """Whether a pixel is too long for a panel, or read too seldom, and read as its bytes lie."""
    fits = made.products * 2 * pixels <= PANEL_BYTES
    is_worth = made.outputs // channels >= READ_OFTEN
    can = pixels == 1 and made.is_pointwise and made.depth % GROUP == 0
    return can and not (fits and is_worth)


def groups_of(made: Contraction) -> int:
    """Groups of four numbers of a sum, the last of which may be filled up."""
    return -(-made.products // GROUP)


def calls_saved(made: Contraction, pixels: int, channels: int) -> float:
    """The instructions that a step spares which is written out; 0 if it is not."""
    group = panel_loads(pixels) + -(-channels // 2) + channels * (2 + 2 * pixels)
    calls, groups = -(-made.pixels // pixels) * (made.outputs // channels), groups_of(made)
    length, sums = group * (groups if groups < UNROLLED else 3), pixels * channels
    is_out = is_written_out(calls, sums, length, calls * groups * group)
    return calls * (CALL + STORED * sums) if is_out else 0


class HalvesKernel(StatementKernel):
    """Panels of pixels one after the other, each times all output channels."""

    def __init__(
        self, made: Contraction, pixels: int, channels: int, outer: Sequence[int]
    ) -> None:
        """outer: the extents of the result before its channels."""
        self.made, self.outer = made, outer
        self.pixels, self.channels = pixels, channels
        self.groups = groups_of(made)
        self.bytes = reads_bytes(made, pixels, channels)

    def describe(self) -> str:
        return f"halves of words, {self.pixels} pixels x {self.channels} channels in registers"

    def write(self) -> None:
        ib, each = self.ib, self.pixels
        step = self._step()
        ib.scope_attr(None, "pragma_import_c", step.definition)
        memory = self.data
        lead = lead_of_pixels(self.made, 0 if self.bytes else each)
        self.read_first(lead, together=each * self.made.outputs)
        if not self.bytes:
            memory = ib.allocate("int64", (self.groups * each,), name="pixels")
        with ib.for_range(0, -(-self.made.pixels // each), name="panel") as number:
            first = number * each
            count: Expr = build.const(each)
            if self.made.pixels % each:  # the last panel has fewer
                count = ib.let("count", build.minimum(each, self.made.pixels - first))
            if not self.bytes:
                self._widen(memory, first, count)
            blocks = self.made.outputs // self.channels
            with ib.for_range(0, blocks, name="block") as block:
                self._block(memory, first, count, block, step)

    # ---- sums ----

    def _step(self) -> Step:
        """Some groups of a tile's products, written out where calls are much of the kernel."""
        each, channels = self.pixels, self.channels
        rows = self.bytes or channels > 1
        step = row_dots(channels, not self.bytes) if rows else panel_dots(each)
        return step.written_out() if calls_saved(self.made, each, channels) else step

    def _block(
        self, panel: BufferVar, first: Expr, count: Expr, block: Expr, step: Step
    ) -> None:
        """Some pixels times a channel, or some channels times a pixel, in registers."""
        ib, rank = self.ib, len(self.outer) + 1
        with_bias = None if self.finish is None else split_bias(self.finish, rank)
        begin, finish = (None, self.finished) if with_bias is None else with_bias
        channels = [block * self.channels + channel for channel in range(self.channels)]
        biases = [build.const(0) if begin is None else begin(own) for own in channels]
        with ib.new_scope():
            sums = ib.allocate("int32", (self.pixels * self.channels,), name="sums")
            start = first * self.made.depth if self.bytes else 0
            memory = (
                address_of(sums[0]), address_of(self.weight[block, 0, 0, 0]),
                address_of(panel[start]), build.const(self.groups),
            )
            if self.bytes or self.channels > 1:
                for number, bias in enumerate(biases):
                    sums[number] = bias
                ib.emit(call_extern("int32", step.name, *memory))
            else:
                ib.emit(call_extern("int32", step.name, *memory, *biases))

            def store(pixel: Expr, place: int) -> None:
                index = (*places_of(first + pixel, self.outer), channels[place])
                self.out[index] = finish(index, sums[pixel * self.channels + place])

            if self.made.pixels % self.pixels:
                with ib.for_range(0, count, name="pixel") as pixel:
                    store(pixel, 0)
                return
            for number in range(self.pixels * self.channels):
                row, place = divmod(number, self.channels)
                store(build.const(row), place)

    # ---- panels ----

    def _widen(self, panel: BufferVar, first: Expr, count: Expr) -> None:
        """So many pixels from one on."""
        if self.made.is_pointwise and self.groups > TURN and not self.made.depth % GROUP:
            step = widen_rows(self.pixels)
            self.ib.scope_attr(None, "pragma_import_c", step.definition)
            start = address_of(self.data[first * self.made.depth])
            self.ib.emit(call_extern(
                "int32", step.name, address_of(panel[0]), start, build.const(self.groups), count))
            return
        with self.ib.for_range(0, count, name="pixel") as pixel:
            if self.made.is_pointwise:
                self._widen_row(panel, (first + pixel) * self.made.depth, pixel)
            else:
                self._widen_window(panel, first + pixel, pixel)

    def _store(self, panel: BufferVar, at: Expr, low: Expr, high: Expr) -> None:
        wide = (high.astype("int64") << 32) | (low.astype("int64") & 0xFFFFFFFF)
        panel[at] = wide

    def _store_word(self, panel: BufferVar, at: Expr, word: Expr) -> None:
        self._store(panel, at, widen_even(word), widen_odd(word))

    def _word(self, place: Expr) -> Expr:
        """Four bytes of the data from one on."""
        flat = self.data.buffer.indices_of(place) if len(self.data.shape) > 1 else (place,)
        return reinterpret("int32", self.data.vload(flat, GROUP))

    def _bytes(self, places: Sequence[Expr | None]) -> tuple[Expr, Expr]:
        """Up to four bytes of the data as halves of two words; None: a zero."""
        zero = build.const(0)
        one, two, three, four = (
            zero if place is None else self.data[place].astype("int32")
            for place in (*places, *[None] * (GROUP - len(places)))
        )
        return join_halves(one, three), join_halves(two, four)

    def _run(
        self, panel: BufferVar, first: Expr, start: int, offsets: Sequence[int], pixel: Expr
    ) -> None:
        """Bytes that lie so far from a first one, as groups of a pixel from one on."""
        for group in range(-(-len(offsets) // GROUP)):
            four = offsets[group * GROUP : (group + 1) * GROUP]
            at = (start + group) * self.pixels + pixel
            if len(four) == GROUP and four[-1] - four[0] == GROUP - 1:
                self._store_word(panel, at, self._word(first + four[0]))
            else:
                low, high = self._bytes([first + offset for offset in four])
                self._store(panel, at, low, high)

    def _widen_row(self, panel: BufferVar, start: Expr, pixel: Expr) -> None:
        """Of a product of matrices: what a sum reads lies side by side."""
        whole, rest = divmod(self.made.depth, GROUP)
        together = max(n for n in range(1, TURN + 1) if whole % n == 0)
        with self.ib.for_range(0, whole // together, name="turn") as turn:
            for part in range(together):
                group = turn * together + part
                word = self._word(start + group * GROUP)
                self._store_word(panel, group * self.pixels + pixel, word)
        if rest:
            self._run(panel, start + whole * GROUP, whole, range(rest), pixel)

    def _widen_window(self, panel: BufferVar, place: Expr, pixel: Expr) -> None:
        """What the sum of a pixel reads: by whole rows of the window where all of it is inside."""
        ib, made = self.ib, self.made
        image, down, across = places_of(place, (made.batch, *made.result))
        top = ib.let("top", down * made.strides[0] - made.before[0])
        left = ib.let("left", across * made.strides[1] - made.before[1])
        first = ((image * made.image[0] + top) * made.image[1] + left) * made.inputs
        corner = Corner(top, left, ib.let("corner", first))
        if not made.is_padded:
            self._widen_inside(panel, corner.first, pixel)
            return
        last = [(w - 1) * d for w, d in zip(made.window, made.dilation, strict=True)]
        inside = all_of(
            top >= 0, top < made.image[0] - last[0], left >= 0, left < made.image[1] - last[1]
        )
        with ib.if_scope(inside):
            self._widen_inside(panel, corner.first, pixel)
        with ib.else_scope():
            self._widen_border(panel, corner, pixel)

    def _steps(self) -> tuple[int, int]:
        """Bytes from a tap to the one below it, and to the next one."""
        made = self.made
        return made.image[1] * made.inputs * made.dilation[0], made.inputs * made.dilation[1]

    def _widen_inside(self, panel: BufferVar, corner: Expr, pixel: Expr) -> None:
        made = self.made
        row, step = self._steps()
        if made.inputs % GROUP:
            offsets = [
                down * row + across * step + channel
                for down in range(made.window[0])
                for across in range(made.window[1])
                for channel in range(made.inputs)
            ]
            self._run(panel, corner, 0, offsets, pixel)
            return
        # rows of neighbours are one run
        runs, length = made.window[1], made.inputs
        if made.dilation[1] == 1:
            runs, length = 1, made.window[1] * made.inputs
        ib, each = self.ib, length // GROUP
        with (
            ib.for_range(0, made.window[0], name="down") as down,
            ib.for_range(0, runs, name="across") as across,
            ib.for_range(0, each, name="group") as group,
        ):
            at = (down * runs + across) * each + group
            start = corner + down * row + across * step + group * GROUP
            self._store_word(panel, at * self.pixels + pixel, self._word(start))

    def _widen_border(self, panel: BufferVar, corner: Corner, pixel: Expr) -> None:
        """Four by four where channels allow it, asking of each tap whether it is inside."""
        ib, made = self.ib, self.made
        if made.inputs % GROUP:
            self._widen_apart(panel, corner, pixel)
            return
        each, border = made.inputs // GROUP, build.const(made.border)
        both = join_halves(border, border)
        with self._taps(corner) as (start, tap, inside):
            with ib.if_scope(inside), ib.for_range(0, each, name="group") as group:
                at = (tap * each + group) * self.pixels + pixel
                self._store_word(panel, at, self._word(start + group * GROUP))
            with ib.else_scope(), ib.for_range(0, each, name="group") as group:
                self._store(panel, (tap * each + group) * self.pixels + pixel, both, both)

    def _widen_apart(self, panel: BufferVar, corner: Corner, pixel: Expr) -> None:
        """Number after number into words of their own, from which groups are joined."""
        ib, made = self.ib, self.made
        with ib.new_scope():
            numbers = ib.allocate("int32", (self.groups * GROUP,), name="numbers")
            with self._taps(corner) as (start, tap, inside):
                first = tap * made.inputs
                with ib.if_scope(inside), ib.for_range(0, made.inputs, name="channel") as channel:
                    numbers[first + channel] = self.data[start + channel].astype("int32")
                with ib.else_scope(), ib.for_range(0, made.inputs, name="channel") as channel:
                    numbers[first + channel] = build.const(made.border)
            for place in range(made.products, self.groups * GROUP):
                numbers[place] = build.const(0)
            with ib.for_range(0, self.groups, name="group") as group:
                one, two, three, four = (numbers[group * GROUP + n] for n in range(GROUP))
                low, high = join_halves(one, three), join_halves(two, four)
                self._store(panel, group * self.pixels + pixel, low, high)

    @contextmanager
    def _taps(self, corner: Corner) -> Iterator[tuple[Expr, Expr, Expr]]:
        """Every tap of a window: where its channels begin, its number, and if it is inside."""
        ib, made = self.ib, self.made
        row, step = self._steps()
        with (
            ib.for_range(0, made.window[0], name="down") as down,
            ib.for_range(0, made.window[1], name="across") as across,
        ):
            y = corner.top + down * made.dilation[0]
            x = corner.left + across * made.dilation[1]
            inside = all_of(y >= 0, y < made.image[0], x >= 0, x < made.image[1])
            yield corner.first + down * row + across * step, down * made.window[1] + across, inside
