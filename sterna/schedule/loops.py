"""Extents of loops, and which of them threads share."""

import math
from collections.abc import Sequence

from sterna.ir import build
from sterna.schedule.choose import choose, near
from sterna.te import IterVar, Stage

# Work below this many elements is not worth waking threads for.
PARALLEL_ELEMENTS = 8192
# Into how many pieces parallel work is cut: enough to balance over any number of threads.
PIECES = 64


def extent_of(axis: IterVar) -> int | None:
    """The number of iterations of an axis, if it is known."""
    return None if axis.dom is None else build.int_value(axis.dom.extent)


def extents_of(axes: Sequence[IterVar]) -> list[int]:
    """The numbers of iterations; an unknown one counts as many."""
    return [e if e is not None else 1024 for e in map(extent_of, axes)]


def outer_loops(sizes: Sequence[int], pieces: int) -> int:
    """How many outer loops have so many iterations together, or all of them."""
    count, taken = 1, 0
    while taken < len(sizes) and count < pieces:
        count *= sizes[taken]
        taken += 1
    return taken


def parallelise(stage: Stage, outer: Sequence[IterVar], sizes: Sequence[int]) -> None:
    """Share the outermost loops among threads: enough pieces to balance, no more."""
    most = range(1, len(outer) + 1)
    taken = choose("loops that threads share", most, near(outer_loops(sizes, PIECES)))
    *above, last = outer[:taken]
    count, rows = math.prod(sizes[:taken]), math.prod(sizes[: taken - 1])
    if count <= 4 * PIECES:
        stage.parallel(stage.fuse(*above, last))
        return
    parts = [n // rows for n in pieces_of(count) if n % rows == 0]
    parts = [n for n in parts if sizes[taken - 1] % n == 0]
    if above and parts:  # each piece is of one row, whose place it finds once
        wanted = choose("pieces that threads share", parts, near(PIECES // rows))
        part, _ = stage.split(last, nparts=wanted)
        stage.parallel(stage.fuse(*above, part))
        return
    pieces, _ = stage.split(stage.fuse(*above, last), nparts=even_pieces(count))
    stage.parallel(pieces)


def even_pieces(count: int) -> int:
    """Into how many pieces so many rows are cut: equal ones if some are near, without a tail."""
    return choose("pieces that threads share", pieces_of(count) or [PIECES], near(PIECES))


def pieces_of(count: int) -> list[int]:
    """Numbers of equal pieces of so many rows that suffice to balance, and are no more."""
    return [n for n in range(PIECES // 2, 2 * PIECES + 1) if count % n == 0]
