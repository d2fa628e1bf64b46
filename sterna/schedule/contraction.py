"""The one description of a contraction: sums of products over channels and a window.

    out[n, x, o] = sum(data[n, x * stride + t * dilation - before, c] * weight[o, t, c])

over the taps t of a window and the channels c of o's group. Convolutions of any rank are such, and
so are dense layers and products of matrices: their rows are the pixels of one line. A transposed
one adds to out[n, x * stride + t * dilation - before, o]. An operator makes the description once;
costs, packers and schedules read it.
"""

import math
from dataclasses import dataclass, replace

from sterna.support.dtype import DataType

Extents = tuple[int, ...]

HINT = 256
"""What rows that only the run counts are taken for where a way to compute them is chosen."""

MATRICES = ("CN", "IO")
"""Layouts of operands of a product of matrices that lie across."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """The extents, types and layouts of a contraction."""

    batch: int
    image: Extents
    """The spatial extents of the data."""
    inputs: int
    """Channels of the data, of all groups."""
    result: Extents
    """The spatial extents of the result."""
    outputs: int
    """Channels of the result, of all groups."""
    data: DataType
    weight: DataType
    out: DataType
    window: Extents = (1, 1)
    strides: Extents = (1, 1)
    dilation: Extents = (1, 1)
    before: Extents = (0, 0)
    """The padding before each spatial axis."""
    after: Extents = (0, 0)
    groups: int = 1
    border: int = 0
    """What lies outside of the data: of quantised data its zero point."""
    data_layout: str = "NHWC"
    out_layout: str = "NHWC"
    """NC: of rows of a matrix, which are the pixels of one line; CN: of its columns."""
    matrices: int = 1
    """Into how many matrices these rows fall."""
    own_weights: bool = False
    """Whether each of them has weights of its own, as in products of batches; else all the same."""
    weight_layout: str = "OI"
    """Of a product of matrices: IO where the weights' rows are what is summed over."""
    transposed: bool = False
    """Whether each pixel of the data adds its products to a window of the result."""
    is_open: bool = False
    """Whether only the run tells some extents of rows or images, which count as HINT here."""

    @property
    def rank(self) -> int:
        """How many spatial axes there are."""
        return len(self.window)

    @property
    def depth(self) -> int:
        """Input channels that one output channel reads."""
        return self.inputs // self.groups

    @property
    def taps(self) -> int:
        """Elements of the window."""
        return math.prod(self.window)

    @property
    def products(self) -> int:
        """Products that are summed for one element of the result."""
        return self.depth * self.taps

    @property
    def pixels(self) -> int:
        """Elements of the result for each output channel: the rows of the product of matrices."""
        return self.batch * math.prod(self.result)

    @property
    def macs(self) -> int:
        """Multiply-adds."""
        places = self.batch * math.prod(self.image) if self.transposed else self.pixels
        return places * self.outputs * self.products

    @property
    def weight_bytes(self) -> int:
        """What the model's own weights take."""
        sets = self.matrices if self.own_weights else 1
        return sets * self.outputs * self.products * self.weight.bytes

    @property
    def is_padded(self) -> bool:
        """Whether a border lies around the data."""
        return any((*self.before, *self.after))

    @property
    def is_pointwise(self) -> bool:
        """Whether nothing is read but the pixel at the same place."""
        still = {*self.window, *self.strides} == {1} and not self.is_padded
        return still and not self.transposed

    @property
    def is_depthwise(self) -> bool:
        """Whether each output channel reads the one input channel of its own."""
        return 1 < self.groups == self.inputs == self.outputs

    @property
    def multiplier(self) -> int:
        """Output channels that read one input channel alone; 0 if some read several."""
        return self.outputs // self.inputs if 1 < self.groups == self.inputs else 0

    @property
    def is_of_bytes(self) -> bool:
        """Whether data and weights are integers of 8 bits."""
        return all(kind.is_integer and kind.bits == 8 for kind in (self.data, self.weight))

    @property
    def channels_last(self) -> bool:
        """Whether data and result are images, of rows, of pixels, of channels: NHWC and its kin.

        So are the rows of a product of matrices.
        """
        return self.data_layout == self.out_layout and self.out_layout in (
            "NC", f"N{self.spatial}C")

    @property
    def spatial(self) -> str:
        """The letters of its spatial axes."""
        return "DHW"[3 - self.rank :]

    @property
    def is_matrix(self) -> bool:
        """Whether it is a product of matrices: a dense layer, or one of batches."""
        return self.out_layout == "NC"

    @property
    def rows(self) -> int:
        """Of a product of matrices: the rows of each."""
        return self.pixels // self.matrices

    @property
    def of_one_matrix(self) -> "Contraction":
        """Of a product of matrices: that of one of them."""
        line = (1, self.rows)
        return replace(self, image=line, result=line, matrices=1, own_weights=False)

    @property
    def is_plain_image(self) -> bool:
        """Whether it is one of images with channels last, all in one group, and not empty."""
        return self.rank == 2 and self.groups == 1 and self.channels_last and self.macs > 0

    @property
    def dtypes(self) -> tuple[DataType, DataType, DataType]:
        """The types of the data, the weights and the result."""
        return self.data, self.weight, self.out

    def __str__(self) -> str:
        """1x56x56x64 * 128x3x3x64 -> 1x56x56x128 float32"""
        made = self.of_one_matrix if self.own_weights else self
        shapes = [
            (made.batch, *made.image, self.inputs), (self.outputs, *self.window, self.depth),
            (made.batch, *made.result, self.outputs),
        ]
        data, weight, out = ("x".join(map(str, shape)) for shape in shapes)
        kinds = " ".join(dict.fromkeys(map(str, self.dtypes)))
        each = f"{self.matrices} of " if self.own_weights else ""
        lying = [layout for layout in (self.data_layout, self.weight_layout) if layout in MATRICES]
        text = " ".join([f"{data} * {weight} -> {out} {kinds}", *lying])
        return f"{'open ' if self.is_open else ''}{each}{text}"
