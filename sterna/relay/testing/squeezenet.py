"""SqueezeNet 1.1: small convolutions whose results are joined."""

from typing import Any

from sterna.ir.module import IRModule
from sterna.relay.builders import builder
from sterna.relay.expr import var
from sterna.relay.testing.layers import convolution, relu
from sterna.relay.testing.workload import create_workload
from sterna.runtime import NDArray

# Channels of the narrow and the wide convolutions; None for a pool.
PARTS = ((16, 64), (16, 64), None, (32, 128), (32, 128), None, (48, 192), (48, 192), (64, 256),
         (64, 256))


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, int, int] = (3, 224, 224),
    dtype: str = "float32",
) -> Any:
    """The network as an expression of `data` and its weights."""
    data: Any = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body = _pool(relu(convolution(data, "conv1", 64, 3, 2, bias=True)))
    for place, part in enumerate(PARTS):
        body = _pool(body) if part is None else _fire(body, f"fire{place}", *part)
    body = relu(convolution(body, "last", num_classes, 1, bias=True))
    mean = builder("nn.global_avg_pool2d")(body)
    return builder("nn.softmax")(builder("nn.batch_flatten")(mean))


def _pool(data: Any) -> Any:
    return builder("nn.max_pool2d")(data, pool_size=(3, 3), strides=(2, 2), ceil_mode=True)


def _fire(data: Any, name: str, narrow: int, wide: int) -> Any:
    squeezed = relu(convolution(data, f"{name}_squeeze", narrow, 1, bias=True))
    parts = [
        relu(convolution(squeezed, f"{name}_expand{kernel}", wide, kernel, bias=True))
        for kernel in (1, 3)
    ]
    return builder("concatenate")(parts, axis=1)


def get_workload(
    batch_size: int = 1, *args: Any, **options: Any
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a module, and its weights; its options are those of get_net."""
    return create_workload(get_net(batch_size, *args, **options))
