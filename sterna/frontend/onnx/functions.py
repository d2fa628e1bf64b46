"""Nodes that stand for others: calls of a model's functions, and operators that ONNX defines so."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx.defs
from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto

from sterna.frontend.calls import fields_of, is_sequence, type_of
from sterna.frontend.onnx.model import inner_graphs, reads
from sterna.relay.arrays import numpy_dtype
from sterna.relay.expr import RelayExpr

Functions = Mapping[tuple[str, str, str], FunctionProto]


def functions_of(functions: Sequence[FunctionProto]) -> Functions:
    """A model's functions by domain, name and overload."""
    found: dict[tuple[str, str, str], FunctionProto] = {}
    for function in functions:
        key = (function.domain, function.name, function.overload)
        if key in found:
            raise ValueError(f"the function '{function.name}' is defined twice")
        for what, names in (("input", function.input), ("output", function.output)):
            if len(set(names)) != len(names) or "" in names:
                raise ValueError(
                    f"the function '{function.name}' has two {what}s of one name, or one without"
                )
        found[key] = function
    return found


def is_composed(node: NodeProto, version: int) -> bool:
    """Whether ONNX defines an operator by others."""
    schema = find_schema(node, version)
    return schema is not None and bool(_versions(schema))


def local_definition(node: NodeProto, function: FunctionProto) -> FunctionProto:
    """What a call of a model's function stands for."""
    what = f"node '{node.name}' ({node.op_type})"
    for names, own, most in (
        ("operands", node.input, function.input), ("results", node.output, function.output),
    ):
        if len(own) > len(most):
            raise ValueError(f"{what} has {len(own)} {names}; its function has {len(most)}")
    declared = {*function.attribute, *(entry.name for entry in function.attribute_proto)}
    given = {entry.name: entry for entry in function.attribute_proto}
    for attribute in node.attribute:
        if attribute.name not in declared:
            raise ValueError(f"{what}: its function has no attribute '{attribute.name}'")
        given[attribute.name] = attribute
    made = FunctionProto()
    made.CopyFrom(function)
    missing = {name for name, own in zip(function.input, node.input, strict=False) if not own}
    missing.update(function.input[len(node.input) :])
    return _resolved(node, made, given, missing)


def definition(
    node: NodeProto, version: int, standard: int, operands: Sequence[RelayExpr | None]
) -> FunctionProto:
    """What a node stands for, in a version of its own operator set and in one of the standard.

    Operands that are left out have empty names in it, attributes have their values, and what none
    of the node's results needs is gone.
    """
    schema = find_schema(node, version)
    assert schema is not None
    whole = _with_defaults(node, schema)
    made = _fetched(schema, whole, standard, operands)
    given = {attribute.name: attribute for attribute in whole.attribute}
    missing = {name for name, operand in zip(made.input, operands, strict=False) if operand is None}
    missing.update(made.input[len(operands) :])
    return _resolved(node, made, given, missing)


def _resolved(
    node: NodeProto, made: FunctionProto, given: Mapping[str, AttributeProto], missing: set[str]
) -> FunctionProto:
    wanted = [name for name, own in zip(made.output, node.output, strict=False) if own]
    needed = list(_needed(made.node, wanted))
    for place, inner in enumerate(needed):
        inner.name = f"{node.name}.{inner.name or inner.op_type}.{place}"
        _resolve(inner, given, missing)
    del made.node[:]
    made.node.extend(needed)
    return made


# The methods of schemas that tell definitions have no declared types.
def find_schema(node: NodeProto, version: int) -> Any:
    """What ONNX says about a node's operator, if it knows it."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    if not 0 < version < 1 << 31 or not onnx.defs.has(node.op_type, version, domain):
        return None
    return onnx.defs.get_schema(node.op_type, version, domain)


def _versions(schema: Any) -> list[int]:
    """The versions of the standard in which there is a definition."""
    return sorted({
        *schema.function_opset_versions, *schema.context_dependent_function_opset_versions
    })


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
    if is_sequence(operand):
        parts = fields_of(operand)
        inner = _type(parts[0]) if parts else onnx.helper.make_tensor_type_proto(1, None)
        return onnx.helper.make_sequence_type_proto(inner)
    kind = type_of(operand)
    number = onnx.helper.np_dtype_to_tensor_dtype(numpy_dtype(kind.dtype))
    shape = [extent if type(extent) is int else None for extent in kind.shape]
    return onnx.helper.make_tensor_type_proto(number, shape)


def _needed(nodes: Sequence[NodeProto], wanted: Iterable[str]) -> list[NodeProto]:
    """The nodes on whose results those that are wanted depend, in any order."""
    makers: dict[str, int] = {}
    for place, node in enumerate(nodes):
        makers.update((name, place) for name in node.output if name)
    kept: set[int] = set()
    stack = [makers[name] for name in wanted if name in makers]
    while stack:
        place = stack.pop()
        if place not in kept:
            kept.add(place)
            stack += [makers[name] for name in reads(nodes[place]) if name in makers]
    return [nodes[place] for place in sorted(kept)]


def _resolve(node: NodeProto, given: Mapping[str, AttributeProto], missing: set[str]) -> None:
    """Names of what is left out become empty, attributes that refer to others their values."""
    for place, name in enumerate(node.input):
        if name in missing:
            node.input[place] = ""
    for graph in inner_graphs(node):
        for inner in graph.node:
            _resolve(inner, given, missing)
    if not any(attribute.ref_attr_name for attribute in node.attribute):
        return
    resolved: list[AttributeProto] = []
    for attribute in node.attribute:
        own = AttributeProto()
        own.CopyFrom(given.get(attribute.ref_attr_name, attribute))
        own.name = attribute.name
        if attribute.ref_attr_name in given or not attribute.ref_attr_name:
            resolved.append(own)
        if attribute.ref_attr_name and attribute.type and own.type != attribute.type:
            raise ValueError(
                f"node '{node.name}' ({node.op_type}): its attribute '{attribute.name}' refers "
                f"to '{attribute.ref_attr_name}', which is of another type"
            )
    del node.attribute[:]
    node.attribute.extend(resolved)


def expect_moderate_calls(nodes: Sequence[NodeProto], functions: Functions, most: int) -> None:
    """The calls of functions in functions make no more nodes than so many.

    Each function is counted once, so that a few of them that call each other often are refused
    before they are written out. Those that call themselves are told where they are met.
    """
    counts: dict[tuple[str, str, str], int] = {}
    waiting = list(functions)
    open_ones: set[tuple[str, str, str]] = set()
    while waiting:
        key = waiting[-1]
        if key in counts:
            waiting.pop()
            continue
        called = list(_calls(functions[key].node, functions))
        unknown = [other for other in called if other not in counts]
        if key not in open_ones and unknown:
            open_ones.add(key)
            waiting += dict.fromkeys(unknown)
            continue
        inside = sum(counts.get(other, 0) for other in called)
        counts[key] = len(functions[key].node) + inside
        waiting.pop()
    if sum(counts[key] for key in _calls(nodes, functions)) > most:
        raise ValueError(f"the model's functions make more than {most} nodes")


def nodes_written(nodes: Sequence[NodeProto], functions: Functions) -> int:
    """How many nodes a file has, in its functions and in graphs inside of others too."""
    bodies = [nodes, *(function.node for function in functions.values())]
    return sum(1 for body in bodies for _ in _with_inner(body))


def _calls(
    nodes: Sequence[NodeProto], functions: Functions
) -> Iterator[tuple[str, str, str]]:
    """The functions that nodes call, in graphs inside of them too, as often as they do."""
    for node in _with_inner(nodes):
        key = (node.domain, node.op_type, node.overload)
        if key in functions:
            yield key


def _with_inner(nodes: Sequence[NodeProto]) -> Iterator[NodeProto]:
    """The nodes, and those of the graphs inside of them."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        for graph in inner_graphs(node):
            waiting += graph.node
