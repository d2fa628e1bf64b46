"""Steps of training: weights moved by their gradients."""

from collections.abc import Callable

from sterna.frontend.calls import call, cast, dtype_of, like
from sterna.frontend.onnx.node import Node, converter
from sterna.relay.expr import RelayExpr

TRAINING = "ai.onnx.preview.training"

Step = Callable[..., list[RelayExpr]]


def _scaled(data: RelayExpr, factor: float) -> RelayExpr:
    return call("multiply", data, like(factor, data))


def _regularised(node: Node, weight: RelayExpr, gradient: RelayExpr) -> RelayExpr:
    norm = node.attr("norm_coefficient", 0.0)
    return call("add", _scaled(weight, norm), gradient) if norm else gradient


def _steps(node: Node, states: int, step: Step) -> list[RelayExpr]:
    """Operands are the rate, the count of steps, all weights, all gradients, then all states."""
    many = (len(node.inputs) - 2) // (2 + states)
    if many < 1 or len(node.inputs) != 2 + many * (2 + states):
        raise ValueError(
            f"its operands are a rate, a count and {2 + states} tensors for each weight, not "
            f"{len(node.inputs)} in all"
        )
    made = []
    for i in range(many):
        own = [node[2 + part * many + i] for part in range(2 + states)]
        made.append(step(node, cast(node[0], dtype_of(own[0])), node[1], *own))
    return [results[part] for part in range(1 + states) for results in made]


@converter("Adagrad", domain=TRAINING)
def adagrad(node: Node) -> list[RelayExpr]:
    return _steps(node, 1, _adagrad)


def _adagrad(
    node: Node, rate: RelayExpr, count: RelayExpr, weight: RelayExpr, gradient: RelayExpr,
    squares: RelayExpr,
) -> list[RelayExpr]:
    time = cast(count, dtype_of(weight))
    decay = call("add", _scaled(time, node.attr("decay_factor", 0.0)), like(1, time))
    slope = _regularised(node, weight, gradient)
    total = call("add", squares, call("multiply", slope, slope))
    root = call("add", call("sqrt", total), like(node.attr("epsilon", 0.0), total))
    moved = call("divide", call("multiply", call("divide", rate, decay), slope), root)
    return [call("subtract", weight, moved), total]


@converter("Adam", domain=TRAINING)
def adam(node: Node) -> list[RelayExpr]:
    return _steps(node, 2, _adam)


def _adam(
    node: Node, rate: RelayExpr, count: RelayExpr, weight: RelayExpr, gradient: RelayExpr,
    momentum: RelayExpr, squares: RelayExpr,
) -> list[RelayExpr]:
    alpha, beta = node.attr("alpha", 0.9), node.attr("beta", 0.999)
    slope = _regularised(node, weight, gradient)
    mean = call("add", _scaled(momentum, alpha), _scaled(slope, 1 - alpha))
    square = call("multiply", slope, slope)
    spread = call("add", _scaled(squares, beta), _scaled(square, 1 - beta))
    root = call("add", call("sqrt", spread), like(node.attr("epsilon", 0.0), spread))
    time = cast(count, dtype_of(weight))

    def rest(factor: float) -> RelayExpr:
        """What the first steps lack of their mean."""
        return call("subtract", like(1, time), call("power", like(factor, time), time))

    corrected = call("divide", call("multiply", rate, call("sqrt", rest(beta))), rest(alpha))
    own = call("where", call("greater", time, like(0, time)), corrected, rate)
    moved = call("subtract", weight, call("multiply", own, call("divide", mean, root)))
    after = node.attr("norm_coefficient_post", 0.0)
    return [_scaled(moved, 1 - after) if after else moved, mean, spread]


@converter("Momentum", domain=TRAINING)
def momentum(node: Node) -> list[RelayExpr]:
    mode = node.attr("mode", "standard")
    if mode not in ("standard", "nesterov"):
        raise ValueError(f"mode is standard or nesterov, not {mode}")
    return _steps(node, 1, _momentum)


def _momentum(
    node: Node, rate: RelayExpr, count: RelayExpr, weight: RelayExpr, gradient: RelayExpr,
    speed: RelayExpr,
) -> list[RelayExpr]:
    alpha, beta = node.attr("alpha"), node.attr("beta")
    slope = _regularised(node, weight, gradient)
    begun = call("greater", count, like(0, count))
    factor = call("where", begun, like(beta, slope), like(1, slope))
    now = call("add", _scaled(speed, alpha), call("multiply", factor, slope))
    step = now
    if node.attr("mode", "standard") == "nesterov":
        step = call("add", slope, _scaled(now, alpha))
    return [call("subtract", weight, call("multiply", rate, step)), now]
