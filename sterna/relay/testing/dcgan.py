"""The generator of DCGAN: a picture out of random numbers, by transposed convolutions."""

from typing import Any

from sterna.ir.module import IRModule
from sterna.relay.builders import builder
from sterna.relay.expr import var
from sterna.relay.testing.layers import batch_norm, dense, relu
from sterna.relay.testing.workload import create_workload
from sterna.runtime import NDArray

FIRST = 4


def get_net(
    batch_size: int = 1,
    random_len: int = 100,
    oshape: tuple[int, int, int] = (3, 64, 64),
    ngf: int = 128,
    code: Any = None,
    dtype: str = "float32",
) -> Any:
    """The network as an expression of `data` (random numbers, or code) and its weights."""
    channels, high, wide = oshape
    steps = (high // FIRST).bit_length() - 1
    if (high, wide) != (FIRST << steps, FIRST << steps) or steps < 1:
        raise ValueError(f"the picture is square, 4 times a power of two, not {high} x {wide}")
    data: Any = code if code is not None else var("data", shape=(batch_size, random_len),
                                                  dtype=dtype)
    most = ngf << (steps - 1)
    body = dense(data, "project", most * FIRST * FIRST)
    body = relu(builder("reshape")(body, (-1, most, FIRST, FIRST)))
    for step in range(steps - 1):
        body = relu(batch_norm(_larger(body, f"g{step}", most >> (step + 1)), f"g{step}_bn"))
    return builder("tanh")(_larger(body, "last", channels))


def _larger(data: Any, name: str, channels: int) -> Any:
    return builder("nn.conv2d_transpose")(
        data, var(f"{name}_weight"), channels=channels, kernel_size=(4, 4), strides=(2, 2),
        padding=(1, 1),
    )


def get_workload(
    batch_size: int = 1, *args: Any, **options: Any
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a module, and its weights; its options are those of get_net."""
    return create_workload(get_net(batch_size, *args, **options))
