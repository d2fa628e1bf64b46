"""Depthwise layers with their rescaling by four channels of a vector: exact on any compiler."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import micro, relay
from sterna.micro.example import run_example
from sterna.relay.arrays import Array
from tests.micro.networks import build
from tests.schedule.byte_layers import extremes
from tests.schedule.implemented import implement, run_built
from tests.schedule.test_across import M55
from tests.schedule.test_rescaled_pixels import rounded_twice
from tests.support import require_module, require_program

Layer = tuple[Any, Array, Array]


def layer(
    image: tuple[int, ...], window: tuple[int, int], strides: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0), dilation: tuple[int, int] = (1, 1),
    power: int = -9, name: str = "x",
) -> Layer:
    """A depthwise layer of bytes, what it reads, and what NumPy says."""
    channels = image[-1]
    rng = np.random.default_rng(sum(image) + sum(window))
    x, w = extremes(rng, image, "int8"), extremes(rng, (*window, channels, 1), "int8")
    start, zero = rng.integers(-9000, 9000, channels).astype("int32"), int(rng.integers(-128, 128))
    multiplier = rng.integers(1 << 30, (1 << 31) - 1, channels)
    powers = power - rng.integers(0, 3, channels)
    made = relay.nn.conv2d(
        relay.var(name, shape=x.shape, dtype="int8"), relay.const(w), kernel_size=window,
        channels=channels, groups=channels, strides=strides, padding=padding, dilation=dilation,
        data_layout="NHWC", kernel_layout="HWOI", out_dtype="int32")
    made = relay.qnn.rescale(
        relay.add(made, relay.const(start)), relay.const(multiplier.astype("int32")),
        relay.const(powers.astype("int32")), relay.const(0), relay.const(zero),
        rounding="TWICE", is_normal=True, axis=3,
    )
    top, left, bottom, right = padding
    padded = np.pad(x.astype(np.int64), [(0, 0), (top, bottom), (left, right), (0, 0)])
    reach = [(k - 1) * apart + 1 for k, apart in zip(window, dilation, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(padded, reach, (1, 2))
    seen = seen[:, :: strides[0], :: strides[1], :, :: dilation[0], :: dilation[1]]
    sums = np.einsum("nyxcij,ijc->nyxc", seen, w[..., 0].astype(np.int64)) + start
    each = [rounded_twice(sums[..., n], int(multiplier[n]), int(powers[n]), zero)
            for n in range(channels)]
    return made, x, np.stack(each, -1).astype("int8")


LAYERS: list[dict[str, Any]] = [
    {"image": (1, 12, 12, 8), "window": (3, 3), "padding": (1, 1, 1, 1)},
    {"image": (1, 6, 6, 12), "window": (3, 3), "strides": (2, 2), "padding": (0, 0, 1, 1)},
    {"image": (2, 3, 3, 16), "window": (3, 3), "padding": (1, 1, 1, 1), "power": -27},
    {"image": (1, 1, 30, 40), "window": (1, 3)},
    {"image": (1, 1, 5, 32), "window": (1, 5)},  # as large as the image
    {"image": (2, 4, 3, 8), "window": (4, 3), "power": -27},
    {"image": (2, 7, 1, 12), "window": (7, 1)},  # which are no eights
    {"image": (1, 9, 12, 16), "window": (2, 3), "dilation": (3, 2), "padding": (3, 2, 0, 2)},
    {"image": (1, 8, 15, 4), "window": (5, 4), "strides": (1, 2), "padding": (2, 1, 2, 2)},
]


@pytest.mark.parametrize("given", LAYERS)
def test_layers_are_exact(given: dict[str, Any]) -> None:
    made, x, want = layer(**given)
    mod = implement(made, M55, target="c")
    assert "qnn.rescaled_quads" in mod.astext() and "qnn.rescale(" not in mod.astext()
    np.testing.assert_array_equal(run_built(relay.build(mod, target="c"), x=x), want)


@pytest.mark.parametrize("toolchain", ["gcc", "zig"])
def test_instructions_are_exact(toolchain: str, tmp_path: Path) -> None:
    require_program("qemu-system-arm")
    if toolchain == "gcc":
        require_program("arm-none-eabi-gcc")
    else:
        require_module("ziglang")
    made = [layer(**given, name=f"x{place}") for place, given in enumerate(LAYERS)]
    inputs: dict[str, Any] = {f"x{place}": x for place, (_, x, _) in enumerate(made)}
    np.savez(tmp_path / "inputs.npz", **inputs)
    outputs = relay.Tuple(tuple(one for one, _, _ in made))
    program = build(tvm.IRModule.from_expr(outputs), "c -mcpu=cortex-m55")
    for name in ("sterna_rescaled_quads_3_1_6", "sterna_rescaled_eights"):
        assert name in program.lib.get_source()
    project = micro.generate_project("baremetal", program, tmp_path / "project", {
        "board": "mps3_an547", "project_type": "example_project", "toolchain": toolchain,
        "sample_inputs": tmp_path / "inputs.npz", "warning_as_error": True,
    })
    project.build()
    found = run_example(project).outputs.values()
    project.close()
    for got, (_, _, want) in zip(found, made, strict=True):
        np.testing.assert_array_equal(got, want)


def test_channels_that_do_not_come_by_four() -> None:
    made, x, want = layer((1, 6, 6, 6), (3, 3))
    mod = implement(made, M55, target="c")
    assert "qnn.rescaled_quads" not in mod.astext()
    np.testing.assert_array_equal(run_built(relay.build(mod, target="c"), x=x), want)


@pytest.mark.parametrize(("words", "attrs", "message"), [
    ((2, 21), {}, r"the shape \(2, 22\) for windows of \(3, 3\)"),
    ((2, 22), {"outputs": 3}, "tiles of 3 pixels do not fit"),
    ((2, 22), {"window": (3,)}, "window, strides and dilation are of two axes"),
    ((2, 62), {"window": (7, 7)}, "which they fit into|come by 4"),
    ((2, 22), {"lanes": 3}, "of four or of eight channels, not of 3"),
    ((1, 43), {"lanes": 8, "outputs": 1}, "tiles of 1 pixels do not fit"),
])
def test_records_that_do_not_fit(
    words: tuple[int, int], attrs: dict[str, Any], message: str
) -> None:
    data = relay.var("x", shape=(1, 6, 6, 8), dtype="int8")
    with pytest.raises(Exception, match=message):
        made = relay.qnn.rescaled_quads(data, relay.const(np.zeros(words, "int32")), **attrs)
        tvm.relay.transform.InferType()(tvm.IRModule.from_expr(made))
