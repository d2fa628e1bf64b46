"""A convolution by Winograd's way, with weights transformed before: nn.conv2d_winograd.

Channels lie last. A block of tiles is transformed to (position, tile, channel); for each block of
output channels every position is a product of matrices, and the results' transform ends it.
"""

import math
from collections.abc import Sequence

import numpy as np

from sterna.ir import build
from sterna.ir.types import TensorType, Type
from sterna.op.checks import tensor
from sterna.op.epilogue import Epilogue, Finish, extern_with
from sterna.op.kernel import Kernel
from sterna.op.nn._winograd import MOST_RESULTS, WINDOW, as_array, matrices, transform_weights
from sterna.op.nn._winograd_kernel import WinogradKernel
from sterna.op.schedules import schedule_default
from sterna.op.windows import Padding, full_padding
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, register
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder


@attributes
class WinogradAttrs(Attrs):
    """Of nn.conv2d_winograd."""

    tile_size: int = 4
    """Rows and columns of results that a tile gives."""
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


def _infer(attrs: WinogradAttrs, data: Type, weight: Type) -> TensorType:
    x, w = tensor(data, "data", 4), tensor(weight, "weight", 4)
    if not 2 <= attrs.tile_size <= MOST_RESULTS:
        raise ValueError(f"tile_size is {attrs.tile_size}: it should be 2 to {MOST_RESULTS}")
    size = (attrs.tile_size + 2) ** 2
    if w.shape[0] != size or w.shape[2] != x.shape[3]:
        raise ValueError(
            f"weight {w.shape} should have {size} positions and {x.shape[3]} input channels"
        )
    batch, height, width, _ = x.concrete_shape
    top, left, bottom, right = full_padding(attrs.padding, 2)
    _, blocks, _, block = w.concrete_shape
    shape = (batch, height + top + bottom - 2, width + left + right - 2, blocks * block)
    return TensorType(shape, x.dtype)


def _reference(attrs: WinogradAttrs, data: Array, weight: Array) -> Array:
    """The transforms in float64."""
    m, size = attrs.tile_size, attrs.tile_size + 2
    top, left, bottom, right = full_padding(attrs.padding, 2)
    batch, height, width = data.shape[0], data.shape[1] + top + bottom - 2, data.shape[2] + left
    width += right - 2
    down, across = -(-height // m), -(-width // m)
    x = np.zeros((batch, down * m + 2, across * m + 2, data.shape[3]))
    x[:, top : top + data.shape[1], left : left + data.shape[2]] = data
    of = matrices(m)
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
    return batch * height * width * channels * data.concrete_shape[3] * 9


def _grown(attrs: WinogradAttrs, out: TensorType, data: TensorType, weight: TensorType) -> int:
    """What the positions of a tile take beyond the elements of a window."""
    positions, *others = weight.concrete_shape
    return (positions - WINDOW**2) * math.prod(others) * weight.dtype.bytes


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
        attrs.tile_size, image, out.concrete_shape, shape, (top, left), str(out.dtype), attrs.lanes
    )
    kernel.plan(attrs.block_tiles, attrs.registers, attrs.together, attrs.split)
    described = f"{kernel.describe()}: {attrs.why}" if attrs.why else kernel.describe()

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
    doc="A convolution with windows of 3 x 3 by Winograd's way; its weights are transformed.",
))  # fmt: skip
