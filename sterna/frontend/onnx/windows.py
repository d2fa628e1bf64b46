"""Where the windows of convolutions and poolings lie, as ONNX says it."""

from collections.abc import Sequence

from sterna.frontend.calls import call, like, rank_of
from sterna.frontend.onnx.node import Node
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented

LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
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
    total = [
        max(0, (-(-extent // stride) - 1) * stride + (size - 1) * dilation + 1 - extent)
        for extent, size, stride, dilation in zip(
            node.extents(range(2, rank + 2)), kernel, strides, dilations, strict=True
        )
    ]
    return shared(total, mode == "SAME_UPPER")


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
