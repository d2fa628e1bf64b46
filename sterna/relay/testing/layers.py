"""Layers of which the networks are made; weights are variables named after the layer."""

from typing import Any

from sterna.relay.builders import builder
from sterna.relay.expr import RelayExpr, var


def convolution(
    data: RelayExpr,
    name: str,
    channels: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    bias: bool = False,
    layout: str = "NCHW",
) -> Any:
    """A convolution that keeps the picture's size at stride 1."""
    made = builder("nn.conv2d")(
        data,
        var(f"{name}_weight"),
        strides=stride,
        padding=kernel // 2,
        groups=groups,
        channels=channels,
        kernel_size=kernel,
        data_layout=layout,
        kernel_layout="OIHW" if layout == "NCHW" else "HWIO" if groups == 1 else "HWOI",
    )
    if bias:
        made = builder("nn.bias_add")(made, var(f"{name}_bias"), axis=_channels(layout))
    return made


def batch_norm(data: RelayExpr, name: str, layout: str = "NCHW") -> Any:
    """A norm by statistics that are parameters."""
    weights = [var(f"{name}_{part}") for part in ("gamma", "beta", "moving_mean", "moving_var")]
    return builder("nn.batch_norm")(data, *weights, axis=_channels(layout), epsilon=1e-5)[0]


def relu(data: RelayExpr) -> Any:
    """max(x, 0)"""
    return builder("nn.relu")(data)


def relu6(data: RelayExpr) -> Any:
    """min(max(x, 0), 6)"""
    return builder("clip")(data, 0.0, 6.0)


def dense(data: RelayExpr, name: str, units: int) -> Any:
    """A dense layer with bias."""
    made = builder("nn.dense")(data, var(f"{name}_weight"), units=units)
    return builder("nn.bias_add")(made, var(f"{name}_bias"), axis=-1)


def classifier(data: RelayExpr, units: int, layout: str = "NCHW") -> Any:
    """The mean over the picture, a dense layer, and probabilities."""
    mean = builder("nn.global_avg_pool2d")(data, layout=layout)
    return builder("nn.softmax")(dense(builder("nn.batch_flatten")(mean), "fc", units))


def _channels(layout: str) -> int:
    return layout.index("C")
