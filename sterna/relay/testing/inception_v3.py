"""Inception v3: towers of convolutions of several shapes side by side."""

from typing import Any

from sterna.ir.module import IRModule
from sterna.relay.builders import builder
from sterna.relay.expr import var
from sterna.relay.testing.layers import batch_norm, classifier, relu
from sterna.relay.testing.workload import create_workload
from sterna.runtime import NDArray

# A convolution: its channels, height and width of its kernel, and its stride.
Layer = tuple[int, int, int, int]


def _same(channels: int, high: int, wide: int) -> Layer:
    return channels, high, wide, 1


def _conv(data: Any, name: str, layer: Layer, pad: bool = True) -> Any:
    channels, high, wide, stride = layer
    made = builder("nn.conv2d")(
        data, var(f"{name}_weight"), strides=stride, channels=channels, kernel_size=(high, wide),
        padding=(high // 2, wide // 2) if pad and stride == 1 else (0, 0),
    )
    return relu(batch_norm(made, f"{name}_bn"))


def _tower(data: Any, name: str, *layers: Layer) -> Any:
    for place, layer in enumerate(layers):
        data = _conv(data, f"{name}_{place}", layer)
    return data


def _pooled(data: Any, kind: str) -> Any:
    return builder(f"nn.{kind}_pool2d")(data, pool_size=(3, 3), strides=(1, 1), padding=(1, 1))


def _shrunk(data: Any) -> Any:
    return builder("nn.max_pool2d")(data, pool_size=(3, 3), strides=(2, 2))


def _joined(*parts: Any) -> Any:
    return builder("concatenate")(list(parts), axis=1)


def _block_a(data: Any, name: str, channels: int) -> Any:
    return _joined(
        _tower(data, f"{name}_1x1", (64, 1, 1, 1)),
        _tower(data, f"{name}_5x5", (48, 1, 1, 1), (64, 5, 5, 1)),
        _tower(data, f"{name}_3x3", (64, 1, 1, 1), (96, 3, 3, 1), (96, 3, 3, 1)),
        _tower(_pooled(data, "avg"), f"{name}_pool", (channels, 1, 1, 1)),
    )


def _block_c(data: Any, name: str, narrow: int) -> Any:
    return _joined(
        _tower(data, f"{name}_1x1", (192, 1, 1, 1)),
        _tower(data, f"{name}_7x7", (narrow, 1, 1, 1), (narrow, 1, 7, 1), (192, 7, 1, 1)),
        _tower(data, f"{name}_twice", (narrow, 1, 1, 1), (narrow, 7, 1, 1), (narrow, 1, 7, 1),
               (narrow, 7, 1, 1), (192, 1, 7, 1)),
        _tower(_pooled(data, "avg"), f"{name}_pool", (192, 1, 1, 1)),
    )


def _block_e(data: Any, name: str, pool: str) -> Any:
    three = _tower(data, f"{name}_3x3", (384, 1, 1, 1))
    twice = _tower(data, f"{name}_twice", (448, 1, 1, 1), (384, 3, 3, 1))
    return _joined(
        _tower(data, f"{name}_1x1", (320, 1, 1, 1)),
        _conv(three, f"{name}_3x3_wide", _same(384, 1, 3)),
        _conv(three, f"{name}_3x3_high", _same(384, 3, 1)),
        _conv(twice, f"{name}_twice_wide", _same(384, 1, 3)),
        _conv(twice, f"{name}_twice_high", _same(384, 3, 1)),
        _tower(_pooled(data, pool), f"{name}_pool", (192, 1, 1, 1)),
    )


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, int, int] = (3, 299, 299),
    dtype: str = "float32",
) -> Any:
    """The network as an expression of `data` and its weights."""
    data: Any = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body = _conv(data, "conv", (32, 3, 3, 2))
    body = _conv(body, "conv_1", (32, 3, 3, 1), pad=False)
    body = _shrunk(_conv(body, "conv_2", (64, 3, 3, 1)))
    body = _conv(body, "conv_3", (80, 1, 1, 1), pad=False)
    body = _shrunk(_conv(body, "conv_4", (192, 3, 3, 1), pad=False))
    for name, channels in (("mixed", 32), ("mixed_1", 64), ("mixed_2", 64)):
        body = _block_a(body, name, channels)
    body = _joined(
        _tower(body, "mixed_3_3x3", (384, 3, 3, 2)),
        _tower(body, "mixed_3_twice", (64, 1, 1, 1), (96, 3, 3, 1), (96, 3, 3, 2)),
        _shrunk(body),
    )
    for name, narrow in (("mixed_4", 128), ("mixed_5", 160), ("mixed_6", 160), ("mixed_7", 192)):
        body = _block_c(body, name, narrow)
    body = _joined(
        _tower(body, "mixed_8_3x3", (192, 1, 1, 1), (320, 3, 3, 2)),
        _tower(body, "mixed_8_7x7", (192, 1, 1, 1), (192, 1, 7, 1), (192, 7, 1, 1),
               (192, 3, 3, 2)),
        _shrunk(body),
    )
    body = _block_e(_block_e(body, "mixed_9", "avg"), "mixed_10", "max")
    return classifier(body, num_classes)


def get_workload(
    batch_size: int = 1, *args: Any, **options: Any
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a module, and its weights; its options are those of get_net."""
    return create_workload(get_net(batch_size, *args, **options))
