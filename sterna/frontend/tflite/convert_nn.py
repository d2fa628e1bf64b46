"""Poolings and softmax."""

from sterna.frontend.calls import call, dtype_of
from sterna.frontend.tflite.arithmetic import activated, activation_name, held
from sterna.frontend.tflite.convert_products import padding, steps
from sterna.frontend.tflite.narrow_floats import in_float32
from sterna.frontend.tflite.node import Node, converter
from sterna.relay.expr import RelayExpr


def _window(node: Node) -> dict[str, object]:
    kernel = steps(node, "filter", "hw")
    return {
        "pool_size": kernel, "strides": steps(node, "stride", "hw"),
        "padding": padding(node, node.shape()[1:3], kernel, "hw"), "layout": "NHWC",
    }


@converter("MAX_POOL_2D")
@in_float32
def max_pool(node: Node) -> RelayExpr:
    made = call("nn.max_pool2d", node[0], **_window(node))
    return activated(node, made) if dtype_of(node[0]) == "float32" else _held(node, made)


def _held(node: Node, made: RelayExpr) -> RelayExpr:
    """Whole numbers between the bounds of the activation, which alone needs their scale."""
    if activation_name(node) == "NONE":
        return made
    return held(node, made, node.result_quantization(), node.result_dtype())


@converter("AVERAGE_POOL_2D")
@in_float32
def average_pool(node: Node) -> RelayExpr:
    window = _window(node)
    if dtype_of(node[0]) == "float32":
        return activated(node, call("nn.avg_pool2d", node[0], count_include_pad=False, **window))
    made = call("nn.avg_pool2d", node[0], count_include_pad=False, rounds=True, **window)
    return _held(node, made)


@converter("L2_POOL_2D")
@in_float32
def l2_pool(node: Node) -> RelayExpr:
    """The root of the mean of squares."""
    squares = call("nn.avg_pool2d", call("multiply", node[0], node[0]), count_include_pad=False,
                   **_window(node))
    return activated(node, call("sqrt", squares))
