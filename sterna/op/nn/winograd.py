"""A convolution by Winograd's way, with weights transformed before: nn.conv2d_winograd.

Channels lie last. A block of tiles is transformed to (position, tile, channel); for each block of
output channels every position is a product of matrices, and the results' transform ends it.
"""

from collections.abc import Sequence

import numpy as np

from sterna.ir import build
from sterna.ir.types import TensorType, Type
from sterna.op.checks import tensor
from sterna.op.windows import Padding, full_padding
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, register
from sterna.schedule.default import schedule_default
from sterna.schedule.epilogue import Epilogue, Finish, extern_with
from sterna.schedule.kernel import Kernel
from sterna.schedule.winograd_kernel import WinogradKernel
from sterna.schedule.winograd_plan import MOST_SIZE, WINDOWS, as_array, matrices, transform_weights
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder


@attributes
class WinogradAttrs(Attrs):
    """Of nn.conv2d_winograd."""

    tile_size: int = 4
    """Rows and columns of results that a tile gives."""
    window: int = 3
    """Rows and columns that are read for one result."""
    plain: int = 0
    """Products of the plain sum for one result; 0: of a window in all channels."""
    padding: Padding = (0, 0, 0, 0)
    block_tiles: int = 16
    """Tiles that are transformed together."""
    lanes: int = 4
    """Channels of a vector."""
    registers: int = 16
    """Vectors that the processor keeps."""
    together: int = 1
    """Input channels of a tile that one load brings, for products that take numbers from lanes."""
    split: str = "blocks"
    """What threads share: "blocks" of tiles, "channels" of the result, or "positions" of a tile."""
    why: str = ""
    """Why this way was chosen, for the build report."""

    def normalize(self) -> None:
        """Padding before both axes, then after both."""
        self.padding = full_padding(self.padding, 2)

    @property
    def size(self) -> int:
        """Rows and columns of a tile."""
        return self.tile_size + self.window - 1

    def products(self, inputs: int) -> int:
        """Of the plain sum for one result."""
        return self.plain or inputs * self.window**2


def _infer(attrs: WinogradAttrs, data: Type, weight: Type) -> TensorType:
    x, w = tensor(data, "data", 4), tensor(weight, "weight", 4)
    if attrs.window not in WINDOWS:
        raise ValueError(f"window is {attrs.window}: it should be {WINDOWS[0]} to {WINDOWS[-1]}")
    most = MOST_SIZE - attrs.window + 1
    if not 2 <= attrs.tile_size <= most:
        raise ValueError(f"tile_size is {attrs.tile_size}: it should be 2 to {most}")
    size = attrs.size**2
    if w.shape[0] != size or w.shape[2] != x.shape[3]:
        raise ValueError(
            f"weight {w.shape} should have {size} positions and {x.shape[3]} input channels"
        )
    batch, height, width, _ = x.concrete_shape
    top, left, bottom, right = full_padding(attrs.padding, 2)
    _, blocks, _, block = w.concrete_shape
    reach = attrs.window - 1
    shape = (batch, height + top + bottom - reach, width + left + right - reach, blocks * block)
    return TensorType(shape, x.dtype)


def _reference(attrs: WinogradAttrs, data: Array, weight: Array) -> Array:
    """The transforms in float64."""
    m, size, reach = attrs.tile_size, attrs.size, attrs.window - 1
    top, left, bottom, right = full_padding(attrs.padding, 2)
    batch, height, width = data.shape[0], data.shape[1] + top + bottom, data.shape[2] + left + right
    height, width = height - reach, width - reach
    down, across = -(-height // m), -(-width // m)
    x = np.zeros((batch, down * m + reach, across * m + reach, data.shape[3]))
    x[:, top : top + data.shape[1], left : left + data.shape[2]] = data
    of = matrices(m, attrs.window)
    b, a = as_array(of.data), as_array(of.result)
    made = np.zeros((batch, down * m, across * m, weight.shape[1] * weight.shape[3]))
    for i, j in np.ndindex(down, across):
        tile = x[:, i * m : i * m + size, j * m : j * m + size]
        at = np.einsum("xr,nrsc,ys->nxyc", b, tile, b).reshape(batch, size * size, -1)
        products = np.einsum("npc,pocl->npol", at, weight.astype(np.float64))
        square = products.reshape(batch, size, size, -1)
        made[:, i * m : i * m + m, j * m : j * m + m] = np.einsum(
            "xr,nrsc,ys->nxyc", a, square, a
        )
    return made[:, :height, :width].astype(data.dtype)


def _macs(attrs: WinogradAttrs, out: TensorType, data: TensorType, weight: TensorType) -> int:
    batch, height, width, channels = out.concrete_shape
    return batch * height * width * channels * attrs.products(data.concrete_shape[3])


def _grown(attrs: WinogradAttrs, out: TensorType, data: TensorType, weight: TensorType) -> int:
    """What the positions of a tile take beyond the elements of a window."""
    positions, blocks, inputs, block = weight.concrete_shape
    grown = positions * inputs - attrs.products(inputs)
    return grown * blocks * block * weight.dtype.bytes


def _compute(attrs: WinogradAttrs, out: TensorType, data: Tensor, weight: Tensor) -> Tensor:
    return _compute_with(attrs, out, None, data, weight)


def _compute_with(
    attrs: WinogradAttrs, out: TensorType, epilogue: Epilogue | None, data: Tensor, weight: Tensor
) -> Tensor:
    """What follows is computed while a tile of results is in registers."""
    shape = [build.int_value(extent) or 1 for extent in weight.shape]
    image = tuple(build.int_value(extent) or 1 for extent in data.shape[1:3])
    top, left, _, _ = full_padding(attrs.padding, 2)
    kernel = WinogradKernel(
        attrs.tile_size, attrs.window, image, out.concrete_shape, shape, (top, left),
        str(out.dtype), attrs.lanes,
    )
    kernel.plan(attrs.block_tiles, attrs.registers, attrs.together, attrs.split)
    described = kernel.describe(attrs.products(kernel.inputs))
    described += f": {attrs.why}" if attrs.why else ""

    def write(ib: IRBuilder, buffers: Sequence[BufferVar], finish: Finish | None) -> None:
        kernel.finish = finish
        kernel.data, kernel.weight, kernel.out = buffers
        kernel.write(ib)

    return extern_with(epilogue, out, (data, weight), write, "T_conv2d_winograd", described)


def _schedule(kernel: Kernel) -> None:
    schedule_default(kernel)
    kernel.choices["schedule"] = kernel.anchor[0].op.attrs["schedule"]


_WEIGHTS = transform_weights(
    np.random.default_rng(0).standard_normal((8, 4, 3, 3)).astype("float32"), 4, 8
)

register(OpRecord(
    "nn.conv2d_winograd",
    inputs=("data", "weight"),
    attrs=WinogradAttrs,
    infer=_infer,
    compute=_compute,
    compute_with=_compute_with,
    reference=_reference,
    macs=_macs,
    grown=_grown,
    pattern=OUT_ELEMWISE_FUSABLE,
    schedule=_schedule,
    cases=[
        Case(((1, 8, 7, 4), _WEIGHTS), {"padding": 1, "block_tiles": 3}),
        Case(((2, 9, 5, 4), _WEIGHTS), {"padding": (0, 1, 2, 1), "split": "channels"}),
        Case(((2, 9, 7, 4), _WEIGHTS), {"padding": 1, "block_tiles": 4, "split": "positions"}),
    ],
    doc="A convolution with small windows by Winograd's way; its weights are transformed.",
))
