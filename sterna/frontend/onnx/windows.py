"""Where the windows of convolutions and poolings lie, as ONNX says it."""

from collections.abc import Sequence

from sterna.frontend.calls import call, like, rank_of, type_of
from sterna.frontend.onnx.node import Node
from sterna.frontend.open_shapes import UndecidedError
from sterna.ir import build
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim
from sterna.relay.expr import RelayExpr
from sterna.relay.symbols import simplified_dim
from sterna.support.errors import OpNotImplemented

LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
CHANNELS_LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}
KERNEL = {1: "OIW", 2: "OIHW", 3: "OIDHW"}
LARGEST = 1 << 31
KERNEL_TRANSPOSED = {1: "IOW", 2: "IOHW", 3: "IODHW"}


def spatial_rank(node: Node) -> int:
    """The number of axes along which windows move."""
    rank = rank_of(node[0]) - 2
    if rank < 1:
        raise ValueError(f"data of {rank + 2} dimensions has no axes along which windows move")
    if rank not in LAYOUT:
        raise OpNotImplemented(f"windows that move along {rank} axes")
    return rank


def numbers(node: Node, name: str, rank: int) -> tuple[int, ...]:
    """An attribute with a number per axis, 1 if it is not given."""
    given = tuple(node.attr(name) or (1,) * rank)
    if len(given) != rank:
        raise ValueError(f"{name} has {len(given)} numbers for {rank} axes")
    if not all(0 < number < LARGEST for number in given):
        raise ValueError(f"{name} is {list(given)}; its numbers are from 1 to {LARGEST - 1}")
    return given


def expect_kernel(node: Node, kernel: Sequence[int]) -> None:
    """The weights' extents are those that the node says, if it says any."""
    if len(kernel) != spatial_rank(node):
        raise ValueError(f"its weights are for {len(kernel)} axes, its data has {rank_of(node[0])}")
    said = node.attr("kernel_shape")
    if said is not None and list(said) != list(kernel):
        raise ValueError(f"kernel_shape is {list(said)}; the weights are of {list(kernel)}")


def padding(node: Node, kernel: Sequence[int]) -> tuple[int, ...]:
    """The padding before every axis, then after every one."""
    rank = len(kernel)
    mode = node.attr("auto_pad", "NOTSET") or "NOTSET"
    if mode == "NOTSET":
        pads = tuple(node.attr("pads") or (0,) * (2 * rank))
        if len(pads) != 2 * rank:
            raise ValueError(f"pads has {len(pads)} numbers for {rank} axes")
        if not all(abs(extent) < LARGEST for extent in pads):
            raise ValueError(f"pads is {list(pads)}, of which one is too large")
        return pads
    if mode == "VALID":
        return (0,) * (2 * rank)
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise ValueError(f"auto_pad is NOTSET, VALID, SAME_UPPER or SAME_LOWER, not {mode}")
    strides, dilations = numbers(node, "strides", rank), numbers(node, "dilations", rank)
    reach = [(size - 1) * dilation for size, dilation in zip(kernel, dilations, strict=True)]
    total = [
        span if stride == 1
        else max(0, (-(-extent // stride) - 1) * stride + span + 1 - extent)
        for extent, span, stride in zip(_extents(node, strides), reach, strides, strict=True)
    ]
    return shared(total, mode == "SAME_UPPER")


def _extents(node: Node, strides: Sequence[int]) -> tuple[int, ...]:
    """Those along which windows move; where they move by one, these need not be known."""
    wanted = [axis for axis, stride in enumerate(strides, 2) if stride > 1]
    known = dict(zip(wanted, node.extents(wanted), strict=True))
    return tuple(known.get(axis, 0) for axis in range(2, len(strides) + 2))


def bordered(
    node: Node, data: RelayExpr, kernel: Sequence[int]
) -> tuple[RelayExpr, tuple[int, ...]]:
    """Data with the zeros around it that open extents need to be covered, and padding beside."""
    rank = len(kernel)
    mode, strides = node.attr("auto_pad", "NOTSET"), numbers(node, "strides", rank)
    moves = [axis for axis, stride in enumerate(strides) if stride > 1]
    dims = type_of(data).shape[2:]
    if mode not in ("SAME_UPPER", "SAME_LOWER") or all(isinstance(dims[i], int) for i in moves):
        return cropped(data, padding(node, kernel))
    width: list[tuple[Dim, Dim]] = [(0, 0), (0, 0)]
    for dim, size, stride, dilation in zip(
        dims, kernel, strides, numbers(node, "dilations", rank), strict=True
    ):
        if isinstance(dim, AnyDim):
            raise UndecidedError(f"{node}: an extent of its data is not known")
        extent = build.as_expr(dim)
        span = (size - 1) * dilation + 1
        covered = ((extent + (stride - 1)) // stride - 1) * stride + span
        less = build.maximum(covered - extent, 0)
        small = simplified_dim(less // 2)
        large = simplified_dim(less - less // 2)
        width.append((small, large) if mode == "SAME_UPPER" else (large, small))
    return call("nn.pad", data, tuple(width), like(0, data)), (0,) * (2 * rank)


def shared(total: Sequence[int], more_behind: bool) -> tuple[int, ...]:
    """So much padding for each axis, half on each side; which side gets the odd one."""
    small = tuple(extent // 2 for extent in total)
    large = tuple(extent - extent // 2 for extent in total)
    return (*small, *large) if more_behind else (*large, *small)


def cropped(data: RelayExpr, pads: Sequence[int]) -> tuple[RelayExpr, tuple[int, ...]]:
    """Data without what negative padding takes away, and the padding that is left."""
    if all(extent >= 0 for extent in pads):
        return data, tuple(pads)
    rank = len(pads) // 2
    width = [(min(pads[i], 0), min(pads[rank + i], 0)) for i in range(rank)]
    cut = call("nn.pad", data, ((0, 0), (0, 0), *width), like(0, data))
    return cut, tuple(max(extent, 0) for extent in pads)
