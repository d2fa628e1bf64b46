"""Three dense layers."""

import math
from typing import Any

from sterna.ir.module import IRModule
from sterna.relay.builders import builder
from sterna.relay.expr import var
from sterna.relay.testing.layers import dense, relu
from sterna.relay.testing.workload import create_workload
from sterna.runtime import NDArray


def get_net(
    batch_size: int = 1,
    num_classes: int = 10,
    image_shape: tuple[int, ...] = (1, 28, 28),
    dtype: str = "float32",
) -> Any:
    """The network as an expression of `data` and its weights."""
    data: Any = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body = builder("reshape")(data, (batch_size, math.prod(image_shape)))
    body = relu(dense(body, "fc1", 128))
    body = relu(dense(body, "fc2", 64))
    return builder("nn.softmax")(dense(body, "fc3", num_classes))


def get_workload(
    batch_size: int = 1, *args: Any, **options: Any
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a module, and its weights; its options are those of get_net."""
    return create_workload(get_net(batch_size, *args, **options))
