"""What a model remembers: variables, and layers that keep a state from call to call.

A graph has no memory. A state is an input of the name of its variable and an output behind those of
the model, named like it with ":next": the caller hands the one back as the other.
"""

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of, reshape
from sterna.frontend.tflite.arithmetic import activated
from sterna.frontend.tflite.dynamic_range import as_floats, dense_of_state
from sterna.frontend.tflite.node import Node, converter, single
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented


@converter("VAR_HANDLE")
def var_handle(node: Node) -> RelayExpr:
    """A name for a variable; what stands for it in the graph is never read."""
    node.variables.handles[node.outputs[0]] = node.attr("shared_name") or node.outputs[0]
    return constant(0, "int32")


@converter("READ_VARIABLE")
def read_variable(node: Node) -> RelayExpr:
    info = node.results_as[0]
    return node.variables.read(_name(node), info.shape, info.dtype)


@converter("ASSIGN_VARIABLE")
def assign_variable(node: Node) -> list[RelayExpr]:
    node.variables.assign(_name(node), node[1])
    return []


def _name(node: Node) -> str:
    key = node.operand_info(0).key
    if key not in node.variables.handles:
        raise ValueError(f"'{key}' is no handle of a variable")
    return node.variables.handles[key]


@converter("CALL_ONCE")
def call_once(node: Node) -> list[RelayExpr]:
    """What runs before the first call gives variables their first values, and does nothing else."""
    return []


@converter("SVDF")
def svdf(node: Node) -> RelayExpr:
    """Filters over features of the last calls: the state is what features were, for each filter."""
    rank = int(node.attr("rank"))
    filters, depth = node.shape(1)
    memory = node.shape(2)[1]
    batch = node.shape()[0]
    if rank < 1 or filters % rank:
        raise ValueError(f"its {filters} filters are not of rank {rank}")
    state = reshape(node.variables.held(node, 4), (batch, filters, memory))
    if dtype_of(node[0]) == "float32":
        moved = _moved(state, dense_of_state(node, node[0], 1))
        made = _filtered(moved, as_floats(node, 2), (batch, filters // rank, rank), node.get(3))
        node.variables.assign_held(node, 4, reshape(moved, (batch, filters * memory)))
        return activated(node, made)
    if node.dtype() != "int8" or depth != node.shape()[1]:
        raise OpNotImplemented(f"{node.dtype()}")
    return _svdf_of_bytes(node, state, (batch, filters // rank, rank))


def _moved(state: RelayExpr, feature: RelayExpr) -> RelayExpr:
    """The state without what is oldest and with what is new."""
    kind = state.checked_type
    batch, filters, memory = kind.concrete_shape  # type: ignore[attr-defined]
    kept = call("strided_slice", state, (0, 0, 1), (batch, filters, memory))
    return call("concatenate", [kept, reshape(feature, (batch, filters, 1))], axis=2)


def _filtered(
    state: RelayExpr, weight: RelayExpr, shape: tuple[int, int, int], bias: RelayExpr | None
) -> RelayExpr:
    """Sums over the last calls, then over the filters of a unit."""
    products = call("sum", call("multiply", state, weight), axis=2)
    units = call("sum", reshape(products, shape), axis=2)
    return units if bias is None else call("add", units, bias)


def _svdf_of_bytes(node: Node, state: RelayExpr, shape: tuple[int, int, int]) -> RelayExpr:
    scale, zero = single(node.quantization(0), "its data")
    feature_scale, _ = single(node.quantization(1), "its weights")
    time_scale, _ = single(node.quantization(2), "its weights")
    state_scale, state_zero = single(node.quantization(4), "its state")
    out_scale, out_zero = single(node.result_quantization(), "the result")
    one = constant(1, "float32")
    sums = call("qnn.dense", node[0], node[1], constant(zero, "int32"), constant(0, "int32"),
                one, one, units=node.shape(1)[0])
    feature = _twice(sums, float(scale) * float(feature_scale) / float(state_scale), state_zero,
                     node.dtype(4))
    moved = _moved(state, feature)
    difference = call("subtract", cast(moved, "int32"), constant(state_zero, "int32"))
    made = _filtered(difference, cast(node[2], "int32"), shape, node.get(3))
    batch, filters, memory = (int(x) for x in moved.checked_type.concrete_shape)  # type: ignore
    node.variables.assign_held(node, 4, reshape(moved, (batch, filters * memory)))
    return _twice(made, float(state_scale) * float(time_scale) / float(out_scale), out_zero,
                  node.result_dtype())


def _twice(sums: RelayExpr, ratio: float, zero: int, dtype: str) -> RelayExpr:
    return call("qnn.requantize", sums, constant(np.float64(ratio)), constant(0, "int32"),
                constant(1, "float64"), constant(zero, "int32"), rounding="TWICE",
                out_dtype=dtype)
