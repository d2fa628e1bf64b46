"""A node of a TensorFlow Lite model, and the converters of its operators.

A converter gets operands as they are stored: what whole numbers stand for is known from the tensors
beside them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sterna.frontend import node as shared
from sterna.frontend.converters import Converter, Converters
from sterna.frontend.tflite.schema import Quantization, TensorInfo
from sterna.frontend.tflite.variables import Variables
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented

# Rules by which sums come to the scale of a result.
XNNPACK, TFLM = "xnnpack", "tflm"
ROUNDINGS = (XNNPACK, TFLM)

# The domain of operators that a file knows by name only.
CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class Part:
    """What another graph of the model makes of operands."""

    results: list[RelayExpr]
    assigned: dict[str, RelayExpr]
    """What it gives to variables, by their names."""


class RunPart(Protocol):
    """Puts another graph of the model in a node's place."""

    def __call__(
        self, place: int, operands: Sequence[RelayExpr], first: int,
        holding: Mapping[str, RelayExpr] = ...,
    ) -> Part:
        """The graph of a number; operands are the node's from one on.

        holding: what variables hold in it, where that is not what they hold before the node.
        """


@dataclass(slots=True, kw_only=True)
class Node(shared.Node):
    """A node with what its file says about operands and results."""

    rounding: str
    operands_as: Sequence[TensorInfo | None]
    results_as: Sequence[TensorInfo]
    intermediates: Sequence[TensorInfo] = ()
    custom_options: bytes = b""
    variables: Variables
    run_part: RunPart
    read_tensor: Callable[[int], Array]
    """The elements of a constant of the graph, by its number."""

    def operand_info(self, place: int) -> TensorInfo:
        """What the file says about an operand."""
        found = self.operands_as[place] if place < len(self.operands_as) else None
        if found is None:
            raise ValueError(f"{self}: operand {place} is missing")
        return found

    def quantization(self, place: int) -> Quantization:
        """What the whole numbers of an operand stand for."""
        return _expect_quantized(self.operand_info(place))

    def result_quantization(self, place: int = 0) -> Quantization:
        """What the whole numbers of a result stand for."""
        return _expect_quantized(self.results_as[place])

    def block_scales(self, place: int) -> tuple[Array, int] | None:
        """The scales of the rows of an operand's weights, and the length of blocks that have one.

        None if blocks have none of their own. Numbers stand for others without a zero point, and
        scales are rounded to bfloat16, as LiteRT holds them.
        """
        found = self.operand_info(place).quantization
        if found is None or found.blocks is None:
            return None
        rows, depth = self.shape(place)
        size = found.blocks.size
        if size < 1 or depth % size:
            raise ValueError(f"rows of {depth} weights are no blocks of {size}")
        if found.blocks.zeros > 0:
            zeros = self.read_tensor(found.blocks.zeros)
            if np.any(zeros):
                raise OpNotImplemented("zero points for blocks of elements")
        scales = self.read_tensor(found.blocks.scales).astype(np.float32)
        if scales.size != rows * (depth // size):
            raise ValueError(f"there are {scales.size} scales for {rows} rows of {depth // size} "
                             "blocks")
        bits = np.ascontiguousarray(scales).view(np.uint32)
        even = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
        return even.view(np.float32).reshape(rows, depth // size), size

    def dtype(self, place: int = 0) -> str:
        """The type of an operand's elements, as the file says it."""
        return self.operand_info(place).dtype

    def result_dtype(self, place: int = 0) -> str:
        """The type of a result's elements, as the file says it."""
        return self.results_as[place].dtype

    def is_quantized(self, place: int = 0) -> bool:
        """Whether an operand is whole numbers that stand for others."""
        info = self.operand_info(place)
        return info.quantization is not None and info.dtype in QUANTIZED


    def expect_scale(self, place: int = 0) -> None:
        """Refuse numbers of few bits without a scale, for which kernels divide by 0."""
        if self.dtype(place) in ("int8", "uint8", "int16"):
            self.quantization(place)


QUANTIZED = ("int8", "uint8", "int16", "int4", "int2", "uint4", "int32", "int64")


def _expect_quantized(info: TensorInfo) -> Quantization:
    found = info.quantization
    if found is None:
        raise ValueError(f"tensor '{info.name}' of {info.dtype} has no scale")
    if found.blocks is not None:
        raise OpNotImplemented("scales for blocks of elements")
    return found


def single(quantization: Quantization, what: str) -> tuple[np.float32, int]:
    """The scale and the zero point of a whole tensor."""
    if not quantization.is_single:
        raise ValueError(f"{what} has {quantization.scale.size} scales instead of one")
    if not quantization.scale[0] > 0:
        raise ValueError(f"{what} has the scale {quantization.scale[0]}")
    return np.float32(quantization.scale[0]), int(quantization.zero[0])


converter: Converters[Node] = Converters()


def find_converter(kind: str, custom: str) -> Converter[Node] | None:
    """The converter of an operator."""
    return converter.find(CUSTOM, custom) if kind == "CUSTOM" else converter.find("", kind)
