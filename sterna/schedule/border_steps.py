"""Steps of a convolution's sum that see nothing but the border (halo): they are left out.

    9 results of a row, dilation 12, a window of 3, a border of 12 zeros:
    tap 0 sees pixels -12..-4, all of the border; taps 1 and 2 see pixels 0..8 and 12..20

A register tile asks before each row and each column of the window whether any of its pixels sees
the image there. Few do where windows are large for the image: of 128 taps over 49 steps of sound
that lie within a border of 64, half.
"""

from functools import lru_cache

from sterna.ir.expr import Expr
from sterna.schedule.contraction import Contraction
from sterna.te import all as all_of

# Of the steps, the share that must be left out for the question to pay.
PAYS = 0.015


def may_skip(made: Contraction) -> bool:
    """Whether steps that see the border alone add nothing, and all extents are known."""
    return made.is_padded and not (made.border or made.transposed or made.is_open)


@lru_cache(maxsize=4096)
def counted(made: Contraction, axis: int, tile: int) -> float:
    """The share of the steps along an axis of the window that tiles of so many results take."""
    results, window = made.result[axis], made.window[axis]
    if not may_skip(made) or results * window == 0:
        return 1.0
    taken = 0
    for first in range(0, results, tile):
        for tap in range(window):
            begin, end = _reach(made, axis, tile, first, tap)
            taken += end >= 0 and begin < made.image[axis]
    share = taken / (-(-results // tile) * window)
    return share if share <= 1.0 - PAYS else 1.0


def sees_image(made: Contraction, axis: int, tile: int, first: Expr, tap: Expr) -> Expr:
    """Whether any of so many results from the first on sees the image at a tap of the window."""
    begin = first * made.strides[axis] + (tap * made.dilation[axis] - made.before[axis])
    return all_of(begin >= -(tile - 1) * made.strides[axis], begin < made.image[axis])


def _reach(
    made: Contraction, axis: int, tile: int, first: int, tap: int
) -> tuple[int, int]:
    """The first and the last pixel of an axis that so many results see at a tap."""
    begin = first * made.strides[axis] + tap * made.dilation[axis] - made.before[axis]
    return begin, begin + (tile - 1) * made.strides[axis]
