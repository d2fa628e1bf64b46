"""SqueezeNet 1.0 and 1.1: small convolutions whose results are joined."""

from typing import Any

from sterna.ir.module import IRModule
from sterna.relay.builders import builder
from sterna.relay.expr import var
from sterna.relay.testing.layers import convolution, relu
from sterna.relay.testing.workload import create_workload
from sterna.runtime import NDArray

# Channels of the narrow and the wide convolutions; None for a pool.
_FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
# Channels and kernel of the first convolution, and what follows it.
VERSIONS = {
    "1.0": (96, 7, (*_FIRES[:3], None, *_FIRES[3:7], None, _FIRES[7])),
    "1.1": (64, 3, (*_FIRES[:2], None, *_FIRES[2:4], None, *_FIRES[4:])),
}


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    version: str = "1.1",
    image_shape: tuple[int, int, int] = (3, 224, 224),
    dtype: str = "float32",
) -> Any:
    """The network as an expression of `data` and its weights; version is "1.0" or "1.1"."""
    if version not in VERSIONS:
        raise ValueError(f"there is no SqueezeNet {version!r}; there are {', '.join(VERSIONS)}")
    channels, kernel, parts = VERSIONS[version]
    data: Any = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body = _pool(relu(convolution(data, "conv1", channels, kernel, 2, bias=True)))
    for place, part in enumerate(parts):
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
