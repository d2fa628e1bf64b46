"""The stages of a sum that is made of runs; see runs.py.

A run's sums stay in registers, in as many lanes as its narrow type has. Those of the tile that the
runs are added to are twice as wide and wait in the first cache.
"""

import math

from sterna.ir.expr import Cast
from sterna.schedule.default import extents_of
from sterna.schedule.kernel import Kernel
from sterna.te import ComputeOp, IterVar, Operation, Stage
from sterna.te.tensor import ProducerLoad, Reduce


def runs_of(total: ComputeOp) -> ComputeOp | None:
    """What makes the runs that a sum adds; None if it adds products itself."""
    body = total.body[0]
    assert isinstance(body, Reduce)
    (source,) = body.source[:1]
    load = source.value if isinstance(source, Cast) else None
    if not isinstance(load, ProducerLoad):
        return None
    op = load.tensor.op
    return op if isinstance(op, ComputeOp) and op.reduce_axis else None


def products_of(total: ComputeOp) -> ComputeOp:
    """What multiplies: the sum itself, or what makes its runs."""
    return runs_of(total) or total


def sums_of(kernel: Kernel) -> list[ComputeOp]:
    """The sums of a kernel, without those that are runs of others and those of its rows."""
    stages = kernel.schedule.stages
    found = [s.op for s in stages if isinstance(s.op, ComputeOp) and s.op.reduce_axis]
    others: list[Operation | None] = [runs_of(op) for op in found]
    if kernel.row_sums is not None:
        others.append(kernel.row_sums.op)
    return [op for op in found if op not in others]


def summed_extents(total: ComputeOp) -> dict[str, int]:
    """How many steps a sum has along each of its axes, by their names."""
    products = products_of(total)
    axes = list(products.reduce_axis)
    if products is not total:
        axes = [*axes, *total.reduce_axis]
    sizes = dict(zip([axis.var.name for axis in axes], extents_of(axes), strict=True))
    for name in [name for name in sizes if name.endswith("o") and name[:-1] in sizes]:
        sizes[name[:-1]] *= sizes.pop(name)
    return sizes


def note_sums(kernel: Kernel, total: ComputeOp) -> None:
    """Tell the build report which types a sum of narrow floats is made in."""
    products = products_of(total)
    narrow, wide = products.output(0).dtype, total.output(0).dtype
    if products is not total:
        count = math.prod(extents_of(products.reduce_axis))
        kernel.choices["sums"] = f"runs of {count} in {narrow}, added in {wide}"
    elif narrow.is_float and narrow.bits < 32:
        kernel.choices["sums"] = f"in {narrow}"


def window_first(reduced: list[IterVar]) -> list[IterVar]:
    """The channels, which lie closest in memory, innermost."""
    if len(reduced) > 1 and reduced[0].var.name.startswith("rc"):
        return [*reduced[1:], reduced[0]]
    return reduced


def add_runs(tile: Stage, rows: list[IterVar]) -> IterVar:
    """Order the loops of a tile to which runs are added; gives the one in which they are made."""
    op = tile.op
    others = [axis for axis in op.axis[:-1] if axis not in rows]
    steps = window_first(list(op.reduce_axis))
    tile.reorder(*others, *steps, *rows, op.axis[-1])
    for row in rows:
        tile.unroll(row)
    tile.vectorize(op.axis[-1])
    return steps[-1]


def run_in_registers(
    runs: Stage, tile: Stage, place: IterVar, steps: list[IterVar], rows: list[IterVar]
) -> None:
    """Compute runs in a loop of the tile that adds them, with accumulators of some rows."""
    runs.set_scope("local")
    runs.compute_at(tile, place)
    others = [axis for axis in runs.op.axis[:-1] if axis not in rows]
    runs.reorder(*others, *steps, *rows, runs.op.axis[-1])
    for row in rows:
        runs.unroll(row)
    runs.vectorize(runs.op.axis[-1])
