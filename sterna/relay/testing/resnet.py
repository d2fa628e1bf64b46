"""Residual networks, with 18 to 152 layers."""

from typing import Any

from sterna.ir.module import IRModule
from sterna.relay.builders import builder
from sterna.relay.expr import RelayExpr, var
from sterna.relay.testing.layers import batch_norm, classifier, convolution, relu
from sterna.relay.testing.workload import create_workload
from sterna.runtime import NDArray

# Blocks per stage, and whether a block is a bottleneck of three convolutions.
STAGES = {
    18: ((2, 2, 2, 2), False), 34: ((3, 4, 6, 3), False), 50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True), 152: ((3, 8, 36, 3), True),
}


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, int, int] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Any:
    """The network as an expression of `data` and its weights."""
    if num_layers not in STAGES:
        known = ", ".join(map(str, STAGES))
        raise ValueError(f"there is no ResNet of {num_layers} layers; there are {known}")
    blocks, bottleneck = STAGES[num_layers]
    channels, height, width = image_shape
    shape = dict(zip("NCHW", (batch_size, channels, height, width), strict=True))
    data: Any = var("data", shape=tuple(shape[axis] for axis in layout), dtype=dtype)
    body = relu(batch_norm(convolution(data, "conv0", 64, 7, 2, layout=layout), "bn0", layout))
    body = builder("nn.max_pool2d")(
        body, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout=layout
    )
    for stage, count in enumerate(blocks):
        for place in range(count):
            stride = 2 if stage and not place else 1
            name = f"stage{stage + 1}_unit{place + 1}"
            make = _bottleneck if bottleneck else _basic
            body = make(body, name, 64 << stage, stride, not place, layout)
    return classifier(body, num_classes, layout)


def _unit(data: RelayExpr, name: str, channels: int, kernel: int, stride: int, layout: str) -> Any:
    made = convolution(data, f"{name}_conv", channels, kernel, stride, layout=layout)
    return batch_norm(made, f"{name}_bn", layout)


def _basic(data: Any, name: str, width: int, stride: int, first: bool, layout: str) -> Any:
    body = relu(_unit(data, f"{name}_1", width, 3, stride, layout))
    body = _unit(body, f"{name}_2", width, 3, 1, layout)
    changes = first and (stride != 1 or width != 64)
    around = _unit(data, f"{name}_sc", width, 1, stride, layout) if changes else data
    return relu(builder("add")(body, around))


def _bottleneck(data: Any, name: str, width: int, stride: int, first: bool, layout: str) -> Any:
    body = relu(_unit(data, f"{name}_1", width, 1, 1, layout))
    body = relu(_unit(body, f"{name}_2", width, 3, stride, layout))
    body = _unit(body, f"{name}_3", 4 * width, 1, 1, layout)
    around = _unit(data, f"{name}_sc", 4 * width, 1, stride, layout) if first else data
    return relu(builder("add")(body, around))


def get_workload(
    batch_size: int = 1, *args: Any, **options: Any
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a module, and its weights; its options are those of get_net."""
    return create_workload(get_net(batch_size, *args, **options))
