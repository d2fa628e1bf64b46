"""Convolutions of single pixels over all pixels of an image in one row.

Tiles of some pixels then cross the ends of rows: images of 7 x 7 leave no pixels over in each row.
"""

from collections.abc import Sequence
from typing import Any

from sterna.ir.types import Dim
from sterna.schedule.kernel import Processor
from sterna.schedule.register_tile import RegisterTile
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute

# Pixels of an image of which threads make channels rather than rows.
SHARED_BY_CHANNELS = 64


def in_line(attrs: Any) -> bool:
    """Whether a convolution takes the pixels of an image as one row."""
    return getattr(attrs, "in_line", False)


def expect_single_pixels(attrs: Any, window: Sequence[Dim]) -> None:
    """Raise ValueError unless each pixel of the result is made of the one at its place."""
    if not of_single_pixels(attrs, window) or (attrs.out_layout or attrs.data_layout) != "NHWC":
        raise ValueError(
            "in_line is for windows of one pixel without steps and borders, and for results in "
            "the layout NHWC"
        )


def of_single_pixels(attrs: Any, window: Sequence[Dim]) -> bool:
    """Whether nothing is read but the pixel at the same place."""
    still = {*attrs.strides} == {1} and not any((*attrs.before, *attrs.after))
    return still and all(type(extent) is int and extent == 1 for extent in window)


def pays_in_line(
    image: tuple[int, int, int], tile: RegisterTile, dtype: DataType, processor: Processor
) -> bool:
    """Whether an image, of so many rows, columns and channels, is better computed as one row.

    Where tiles leave pixels over in each row, and all of it stays in the second cache. Threads
    share channels then: larger images come in rows from the threads that made them. Narrow numbers
    are summed in runs, by row.
    """
    height, width, channels = image
    near = processor.threads == 1 or height * width <= SHARED_BY_CHANNELS
    small = height * width * channels * dtype.bytes <= processor.l2_bytes // 2
    return near and small and dtype.bits >= 32 and height > 1 and width % tile.rows != 0


def one_row(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """The extents of an image whose pixels are one row."""
    batch, height, width, channels = shape
    return (batch, 1, height * width, channels)


def in_rows(line: Tensor, shape: Sequence[Dim], name: str) -> Tensor:
    """The pixels of an image in rows again."""
    made: Tensor = compute(
        shape, lambda n, h, w, c: line(n, 0, h * shape[2] + w, c), name=name,
        varargs_names=["n", "h", "w", "c"],
    )
    return made
