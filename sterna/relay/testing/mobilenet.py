"""MobileNetV2: inverted residuals with depthwise convolutions."""

from typing import Any

from sterna.ir.module import IRModule
from sterna.relay.builders import builder
from sterna.relay.expr import var
from sterna.relay.testing.layers import batch_norm, classifier, convolution, relu6
from sterna.relay.testing.workload import create_workload
from sterna.runtime import NDArray

# Expansion, channels, blocks, stride of the first block.
BLOCKS = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, int, int] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Any:
    """The network as an expression of `data` and its weights."""
    shape = dict(zip("NCHW", (batch_size, *image_shape), strict=True))
    data: Any = var("data", shape=tuple(shape[axis] for axis in layout), dtype=dtype)
    body = _unit(data, "stem", 32, 3, 2, 1, layout)
    channels = 32
    for number, (expansion, width, count, stride) in enumerate(BLOCKS):
        for place in range(count):
            name = f"block{number + 1}_{place + 1}"
            step = stride if not place else 1
            body = _inverted(body, name, channels, expansion, width, step, layout)
            channels = width
    return classifier(_unit(body, "last", 1280, 1, 1, 1, layout), num_classes, layout)


def _unit(
    data: Any, name: str, channels: int, kernel: int, stride: int, groups: int, layout: str
) -> Any:
    made = convolution(data, f"{name}_conv", channels, kernel, stride, groups, layout=layout)
    return relu6(batch_norm(made, f"{name}_bn", layout))


def _inverted(
    data: Any, name: str, channels: int, expansion: int, width: int, stride: int, layout: str
) -> Any:
    wide = channels * expansion
    body = _unit(data, f"{name}_expand", wide, 1, 1, 1, layout) if expansion > 1 else data
    body = _unit(body, f"{name}_depth", wide, 3, stride, wide, layout)
    made = convolution(body, f"{name}_project_conv", width, 1, layout=layout)
    body = batch_norm(made, f"{name}_project_bn", layout)
    return builder("add")(body, data) if stride == 1 and channels == width else body


def get_workload(
    batch_size: int = 1, *args: Any, **options: Any
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a module, and its weights; its options are those of get_net."""
    return create_workload(get_net(batch_size, *args, **options))
