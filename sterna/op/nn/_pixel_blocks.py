"""A convolution that moves by s over few channels as one that moves by 1 over many.

The s x s pixels of a block become the channels of one, and a window of k x k has as many rows and
columns as it touches blocks; what it has beyond k is zero.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.relay.arrays import Array, from_numpy
from sterna.relay.expr import Constant, RelayExpr
from sterna.relay.op import call as call_of
from sterna.schedule.direct_conv import UNROLLED_CHANNELS

# Where the axes of (N, channel, row, row of a block, column, column of a block) or of
# (N, row, row of a block, column, column of a block, channel) go: what is next to each other stays.
_DATA = {"NCHW": (0, 2, 4, 1, 3, 5), "NHWC": (0, 1, 3, 2, 4, 5)}
# Where those of (O, channel, row, row of a block, column, column of a block) go.
_WEIGHT = {"NCHW": (0, 1, 3, 5, 2, 4), "NHWC": (0, 3, 5, 1, 2, 4)}


@dataclass(frozen=True, slots=True)
class PixelBlocks:
    """The blocks of one convolution."""

    layout: str
    step: int
    channels: int
    """Those of a pixel, with zeros behind them that fill vectors."""
    rows: tuple[int, int]
    """Rows and columns of blocks."""
    batch: int
    border: tuple[tuple[int, int], ...]
    """Zeros before and behind each axis of the image."""

    @staticmethod
    def of(
        attrs: Any, image: tuple[int, ...], weight: tuple[int, ...], out: tuple[int, ...],
        lanes: int,
    ) -> "PixelBlocks | None":
        """Those of a convolution with weights (O, I, H, W); None if it has none."""
        step = attrs.strides[0]
        if {*attrs.strides} != {step} or attrs.data_layout not in _DATA:
            return None
        _, few, *window = weight
        if few > UNROLLED_CHANNELS:
            return None
        channels = next(n for n in range(few, few + lanes) if n * step**2 % lanes == 0)
        rows, columns = (
            extent + -(-size // step) - 1 for extent, size in zip(out[1:3], window, strict=True)
        )
        top, left = attrs.padding[:2]
        axes = dict(zip(attrs.data_layout, image, strict=True))
        border = {
            "N": (0, 0), "C": (0, channels - few),
            "H": (top, rows * step - top - axes["H"]),
            "W": (left, columns * step - left - axes["W"]),
        }
        if min(map(min, border.values())) < 0:
            return None  # pixels that no window reads would have to go
        widths = tuple(border[axis] for axis in attrs.data_layout)
        return PixelBlocks(attrs.data_layout, step, channels, (rows, columns), axes["N"], widths)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the data, channels last."""
        return (self.batch, *self.rows, self.step**2 * self.channels)

    def data(self, data: RelayExpr) -> RelayExpr:
        """The image with its border, block by block."""
        rows, columns = self.rows
        pixels = (rows, self.step, columns, self.step)
        lies_first = self.layout == "NCHW"
        split = (self.channels, *pixels) if lies_first else (*pixels, self.channels)
        zero = Constant(from_numpy(np.zeros((), "float32")))
        made = call_of("nn.pad", data, zero, pad_width=self.border)
        made = call_of("reshape", made, newshape=(self.batch, *split))
        made = call_of("transpose", made, axes=_DATA[self.layout])
        return call_of("reshape", made, newshape=self.shape)

    def weight(self, weight: Array) -> Array:
        """Weights (O, I, H, W) for those."""
        outputs, few, *window = weight.shape
        touched = [-(-size // self.step) for size in window]
        wide = [(0, n * self.step - size) for n, size in zip(touched, window, strict=True)]
        whole = np.pad(weight, [(0, 0), (0, self.channels - few), *wide])
        down, across = touched
        split = whole.reshape(outputs, self.channels, down, self.step, across, self.step)
        inputs = math.prod(self.shape[3:])
        return split.transpose(_WEIGHT[self.layout]).reshape(outputs, inputs, down, across)
