"""The table of converters by ATen operator.

A converter is a function whose parameters have the names that the operator's schema gives to its
arguments, with the schema's defaults; `self` is called `x`. Tensors come as expressions, numbers as
Python's, element types as their names. It gives an expression, or one per result, lists flattened.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from sterna.frontend.node import Result
from sterna.support.errors import OpNotImplemented

ConverterT = TypeVar("ConverterT", bound=Callable[..., Any])

_KNOWN: dict[str, Callable[..., Any]] = {}

# Arguments that decide where and how a tensor lies, which is the compiler's own business.
PLACEMENT = frozenset({
    "layout", "device", "pin_memory", "memory_format", "non_blocking", "copy", "generator",
    "allow_tf32", "cudnn_enabled", "cudnn_enable", "benchmark", "deterministic", "requires_grad",
})


def aten(*operators: str) -> Callable[[ConverterT], ConverterT]:
    """Register a converter: `add` for all overloads, `add.Tensor` for one, `ns::op` elsewhere."""

    def add(function: ConverterT) -> ConverterT:
        for operator in operators:
            space, _, name = operator.rpartition("::")
            _KNOWN[f"{space or 'aten'}.{name}"] = function
        return function

    return add


def converter_of(target: str) -> Callable[..., Result] | None:
    """The converter of an operator such as aten.add.Tensor; of `relu_` it is that of `relu`."""
    target = target if "." in target else f"aten.{target}"  # torch.sym_max and its kin
    packet = target.rpartition(".")[0] if target.count(".") > 1 else target
    overload = target[len(packet) :]
    plain = packet[:-1] if packet.endswith("_") and not packet.endswith("__") else packet
    for name in (target, packet, f"{plain}{overload}", plain):
        if name in _KNOWN:
            return _KNOWN[name]
    return None


def call_converter(function: Callable[..., Result], arguments: Mapping[str, Any]) -> Result:
    """What a converter makes of arguments by the names of the schema."""
    wanted, takes_all = _parameters(function)
    given = {}
    for name, value in arguments.items():
        own = "x" if name == "self" else name
        if own in wanted or takes_all:
            given[own] = value
        elif name not in PLACEMENT and value not in (None, False):
            raise OpNotImplemented(f"its argument {name}={value!r}")
    return function(**given)


@cache
def _parameters(function: Callable[..., Result]) -> tuple[frozenset[str], bool]:
    """The names of a function's parameters, and whether it takes others too."""
    found = inspect.signature(function).parameters
    return frozenset(found), any(one.kind is one.VAR_KEYWORD for one in found.values())
