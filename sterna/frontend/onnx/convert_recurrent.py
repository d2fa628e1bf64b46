"""Recurrent networks."""

from typing import Any

from sterna.frontend.calls import call, parts
from sterna.frontend.onnx.checks import lengths
from sterna.frontend.onnx.node import Node, converter
from sterna.relay.expr import RelayExpr

_DEFAULT_DIRECTION = "forward"
_LENGTHS = 4


def _shared(node: Node) -> dict[str, Any]:
    return {
        "direction": node.attr("direction", _DEFAULT_DIRECTION),
        "activations": tuple(node.attr("activations") or ()),
        "activation_alpha": tuple(node.attr("activation_alpha") or ()),
        "activation_beta": tuple(node.attr("activation_beta") or ()),
        "clip": node.attr("clip"),
        "layout": node.attr("layout", 0),
    }


def _operands(node: Node, count: int) -> list[RelayExpr | None]:
    """Data, weights of the input and of the recurrence, and what there is of the others."""
    seen = lengths(node, _LENGTHS, node.attr("layout", 0)) if node.has(_LENGTHS) else None
    others = (node.get(place) for place in range(_LENGTHS + 1, count))
    return [node[0], node[1], node[2], node.get(3), seen, *others]


@converter("RNN")
def rnn(node: Node) -> list[RelayExpr]:
    return parts(call("nn.rnn", *_operands(node, 6), **_shared(node)), 2)


@converter("GRU")
def gru(node: Node) -> list[RelayExpr]:
    first = bool(node.attr("linear_before_reset", 0))
    return parts(
        call("nn.gru", *_operands(node, 6), linear_before_reset=first, **_shared(node)), 2
    )


@converter("LSTM")
def lstm(node: Node) -> list[RelayExpr]:
    coupled = bool(node.attr("input_forget", 0))
    return parts(call("nn.lstm", *_operands(node, 8), input_forget=coupled, **_shared(node)), 3)
