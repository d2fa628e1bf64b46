"""The schedule of attention: all stages of a few queries one after the other, for each head."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sterna.schedule.choose import choose
from sterna.schedule.cost import PAGE_BYTES
from sterna.schedule.default import (
    hold_in_registers,
    reduce_by_vectors,
    schedule_default,
    vectors_at_once,
)
from sterna.schedule.gemm import UNROLLED_STEPS, most_rows
from sterna.schedule.kernel import Kernel, Processor
from sterna.schedule.loops import extent_of, extents_of
from sterna.schedule.register_tile import rows_that_fit, step_cycles
from sterna.schedule.transpose_tile import side_of_squares, transpose_intrinsic
from sterna.te import IterVar, PlaceholderOp, Stage, Tensor

TRANSPOSED_TOGETHER = 8
# Cycles until keys are transposed for all threads, and have come to each.
TRANSPOSED_BEFORE = 10_000
# Cycles of a tile's row of values that misses the first cache, and of copying a vector of them.
READ_APART, COPIED = 6, 2
# Vectors side by side of the widest tile.
MOST_VECTORS = 4

_KEY = "attention"


@dataclass(frozen=True, slots=True)
class AttentionStages:
    """The stages of attention, told by the operator that made them."""

    transposed: Tensor
    """The keys, so that vectors run over them."""
    scores: Tensor
    largest: Tensor
    power: Tensor
    total: Tensor
    held: Tensor
    """The values, with zeros up to as many as there are scores; themselves if there are as many."""
    mixed: Tensor
    """The values, weighted by powers."""
    operands: tuple[Tensor, ...]
    """Queries, keys, values, and masks."""
    scale: float
    fill: float
    """The score where a mask of truth values says no."""
    causal: bool = False
    """Whether a query reads only the keys up to its own place."""


def describe_attention(result: Tensor, stages: AttentionStages) -> Tensor:
    """Attach to a result what it is made of."""
    result.op.attrs[_KEY] = stages
    return result


def attention_of(result: Tensor) -> AttentionStages | None:
    """What a result was said to be made of; None if it is no attention."""
    found: AttentionStages | None = result.op.attrs.get(_KEY)
    return found


def schedule_attention(kernel: Kernel) -> None:
    """Heads or parts of them in parallel; the scores of a few queries stay in the first cache."""
    out = kernel.outputs[0]
    sizes = [extent_of(axis) for axis in out.op.axis]
    if None in sizes or math.prod(size or 0 for size in sizes) == 0:
        schedule_default(kernel)
        return
    _Scheduler(kernel).run()


@dataclass(frozen=True, slots=True)
class Product:
    """A product of some queries: how wide its rows are, and how long its sums."""

    columns: int
    depth: int
    lanes: int
    processor: Processor
    together: int = 1
    """Steps of a sum whose numbers one load brings."""

    def most_rows(self, vectors: int = 1) -> int:
        """The rows of the highest tile so wide whose accumulators stay in registers."""
        return rows_that_fit(vectors, self._registers, self.together)

    def tile_width(self, rows: int) -> int:
        """The columns of a tile of so many rows: whole vectors, as many as registers hold."""
        fitting = [
            vectors * self.lanes
            for vectors in range(1, MOST_VECTORS + 1)
            if self.columns % (vectors * self.lanes) == 0 and self.most_rows(vectors) >= rows
        ]
        return max(fitting, default=math.gcd(self.columns, self.lanes))

    def unrolled_steps(self, rows: int, width: int) -> int:
        """Steps written out one after the other.

        One where accumulators leave no register free: what is loaded ahead for the next steps
        would send them all to memory.
        """
        if self.together > 1:
            return self.together
        vectors = -(-width // self.lanes)
        left = self._registers - (rows + 1) * vectors - 1
        return UNROLLED_STEPS if left > vectors else 1

    @property
    def _registers(self) -> int:
        """Those that tiles may use."""
        if self.together > 1:
            return self.processor.registers_for(self.together)
        return self.processor.tile_registers

    def cycles(self, rows: int, width: int) -> float:
        """Of some rows by tiles of some columns."""
        vectors = -(-width // self.lanes)
        step = step_cycles(rows, vectors, self.together, self.processor.smt_throughput)
        return step * self.depth * (self.columns // width)


@dataclass(frozen=True, slots=True)
class Share:
    """How the queries of a head are cut."""

    groups: int
    """Pieces of work."""
    rows: int
    """Queries of a tile."""

    def __str__(self) -> str:
        """tiles of 4, heads in 2 groups"""
        return f"tiles of {self.rows}, heads in {self.groups} groups"


def best_share(
    products: Sequence[Product], queries: int, heads: int, most_rows: int, threads: int
) -> Share:
    """The share with which the last thread ends soonest.

    Groups of a head are of one size and of whole tiles: none of these checks where it ends.
    """

    def cycles(rows: int, group: int) -> float:
        whole, rest = divmod(group, rows)
        widths = [(product, product.tile_width(rows)) for product in products]
        last = sum(product.cycles(rest, width) for product, width in widths) if rest else 0
        return whole * sum(product.cycles(rows, width) for product, width in widths) + last

    def end(share: Share) -> float:
        turns = -(-heads * share.groups // threads)
        before = TRANSPOSED_BEFORE if share.groups > 1 else 0
        return turns * cycles(share.rows, queries // share.groups) + before

    highest = min(most_rows, *(product.most_rows() for product in products))
    found = [
        Share(groups, rows)
        for groups in range(1, queries + 1)
        for rows in range(min(queries // groups, highest), 0, -1)
        if groups == 1 or queries % (groups * rows) == 0
    ]
    return choose("queries", found, end)


class _Scheduler:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.schedule = kernel, kernel.schedule
        self.out = kernel.outputs[0]
        made: AttentionStages = self.out.op.attrs[_KEY]
        self.mixed, self.total, self.power = made.mixed, made.total, made.power
        self.scores, self.largest, self.transposed = made.scores, made.largest, made.transposed
        processor = kernel.processor
        self.lanes = processor.lanes(self.out.dtype)
        self.batch, self.queries, self.heads, width = extents_of(self.out.op.axis)
        self.values, self.held, self.value_width = made.operands[2], made.held, width
        keys = extents_of(self.scores.op.axis)[-1]
        self.keys = extents_of(self.mixed.op.reduce_axis)[0]
        self.all_keys = keys == self.keys
        item = self.out.dtype.bytes
        self.long_rows = keys * item % PAGE_BYTES == 0
        depth = extents_of(self.scores.op.reduce_axis)[0]
        self.asked = made.operands[0]
        self.together = self._steps_together(made, depth)
        products = [
            Product(columns, steps, self.lanes, processor, self.together)
            for columns, steps in ((keys, depth), (width, keys))
        ]
        highest, count = most_rows(self.heads * depth * item), self.batch * self.heads
        share = best_share(products, self.queries, count, highest, processor.threads)
        self.groups, self.rows = share.groups, share.rows
        self.columns, self.width = (product.tile_width(self.rows) for product in products)
        self.steps_of_scores, self.steps_of_values = (
            product.unrolled_steps(self.rows, width)
            for product, width in zip(products, (self.columns, self.width), strict=True)
        )

    def _steps_together(self, made: AttentionStages, depth: int) -> int:
        """As many for both products, of numbers that need no conversion."""
        dtype = self.out.dtype
        as_they_lie = isinstance(self.asked.op, PlaceholderOp) and not made.causal
        if not as_they_lie or not self.all_keys or {self.asked.dtype, self.scores.dtype} != {dtype}:
            return 1
        processor = self.kernel.processor
        return min(processor.steps_together(dtype, size) for size in (depth, self.keys))

    def run(self) -> None:
        """Places all stages."""
        if self.groups > 1:
            self.kernel.choices["pieces of a head"] = self.groups
        self.kernel.choices["tile"] = f"{self.rows} x {self.columns}, {self.rows} x {self.width}"
        tile = self.schedule.cache_write(self.scores, "local")
        piece, rows, columns = self._result()
        out = self.schedule[self.out]
        transposed = self.schedule[self.transposed]
        shared = self._transpose(transposed)
        if self.groups == 1:
            transposed.compute_at(out, piece)
        else:
            transposed.parallel(transposed.fuse(*shared))
        self._place_values(out, piece)
        self._product(self.schedule[self.mixed], 1, self.power, self.steps_of_values)
        self.schedule[self.mixed].set_scope("local")
        self.schedule[self.mixed].compute_at(out, columns)
        self._scores(tile).compute_at(out, rows)
        for tensor in (self.largest, self.total):
            self._reduction(self.schedule[tensor], rows)
        power = self.schedule[self.power]
        self._vectors(power)
        power.compute_at(out, rows)
        if self.long_rows:  # else they would share the places of one set of the first cache
            power.storage_align(power.op.axis[2], PAGE_BYTES // 4, self.lanes)

    def _result(self) -> tuple[IterVar, IterVar, IterVar]:
        """The loops of the result: over pieces, over tiles of queries, over tiles of values."""
        stage = self.schedule[self.out]
        batch, query, head, value = stage.op.axis
        group, inside = stage.split(query, factor=self.queries // self.groups)
        rows, row = stage.split(inside, factor=self.rows)
        columns, column = stage.split(value, factor=self.width)
        stage.reorder(batch, head, group, rows, columns, row, column)
        stage.unroll(row)
        stage.vectorize(column)
        piece = stage.fuse(batch, head, group)
        stage.parallel(piece)
        return piece, rows, columns

    def _scores(self, tile: Tensor) -> Stage:
        stage = self.schedule[self.scores]
        batch, head, query, key = stage.op.axis
        columns, column = stage.split(key, factor=self.columns)
        stage.reorder(batch, head, columns, query, column)
        stage.unroll(query)
        stage.vectorize(column)
        self.schedule[tile].compute_at(stage, columns)
        self._product(self.schedule[tile], 2, self.asked, self.steps_of_scores)
        return stage

    def _product(self, stage: Stage, row: int, data: Tensor, steps: int) -> None:
        """Accumulators of some rows and of vectors, the sum's loop around them.

        data: what has a number for each row and step. steps: so many of the sum are written out.
        """
        axes, depth = list(stage.op.axis), stage.op.reduce_axis[0]
        others = [axis for place, axis in enumerate(axes[:-1]) if place != row]
        size = extents_of([depth])[0]
        inner = [depth]
        if size % steps == 0 and size > steps > 1:
            outer, step = stage.split(depth, factor=steps)
            stage.unroll(step)
            inner = [outer, step]
        stage.reorder(*others, *inner, axes[row], axes[-1])
        if self.together > 1:
            hold_in_registers(stage, data, inner[0])
            stage.pragma(inner[0], "load_ahead", True)
        stage.unroll(axes[row])
        stage.vectorize(axes[-1])

    def _transpose(self, stage: Stage) -> list[IterVar]:
        """By squares in registers, or by the rows that are read; gives loops for threads."""
        batch, head, depth, key = stage.op.axis
        width = self.columns
        sizes = extents_of([depth, key])
        side = side_of_squares(self.kernel.processor, self.out.dtype, *sizes, width)
        if side is not None and self.all_keys:
            # a panel for each tile: what it reads lies together
            stage.transform_layout(lambda b, h, d, j: [b, h, j // width, d, j % width])
            batch, head, panel, depth, key = stage.op.axis
            if self.held is not self.values:  # zeros stand behind the keys
                stage.reorder(batch, head, panel, key, depth)
                stage.unroll(stage.split(depth, factor=side)[1])
                return [batch, head, panel]
            (down, column), (along, row) = (stage.split(axis, factor=side) for axis in (depth, key))
            stage.reorder(batch, head, panel, along, down, column, row)
            stage.tensorize(column, transpose_intrinsic(str(self.out.dtype), side))
            return [batch, head, panel]
        stage.reorder(batch, head, key, depth)
        if extents_of([depth])[0] % TRANSPOSED_TOGETHER == 0:
            _, several = stage.split(depth, factor=TRANSPOSED_TOGETHER)
            stage.unroll(several)
        return [batch, head]

    def _place_values(self, out: Stage, piece: IterVar) -> None:
        """Packs a head's values where the tiles of its queries read them often enough.

        In memory they lie apart by the width of all heads: their rows share few places of the
        first cache, and pages hold few of them.
        """
        if self.held is not self.values:
            self._lay_out(self.schedule[self.held], out, piece)
            return
        passes = -(-self.queries // self.groups // self.rows)
        spread = self.keys * self.heads * self.value_width * self.out.dtype.bytes
        is_apart = self.heads > 1 and spread > self.kernel.processor.l1_bytes
        once = READ_APART * is_apart * (self.value_width // self.width) * self.keys
        cycles = {
            "where they lie": passes * once,
            "packed": once + COPIED * self.keys * self.value_width // self.lanes,
        }
        if choose("values", list(cycles), cycles.__getitem__) == "packed":
            packed = self.schedule.cache_read(self.values, "global", [self.mixed])
            self._lay_out(self.schedule[packed], out, piece)

    def _lay_out(self, packed: Stage, out: Stage, piece: IterVar) -> None:
        """A head's values in panels as wide as tiles."""
        packed.compute_at(out, piece)
        width = self.width
        packed.transform_layout(lambda b, j, h, d: [b, h, d // width, j, d % width])
        batch, head, tile, key, column = packed.op.axis
        packed.reorder(batch, head, key, tile, column)
        packed.vectorize(column)

    def _reduction(self, stage: Stage, place: IterVar) -> None:
        out = self.schedule[self.out]
        for partial in reduce_by_vectors(self.kernel, stage):
            self.schedule[partial].compute_at(out, place)
        stage.compute_at(out, place)

    def _vectors(self, stage: Stage) -> None:
        last, several = stage.op.axis[-1], vectors_at_once(stage, self.kernel.processor)
        whole = extents_of([last])[0] % (self.lanes * several) == 0
        _, vector = stage.split(last, factor=self.lanes * (several if whole else 1))
        stage.vectorize(vector)
