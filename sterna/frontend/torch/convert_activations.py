"""Activations and softmax."""

from sterna.frontend.calls import call, cast, constant, dtype_of, like, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.convert_elementwise import clamp
from sterna.frontend.torch.convert_shape import axis_of, extent_of, shape_of, slice_
from sterna.frontend.torch.promotion import as_float, in_float32, is_float
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented

_PLAIN = {
    "silu": "nn.swish", "mish": "nn.mish", "hardswish": "nn.hard_swish",
    "softsign": "nn.softsign", "selu": "nn.selu",
}


def _plain(name: str, operator: str) -> None:
    def convert(x: RelayExpr) -> RelayExpr:
        return call(operator, x)

    aten(name)(in_float32(convert))


for _name, _operator in _PLAIN.items():
    _plain(_name, _operator)


@aten("relu")
def relu(x: RelayExpr) -> RelayExpr:
    return call("nn.relu", x)


@aten("relu6")
def relu6(x: RelayExpr) -> RelayExpr:
    return call("clip", x, 0.0, 6.0)


@aten("hardtanh")
def hardtanh(x: RelayExpr, min_val: float = -1, max_val: float = 1) -> RelayExpr:
    if not is_float(x):
        min_val, max_val = int(min_val), int(max_val)
    return clamp(x, min_val, max_val)


@aten("hardsigmoid")
def hardsigmoid(x: RelayExpr) -> RelayExpr:
    return call("nn.hard_sigmoid", x, alpha=1 / 6, beta=0.5)


@aten("gelu")
def gelu(x: RelayExpr, approximate: str = "none") -> RelayExpr:
    return call("nn.gelu", x, approximate=approximate)


@aten("leaky_relu")
def leaky_relu(x: RelayExpr, negative_slope: float = 0.01) -> RelayExpr:
    below = call("multiply", x, like(negative_slope, x))
    return call("where", call("greater", x, like(0, x)), x, below)


@aten("rrelu", "rrelu_with_noise")
def rrelu(
    x: RelayExpr, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
) -> RelayExpr:
    if training:
        raise OpNotImplemented("random slopes; call eval() of the model before it is exported")
    return leaky_relu(x, (lower + upper) / 2)


@aten("rrelu_with_noise_functional")
def rrelu_with_noise(
    x: RelayExpr, noise: RelayExpr, lower: float = 1 / 8, upper: float = 1 / 3,
    training: bool = False,
) -> list[RelayExpr]:
    return [rrelu(x, lower, upper, training), noise]


@aten("rrelu_with_noise_backward")
def rrelu_backward(
    grad_output: RelayExpr, x: RelayExpr, noise: RelayExpr, lower: float, upper: float,
    training: bool, self_is_result: bool = False,
) -> RelayExpr:
    if training and upper - lower > 1e-6:
        return call("multiply", grad_output, noise)
    below = call("multiply", grad_output, like((lower + upper) / 2, x))
    return call("where", call("greater", x, like(0, x)), grad_output, below)


@aten("prelu", "_prelu_kernel")
def prelu(x: RelayExpr, weight: RelayExpr) -> RelayExpr:
    slope = weight
    if rank_of(weight) < 2:
        count = shape_of(weight)[0] if rank_of(weight) else 1
        at = 1 if rank_of(x) > 1 else 0
        shape = [count if axis == at else 1 for axis in range(rank_of(x))]
        slope = reshaped(weight, shape)
    return call("where", call("greater", x, like(0, x)), x, call("multiply", x, slope))


@aten("elu")
def elu(
    x: RelayExpr, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> RelayExpr:
    scaled = x if input_scale == 1 else call("multiply", x, like(input_scale, x))
    below = call("multiply", call("expm1", scaled), like(alpha, x))
    made = call("where", call("greater", x, like(0, x)), x, below)
    return made if scale == 1 else call("multiply", made, like(scale, made))


@aten("celu")
def celu(x: RelayExpr, alpha: float = 1.0) -> RelayExpr:
    return elu(x, alpha, 1, 1 / alpha)


@aten("softplus")
def softplus(x: RelayExpr, beta: float = 1, threshold: float = 20) -> RelayExpr:
    scaled = call("multiply", x, like(beta, x))
    soft = call("divide", call("log1p", call("exp", scaled)), like(beta, x))
    return call("where", call("greater", scaled, like(threshold, x)), x, soft)


@aten("threshold")
def threshold(x: RelayExpr, threshold: float, value: float) -> RelayExpr:
    return call("where", call("less_equal", x, like(threshold, x)), like(value, x), x)


@aten("hardshrink")
def hardshrink(x: RelayExpr, lambd: float = 0.5) -> RelayExpr:
    near = call("less_equal", call("abs", x), like(lambd, x))
    return call("where", near, like(0, x), x)


@aten("softshrink")
def softshrink(x: RelayExpr, lambd: float = 0.5) -> RelayExpr:
    over = call("subtract", x, like(lambd, x))
    under = call("add", x, like(lambd, x))
    low = call("where", call("less", x, like(-lambd, x)), under, call("multiply", x, like(0, x)))
    return call("where", call("greater", x, like(lambd, x)), over, low)


@aten("glu")
def glu(x: RelayExpr, dim: int = -1) -> RelayExpr:
    at = axis_of(dim, rank_of(x))
    half = extent_of(x, at) // 2
    gate = call("sigmoid", slice_(x, at, half, 2 * half))
    return call("multiply", slice_(x, at, 0, half), gate)


@aten("softmax", "_softmax", "special_softmax")
def softmax(
    x: RelayExpr, dim: int, dtype: str | None = None, half_to_float: bool = False
) -> RelayExpr:
    return _normalised("nn.softmax", x, dim, dtype)


@aten("log_softmax", "_log_softmax", "special_log_softmax")
def log_softmax(
    x: RelayExpr, dim: int, dtype: str | None = None, half_to_float: bool = False
) -> RelayExpr:
    return _normalised("nn.log_softmax", x, dim, dtype)


def _normalised(operator: str, x: RelayExpr, dim: int, dtype: str | None) -> RelayExpr:
    data = cast(x, dtype) if dtype else as_float(x)
    if not rank_of(data):
        return constant(1.0 if operator == "nn.softmax" else 0.0, dtype_of(data))
    return call(operator, data, axis=axis_of(dim, rank_of(data)))
