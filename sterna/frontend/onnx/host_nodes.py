"""Nodes that the host runs between compiled parts: text, and pictures in files.

Kernels compute with numbers, so these are run by ONNX's own definition of them, its reference
evaluator, when the values are at hand.
"""

from collections.abc import Callable, Sequence

from onnx import NodeProto
from onnx.reference import ReferenceEvaluator

from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr
from sterna.support.dtype import DataType

# What stands for text in the types of graphs; no operator computes with it.
TEXT = DataType("handle")

KINDS = frozenset(
    {"ImageDecoder", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"}
)
READERS = frozenset({"Equal", "Identity", "LabelEncoder"})
"""Operators that read text, but compute with numbers elsewhere."""


def is_text(value: RelayExpr | None) -> bool:
    """Whether a value is a tensor of text."""
    kind = None if value is None else value._type
    return isinstance(kind, TensorType) and kind.dtype == TEXT


def runs_on_host(node: NodeProto, operands: Sequence[RelayExpr | None]) -> bool:
    """Whether the host runs a node."""
    if node.op_type in KINDS:
        return True
    return node.op_type in READERS and any(map(is_text, operands))


def host_function(node: NodeProto, version: int) -> Callable[[list[Array]], list[Array]]:
    """A node as a function of its operands, by ONNX's definition."""
    opsets = {node.domain: version} if node.domain else {"": version}
    evaluator = ReferenceEvaluator(node, opsets=opsets)
    names = list(node.input)

    def run(operands: list[Array]) -> list[Array]:
        made: list[Array] = evaluator.run(None, dict(zip(names, operands, strict=True)))
        return made

    return run
