"""Operators that work on every element by itself."""

from functools import reduce
from typing import Any

import numpy as np

from sterna.frontend.calls import (
    axis_below,
    call,
    cast,
    constant,
    dtype_of,
    like,
    rank_of,
    reshape,
    size_of,
    type_of,
)
from sterna.frontend.onnx import tensors
from sterna.frontend.onnx.checks import not_zero
from sterna.frontend.onnx.node import Node, converter
from sterna.relay.expr import RelayExpr
from sterna.support.dtype import DataType

_UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh",
    "Atan": "atan", "Atanh": "atanh", "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos",
    "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor", "HardSwish": "nn.hard_swish",
    "IsNaN": "isnan", "Log": "log", "Mish": "nn.mish", "Neg": "negative", "Not": "logical_not",
    "Relu": "nn.relu", "Round": "round_even", "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin",
    "Sinh": "sinh", "Softplus": "nn.softplus", "Softsign": "nn.softsign", "Sqrt": "sqrt",
    "Tan": "tan", "Tanh": "tanh",
}

_BINARY = {
    "Add": "add", "And": "logical_and", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor", "Equal": "equal", "Greater": "greater",
    "GreaterOrEqual": "greater_equal", "Less": "less", "LessOrEqual": "less_equal",
    "Mul": "multiply", "Or": "logical_or", "Sub": "subtract", "Xor": "logical_xor",
}


def is_float(expr: RelayExpr) -> bool:
    """Whether the elements are floats."""
    return DataType(dtype_of(expr)).kind not in ("int", "uint", "bool")


@converter(*_UNARY)
def unary(node: Node) -> RelayExpr:
    return call(_UNARY[node.kind], node[0])


@converter("Identity")
def identity(node: Node) -> RelayExpr:
    return node[0]


@converter("Reciprocal")
def reciprocal(node: Node) -> RelayExpr:
    return call("divide", like(1, node[0]), node[0])


def pair(node: Node, second: RelayExpr | None = None) -> tuple[RelayExpr, RelayExpr]:
    """Two operands; before version 7 the second one's dimensions may begin at an axis."""
    first, second = node[0], node[1] if second is None else second
    axis = node.attr("axis")
    if node.opset < 7 and axis is not None and node.attr("broadcast"):
        behind = rank_of(first) - axis_below(axis, rank_of(first)) - rank_of(second)
        second = reshape(second, (*node.shape(1), *(1,) * behind))
    return first, second


@converter(*_BINARY)
def binary(node: Node) -> RelayExpr:
    return call(_BINARY[node.kind], *pair(node))


@converter("Div")
def div(node: Node) -> RelayExpr:
    name = "divide" if is_float(node[0]) else "trunc_divide"
    return call(name, *pair(node, not_zero(node, 1)))


@converter("Pow")
def power(node: Node) -> RelayExpr:
    base, exponent = pair(node)
    kind = dtype_of(base)
    if dtype_of(exponent) == kind:
        return call("power", base, exponent)
    if not is_float(base) and is_float(exponent):
        wide = cast(base, "float64")
        return cast(call("power", wide, cast(exponent, "float64")), kind)
    return call("power", base, cast(exponent, kind))


@converter("Mod")
def mod(node: Node) -> RelayExpr:
    name = "trunc_mod" if node.attr("fmod", 0) else "floor_mod"
    return call(name, node[0], not_zero(node, 1))


@converter("BitShift")
def bit_shift(node: Node) -> RelayExpr:
    direction = node.attr("direction")
    if direction not in _SHIFTS:
        raise ValueError(f"direction is LEFT or RIGHT, not {direction}")
    return call(_SHIFTS[direction], node[0], node[1])


_SHIFTS = {"LEFT": "left_shift", "RIGHT": "right_shift"}


_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


@converter(*_VARIADIC)
def variadic(node: Node) -> RelayExpr:
    name = _VARIADIC[node.kind]
    return reduce(lambda a, b: call(name, a, b), node.operands())


@converter("Mean")
def mean(node: Node) -> RelayExpr:
    given = node.operands()
    total = reduce(lambda a, b: call("add", a, b), given)
    return call("divide", total, like(len(given), total))


@converter("Where")
def where(node: Node) -> RelayExpr:
    return call("where", node[0], node[1], node[2])


@converter("IsInf")
def is_inf(node: Node) -> RelayExpr:
    data = node[0]
    found = call("isinf", data)
    if not node.attr("detect_negative", 1):
        found = call("logical_and", found, call("greater", data, like(0, data)))
    if not node.attr("detect_positive", 1):
        found = call("logical_and", found, call("less", data, like(0, data)))
    return found


# ---- conversions ----


def element_type(number: int) -> str:
    """The element type of a number of ONNX."""
    return tensors.element_type(number, "its result")


# ---- bounds ----


@converter("Clip", until=10)
def clip_by_attributes(node: Node) -> RelayExpr:
    return _clip(node[0], node.attr("min"), node.attr("max"))


@converter("Clip", since=11)
def clip(node: Node) -> RelayExpr:
    data = node[0]
    low, high = (node.known(i) if node.has(i) else None for i in (1, 2))
    if all(not node.has(i) or v is not None for i, v in ((1, low), (2, high))):
        return _clip(data, *(None if v is None else v.reshape(()).item() for v in (low, high)))
    if node.has(1):
        data = call("maximum", data, node[1])
    return call("minimum", data, node[2]) if node.has(2) else data


def _clip(data: RelayExpr, low: Any, high: Any) -> RelayExpr:
    if low is not None and high is not None and is_float(data) and low <= high:
        return call("clip", data, float(low), float(high))
    if low is not None:
        data = call("maximum", data, like(low, data))
    return data if high is None else call("minimum", data, like(high, data))


# ---- activations with parameters ----


@converter("LeakyRelu")
def leaky_relu(node: Node) -> RelayExpr:
    return call("nn.leaky_relu", node[0], alpha=node.attr("alpha", 0.01))


@converter("Elu")
def elu(node: Node) -> RelayExpr:
    return call("nn.elu", node[0], alpha=node.attr("alpha", 1.0))


@converter("Celu")
def celu(node: Node) -> RelayExpr:
    return call("nn.celu", node[0], alpha=node.attr("alpha", 1.0))


@converter("Selu")
def selu(node: Node) -> RelayExpr:
    alpha = node.attr("alpha", 1.6732631921768188)
    return call("nn.selu", node[0], alpha=alpha, gamma=node.attr("gamma", 1.0507010221481323))


@converter("HardSigmoid")
def hard_sigmoid(node: Node) -> RelayExpr:
    alpha, beta = node.attr("alpha", 0.2), node.attr("beta", 0.5)
    return call("nn.hard_sigmoid", node[0], alpha=alpha, beta=beta)


@converter("ThresholdedRelu")
def thresholded_relu(node: Node) -> RelayExpr:
    return call("nn.thresholded_relu", node[0], alpha=node.attr("alpha", 1.0))


@converter("Gelu")
def gelu(node: Node) -> RelayExpr:
    return call("nn.gelu", node[0], approximate=node.attr("approximate", "none"))


@converter("Swish")
def swish(node: Node) -> RelayExpr:
    return call("nn.swish", node[0], beta=node.attr("alpha", 1.0))


@converter("Shrink")
def shrink(node: Node) -> RelayExpr:
    """x below -lambd grows by bias, x above lambd shrinks by it, all else is 0."""
    data, bias, lambd = node[0], node.attr("bias", 0.0), node.attr("lambd", 0.5)
    above = call("where", call("greater", data, like(lambd, data)),
                 call("subtract", data, like(bias, data)), like(0, data))
    below = call("less", data, like(-lambd, data))
    return call("where", below, call("add", data, like(bias, data)), above)


@converter("PRelu")
def prelu(node: Node) -> RelayExpr:
    data, slope = node[0], node[1]
    shape = type_of(slope).shape
    lines = [i for i, extent in enumerate(shape) if extent != 1]
    behind = len(shape) - rank_of(data)
    is_float = type_of(data).dtype.is_float
    if is_float and len(lines) == 1 and lines[0] - behind == 1 and slope is not data:
        return call("nn.prelu", data, reshape(slope, (-1,)), axis=1)
    scaled = call("multiply", data, slope)
    return call("where", call("less", data, like(0, data)), scaled, data)


# ---- constants ----


@converter("Constant")
def known_tensor(node: Node) -> RelayExpr:
    for name in ("value", "sparse_value"):
        if name in node.attrs:
            return constant(node.attrs[name])
    for name, dtype in (("value_float", "float32"), ("value_floats", "float32"),
                        ("value_int", "int64"), ("value_ints", "int64")):
        if name in node.attrs:
            return constant(np.asarray(node.attrs[name], dtype))
    raise ValueError("a constant of numbers has (sparse_)value, value_float(s) or value_int(s)")


@converter("EyeLike")
def eye_like(node: Node) -> RelayExpr:
    number = node.attr("dtype")
    dtype = dtype_of(node[0]) if number is None else element_type(number)
    k, (rows, columns) = node.attr("k", 0), node.dims()
    if type(rows) is int and type(columns) is int:  # the next diagonals outside have no elements
        k = min(max(k, -rows), columns)
    return call("eye_like", node[0], k=k, dtype=dtype)


@converter("ConstantOfShape")
def constant_of_shape(node: Node) -> RelayExpr:
    value = node.attr("value")
    number = np.zeros(1, "float32") if value is None else value
    fill = constant(number.reshape(()))
    shape = node.static(0)
    size = size_of(shape) if isinstance(shape, tuple) else None
    if isinstance(size, int) and size <= 1 << 16:
        return constant(np.full(shape, number.reshape(())))
    return call("full", fill, shape, dtype=dtype_of(fill))
