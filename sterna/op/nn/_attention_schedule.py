"""The schedule of attention: all stages of a few queries one after the other, for each head."""

import math

from sterna.op.contraction import PAGE_BYTES, UNROLLED_STEPS, most_rows
from sterna.op.kernel import Kernel
from sterna.op.register_tile import register_tile
from sterna.op.schedules import extent_of, extents_of, reduce_by_vectors, schedule_default
from sterna.te import IterVar, Stage, Tensor

TURNED_TOGETHER = 8


def schedule_attention(kernel: Kernel) -> None:
    """Heads in parallel; of each a few queries at a time, whose scores stay in the first cache."""
    out = kernel.outputs[0]
    sizes = [extent_of(axis) for axis in out.op.axis]
    if None in sizes or math.prod(size or 0 for size in sizes) == 0:
        schedule_default(kernel)
        return
    _Scheduler(kernel).run()


class _Scheduler:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.schedule = kernel, kernel.schedule
        self.out = kernel.outputs[0]
        mixed, total = self.out.op.input_tensors
        self.mixed, self.total = mixed, total
        self.power = total.op.input_tensors[0]
        self.scores, self.largest = self._parts_of(self.power)
        self.turned = self.scores.op.input_tensors[1]
        processor = kernel.processor
        self.lanes = processor.lanes(self.out.dtype)
        self.batch, self.queries, self.heads, width = extents_of(self.out.op.axis)
        keys = extents_of(self.scores.op.axis)[-1]
        item = self.out.dtype.bytes
        self.long_rows = keys * item % PAGE_BYTES == 0
        tile = register_tile(
            self.queries, keys, self.lanes, processor.tile_registers,
            most_rows=most_rows(self.heads * extents_of(self.scores.op.reduce_axis)[0] * item),
        )  # fmt: skip
        self.rows = _even_rows(self.queries, tile.rows)
        self.columns = tile.columns
        self.width = math.gcd(width, tile.columns)

    def _parts_of(self, power: Tensor) -> tuple[Tensor, Tensor]:
        """The scores and their largest, among them what masks are read from."""
        found = {tensor.op.name: tensor for tensor in power.op.input_tensors}
        return found["T_attention_scores"], found["T_attention_largest"]

    def run(self) -> None:
        """Places all stages."""
        self.kernel.choices["tile"] = f"{self.rows} x {self.columns}"
        tile = self.schedule.cache_write(self.scores, "local")
        heads, rows, columns = self._result()
        out = self.schedule[self.out]
        turned = self.schedule[self.turned]
        self._turn(turned)
        if heads is not rows:
            turned.compute_at(out, heads)
        else:
            turned.parallel(turned.fuse(*list(turned.op.axis)[:2]))
        self._product(self.schedule[self.mixed], row=1)
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
        """The loops of the result: over heads, over tiles of queries, over tiles of values."""
        stage = self.schedule[self.out]
        batch, query, head, value = stage.op.axis
        rows, row = stage.split(query, factor=self.rows)
        columns, column = stage.split(value, factor=self.width)
        stage.reorder(batch, head, rows, columns, row, column)
        stage.unroll(row)
        stage.vectorize(column)
        heads = stage.fuse(batch, head)
        if self.batch * self.heads >= self.kernel.processor.threads:
            stage.parallel(heads)
            return heads, rows, columns
        shared = stage.fuse(heads, rows)
        stage.parallel(shared)
        return shared, shared, columns

    def _scores(self, tile: Tensor) -> Stage:
        stage = self.schedule[self.scores]
        batch, head, query, key = stage.op.axis
        columns, column = stage.split(key, factor=self.columns)
        stage.reorder(batch, head, columns, query, column)
        stage.unroll(query)
        stage.vectorize(column)
        self.schedule[tile].compute_at(stage, columns)
        self._product(self.schedule[tile], row=2)
        return stage

    def _product(self, stage: Stage, row: int) -> None:
        """Accumulators of some rows and of vectors, the sum's loop around them."""
        axes, depth = list(stage.op.axis), stage.op.reduce_axis[0]
        others = [axis for place, axis in enumerate(axes[:-1]) if place != row]
        size = extents_of([depth])[0]
        inner = [depth]
        if size % UNROLLED_STEPS == 0 and size > UNROLLED_STEPS:
            outer, step = stage.split(depth, factor=UNROLLED_STEPS)
            stage.unroll(step)
            inner = [outer, step]
        stage.reorder(*others, *inner, axes[row], axes[-1])
        stage.unroll(axes[row])
        stage.vectorize(axes[-1])

    def _turn(self, stage: Stage) -> None:
        """By the rows that are read: a vector of what is written would come from as many lines."""
        batch, head, depth, key = stage.op.axis
        stage.reorder(batch, head, key, depth)
        if extents_of([depth])[0] % TURNED_TOGETHER == 0:
            _, several = stage.split(depth, factor=TURNED_TOGETHER)
            stage.unroll(several)

    def _reduction(self, stage: Stage, place: IterVar) -> None:
        out = self.schedule[self.out]
        for partial in reduce_by_vectors(self.kernel, stage):
            self.schedule[partial].compute_at(out, place)
        stage.compute_at(out, place)

    def _vectors(self, stage: Stage) -> None:
        _, vector = stage.split(stage.op.axis[-1], factor=self.lanes)
        stage.vectorize(vector)


def _even_rows(queries: int, most: int) -> int:
    """So many rows that few are left over, if there is such a number that is not too small."""
    fitting = [rows for rows in range((most + 1) // 2, most + 1) if queries % rows == 0]
    return max(fitting, default=most)
