"""The functions that users build graphs with, derived from the operators' records.

relay.nn.softmax is the builder of the record "nn.softmax": its arguments are the record's inputs
and then its attributes, with their defaults. A name with dots lies in a namespace of that name.
"""

import dataclasses
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from sterna.relay.expr import Call, RelayExpr, TupleWrapper, as_expr
from sterna.relay.op import AnyOp, Op, find, records
from sterna.support.classic import missing
from sterna.support.discovery import load_name

_BUILDERS: dict[str, Callable[..., Any]] = {}


def builder(name: str) -> Callable[..., Any]:
    """The function that builds calls of an operator."""
    if name not in _BUILDERS:
        record = find(name)
        _BUILDERS[name] = record.builder or _derive(record)
    return _BUILDERS[name]


def make(name: str, *args: Any, **attrs: Any) -> Any:
    """A call of an operator by its inputs and attributes; what custom builders end in."""
    record = find(name)
    operands = tuple([_operand(record, i, arg) for i, arg in enumerate(args)])
    values = record.attrs(**attrs) if record.attrs is not None else None
    call = Call(Op(name), operands, values)
    return TupleWrapper(call, record.outputs_of(values)) if record.gives_tuple else call


def _operand(record: AnyOp, place: int, value: Any) -> RelayExpr:
    try:
        return as_expr(value)
    except TypeError:
        name = record.inputs[place].lstrip("*") if place < len(record.inputs) else str(place)
        raise TypeError(
            f"{record.name}: {name} is an expression of a graph, not {value!r}"
        ) from None


def _derive(record: AnyOp) -> Callable[..., Any]:
    signature = _signature(record)
    inputs = [name.lstrip("*") for name in record.inputs]

    def build(*args: Any, **attrs: Any) -> Any:
        try:
            bound = signature.bind(*args, **attrs)
        except TypeError as error:
            raise TypeError(f"{record.name}: {error}; it is {record.name}{signature}") from None
        given = bound.arguments
        operands = [given.pop(name) for name in inputs]
        try:
            return make(record.name, *operands, **given)
        except TypeError as error:
            if record.name in str(error):
                raise
            raise TypeError(f"{record.name}: {error}") from None

    build.__name__ = build.__qualname__ = record.name.rsplit(".", 1)[-1]
    build.__doc__ = record.doc
    build.__signature__ = signature  # type: ignore[attr-defined]
    return build


def _signature(record: AnyOp) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name.lstrip("*"), kind) for name in record.inputs]
    if record.attrs is not None:
        for item in dataclasses.fields(record.attrs):
            missing = item.default is dataclasses.MISSING
            default = inspect.Parameter.empty if missing else item.default
            parameters.append(inspect.Parameter(item.name, kind, default=default))
    return inspect.Signature(parameters)


# Files that the classic API has its builders in: relay.qnn.op.quantize, relay.op.nn.nn.conv2d.
_FILES = frozenset({
    "algorithm", "image", "kernel", "multibox", "nms", "nn", "op", "rcnn", "reduce", "tensor",
    "transform",
})


# Passes that the classic API has beside these builders: relay.qnn.transform.Legalize.
_PASSES = {
    "qnn.CanonicalizeOps": "sterna.relay.passes.canonicalize_ops:CanonicalizeOps",
    "qnn.Legalize": "sterna.relay.passes.legalize:Legalize",
}


class Namespace(ModuleType):
    """The builders under a prefix, each made when it is first used."""

    def __init__(self, prefix: str) -> None:
        super().__init__(f"{__package__}.{prefix}".rstrip("."))
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        found = None if name.startswith("__") else lookup(self._prefix + name)
        if found is None and name in _FILES:
            return self
        if found is None and self._prefix + name in _PASSES:
            return load_name(_PASSES[self._prefix + name])
        if found is None:
            known = f"{self.__name__}.{name}"
            raise missing(known, f"{self.__name__} has no operator '{name}'")
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        size = len(self._prefix)
        return sorted({n[size:].split(".")[0] for n in records() if n.startswith(self._prefix)})


_NAMESPACES: dict[str, Namespace] = {}


def namespace(prefix: str) -> Namespace:
    """The builders under a prefix; there is one object for each."""
    if prefix not in _NAMESPACES:
        _NAMESPACES[prefix] = Namespace(prefix)
    return _NAMESPACES[prefix]


def lookup(path: str) -> Any:
    """The builder or the namespace of that dotted name; None if there is neither."""
    if path in records():
        return builder(path)
    if any(name.startswith(f"{path}.") for name in records()):
        return namespace(f"{path}.")
    return None
