"""Operators that move elements and compute with shapes."""

from sterna.frontend.calls import reshape
from sterna.frontend.tflite.node import Node, converter
from sterna.relay.expr import RelayExpr


@converter("RESHAPE")
def reshape_to(node: Node) -> RelayExpr:
    """To the shape of an operand, or to the one in the options."""
    if node.has(1):
        wanted = node.ints(1, "the shape")
    else:
        given = node.attr("new_shape")
        wanted = list(node.results_as[0].shape) if given is None else [int(x) for x in given]
    return reshape(node[0], wanted)
