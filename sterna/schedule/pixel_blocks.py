"""Space-to-depth: a convolution of stride s over few channels as one of stride 1 over many.

The s x s pixels of a block become the channels of one, and a window of k x k has as many rows and
columns as it touches blocks; what it has beyond k is zero.
"""

from dataclasses import dataclass, replace

import numpy as np

from sterna.relay.arrays import Array, from_numpy
from sterna.relay.expr import Constant, RelayExpr
from sterna.relay.op import call as call_of
from sterna.schedule.contraction import Contraction
from sterna.schedule.conv_stages import UNROLLED_CHANNELS

# Elements of an image that are laid elsewhere in a cycle.
ARRANGED = 1.0
# Where the axes of (N, channel, row, row of a block, column, column of a block) or of
# (N, row, row of a block, column, column of a block, channel) go: what is next to each other stays.
_DATA = {"NCHW": (0, 2, 4, 1, 3, 5), "NHWC": (0, 1, 3, 2, 4, 5)}
# Where those of (O, row, row of a block, column, column of a block, channel) go.
_WEIGHT = {"NCHW": (0, 1, 3, 5, 2, 4), "NHWC": (0, 1, 3, 2, 4, 5)}


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
    """What is added before and behind each axis of the image."""
    outside: RelayExpr
    """What lies outside of the image, as a scalar."""

    @staticmethod
    def of(made: Contraction, lanes: int) -> "PixelBlocks | None":
        """Those of a contraction; None if it has none."""
        step, few = made.strides[0], made.inputs
        if {*made.strides} != {step} or made.data_layout not in _DATA or few > UNROLLED_CHANNELS:
            return None
        channels = next(n for n in range(few, few + lanes) if n * step**2 % lanes == 0)
        rows, columns = (
            extent + -(-size // step) - 1
            for extent, size in zip(made.result, made.window, strict=True)
        )
        (top, left), (height, width) = made.before, made.image
        border = {
            "N": (0, 0), "C": (0, channels - few),
            "H": (top, rows * step - top - height),
            "W": (left, columns * step - left - width),
        }
        if min(map(min, border.values())) < 0:
            return None  # pixels that no window reads would have to go
        widths = tuple(border[axis] for axis in made.data_layout)
        outside = Constant(from_numpy(np.array(made.border, str(made.data))))
        return PixelBlocks(
            made.data_layout, step, channels, (rows, columns), made.batch, widths, outside
        )

    def contraction(self, made: Contraction) -> Contraction:
        """The same over blocks."""
        return replace(
            made, image=self.rows, inputs=self.shape[-1], strides=(1, 1), data_layout="NHWC",
            window=tuple(-(-size // self.step) for size in made.window),
            before=(0, 0), after=(0, 0),
        )

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
        made = call_of("nn.pad", data, self.outside, pad_width=self.border)
        made = call_of("reshape", made, newshape=(self.batch, *split))
        made = call_of("transpose", made, axes=_DATA[self.layout])
        return call_of("reshape", made, newshape=self.shape)

    def weight(self, weight: Array) -> Array:
        """Weights (O, H, W, I) for those."""
        outputs, *window, few = weight.shape
        touched = [-(-size // self.step) for size in window]
        wide = [(0, n * self.step - size) for n, size in zip(touched, window, strict=True)]
        whole = np.pad(weight, [(0, 0), *wide, (0, self.channels - few)])
        down, across = touched
        split = whole.reshape(outputs, down, self.step, across, self.step, self.channels)
        return split.transpose(_WEIGHT[self.layout]).reshape(outputs, down, across, -1)
