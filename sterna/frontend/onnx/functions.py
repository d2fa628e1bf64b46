"""Operators that ONNX defines by others: their definitions, for nodes that have no converter."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx.defs
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TypeProto

from sterna.frontend.onnx.node import type_of
from sterna.relay.arrays import numpy_dtype
from sterna.relay.expr import RelayExpr


def is_composed(node: NodeProto, version: int) -> bool:
    """Whether ONNX defines an operator by others."""
    schema = _schema(node, version)
    return schema is not None and bool(_versions(schema))


def definition(
    node: NodeProto, version: int, standard: int, operands: Sequence[RelayExpr | None]
) -> FunctionProto:
    """What a node stands for, in a version of its own operator set and in one of the standard.

    Operands that are left out have empty names in it, attributes have their values, and what none
    of the node's results needs is gone.
    """
    schema = _schema(node, version)
    assert schema is not None
    whole = _with_defaults(node, schema)
    made = _fetched(schema, whole, standard, operands)
    given = {attribute.name: attribute for attribute in whole.attribute}
    missing = {name for name, operand in zip(made.input, operands, strict=False) if operand is None}
    missing.update(made.input[len(operands) :])
    wanted = [name for name, own in zip(made.output, node.output, strict=False) if own]
    needed = list(_needed(made.node, wanted))
    for place, inner in enumerate(needed):
        inner.name = f"{node.name}.{inner.name or inner.op_type}.{place}"
        _resolve(inner, given, missing)
    del made.node[:]
    made.node.extend(needed)
    return made


def all_nodes(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """The nodes of a graph and of the graphs in them."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from all_nodes(inner)


def reads(node: NodeProto) -> list[str]:
    """The names that a node or a graph in it reads."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for inner in all_nodes(attribute.g):
            names += [name for name in inner.input if name]
        names += [output.name for output in attribute.g.output]
    return names


# The methods of schemas that tell definitions have no declared types.
def _schema(node: NodeProto, version: int) -> Any:
    if not onnx.defs.has(node.op_type, version, node.domain):
        return None
    return onnx.defs.get_schema(node.op_type, version, node.domain)


def _versions(schema: Any) -> list[int]:
    """The versions of the standard in which there is a definition."""
    return sorted({
        *schema.function_opset_versions, *schema.context_dependent_function_opset_versions
    })  # fmt: skip


def _with_defaults(node: NodeProto, schema: Any) -> NodeProto:
    made = NodeProto()
    made.CopyFrom(node)
    have = {attribute.name for attribute in node.attribute}
    for name, declared in schema.attributes.items():
        if name not in have and declared.default_value.type:
            made.attribute.append(declared.default_value)
    return made


def _fetched(
    schema: Any, node: NodeProto, standard: int, operands: Sequence[RelayExpr | None]
) -> FunctionProto:
    """The newest definition that the version of the standard knows; else the oldest."""
    versions = _versions(schema)
    version = max((v for v in versions if v <= standard), default=versions[0])
    if version in schema.function_opset_versions:
        text = schema.get_function_with_opset_version(version)
    else:
        kinds = [_type(operand).SerializeToString() for operand in operands]
        text = schema.get_context_dependent_function_with_opset_version(
            version, node.SerializeToString(), kinds
        )
    made = FunctionProto()
    made.ParseFromString(text)
    return made


def _type(operand: RelayExpr | None) -> TypeProto:
    """An operand's type in ONNX; that of none is empty."""
    if operand is None:
        return TypeProto()
    kind = type_of(operand)
    number = onnx.helper.np_dtype_to_tensor_dtype(numpy_dtype(kind.dtype))
    shape = [extent if type(extent) is int else None for extent in kind.shape]
    return onnx.helper.make_tensor_type_proto(number, shape)


def _needed(nodes: Sequence[NodeProto], wanted: Iterable[str]) -> list[NodeProto]:
    """The nodes on whose results those that are wanted depend; definitions are in order."""
    names, kept = set(wanted), []
    for node in reversed(nodes):
        if not names.isdisjoint(node.output):
            names.update(reads(node))
            kept.append(node)
    return kept[::-1]


def _resolve(node: NodeProto, given: Mapping[str, AttributeProto], missing: set[str]) -> None:
    """Names of what is left out become empty, attributes that refer to others their values."""
    for place, name in enumerate(node.input):
        if name in missing:
            node.input[place] = ""
    resolved = []
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            for inner in (attribute.g, *attribute.graphs):
                for part in inner.node:
                    _resolve(part, given, missing)
            resolved.append(attribute)
        elif attribute.ref_attr_name in given:
            own = AttributeProto()
            own.CopyFrom(given[attribute.ref_attr_name])
            own.name = attribute.name
            resolved.append(own)
    made = NodeProto()
    made.attribute.extend(resolved)
    del node.attribute[:]
    node.attribute.extend(made.attribute)
