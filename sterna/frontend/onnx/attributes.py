"""What a node says beside its operands: attributes, checked against what ONNX knows of them."""

from typing import Any

from onnx import AttributeProto, NodeProto
from onnx.defs import OpSchema

from sterna.frontend.onnx.functions import find_schema
from sterna.frontend.onnx.tensors import array_of, dense_of

_FIELDS = {
    AttributeProto.FLOAT: "f", AttributeProto.INT: "i", AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t", AttributeProto.GRAPH: "g",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor", AttributeProto.TYPE_PROTO: "tp",
    AttributeProto.FLOATS: "floats", AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings", AttributeProto.TENSORS: "tensors",
    AttributeProto.GRAPHS: "graphs", AttributeProto.SPARSE_TENSORS: "sparse_tensors",
    AttributeProto.TYPE_PROTOS: "type_protos",
}
_TYPES = {field: number for number, field in _FIELDS.items()}


def type_of_attribute(attribute: AttributeProto, what: str) -> int:
    """The type of an attribute, which its value has too."""
    if attribute.ref_attr_name:
        raise ValueError(
            f"{what}: its attribute '{attribute.name}' refers to '{attribute.ref_attr_name}', but "
            "no function is around it"
        )
    held = [field.name for field, _ in attribute.ListFields() if field.name in _TYPES]
    if attribute.type == AttributeProto.UNDEFINED and len(held) == 1:
        return int(_TYPES[held[0]])
    field = _FIELDS.get(attribute.type)
    if field is None or any(name != field for name in held):
        raise ValueError(f"{what}: the type of its attribute '{attribute.name}' is not its value's")
    return int(attribute.type)


def attributes_of(node: NodeProto, what: str, folder: str | None) -> dict[str, Any]:
    """The attributes as Python's values; graphs are left out."""
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        kind = type_of_attribute(attribute, what)
        if attribute.name in found:
            raise ValueError(f"{what} has the attribute '{attribute.name}' twice")
        found[attribute.name] = _value(attribute, kind, what, folder)
    return found


def graphs_of(node: NodeProto) -> list[AttributeProto]:
    """The attributes that are graphs."""
    return [attribute for attribute in node.attribute if attribute.HasField("g")]


def _value(attribute: AttributeProto, kind: int, what: str, folder: str | None) -> Any:
    value = getattr(attribute, _FIELDS[kind])  # type: ignore[index]
    whole = f"{what}: its attribute '{attribute.name}'"
    if kind == AttributeProto.STRING:
        return value.decode("utf-8", "replace")
    if kind == AttributeProto.STRINGS:
        return [part.decode("utf-8", "replace") for part in value]
    if kind == AttributeProto.TENSOR:
        return array_of(value, whole, folder)
    if kind == AttributeProto.SPARSE_TENSOR:
        return dense_of(value, whole, folder)
    return list(value) if kind in (AttributeProto.FLOATS, AttributeProto.INTS) else value


def expect_declared(node: NodeProto, version: int) -> None:
    """A node has the operands, results and attributes that ONNX declares for its operator."""
    schema = find_schema(node, version)
    if schema is None:
        return
    what = f"node '{node.name}' ({node.op_type})"
    for names, own, least, most in (
        ("operands", node.input, schema.min_input, schema.max_input),
        ("results", node.output, schema.min_output, schema.max_output),
    ):
        if not least <= len(own) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            wanted = f"{least} or more" if most > 1 << 20 else wanted
            raise ValueError(f"{what} has {len(own)} {names}; in opset {version} it has {wanted}")
    for place, (name, formal) in enumerate(zip(node.input, schema.inputs, strict=False)):
        if not name and formal.option == OpSchema.FormalParameterOption.Single:
            raise ValueError(f"{what}: operand {place} ({formal.name}) is missing")
    _expect_attributes(node, schema, version, what)


def _expect_attributes(node: NodeProto, schema: Any, version: int, what: str) -> None:
    declared = schema.attributes
    given = {attribute.name for attribute in node.attribute}
    for attribute in node.attribute:
        if attribute.name not in declared:
            known = ", ".join(sorted(declared)) or "none"
            raise ValueError(
                f"{what} has the attribute '{attribute.name}'; in opset {version} there is {known}"
            )
        wanted = declared[attribute.name].type
        if type_of_attribute(attribute, what) != wanted.value:
            raise ValueError(
                f"{what}: its attribute '{attribute.name}' is not of the type {wanted.name}"
            )
    for name, about in declared.items():
        if about.required and name not in given:
            raise ValueError(f"{what} lacks the attribute '{name}'")
