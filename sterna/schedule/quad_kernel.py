"""Depthwise convolutions of bytes on planes of four channels, whose sums are words of a vector.

A plane is copied with its border, so that no image has one in memory: band after band where the
results stay before the rows of the next one, and else all of it before the first result of its
channels is written. So results may take the place of what they are made from.
"""

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.across_steps import FILL, PLANE, PLANE_REPEATED, QUAD, quad_dots
from sterna.schedule.contraction import Contraction
from sterna.schedule.overlap import bands_take_place
from sterna.schedule.statement_kernel import StatementKernel
from sterna.tir import address_of, call_extern
from sterna.tir.ir_builder import BufferVar

# Results of a row whose sums are kept at a time, unless one tile has more.
MOST_KEPT = 6
# What a copy may take where results leave the rows below them readable.
BAND_BYTES = 1536


def plane_columns(made: Contraction, outputs: int, tiles: int) -> int:
    """The columns of a plane that so many tiles of so many results read."""
    reach = (made.window[1] - 1) * made.dilation[1]
    return (tiles * outputs - 1) * made.strides[1] + reach + 1


def plane_height(made: Contraction, rows: int) -> int:
    """The rows of a plane that so many rows of results read."""
    return (rows - 1) * made.strides[0] + (made.window[0] - 1) * made.dilation[0] + 1


def band_rows(made: Contraction, columns: int) -> int:
    """Rows of results that one copy serves: what fits if the rest stays readable, or all."""
    rows = made.result[0]
    if made.multiplier == 1 and not bands_take_place(made, 1):
        return rows

    def fits(count: int) -> bool:
        return plane_height(made, count) * columns * QUAD <= BAND_BYTES

    return max([1, *(n for n in range(1, rows + 1) if rows % n == 0 and fits(n))])


class QuadKernel(StatementKernel):
    """Four channels after the other: their plane, then their results, rows by tiles."""

    def __init__(self, made: Contraction, outputs: int) -> None:
        """outputs: results of a tile."""
        self.made, self.outputs = made, outputs
        self.tiles = -(-made.result[1] // outputs)
        self.columns = plane_columns(made, outputs, self.tiles)
        self.band = band_rows(made, self.columns)
        self.height = plane_height(made, self.band)
        most = min(self.tiles, max(1, MOST_KEPT // outputs))
        self.together = max(n for n in range(1, most + 1) if self.tiles % n == 0)

    def describe(self) -> str:
        return f"planes of four channels, {self.outputs} pixels in registers"

    def write(self) -> None:
        ib, made = self.ib, self.made
        self.step = quad_dots(
            made.window[1], made.dilation[1], made.strides[1], self.outputs)
        copied = PLANE if made.multiplier == 1 else PLANE_REPEATED
        for text in (FILL.definition, copied.definition, self.step.definition):
            ib.scope_attr(None, "pragma_import_c", text)
        if bands_take_place(made, self.band):
            self.read_first()
        plane = ib.allocate("int8", (self.height * self.columns * QUAD,), name="plane")
        whole, rest = divmod(made.outputs, QUAD)
        with ib.for_range(0, made.batch, name="image") as image:
            with ib.for_range(0, whole, name="quad") as quad:
                self._quad(plane, image, quad, QUAD)
            if rest:
                self._quad(plane, image, build.const(whole), rest)

    def _quad(self, plane: BufferVar, image: Expr, quad: Expr, count: int) -> None:
        """The first so many of four channels."""
        ib, made = self.ib, self.made
        with ib.for_range(0, made.result[0] // self.band, name="band") as band:
            self.copy(plane, image, band, quad, count)
            with ib.for_range(0, self.band, name="row") as row:
                calls = self.tiles // self.together
                with ib.for_range(0, calls, name="tile") as tile:
                    self._results(plane, (image, band * self.band, row), tile, quad, count)

    def copy(self, plane: BufferVar, image: Expr, band: Expr, quad: Expr, count: int) -> None:
        made = self.made
        first = image * (made.image[0] * made.image[1] * made.inputs)
        before = min(made.before[1], self.columns)
        inside = min(made.image[1], self.columns - before)
        extents = (*made.image, made.inputs, self.height, before, inside,
                   self.columns - before - inside, made.border, count)
        step, more = PLANE, list[Expr]()
        if made.multiplier == 1:
            first = first + quad * QUAD
        else:
            step, more = PLANE_REPEATED, [quad * QUAD, build.const(made.multiplier)]
        self.ib.emit(call_extern(
            "int32", step.name, address_of(plane[0]), address_of(self.data[first]),
            band * (self.band * made.strides[0]) - made.before[0], *map(build.const, extents),
            *more,
        ))

    def _results(
        self, plane: BufferVar, place: tuple[Expr, Expr, Expr], tile: Expr, quad: Expr,
        count: int,
    ) -> None:
        """Some tiles of a row of a band."""
        ib, made = self.ib, self.made
        each = self.together * self.outputs
        image, first, row = place
        start = (row * (made.strides[0] * self.columns) + tile * (each * made.strides[1])) * QUAD
        with ib.new_scope():
            sums = ib.allocate("int32", (each * QUAD,), name="sums")
            ib.emit(call_extern(
                "int32", self.step.name, address_of(sums[0]),
                address_of(self.weight[quad, 0, 0, 0]), address_of(plane[start]),
                build.const(self.columns * QUAD * made.dilation[0]), build.const(made.window[0]),
                build.const(self.together),
            ))
            inside: Expr = build.const(each)
            if made.result[1] % each:
                inside = build.minimum(each, made.result[1] - tile * each)
            with ib.for_range(0, inside, name="pixel") as pixel:
                at = (image, first + row, tile * each + pixel)
                self.store_channels(
                    at, quad * QUAD, count, lambda lane: sums[pixel * QUAD + lane])
