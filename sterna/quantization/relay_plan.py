"""Which tensors of a graph of Relay are quantised: what layers in integers read, and from there
back through operators that have a rule for integers, as far as these reach."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sterna.ir.types import TensorType
from sterna.quantization.config import QConfig
from sterna.relay.expr import Call, Constant, RelayExpr, Tuple
from sterna.relay.op import AnyOp, rules_of
from sterna.relay.traverse import post_order

CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
DENSE = ("nn.dense", "nn.matmul")
SUMS = ("nn.bias_add", "add")
RECTIFIERS = ("nn.relu", "clip")
# Operators whose results have another scale than their operands.
RESCALING = ("add", "multiply", "nn.bias_add", "nn.global_avg_pool1d", "nn.global_avg_pool2d",
             "nn.global_avg_pool3d")


@dataclass(frozen=True, slots=True)
class RelayLayer:
    """A product with constant weights."""

    data: RelayExpr
    weight: Constant


@dataclass(slots=True)
class RelayPlan:
    """The layers and the sums of their biases by identity, and the quantised tensors."""

    layers: dict[int, RelayLayer] = field(default_factory=dict)
    biased: dict[int, RelayLayer] = field(default_factory=dict)
    tensors: dict[int, RelayExpr] = field(default_factory=dict)
    _above: dict[int, int] = field(default_factory=dict)

    def group_of(self, tensor: int) -> int:
        """The tensor that stands for all that share its scale."""
        while self._above.get(tensor, tensor) != tensor:
            tensor = self._above[tensor]
        return tensor

    def tie(self, a: int, b: int) -> None:
        """Let two tensors share a scale."""
        first, second = self.group_of(a), self.group_of(b)
        if first != second:
            self._above[second] = first


def plan_relay(body: RelayExpr, config: QConfig) -> RelayPlan:
    """What is quantised of a graph that has types and constant weights."""
    order = post_order(body)
    plan, convolutions = RelayPlan(), 0
    readers: dict[int, int] = {id(body): 1}
    for expr in order:
        for part in expr.operands():  # type: ignore[attr-defined]
            readers[id(part)] = readers.get(id(part), 0) + 1
        name = _name(expr)
        if name in CONVOLUTIONS:
            skipped = convolutions in (config.skip_conv_layers or ())
            convolutions += 1
        elif name in DENSE:
            skipped = config.skip_dense_layer
        else:
            continue
        if not skipped and _is_enabled(name, config):
            _add_layer(plan, expr)
    _find_biases(plan, order, readers)
    for expr in reversed(order):
        if id(expr) in plan.tensors:
            _carry_back(plan, expr, readers, config)
    return plan


def _name(expr: RelayExpr) -> str:
    record = rules_of(expr)
    return "" if record is None else record.name


def _is_enabled(name: str, config: QConfig) -> bool:
    return config.debug_enabled_ops is None or name in config.debug_enabled_ops


def _add_layer(plan: RelayPlan, expr: RelayExpr) -> None:
    assert isinstance(expr, Call)
    data, weight = expr.args[:2]
    kind = weight.checked_type
    is_float = isinstance(kind, TensorType) and kind.dtype == "float32"
    if isinstance(weight, Constant) and is_float and not isinstance(data, Constant):
        plan.layers[id(expr)] = RelayLayer(data, weight)
        plan.tensors[id(data)] = data


def _find_biases(
    plan: RelayPlan, order: Sequence[RelayExpr], readers: dict[int, int]
) -> None:
    """The sums of layers that nothing else reads, and constants."""
    for expr in order:
        if _name(expr) not in SUMS:
            continue
        assert isinstance(expr, Call)
        constants = [arg for arg in expr.args if isinstance(arg, Constant)]
        layer = next((plan.layers[id(arg)] for arg in expr.args if id(arg) in plan.layers), None)
        if layer is None or len(constants) != 1:
            continue
        other = next(arg for arg in expr.args if arg is not constants[0])
        if readers[id(other)] == 1 and id(other) not in plan.tensors:
            plan.biased[id(expr)] = layer


def _carry_back(
    plan: RelayPlan, expr: RelayExpr, readers: dict[int, int], config: QConfig
) -> None:
    """Want the operands of a quantised tensor in integers, if its operator computes with such."""
    name = _name(expr)
    record: AnyOp | None = rules_of(expr)
    ends = id(expr) in plan.layers or id(expr) in plan.biased
    if record is None or record.integer is None or ends or not _is_enabled(name, config):
        return
    assert isinstance(expr, Call)
    parts = [part for arg in expr.args
             for part in (arg.fields if isinstance(arg, Tuple) else (arg,))]
    if name in (*CONVOLUTIONS, *DENSE) or any(isinstance(part, Constant) for part in parts):
        return
    if name in RECTIFIERS and readers[id(parts[0])] == 1 and _ends_a_sum(plan, parts[0]):
        return
    for part in parts:
        kind = part.checked_type
        if not isinstance(kind, TensorType) or kind.dtype != "float32":
            return
    for part in parts:
        plan.tensors[id(part)] = part
        if name not in RESCALING:
            plan.tie(id(parts[0]), id(part))
    if name not in RESCALING:
        plan.tie(id(parts[0]), id(expr))


def _ends_a_sum(plan: RelayPlan, expr: RelayExpr) -> bool:
    """Whether what stands before a rectifier is rounded behind it, not before."""
    return id(expr) in plan.layers or id(expr) in plan.biased
