"""The stages of a sum that is made of chunks; see chunked_sum.py.

A chunk's sums stay in registers, in as many lanes as its narrow type has. Those of the tile that
the chunks are added to are twice as wide and wait in the first cache.
"""

import math

from sterna.schedule.kernel import Kernel
from sterna.schedule.loops import extents_of
from sterna.schedule.sum_of_products import chunks_of, description_of, is_chunk, order_of
from sterna.te import ComputeOp, IterVar, Stage


def products_of(total: ComputeOp) -> ComputeOp:
    """What multiplies: the sum itself, or what makes its chunks."""
    return chunks_of(total) or total


def sums_of(kernel: Kernel) -> list[ComputeOp]:
    """The sums of a kernel, without those that are chunks of others and those of its rows."""
    stages = kernel.schedule.stages
    found = [s.op for s in stages if isinstance(s.op, ComputeOp) and s.op.reduce_axis]
    rows = None if kernel.row_sums is None else kernel.row_sums.op
    return [op for op in found if op is not rows and not is_chunk(op)]


def note_sums(kernel: Kernel, total: ComputeOp) -> None:
    """Tell the build report which types a sum of narrow floats is made in."""
    products = products_of(total)
    narrow, wide = products.output(0).dtype, total.output(0).dtype
    if products is not total:
        count = math.prod(extents_of(products.reduce_axis))
        kernel.choices["sums"] = f"chunks of {count} in {narrow}, added in {wide}"
    elif narrow.is_float and narrow.bits < 32:
        kernel.choices["sums"] = f"in {narrow}"


def add_chunks(tile: Stage, rows: list[IterVar]) -> IterVar:
    """Order the loops of a tile to which chunks are added; gives the one in which they are made."""
    op = tile.op
    assert isinstance(op, ComputeOp)
    made = description_of(op)
    assert made is not None
    others = [axis for axis in op.axis[:-1] if axis not in rows]
    steps = [op.reduce_axis[place] for place in order_of(made.chunk_roles)]
    tile.reorder(*others, *steps, *rows, op.axis[-1])
    for row in rows:
        tile.unroll(row)
    tile.vectorize(op.axis[-1])
    return steps[-1]


def chunk_in_registers(
    chunks: Stage, tile: Stage, place: IterVar, steps: list[IterVar], rows: list[IterVar]
) -> None:
    """Compute chunks in a loop of the tile that adds them, with accumulators of some rows."""
    chunks.set_scope("local")
    chunks.compute_at(tile, place)
    others = [axis for axis in chunks.op.axis[:-1] if axis not in rows]
    chunks.reorder(*others, *steps, *rows, chunks.op.axis[-1])
    for row in rows:
        chunks.unroll(row)
    chunks.vectorize(chunks.op.axis[-1])
