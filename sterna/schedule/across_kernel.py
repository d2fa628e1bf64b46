"""Contractions of bytes across vectors (VMLADAVA): each pixel times four output channels at once.

What a sum reads lies side by side: as the data has it, or copied from a window (im2col) with what
lies outside of the image, so that images have no border in memory. Weights are as the model's.
"""

from collections.abc import Sequence

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.across_steps import (
    CHANNELS,
    COPY,
    DOTS,
    FILL,
    WINDOW,
    WINDOW_APART,
    few_dots,
)
from sterna.schedule.contraction import Contraction
from sterna.schedule.halves_steps import Step
from sterna.schedule.overlap import lead_of_pixels
from sterna.schedule.statement_kernel import StatementKernel, places_of
from sterna.tir import address_of, call_extern
from sterna.tir.ir_builder import BufferVar


def copies_pixels(made: Contraction) -> bool:
    """Whether what a pixel reads is copied: it lies apart, or its place is the result's."""
    return {*made.window} != {1} or made.is_padded or (
        made.is_pointwise and made.inputs == made.outputs)


class AcrossKernel(StatementKernel):
    """Pixel after pixel, some channels in each turn."""

    def __init__(self, made: Contraction, channels: int, outer: Sequence[int]) -> None:
        """channels: sums that are kept at a time; outer: the result's extents before channels."""
        self.made, self.channels, self.outer = made, channels, outer

    def describe(self) -> str:
        return f"products across vectors, {self.channels} channels in a turn"

    def write(self) -> None:
        ib, made = self.ib, self.made
        self.few = few_dots(made.outputs) if made.outputs < CHANNELS else None
        ib.scope_attr(None, "pragma_import_c", (self.few or DOTS).definition)
        memory, copies = self.data, copies_pixels(made)
        # what two turns write reads what was there before the first
        if not (self.reads_data_again and made.outputs % self.channels):
            self.read_first(lead_of_pixels(made, 1 if copies else 0), together=made.outputs)
        if copies:
            ib.scope_attr(None, "pragma_import_c", COPY.definition)
            if not made.is_pointwise:
                for step in (FILL, self._window()):
                    ib.scope_attr(None, "pragma_import_c", step.definition)
            memory = ib.allocate("int8", (made.products,), name="read")
        with ib.for_range(0, made.pixels, name="pixel") as pixel:
            if copies:
                self._copy(memory, pixel)
            begin = 0 if copies else self._place(pixel)
            turns = -(-made.outputs // self.channels)
            with ib.for_range(0, turns, name="turn") as turn:
                first = turn * self.channels
                if made.outputs % self.channels:  # the last channels are those of two turns
                    first = build.minimum(first, made.outputs - self.channels)
                self._channels_of_pixel(address_of(memory[begin]), pixel, ib.let("first", first))

    def _window(self) -> Step:
        """What copies a window."""
        return WINDOW if {*self.made.dilation} == {1} else WINDOW_APART

    def _place(self, pixel: Expr) -> Expr:
        """Where the one pixel begins that is read for another."""
        made = self.made
        if {*made.strides} == {1}:
            return pixel * made.depth
        image, down, across = places_of(pixel, (made.batch, *made.result))
        row = image * made.image[0] + down * made.strides[0]
        return (row * made.image[1] + across * made.strides[1]) * made.depth

    def _copy(self, memory: BufferVar, pixel: Expr) -> None:
        """What the sums of a pixel read."""
        ib, made = self.ib, self.made
        to = address_of(memory[0])
        if made.is_pointwise:
            place = address_of(self.data[self._place(pixel)])
            ib.emit(call_extern("int32", COPY.name, to, place, build.const(made.depth)))
            return
        image, down, across = places_of(pixel, (made.batch, *made.result))
        extents: tuple[int, ...] = (*made.image, made.inputs, *made.window, made.border)
        step = self._window()
        if step is WINDOW_APART:
            extents = (*extents, *made.dilation)
        ib.emit(call_extern(
            "int32", step.name, to,
            address_of(self.data[image * (made.image[0] * made.image[1] * made.inputs)]),
            down * made.strides[0] - made.before[0], across * made.strides[1] - made.before[1],
            *map(build.const, extents),
        ))

    def _channels_of_pixel(self, read: Expr, pixel: Expr, first: Expr) -> None:
        """Some channels of a pixel from one on."""
        ib = self.ib
        blocks = -(-self.channels // CHANNELS)
        with ib.new_scope():
            sums = ib.allocate("int32", (blocks * CHANNELS,), name="sums")
            step, counts = (DOTS, (blocks,)) if self.few is None else (self.few, ())
            ib.emit(call_extern(
                "int32", step.name, address_of(sums[0]), address_of(self.weight[first, 0]),
                read, build.const(self.made.products), *map(build.const, counts),
            ))
            at = places_of(pixel, self.outer)
            self.store_channels(at, first, self.channels, lambda lane: sums[lane])
