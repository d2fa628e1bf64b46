"""DenseNet-121 and its kin: every layer reads the results of all before it in its block."""

from typing import Any

from sterna.ir.module import IRModule
from sterna.relay.builders import builder
from sterna.relay.expr import var
from sterna.relay.testing.layers import batch_norm, classifier, convolution, relu
from sterna.relay.testing.workload import create_workload
from sterna.runtime import NDArray

# First channels, channels that a layer adds, and the layers of each block.
SIZES = {
    121: (64, 32, (6, 12, 24, 16)), 161: (96, 48, (6, 12, 36, 24)),
    169: (64, 32, (6, 12, 32, 32)), 201: (64, 32, (6, 12, 48, 32)),
}
WIDE = 4


def get_net(
    densenet_size: int = 121,
    classes: int = 1000,
    batch_size: int = 4,
    image_shape: tuple[int, int, int] = (3, 224, 224),
    dtype: str = "float32",
) -> Any:
    """The network as an expression of `data` and its weights."""
    if densenet_size not in SIZES:
        raise ValueError(f"a DenseNet is {', '.join(map(str, SIZES))}, not {densenet_size}")
    channels, growth, blocks = SIZES[densenet_size]
    data: Any = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body = relu(batch_norm(convolution(data, "conv1", channels, 7, 2), "bn1"))
    body = builder("nn.max_pool2d")(body, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    for number, layers in enumerate(blocks):
        for place in range(layers):
            body = _dense_layer(body, f"block{number}_{place}", growth)
        channels += layers * growth
        if number + 1 < len(blocks):
            channels //= 2
            name = f"transition{number}"
            body = convolution(relu(batch_norm(body, f"{name}_bn")), name, channels, 1)
            body = builder("nn.avg_pool2d")(body, pool_size=(2, 2), strides=(2, 2))
    return classifier(relu(batch_norm(body, "last_bn")), classes)


def _dense_layer(data: Any, name: str, growth: int) -> Any:
    narrow = convolution(relu(batch_norm(data, f"{name}_bn1")), f"{name}_1", WIDE * growth, 1)
    added = convolution(relu(batch_norm(narrow, f"{name}_bn2")), f"{name}_3", growth, 3)
    return builder("concatenate")([data, added], axis=1)


def get_workload(
    densenet_size: int = 121, classes: int = 1000, batch_size: int = 4, *args: Any, **options: Any
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a module, and its weights; its options are those of get_net."""
    return create_workload(get_net(densenet_size, classes, batch_size, *args, **options))
