"""VGG with 11 to 19 layers: 3x3 convolutions and wide dense layers."""

from typing import Any

from sterna.ir.module import IRModule
from sterna.relay.builders import builder
from sterna.relay.expr import var
from sterna.relay.testing.layers import batch_norm, convolution, dense, relu
from sterna.relay.testing.workload import create_workload
from sterna.runtime import NDArray

# Convolutions of each part, by the number of layers; their channels.
DEPTHS = {
    11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4),
}
CHANNELS = (64, 128, 256, 512, 512)
HIDDEN = 4096


def get_net(
    batch_size: int = 1,
    image_shape: tuple[int, int, int] = (3, 224, 224),
    num_classes: int = 1000,
    dtype: str = "float32",
    num_layers: int = 11,
    batch_norm: bool = False,
) -> Any:
    """The network as an expression of `data` and its weights."""
    if num_layers not in DEPTHS:
        raise ValueError(f"a VGG has {', '.join(map(str, DEPTHS))} layers, not {num_layers}")
    body: Any = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    for part, (count, channels) in enumerate(zip(DEPTHS[num_layers], CHANNELS, strict=True)):
        for place in range(count):
            body = _layer(body, f"conv{part + 1}_{place + 1}", channels, batch_norm)
        body = builder("nn.max_pool2d")(body, pool_size=(2, 2), strides=(2, 2))
    body = builder("nn.batch_flatten")(body)
    for name in ("fc6", "fc7"):
        body = builder("nn.dropout")(relu(dense(body, name, HIDDEN)), rate=0.5)
    return builder("nn.softmax")(dense(body, "fc8", num_classes))


def _layer(data: Any, name: str, channels: int, is_normed: bool) -> Any:
    made = convolution(data, name, channels, 3, bias=True)
    return relu(batch_norm(made, f"{name}_bn") if is_normed else made)


def get_workload(
    batch_size: int = 1, *args: Any, **options: Any
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a module, and its weights; its options are those of get_net."""
    return create_workload(get_net(batch_size, *args, **options))
