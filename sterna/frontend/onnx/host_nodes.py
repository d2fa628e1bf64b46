"""Nodes that the host runs between compiled parts: those of text, and of pictures in files.

Kernels compute with numbers, so these are run by ONNX's own definition of them, its reference
evaluator, when the values are at hand.
"""

from collections.abc import Callable, Sequence

import numpy as np
import onnx.defs
from onnx import NodeProto, TensorProto

from sterna.frontend.limits import count_of
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr
from sterna.support.dtype import DataType
from sterna.support.errors import OpNotImplemented

# What stands for text in the types of graphs; no operator computes with it.
TEXT = DataType("handle")

KINDS = frozenset(
    {"ImageDecoder", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"}
)
ARRANGED = ("Sequence", "Optional", "Shape", "Size", "Loop", "Scan", "If")
"""Beginnings of operators' names whose converters do not look at elements."""


def is_text(value: RelayExpr | None) -> bool:
    """Whether a value is a tensor of text."""
    kind = None if value is None else value._type
    return isinstance(kind, TensorType) and kind.dtype == TEXT


def runs_on_host(node: NodeProto, operands: Sequence[RelayExpr | None], version: int) -> bool:
    """Whether the host runs a node: one of text, or one that reads or makes text here."""
    if node.op_type in KINDS:
        return True
    if node.op_type.startswith(ARRANGED):
        return False
    if not any(map(is_text, operands)):
        return _makes_text(node)
    if not takes_text(node, version):
        raise OpNotImplemented("operands of text")
    return True


def _makes_text(node: NodeProto) -> bool:
    """Whether an attribute says that the result is text: of a constant, or of a conversion."""
    return any(
        attribute.name in ("value_string", "value_strings", "values_strings")
        or (attribute.name == "value" and attribute.t.data_type == TensorProto.STRING)
        or (node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.STRING)
        for attribute in node.attribute
    )


def takes_text(node: NodeProto, version: int) -> bool:
    """Whether ONNX lets operands of an operator be text."""
    if not onnx.defs.has(node.op_type, version, node.domain):
        return False
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    return any("tensor(string)" in operand.types for operand in schema.inputs)


def text_of(tensor: TensorProto, what: str) -> Array:
    """The elements of a tensor of text."""
    count = count_of(tensor.dims, 8, what)
    if len(tensor.string_data) != count:
        raise ValueError(
            f"{what} has the shape {list(tensor.dims)}, of {count} texts, where there are "
            f"{len(tensor.string_data)}"
        )
    try:
        texts = [each.decode() for each in tensor.string_data]
    except UnicodeDecodeError as error:
        raise ValueError(f"{what} holds what is no text in UTF-8: {error}") from None
    return np.array(texts, dtype=object).reshape(tuple(tensor.dims))


def host_function(node: NodeProto, version: int) -> Callable[[list[Array]], list[Array]]:
    """A node as a function of its operands, by ONNX's definition."""
    from onnx.reference import ReferenceEvaluator  # it takes as long to load as all of onnx

    opsets = {node.domain: version} if node.domain else {"": version}
    evaluator = ReferenceEvaluator(node, opsets=opsets)
    names = [name for name in node.input if name]

    def run(operands: list[Array]) -> list[Array]:
        made = evaluator.run(None, dict(zip(names, operands, strict=True)))
        assert isinstance(made, list)
        return [np.asarray(each) for each in made]

    return run
