"""The network that plays Atari games (Nature DQN)."""

from typing import Any

from sterna.ir.module import IRModule
from sterna.relay.builders import builder
from sterna.relay.expr import var
from sterna.relay.testing.layers import dense, relu
from sterna.relay.testing.workload import create_workload
from sterna.runtime import NDArray

# Channels, kernel and stride of each convolution.
CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))


def get_net(
    batch_size: int = 1,
    num_actions: int = 18,
    image_shape: tuple[int, int, int] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Any:
    """The network as an expression of `data` and its weights."""
    body: Any = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    for place, (channels, kernel, stride) in enumerate(CONVOLUTIONS):
        made = builder("nn.conv2d")(
            body, var(f"conv{place}_weight"), strides=stride, channels=channels, kernel_size=kernel,
            data_layout=layout, kernel_layout="OIHW" if layout == "NCHW" else "HWIO",
        )
        axis = layout.index("C")
        body = relu(builder("nn.bias_add")(made, var(f"conv{place}_bias"), axis=axis))
    hidden = relu(dense(builder("nn.batch_flatten")(body), "dense1", 512))
    return dense(hidden, "dense2", num_actions)


def get_workload(
    batch_size: int = 1, *args: Any, **options: Any
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a module, and its weights; its options are those of get_net."""
    return create_workload(get_net(batch_size, *args, **options))
