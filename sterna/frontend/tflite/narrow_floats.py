"""Operators of float16 and bfloat16, computed in float32: results are rounded once."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps

from sterna.frontend.calls import cast, dtype_of
from sterna.frontend.tflite.node import Node
from sterna.relay.expr import RelayExpr

NARROW = ("float16", "bfloat16")


def in_float32(function: Callable[[Node], RelayExpr]) -> Callable[[Node], RelayExpr]:
    """A converter of float32, for data or weights of narrow floats too."""

    @wraps(function)
    def convert(node: Node) -> RelayExpr:
        if not any(one is not None and dtype_of(one) in NARROW for one in node.inputs):
            return function(node)
        inputs = [
            cast(one, "float32") if one is not None and dtype_of(one) in NARROW else one
            for one in node.inputs
        ]
        return cast(function(replace(node, inputs=inputs)), node.result_dtype())

    return convert
