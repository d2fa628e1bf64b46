"""Small float networks to be quantised, and samples for them."""

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sterna.relay.arrays import Array


def network(with_norm: bool = True, opset: int = 17) -> ModelProto:
    """Conv, norm, Relu, a residual sum, a pool and a dense layer: (1, 3, 8, 8) to (1, 5)."""
    rng = np.random.default_rng(3)

    def array(name: str, *shape: int, low: float | None = None) -> None:
        value = rng.normal(0, 0.4, shape) if low is None else rng.uniform(low, low + 1, shape)
        arrays.append(numpy_helper.from_array(value.astype("float32"), name))

    arrays: list[TensorProto] = []
    array("w0", 8, 3, 3, 3)
    array("b0", 8)
    for name in ("gamma", "beta", "mean"):
        array(name, 8)
    array("variance", 8, low=0.5)
    array("w1", 8, 8, 3, 3)
    array("w2", 8, 1, 3, 3)
    array("w3", 8 * 16, 5)
    array("b3", 5)
    pads = {"pads": [1, 1, 1, 1]}
    norm = ["c0", "gamma", "beta", "mean", "variance"]
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], "first", **pads),
        helper.make_node("BatchNormalization", norm, ["n0"], "norm") if with_norm else
        helper.make_node("Identity", ["c0"], ["n0"], "norm"),
        helper.make_node("Relu", ["n0"], ["r0"], "relu"),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], "second", **pads),
        helper.make_node("Add", ["c1", "r0"], ["s"], "sum"),
        helper.make_node("Relu", ["s"], ["r1"], "rectified"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "depthwise", group=8, **pads),
        helper.make_node("Clip", ["c2", "zero", "six"], ["r2"], "clip"),
        helper.make_node("MaxPool", ["r2"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], "flat"),
        helper.make_node("MatMul", ["f", "w3"], ["m"], "dense"),
        helper.make_node("Add", ["m", "b3"], ["y"], "bias"),
    ]
    for name, number in (("zero", 0.0), ("six", 6.0)):
        arrays.append(numpy_helper.from_array(np.float32(number), name))
    graph = helper.make_graph(
        nodes, "network", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])], arrays,
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def samples(count: int = 12) -> list[Array]:
    """Inputs of that network."""
    rng = np.random.default_rng(5)
    return [rng.normal(0, 1, (1, 3, 8, 8)).astype("float32") for _ in range(count)]


def dense(kind: int = TensorProto.FLOAT) -> ModelProto:
    """One dense layer: (1, 4) to (1, 3)."""
    rng = np.random.default_rng(1)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    weight = numpy_helper.from_array(rng.normal(0, 1, (4, 3)).astype(dtype), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")], "dense",
        [helper.make_tensor_value_info("x", kind, [1, 4])],
        [helper.make_tensor_value_info("y", kind, [1, 3])], [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
