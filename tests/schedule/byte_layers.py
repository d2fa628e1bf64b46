"""What tests of kernels of bytes share: processors, numbers, layers and what NumPy says."""

from typing import Any

import numpy as np

import sterna as tvm
from sterna import relay
from sterna.relay.arrays import Array
from tests.op.emulated import is_here
from tests.schedule.implemented import run_built

SIGNS = [("uint8", "int8"), ("int8", "int8"), ("int8", "uint8"), ("uint8", "uint8")]


def here(names: list[str]) -> list[str]:
    """The targets whose instructions this machine has."""
    return [name for name in names if is_here(name)]


MACHINES = ["llvm -mcpu=native", *here([
    "llvm -mtriple=x86_64-linux-gnu",
    "llvm -mtriple=x86_64-linux-gnu -mattr=+avx2",
    "llvm -mtriple=x86_64-linux-gnu -mattr=+avx512bw,+avx512vl",
    "llvm -mtriple=x86_64-linux-gnu -mattr=+avxvnni",
    "llvm -mtriple=x86_64-linux-gnu -mattr=+avx512vnni,+avx512bw,+avx512vl",
    "llvm -mtriple=aarch64-linux-gnu -mattr=+neon",
    "llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+dotprod",
])]


def extremes(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers all over a type, a third of them its ends."""
    info = np.iinfo(dtype)
    every = rng.integers(info.min, info.max + 1, shape)
    ends = rng.choice([info.min, info.max], shape)
    return np.where(rng.random(shape) < 0.3, ends, every).astype(dtype)


def quantised(kind: str, signs: tuple[str, str], seed: int) -> tuple[Any, dict[str, Array], Array]:
    """A layer as a user writes it, its input, and what NumPy says."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, Any] = {
        "pointwise": ((1, 8, 5, 7), (24, 8, 1, 1), {}),
        "window": ((2, 3, 9, 8), (16, 3, 3, 3), {"strides": (2, 1), "padding": (1, 0, 2, 1)}),
        "depthwise": ((1, 20, 7, 6), (20, 1, 3, 3), {"groups": 20, "padding": 1}),
        "rows": ((2, 32, 5, 101), (32, 1, 3, 3), {"groups": 32, "padding": 1}),
        "steps": ((1, 48, 8, 19), (48, 1, 3, 5),
                  {"groups": 48, "strides": (2, 1), "padding": (0, 2, 1, 2)}),
        "flat": ((1, 16, 6, 5), (16, 1, 4, 1), {"groups": 16, "strides": (1, 2)}),
        "groups": ((1, 8, 6, 6), (16, 4, 3, 3), {"groups": 2, "dilation": 2, "padding": 2}),
        "ragged groups": ((1, 24, 6, 7), (15, 8, 3, 3), {"groups": 3, "padding": 1}),
        "patches": ((1, 3, 20, 24), (16, 3, 5, 4), {"strides": (4, 4), "padding": (1, 0, 2, 3)}),
        "few": ((1, 6, 5, 5), (3, 6, 2, 2), {}),
        "last tile": ((1, 16, 5, 7), (84, 16, 1, 1), {}),
        "odd tile": ((1, 8, 4, 9), (37, 8, 3, 3), {"padding": 1}),
        "deep": ((2, 40, 5, 9), (24, 40, 3, 3), {"strides": (2, 1), "padding": 1}),
        "dense": ((3, 37), (24, 37), {}),
        "row": ((1, 64), (40, 64), {}),
    }
    shape, kernel, attrs = shapes[kind]
    info = np.iinfo(signs[0])
    zero = int(rng.choice([int(info.min), int(info.max), 100]))
    x, w = extremes(rng, shape, signs[0]), extremes(rng, kernel, signs[1])
    weight_zero = 0 if signs[1] == "int8" else 128
    scales = rng.uniform(0.5, 1, kernel[0]).astype("float32") / np.float32(400)
    bias = rng.integers(-9000, 9000, kernel[0]).astype("int32")
    data = relay.var("x", shape=shape, dtype=signs[0])
    one = relay.const(1.0)
    points = relay.const(zero), relay.const(weight_zero), one, one
    if kind in ("dense", "row"):
        made = relay.qnn.dense(data, relay.const(w), *points, units=kernel[0])
        total = (x.astype("int64") - zero) @ (w.astype("int64") - weight_zero).T
        axis = 1
    else:
        made = relay.qnn.conv2d(
            data, relay.const(w), *points, kernel_size=kernel[2:], channels=kernel[0], **attrs
        )
        total = convolved(x.astype("int64") - zero, w.astype("int64") - weight_zero, attrs)
        axis = 1
    made = relay.qnn.requantize(
        relay.nn.bias_add(made, relay.const(bias), axis=axis), relay.const(scales),
        relay.const(0), one, relay.const(zero), axis=axis, rounding="TONEAREST_EVEN",
        compute_dtype="float32", out_dtype=signs[0],
    )
    along = [-1 if place == 1 else 1 for place in range(total.ndim)]
    sums = (total + bias.reshape(along)).astype("float32")
    want = np.clip(np.rint(sums * scales.reshape(along)) + zero, info.min, info.max)
    return made, {"x": x}, want.astype(signs[0])


def convolved(x: Array, w: Array, attrs: dict[str, Any]) -> Array:
    """A convolution by its definition."""
    pad = attrs.get("padding", 0)
    top, left, bottom, right = (pad,) * 4 if isinstance(pad, int) else pad
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    groups, step = attrs.get("groups", 1), attrs.get("dilation", 1)
    down, across = attrs.get("strides", (1, 1))
    outputs, inputs, height, width = w.shape
    rows = (x.shape[2] - (height - 1) * step - 1) // down + 1
    columns = (x.shape[3] - (width - 1) * step - 1) // across + 1
    found = np.zeros((x.shape[0], outputs, rows, columns), "int64")
    for o in range(outputs):
        first = o // (outputs // groups) * inputs
        for i, r, c in np.ndindex(inputs, height, width):
            seen = x[:, first + i, r * step :: down, c * step :: across][:, :rows, :columns]
            found[:, o] += seen * w[o, i, r, c]
    return found


def check(made: Any, feeds: dict[str, Array], want: Array, target: str, level: int) -> None:
    with tvm.transform.PassContext(opt_level=level):
        lib = relay.build(tvm.IRModule.from_expr(made), target=target)
    np.testing.assert_array_equal(run_built(lib, **feeds), want)
