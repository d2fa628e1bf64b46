"""How much padding convolutions ask for, as tuples of the classic order."""

from collections.abc import Sequence
from typing import Any

from sterna.topi.nn.padding import Padding, pad_widths


def get_pad_tuple(padding: Padding, kernel: Sequence[int]) -> tuple[int, int, int, int]:
    """The widths above, left, below and right."""
    (top, left), (bottom, right) = pad_widths(padding, kernel)
    return top, left, bottom, right


def get_pad_tuple1d(padding: Padding, kernel: int | Sequence[int]) -> tuple[int, int]:
    """The widths before and after."""
    (before,), (after,) = pad_widths(padding, [kernel] if isinstance(kernel, int) else kernel)
    return before, after


def get_pad_tuple3d(padding: Padding, kernel: Sequence[int]) -> tuple[Any, ...]:
    """The widths in front, above, left, behind, below and right."""
    before, after = pad_widths(padding, kernel)
    return (*before, *after)
